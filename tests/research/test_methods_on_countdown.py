"""The exact verifier of countdowns, and its flipped verdicts."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("research.methods", reason="research is no part of the wheel")

from research.methods.countdown import METHODS, Reachable, Row, page
from tts import tasks
from tts.backends.function import FunctionBackend
from tts.budget.budget import Budget
from tts.errors import ConfigError
from tts.search.plan import parse
from tts.solver.solver import Solver
from tts.statistics import Estimate
from tts.tasks.arithmetic.countdown import CountdownProblem, read
from tts.types import Problem

PROBLEM = Problem("Reach 17 with 3 4 5.", task="countdown")
RIGHT, LOST = "3 * 4 = 12\n12 + 5 = 17\nA: 17\n", "3 + 4 = 7\n7 + 5 = 12\nA: 12\n"


def scores(verifier: Reachable, text: str) -> float:
    with Solver(FunctionBackend(lambda asked: text), verifier, task="countdown") as solver:
        end = solver.solve(PROBLEM, Budget(samples=1), strategy="best_of_n(n=1) | best")
    assert end.error is None
    return end.candidates[0].scores["main"]


def test_verdicts_are_exact_and_flipped_as_often_as_they_should() -> None:
    assert scores(Reachable(), RIGHT) == 1.0
    assert scores(Reachable(), LOST) == 0.0
    judged = [Reachable(error=0.3, seed=seed).judged(PROBLEM, _asked(), tasks.get("countdown").split(RIGHT)) for seed in range(400)]
    assert set(np.ravel(judged)) == {0.3, 0.7}
    assert np.mean(np.array(judged) == 0.3) == pytest.approx(0.3, abs=0.05)
    again = Reachable(error=0.3, seed=7).judged(PROBLEM, _asked(), ["3 * 4 = 12\n"])
    assert again == judged[7][:1]
    with pytest.raises(ConfigError, match=r"error is 0\.6, but must be a number between 0 and 0.5"):
        Reachable(error=0.6)


def _asked() -> CountdownProblem:
    found = read(PROBLEM.text)
    assert found is not None
    return found


def test_every_method_is_a_plan_and_every_row_is_on_the_page() -> None:
    assert all(parse(plan).strategy is not None for plan in METHODS.values())
    row = Row("exact", "beam", 124, Estimate(value=0.25, low=0.1, high=0.5, level=0.95, num=4), 120.0, 5e8)
    assert "| exact | beam | 124 | 25.0 [10.0, 50.0] | 120 | 500 |" in page([row], 4, 1)
