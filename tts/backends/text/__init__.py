"""Text and tokens of backends: rendering, detokenizing, stop texts, lengths, and states of rows."""
