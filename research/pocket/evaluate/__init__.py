"""Evaluation of the embedded pair: `python -m research.pocket.evaluate` prints the tables of its card.

problems.py          fixed sets of problems, drawn from the family's generator, and their pinned checksum
pair.py              the shipped models, or a candidate's folders, as one backend
drawing.py           samples of the policy on these problems, with scores of its verifiers: pools
pools.py             the pools; every table is a pure function of them
accuracy.py, held_out.py, verifying.py, restarting.py, revising.py      pools to tables
intervals.py, tables.py, rendering.py      intervals; tables, and how they are printed
run.py, __main__.py  the whole evaluation in order; the command
"""
