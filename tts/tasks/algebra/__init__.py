"""Mathematical answers read and compared.

The module `syntax` reads answers, `values` computes them, and `keys` gives equal answers one text as their key.
"""
