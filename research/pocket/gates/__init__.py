"""The gates that a pair passes before it ships.

`python -m research.pocket.gates` prints each gate, met or missed, with its interval.

drawing.py     samples of the pair on fresh problems of the test split, and readings of its process model
gates.py       the gates, as functions of samples and readings
newcomer.py    `solve` and `solve_many` without options against one sample and a vote, at equal FLOPs
__main__.py    the command
"""
