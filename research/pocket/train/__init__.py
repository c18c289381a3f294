"""Training of the embedded pair, one command a stage.

`python -m research.pocket.train STAGE --out DIR --minutes M --seed S` runs a stage.
"""
