"""Samples of whole solutions.

Families of `tts.search.families`:

- samples beside each other
- samples that end early
- solutions that the model verifies
"""
