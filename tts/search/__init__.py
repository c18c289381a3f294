"""Search over solutions: strategies, stop rules and selections, each a file, written against `tts.search.search.Search`."""
