"""Text and tokens of backends.

The package renders, detokenizes, stops at text, checks lengths, and holds the state of a row.
"""
