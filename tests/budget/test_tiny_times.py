"""A limit of seconds may be met at any reading of the clock: every strategy ends there, without an error."""

from __future__ import annotations

from itertools import count

import pytest

import tts
from tests.budget.test_spending import FORMS, NAMES, THINKING, judged
from tests.support.chaos import ChaosBackend
from tests.support.revising import RevisingTask
from tests.support.runs import search_one
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.verifiers.function import FunctionVerifier

MORE = [
    "budget_forcing(thought_tokens=24, waits=3)",
    "budget_forcing(thought_tokens=8, cue='A: ')",
    "mcts(value='rollout')",
]


def check_end(form: str, readings: int, slow: int = 0) -> None:
    """Solve with a clock that moves on by a second at each reading."""
    toy, clock = ToyBackend(ToyLanguage(accuracy=0.7, thoughts=form.split("(", maxsplit=1)[0] in THINKING)), count()
    backend = ChaosBackend(toy, seed=readings, slow=slow) if slow else toy
    search_one(
        "10 - 7 + 5",
        tts.Budget(seconds=readings),
        form,
        backend,
        verifiers=FunctionVerifier(judged),
        clock=lambda: float(next(clock)),
        task=RevisingTask(),
    )


@pytest.mark.parametrize("readings", [1, 4, 9, 16])
@pytest.mark.parametrize("form", [*(FORMS.get(name, name) for name in NAMES), *MORE])
def test_time_that_is_over_at_once_or_soon_is_no_error(form: str, readings: int) -> None:
    check_end(form, readings)


@pytest.mark.slow
@pytest.mark.parametrize("form", [*(FORMS.get(name, name) for name in NAMES), *MORE])
def test_time_that_is_over_at_any_reading_is_no_error(form: str) -> None:
    for readings in range(1, 60):
        check_end(form, readings)
        check_end(form, readings, slow=3)
