"""Solutions that revise or combine earlier ones.

Families of `tts.search.families`:

- solutions that see earlier ones
"""
