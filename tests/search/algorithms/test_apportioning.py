"""What apportionment must hold for any scores: the sum is exact, better nodes get no fewer, and its limits are its
names'.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts.search.algorithms.apportioning import apportion

NAN = math.nan
SCORES = st.lists(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.5, 1.0, NAN, -math.inf])), min_size=1, max_size=12)


def shares(scores: list[float], total: int, temperature: float) -> list[int]:
    return apportion(np.array(scores), total, temperature).tolist()


def test_the_published_vectors() -> None:
    assert shares([0.9, 0.8, 0.5, 0.1], 16, 0.2) == [10, 5, 1, 0]  # each rounded by itself: 9, 6, 1, 0
    assert sum(shares([0.5] * 4, 6, 0.2)) == 6  # each rounded by itself: 8


def test_among_equals_the_earlier_is_served_first() -> None:
    assert shares([0.5] * 4, 6, 0.2) == [2, 2, 1, 1]
    assert shares([0.1, 0.9, 0.9], 3, 1e-6) == [0, 2, 1]


@given(scores=SCORES, total=st.integers(0, 300), temperature=st.sampled_from([1e-6, 0.01, 0.2, 1.0, 1e6]))
@settings(deadline=None)
def test_the_sum_is_exact_and_a_better_node_gets_no_less_than_a_worse_one(
    scores: list[float], total: int, temperature: float
) -> None:
    counts = shares(scores, total, temperature)
    assert sum(counts) == total
    assert min(counts) >= 0
    ranked = [-math.inf if math.isnan(score) else score for score in scores]
    order = sorted(range(len(scores)), key=lambda i: -ranked[i])
    served = [counts[i] for i in order]
    assert served == sorted(served, reverse=True)
    if any(math.isfinite(score) for score in ranked):
        assert all(count == 0 for count, score in zip(counts, ranked, strict=True) if not math.isfinite(score))


@given(scores=st.lists(st.floats(0, 1), min_size=1, max_size=12), more=st.integers(0, 30))
@settings(deadline=None)
def test_a_great_temperature_balances_evenly(scores: list[float], more: int) -> None:
    counts = shares(scores, len(scores) + more, 1e18)
    assert max(counts) - min(counts) <= 1


@given(scores=st.lists(st.integers(0, 10).map(lambda i: i / 10), min_size=1, max_size=12), total=st.integers(1, 40))
@settings(deadline=None)
def test_a_small_temperature_gives_all_to_the_best(scores: list[float], total: int) -> None:
    counts = shares(scores, total, 1e-6)
    best = [count for count, score in zip(counts, scores, strict=True) if score == max(scores)]
    assert sum(best) == total
    assert max(best) - min(best) <= 1


@pytest.mark.parametrize("scores", [[NAN] * 3, [-math.inf] * 3, [0.3] * 3])
def test_unknown_scores_are_equal_where_all_are_unknown(scores: list[float]) -> None:
    assert shares(scores, 3, 0.2) == [1, 1, 1]


def test_no_node_gets_nothing_of_anything() -> None:
    assert shares([], 5, 0.2) == []
