"""How rare an answer best-of-majority keeps by default, on a law whose right answers are rare, and the table that
chooses it.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import numpy as np
import pytest

from research.methods import thresholds
from research.methods.thresholds import LURES, draw_samples
from tests.support.candidates import ScoredSearch, candidates
from tts.search.selections.best_of_majority import BestOfMajority, least_share

SHARES = (0.0, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.08, 0.1, 0.2)


def means_of(answers: Any, scores: Any) -> list[tuple[float, int, bool]]:
    """Return the mean score of the first four responses of each answer, its votes, and whether it is right."""
    return [
        (scores[answers == one][:4].mean(), int((answers == one).sum()), bool(one == 0)) for one in np.unique(answers)
    ]


def test_the_default_is_near_the_best_share_and_gains_by_more_samples_where_right_answers_are_rare() -> None:
    found: dict[int, float] = {}
    for size in (64, 256):
        by_share, mine = dict.fromkeys(SHARES, 0.0), 0.0
        for problem, lure in itertools.product(range(60), LURES):
            answers, scores = draw_samples(
                problem, size, lure, np.random.default_rng([problem, size, round(1000 * lure)])
            )
            of = candidates([f"{one}" for one in answers.tolist()])
            selected = asyncio.run(BestOfMajority().select(of, ScoredSearch(scores.tolist(), of)))  # type: ignore[arg-type]
            mine += (selected.answers == ("0",)) / 180
            means = means_of(answers, scores)
            for share in SHARES:
                kept = [one for one in means if one[1] >= share * size] or [max(means, key=lambda one: one[1])]
                by_share[share] += max(kept)[2] / 180
        assert mine >= max(by_share.values()) - 0.05, by_share
        assert mine > by_share[0.2] + 0.3, "which loses each problem whose right answer is rarer"
        found[size] = mine
    assert found[256] >= found[64]


@pytest.mark.parametrize("size", [4, 16, 64, 256])
def test_the_default_of_the_page_is_that_of_the_selection(size: int) -> None:
    assert thresholds.alpha_of(thresholds.DEFAULT, size) == least_share(size)


@pytest.mark.parametrize("problem", range(12))
def test_the_chances_of_a_problem_sum_to_one(problem: int) -> None:
    assert thresholds.chances(problem).sum() == pytest.approx(1)
    assert thresholds.chances(problem).min() > 0


def test_a_row_has_the_loss_to_its_best_threshold() -> None:
    values = [0.5] * (len(thresholds.THRESHOLDS) - 1)
    lines = list(thresholds.table([("one", [0.9, *values]), ("two", [0.1, *values])]))
    assert lines[2].startswith("| one | 90.0 | 50.0 |")
    assert lines[-2].startswith("| **mean loss** | **20.0** | **20.0** |")
    assert lines[-1].startswith("| **largest loss** | **40.0** | **40.0** |")


def test_the_law_is_a_pool_whose_wrong_answers_have_their_share_of_lures() -> None:
    pool = thresholds.law(200, 0.1, problems=12)
    drawn = [one for problem in pool.problems for one in problem.drawn]
    right, wrong = ([one.scores["main"] for one in drawn if one.right is verdict] for verdict in (True, False))
    assert len(drawn) == 12 * 200
    assert min(right) >= 0.5
    share = sum(score >= 0.9 for score in wrong) / len(wrong)
    assert share == pytest.approx(0.1, abs=4 * (0.1 * 0.9 / len(wrong)) ** 0.5)
    assert len(right) / len(drawn) == pytest.approx(1.03 / 6, abs=4 * (0.17 * 0.83 / len(drawn)) ** 0.5)
