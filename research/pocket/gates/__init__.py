"""The gates that a pair passes before it ships: `python -m research.pocket.gates` prints each of them, met or missed,
with its interval.

drawing.py     what the pair writes on fresh problems of the test split, and how its process model reads it
gates.py       what is asked of a pair, as functions of that
newcomer.py    `solve` and `solve_many` without options against one sample and a vote, at equal FLOPs
__main__.py    the command
"""
