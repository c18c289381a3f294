"""Search over solutions: the class `tts.search.search.Search` and what is written against it.

That is strategies, stop rules and selections.
"""
