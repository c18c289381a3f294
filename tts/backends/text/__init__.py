"""Text and tokens: rendering, detokenizing, stopping at text, checks of lengths, and the state of a row."""
