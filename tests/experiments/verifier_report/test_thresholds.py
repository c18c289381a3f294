"""Thresholds of selective answering, from the results of a study on calibration problems."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.experiments.made import cell, result
from tts.errors import ConfigError
from tts.experiments.study.record import Result
from tts.experiments.verifier_report.thresholds import answer_thresholds, as_json, as_text
from tts.search.plan import parse

RISK = 0.3


def studied(**given: Any) -> list[Result]:
    """Return results of 200 problems: what is sure is right."""
    return [
        result(cell(i, **{"key": f"{i} {sorted(given.items())}", **given}), confidence=i / 200, right=i >= 100, answer="4")
        for i in range(200)
    ]


def test_the_plan_answers_from_the_threshold_on() -> None:
    [found] = answer_thresholds(studied(strategy="best_of_n(n=4) | weighted(aggregate='min')"), risk=RISK)
    assert (found.problems, found.accuracy) == (200, 0.5)
    assert 0.5 < found.threshold.coverage < 0.7
    assert found.threshold.bound <= RISK
    assert found.plan == f"best_of_n(n=4) | selective(threshold={found.threshold.value!r}, by='weighted', aggregate='min')"
    assert str(parse(found.plan)) == found.plan


def test_a_problem_counts_once_and_one_without_an_answer_is_never_answered() -> None:
    plain = answer_thresholds(studied(), risk=RISK)
    again = [result(cell(i, key=f"again {i}", seed=1), confidence=1.0, right=False) for i in range(200)]
    assert answer_thresholds([*again, *studied()], risk=RISK) == plain
    mute = [result(cell(i), confidence=0.9, right=False, answer=None) for i in range(200, 300)]
    [with_mute] = answer_thresholds([*studied(), *mute], risk=RISK)
    assert with_mute.threshold.risk <= with_mute.threshold.bound <= RISK
    assert with_mute.threshold.coverage < plain[0].threshold.coverage


def test_each_setting_has_its_own_and_says_where_none_keeps_the_risk() -> None:
    wrong = [result(cell(i, key=f"w{i}", budget={"tokens": 50}), confidence=0.99, right=False) for i in range(50)]
    good, bad = answer_thresholds([*studied(), *wrong], risk=RISK)
    assert good.plan
    assert (bad.plan, math.isinf(bad.threshold.value)) == ("", True)
    text = as_text([good, bad], RISK)
    assert good.plan in text
    assert "none keeps it" in text
    records = json.loads(as_json([good, bad]))
    assert [record["threshold"]["value"] for record in records] == [good.threshold.value, None]


@pytest.mark.parametrize("selection", ["", " | deepconf(keep=50)", " | selective"])
def test_what_selective_cannot_choose_by_has_a_threshold_and_no_plan(selection: str) -> None:
    [found] = answer_thresholds(studied(strategy=f"best_of_n(n=4){selection}"), risk=RISK)
    assert math.isfinite(found.threshold.value)
    assert found.plan == ""


def test_what_cannot_be_chosen_is_refused() -> None:
    with pytest.raises(ConfigError, match="no result of the study is known to be right or wrong"):
        answer_thresholds([result(cell(1), right=None)], risk=RISK)
    with pytest.raises(ConfigError, match="risk is 0, but must be above 0 and below 1"):
        answer_thresholds(studied(), risk=0)
