"""Samples of several models.

Families of `tts.search.families`:

- models of several prices
"""
