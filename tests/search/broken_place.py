"""A module that cannot be imported."""

THING = 1 / 0
