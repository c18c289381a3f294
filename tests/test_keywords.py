"""A wrong option of `tts.solve` and its like gets the nearest right one; a class refuses it as Python does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import tts
from tts.errors import ConfigError

STUDY = {"name": "x", "models": "toy", "problems": {"dataset": "arithmetic"}, "strategies": ["single"], "budgets": [9]}


@pytest.mark.parametrize(
    ("call", "wrong", "near"),
    [
        (lambda **one: tts.solve("3 + 4", 100, model="toy", **one), "stratgy", "strategy"),
        (lambda **one: tts.solve_many(["3 + 4"], 100, model="toy", **one), "verifer", "verifier"),
        (lambda **one: asyncio.run(tts.asolve("3 + 4", 100, model="toy", **one)), "temperatur", "temperature"),
        (lambda **one: tts.Study(**STUDY, **one), "sedes", "seeds"),
        (tts.Budget, "tokns", "tokens"),
    ],
)
def test_a_wrong_option_gets_the_nearest_right_one(call: Callable[..., Any], wrong: str, near: str) -> None:
    with pytest.raises(ConfigError) as refused:
        call(**{wrong: 3})
    assert wrong in refused.value.cause
    assert near in refused.value.hint


@pytest.mark.parametrize("made", [tts.Sampling, tts.BestOfN, tts.Majority, tts.Solver])
def test_a_class_refuses_an_argument_that_it_does_not_have(made: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="widht"):
        made(widht=3)
