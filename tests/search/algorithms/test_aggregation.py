"""Step scores to one score."""

from __future__ import annotations

import math

import pytest

from tts.errors import ConfigError
from tts.search.algorithms.aggregation import AGGREGATIONS, aggregate_scores
from tts.verifiers.base import StepScores


@pytest.mark.parametrize(("how", "one"), [("last", 0.25), ("min", 0.25), ("prod", 0.125), ("mean", 0.375)])
def test_steps_become_one_score(how: str, one: float) -> None:
    assert aggregate_scores(StepScores(steps=(0.5, 0.25)), how) == one


@pytest.mark.parametrize("how", AGGREGATIONS)
def test_no_step_and_an_unknown_one_are_unknown_and_last_reads_the_last_alone(how: str) -> None:
    assert math.isnan(aggregate_scores(StepScores(steps=()), how))
    assert math.isnan(aggregate_scores(StepScores(steps=(math.nan, 0.5)), how)) == (how != "last")


def test_a_verifier_of_steps_has_no_score_of_the_whole() -> None:
    with pytest.raises(ConfigError, match=r"aggregate.*'model',.*score"):
        aggregate_scores(StepScores(steps=(0.5,)), "model")
