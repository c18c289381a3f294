"""Steps that the model itself guides.

Families of `tts.search.families`:

- steps guided by log-probabilities
"""
