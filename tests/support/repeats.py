"""How often a law of chance is drawn: a few times in `make test`, many times in `make test-slow`."""

from __future__ import annotations

import pytest


def repeats(few: int, many: int, name: str = "runs") -> pytest.MarkDecorator:
    """Run a test that takes the number ``name`` with ``few``, and with ``many`` where slow tests run.

    The test derives its bound from that number, so that the chance of a false alarm is the same with both.
    """
    return pytest.mark.parametrize(name, [few, pytest.param(many, marks=pytest.mark.slow)])
