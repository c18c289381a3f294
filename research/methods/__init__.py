"""The comparison of search methods that `research/methods/__main__.py` runs.

plans.py      the methods, and the small grids that their parameters are chosen from
running.py    a study, run in one process or several on one store
choosing.py   difficulty and parameters, on the validation split
measuring.py  results to rows: accuracy, spend, live tokens, differences to the baseline
claims.py     what is claimed of the methods, checked
writing.py    all of it as a page and figures
"""
