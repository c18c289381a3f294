"""Claims about search methods, tested on countdowns with tuned parameters, and why some do not hold.

plans.py            the methods, the grids of their parameters, the verifiers
measuring.py        studies to curves and live tokens; a study that was stopped goes on where it ended
testing.py          estimates with intervals and one-sided p-values; Holm's correction
claims.py           the claims (a) to (g)
page.py             the page
reasons.py          why claims do not hold
self_evaluation.py  the figures of claim (g)
__main__.py         the command
"""
