"""Trees that a verifier of steps guides.

Families of `tts.search.families`:

- trees of steps
"""
