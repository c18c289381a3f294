"""Search over solutions: `tts.search.search.Search`, and the strategies, stop rules and selections that are written
against it.
"""
