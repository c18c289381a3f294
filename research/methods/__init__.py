"""The comparison of search methods that `python -m research.methods` runs.

plans.py      the methods, and the small grids that their parameters are chosen from
running.py    a study, run in one process or several on one store
choosing.py   difficulty and parameters, on the validation split
measuring.py  results to rows: accuracy, spend, live tokens, differences to the baseline
claims.py     what is claimed of the methods, checked
writing.py    the page and its figures
reasons.py    the same searches on the toy, by how often a verifier errs; what ETS's charge buys
guides.py     verifiers side by side as guides of the same searches
verifiers.py  the command of guides.py, and the time that cheap verifiers take
"""
