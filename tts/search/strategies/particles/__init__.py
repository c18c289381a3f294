"""Particles that a verifier of steps, or the model itself, weights.

Families of `tts.search.families`:

- samples of a sharpened law
- particles
"""
