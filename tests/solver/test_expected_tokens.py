"""What the caller says of the length of solutions: checked at once, used for the first rows, and part of a cell's
key.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

import tts
from tts.models import registry
from tts.solver.solver import Solver


@pytest.mark.parametrize("wrong", [0, -1, math.nan, 3.5, "a", True])
def test_what_is_no_length_is_refused_before_anything_is_spent(wrong: Any) -> None:
    with pytest.raises(tts.ConfigError, match="expected_tokens is "):
        tts.solve("3 + 4", 400, model="toy", expected_tokens=wrong)
    settings: dict[str, Any] = {
        "problems": {"dataset": "arithmetic", "limit": 1},
        "strategies": ["single"],
        "budgets": [100],
    }
    with pytest.raises(tts.ConfigError, match="expected_tokens"):
        tts.Study(name="s", models={"toy": {"model": "toy", "expected_tokens": wrong}}, **settings)


def test_it_sizes_the_first_rows_and_results_do_not_depend_on_it_otherwise() -> None:
    """A strategy that begins several rows begins fewer where solutions are expected to be long; the rows are the
    same.
    """
    first: dict[int, int] = {}
    texts: dict[int, list[str]] = {}
    for expected in (20, 200):
        solution = tts.solve(
            "3 + 4 - 2", 400, model="toy", strategy="beam(n=8) | majority", expected_tokens=expected, verifier="toy"
        )
        first[expected] = next(call.rows for call in solution.trace.calls if call.kind == "expand")
        plain = tts.solve(
            "3 + 4 - 2", 4000, model="toy", strategy="best_of_n(n=6) | majority", expected_tokens=expected
        )
        texts[expected] = [c.trajectory.full_text for c in sorted(plain.candidates, key=lambda c: c.index)]
    assert first[200] < first[20]
    assert texts[20] == texts[200]


def test_a_function_says_it_of_each_of_many_problems() -> None:
    expected = {"3 + 4": 10, "5 - 2": 40, "8 + 1": 160}
    options: dict[str, Any] = {"model": "toy", "verifier": "toy", "strategy": "beam(n=8) | majority"}
    many = tts.solve_many(
        list(expected), each=400, expected_tokens=lambda problem: expected.get(problem.text, 50), **options
    )
    alone = [tts.solve(text, 400, expected_tokens=tokens, **options) for text, tokens in expected.items()]
    rows = [[(call.rows, call.granted) for call in found.trace.calls] for found in (*many, *alone)]
    assert rows[:3] == rows[3:]
    assert len({str(calls) for calls in rows[:3]}) == 3


def test_the_record_of_a_model_may_say_it() -> None:
    record = dataclasses.replace(registry.get("toy"), expected_tokens=123)
    with Solver(record) as solver:
        assert solver.prepare("3 + 4", 100).expected_tokens == 123
    with Solver(record, expected_tokens=50) as solver:
        assert solver.prepare("3 + 4", 100).expected_tokens == 50


def test_it_is_part_of_a_cells_key(tmp_path: Any) -> None:
    settings: dict[str, Any] = {
        "problems": {"dataset": "arithmetic", "limit": 2},
        "strategies": ["single"],
        "budgets": [100],
    }
    of: dict[int | None, str] = {}
    usual = tts.tasks.get("pocket").typical_tokens()  # the task of these problems
    for expected in (None, usual, usual + 1):
        study = tts.Study(name="s", models={"toy": {"model": "toy", "expected_tokens": expected}}, **settings)
        study.run(tmp_path / "store.sqlite", progress=False)
        (row,) = study.rows()
        of[expected] = row.setting
    assert of[None] == of[usual] != of[usual + 1]
