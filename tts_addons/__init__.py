"""Products built on `tts`: each folder has a README. `tts` itself imports none of them."""
