"""Mathematical answers read and compared.

The module `syntax` reads them, `values` computes them, and `keys` names equal ones by one text.
"""
