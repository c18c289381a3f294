"""Recorded samples are exported, and come back with the same figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tts
from tests.experiments.pools import live
from tts.errors import ConfigError
from tts.experiments.analysis.pools import pools_of
from tts.experiments.analysis.replay import ReplayedCurve, replay
from tts.experiments.api import Study
from tts.experiments.output.logs import export_samples
from tts.experiments.store.store import Store

SUMS = {"prompt": "1 + 1?", "reference": "2", "text": ["so #### 2", "#### 3", "?"], "scores": [0.5, 0.25, None]}
ROWS = [
    {"problem": "a", **SUMS},
    {
        "problem": "b/1",
        "prompt": "2 + 2?",
        "reference": "4",
        "text": ["#### 4", "#### 4.0", "#### 5"],
        "scores": [0.5, 0.2, 0.1],
    },
]
STRATEGIES, SIZES = ("pass@k", "best_of_n | majority", "best_of_n | posterior | majority"), (1, 2, 3)


def assert_equal(before: Sequence[ReplayedCurve], after: Sequence[ReplayedCurve], *, first: bool = False) -> None:
    """Exact points are equal; random orders are addressed by the names of pool and problem."""
    compared = 0
    for one, other in zip(before, after, strict=True):
        if first or not one.errors.any():
            compared += 1
            np.testing.assert_array_equal(other.curve.shares, one.curve.shares)
            for cost in ("samples", "verifier_tokens"):
                np.testing.assert_allclose(other.curve.costs[cost], one.curve.costs[cost], rtol=1e-12)
    assert compared >= 2


@pytest.fixture
def study(tmp_path: Path) -> Study:
    rows = [{**row, "tokens": [3, 4, 5]} for row in ROWS]
    return tts.Pool.from_rows(rows, name="sums", model="org/small").save(tmp_path / "store.sqlite")


def test_what_was_exported_is_imported_with_the_same_figures(study: Study, tmp_path: Path):
    path = tmp_path / "out.jsonl"
    assert study.export(path, "samples") == 2
    again = tts.Pool.from_files(path)
    for first in (True, False):
        assert_equal(
            study.replay(STRATEGIES, SIZES, first=first), again.replay(STRATEGIES, SIZES, first=first), first=first
        )
    assert [[each.tokens for each in one.drawn] for one in again.problems] == [[3, 4, 5]] * 2
    by_score = ["best_of_n | best", "best_of_n | weighted"]
    assert_equal(study.replay(by_score, SIZES), again.replay(by_score, SIZES))


@pytest.mark.slow
def test_answers_alone_come_back_with_the_same_figures(tmp_path: Path):
    """The answer stands for the text, and is no text that the task would have to read."""
    rows = [
        {"problem": "a", "reference": "2", "answer": ["2", "1/2", None, "2"]},
        {"problem": "b", "reference": "x", "answer": ["3"] * 4},
    ]
    study = tts.Pool.from_rows(rows, name="sums").save(tmp_path / "store.sqlite")
    study.export(path := tmp_path / "out.jsonl", "samples")
    again = tts.Pool.from_files(path)
    assert [[each.answer for each in one.drawn] for one in again.problems] == [["2", "1/2", None, "2"], ["3"] * 4]
    assert_equal(
        study.replay(STRATEGIES, (1, 2, 4), first=True), again.replay(STRATEGIES, (1, 2, 4), first=True), first=True
    )


@pytest.mark.slow
def test_a_pool_of_our_own_comes_back_with_the_same_figures(tmp_path: Path):
    """Each seed is a pool of its own; answers, scores, tokens and verdicts are those of a live study."""
    results = [result for result in live("best_of_n(n=6) | weighted", 6) if result.cell.seed == 0]
    with Store(tmp_path / "own.sqlite") as store:
        found = store.begin("own", {"configuration": {}})
        store.add(found, [result.cell for result in results])
        for result in results:
            store.finish("worker", result)
    Study.from_store("own", store=tmp_path / "own.sqlite").export(tmp_path / "own.jsonl", "samples")
    again = tts.Pool.from_files(tmp_path / "own.jsonl", task="arithmetic")
    own = pools_of(results).pools
    plans = [*STRATEGIES, "best_of_n | best", "best_of_n | best_of_majority", "best_of_n | weighted(aggregate='min')"]
    for sizes in ((1, 2), (4, 6)):
        for first in (True, False):
            assert_equal(replay(own, plans, sizes, first=first), again.replay(plans, sizes, first=first), first=first)


def test_scores_of_shared_steps_cost_the_same_after_a_round_trip(tmp_path: Path):
    """A verifier that reads shared steps once reads less of two samples than of each alone."""
    row: dict[str, Any] = {
        "problem": "p",
        "reference": "1",
        "answer": ["1", "1", "2", "2"],
        "scores": [0.5, 0.4, 0.3, 0.2],
    }
    row |= {"tokens": [10, 10, 12, 8], "verifier_tokens": [10, 4, 7, 8]}
    row |= {"like": [None, 0, 1, None], "shared": [0, 6, 5, 0], "same": [None, 0, None, 2]}
    first = tts.Pool.from_rows([row], name="tree")
    drawn = first.problems[0].drawn
    assert all([getattr(one, name) for one in drawn] == row[name] for name in ("like", "shared", "same"))
    first.save(tmp_path / "store.sqlite").export(tmp_path / "out.jsonl", "samples")
    again = tts.Pool.from_files(tmp_path / "out.jsonl")
    # the form states our verdicts
    unjudged = tuple(dataclasses.replace(one, given=None) for one in again.problems[0].drawn)
    assert unjudged == drawn
    for options in ({}, {"first": True}):
        assert_equal(
            first.replay(["best_of_n | best"] * 2, SIZES, **options),
            again.replay(["best_of_n | best"] * 2, SIZES, **options),
        )


def test_what_cannot_be_exported_is_named(study: Study, tmp_path: Path):
    with pytest.raises(ConfigError, match=r"form is 'sample'.*samples"):
        study.export(tmp_path / "x.jsonl", "sample")
    with pytest.raises(ConfigError, match=r"form samples must end in \.jsonl"):
        study.export(tmp_path / "x.json", "samples")
    with pytest.raises(ConfigError, match=r"'one'.*exported"):
        export_samples([], tmp_path / "x.jsonl", "one")
