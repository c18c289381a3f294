"""Particles that a verifier of steps weights.

Families of `tts.search.families`:

- particles
"""
