"""What is claimed of search methods, tested on countdowns with tuned parameters, and what explains the claims that do
not hold.

plans.py      methods, the grids that their parameters are chosen from on the validation split, verifiers
measuring.py  studies to curves and live tokens; stopped, each goes on where it was
testing.py    estimates with intervals and one-sided p-values; Holm's correction
claims.py     the claims (a) to (g)
page.py       the page
self_evaluation.py  what claim (g) is computed from
__main__.py   the command
"""
