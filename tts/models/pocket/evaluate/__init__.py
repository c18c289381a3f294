"""What the embedded pair can do, measured: `python -m tts.models.pocket.evaluate` prints the tables of its card.

problems.py      the fixed sets, drawn from the family's generator, and their pinned checksum
pair.py          the shipped models, or a candidate's folders, as one backend
drawing.py       what the policy writes on them, and what its verifiers say of it: pools
pools.py         the pools themselves, which every table is a pure function of
accuracy.py, held_out.py, verifying.py, restarting.py, revising.py      pools to tables
tables.py, rendering.py      tables, and how they are printed
run.py, __main__.py          all of it in order; the command
"""
