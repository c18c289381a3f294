"""Mathematical answers read and compared: `syntax` reads them, `values` computes them, `keys` names equal ones by one
text.
"""
