"""Differences of two strategies: their test against enumeration, their interval against the truth, and the size a study
needs.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tts.errors import ConfigError
from tts.statistics import holm, mcnemar, paired_difference, problems_needed

SHARES = st.sampled_from([0.0, 1 / 3, 0.5, 2 / 3, 1.0])


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@given(st.lists(st.tuples(SHARES, SHARES), min_size=1, max_size=9))
@settings(deadline=None)
def test_the_p_value_is_the_share_of_all_choices_of_signs(pairs: list[tuple[float, float]]) -> None:
    differences = [a - b for a, b in pairs]
    sums = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
        for signs in itertools.product([-1, 1], repeat=len(pairs))
    ]
    expected = np.mean([total >= abs(sum(differences)) - 1e-9 for total in sums])
    found = paired_difference(*zip(*pairs, strict=True), rng=rng(), resamples=10)
    assert found.p == pytest.approx(float(expected), abs=1e-12)
    assert found.mean.value == pytest.approx(float(np.mean(differences)))
    assert found.first_better == sum(a > b for a, b in pairs)
    assert found.second_better == sum(a < b for a, b in pairs)


def test_of_problems_solved_or_not_the_test_is_mcnemars() -> None:
    first, second = np.repeat([1, 0, 1, 0], [15, 5, 400, 80]), np.repeat([0, 1, 1, 0], [15, 5, 400, 80])
    found = paired_difference(first, second, rng=rng())
    assert found.p == pytest.approx(stats.binomtest(5, 20).pvalue, rel=1e-9)
    assert found.mcnemar == pytest.approx(found.p)
    assert (found.first_better, found.second_better, found.mean.num) == (15, 5, 500)
    assert found.spread == pytest.approx((first - second).std(ddof=1))


def test_mcnemars_test_counts_problems_whatever_the_sizes_of_their_differences() -> None:
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(0, 5) == mcnemar(5, 0) == pytest.approx(2 * 0.5**5)
    assert mcnemar(7, 7) == 1.0
    found = paired_difference([0.9, 0.4, 0.6, 0.5, 0.2], [0.1, 0.3, 0.5, 0.4, 0.2], rng=rng())
    assert found.mcnemar == pytest.approx(2 * 0.5**4)
    assert math.isnan(paired_difference([], [], rng=rng()).mcnemar)
    with pytest.raises(ConfigError, match="first_better is -1, but"):
        mcnemar(-1, 2)


def test_signs_that_are_drawn_agree_with_signs_that_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    values = rng(1).random(18) - 0.3
    listed = paired_difference(values, np.zeros(18), rng=rng()).p
    monkeypatch.setattr("tts.statistics.comparing._OUTCOMES", 0)
    drawn = paired_difference(values, np.zeros(18), rng=rng()).p
    assert 0.001 < listed < 0.5
    assert drawn == pytest.approx(listed, abs=4 * math.sqrt(listed / 20_000))
    monkeypatch.setattr("tts.statistics.comparing._SIZES", 0)
    # the normal law of 18 signs
    assert paired_difference(values, np.zeros(18), rng=rng()).p == pytest.approx(listed, abs=0.02)


@pytest.mark.slow
def test_where_it_makes_no_difference_p_values_are_not_below_their_level_too_often() -> None:
    draws = rng(2)
    found = []
    for _ in range(400):
        chance = draws.beta(1, 1, 40)
        found.append(
            paired_difference(draws.binomial(3, chance) / 3, draws.binomial(3, chance) / 3, rng=draws, resamples=2).p
        )
    for level in (0.05, 0.2):
        assert np.mean(np.array(found) <= level) <= level + 3 * math.sqrt(level / 400)
    assert np.mean(np.array(found) <= 0.5) > 0.3  # no constant; of few different sizes it is conservative


def test_pairing_sees_what_two_separate_means_hide() -> None:
    chance = rng(3).beta(0.3, 0.3, 300)
    found = paired_difference(np.minimum(chance + 0.03, 1), chance, rng=rng())
    assert 0 < found.mean.low < found.mean.value < found.mean.high < 0.04
    assert found.p < 1e-4
    turned = paired_difference(chance, np.minimum(chance + 0.03, 1), rng=rng())
    assert turned.mean.value == -found.mean.value
    assert turned.p == pytest.approx(found.p)


def test_no_difference_seen_is_not_none_known() -> None:
    same = paired_difference([1, 0, 1, 1] * 10, [1, 0, 1, 1] * 10, rng=rng())
    assert (same.mean.value, same.p, same.first_better, same.second_better) == (0, 1, 0, 0)
    assert same.mean.low < -0.01 < 0.01 < same.mean.high
    unbounded = paired_difference([1, 0], [1, 0], rng=rng(), most=None)
    assert math.isnan(unbounded.mean.low)
    assert math.isnan(unbounded.mean.high)


def test_rounding_alone_is_no_difference() -> None:
    found = paired_difference([0.1 + 0.2, 0.5], [0.3, 0.5], rng=rng())
    assert (found.first_better, found.p) == (0, 1)


def test_too_few_problems() -> None:
    none, one = paired_difference([], [], rng=rng()), paired_difference([1.0], [0.0], rng=rng())
    assert math.isnan(none.p)
    assert math.isnan(none.mean.value)
    assert (one.p, one.mean.value, one.mean.num) == (1, 1, 1)
    assert math.isnan(one.spread)


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ([1.0], [1.0, 0.0], "of the same problems"),
        ([math.nan], [0.0], "NaN"),
        ([3.0], [0.0], "most is 1"),
        ([[1.0]], [0.0], "list of numbers"),
    ],
)
def test_what_it_refuses(first: list[float], second: list[float], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        paired_difference(first, second, rng=rng())


def test_tokens_have_no_bound() -> None:
    found = paired_difference([400, 250, 900], [300, 260, 500], rng=rng(), most=None)
    assert found.mean.value == pytest.approx(490 / 3)
    assert found.mean.low < found.mean.value < found.mean.high


# Holm -----------------------------------------------------------------------------------------------------------------


def test_holm_by_hand() -> None:
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(holm([0.6, 0.5]), [1, 1])
    assert holm([]).shape == (0,)


def test_holm_rejects_what_the_stepwise_procedure_rejects() -> None:
    draws = rng(4)
    for _ in range(50):
        p, alpha = draws.random(6) ** 3, 0.1
        rejected, left = set(), list(np.argsort(p))
        while left and p[left[0]] <= alpha / len(left):
            rejected.add(left.pop(0))
        assert set(np.flatnonzero(holm(p) <= alpha)) == rejected


@pytest.mark.parametrize("p", [[0.5, math.nan], [1.1], [-0.1]])
def test_holm_refuses_what_is_no_probability(p: list[float]) -> None:
    with pytest.raises(ConfigError, match="but must be"):
        holm(p)


# How many problems ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("difference", "spread", "power", "level"), [(0.5, 1, 0.8, 0.95), (0.02, 0.3, 0.9, 0.95), (1, 1, 0.8, 0.99)]
)
def test_so_many_problems_have_the_power_asked_for(
    difference: float, spread: float, power: float, level: float
) -> None:
    """By the exact law of Student's t under a difference: enough, and one twentieth fewer (or two) are not."""

    def reached(n: int) -> float:
        limit = stats.t.isf((1 - level) / 2, n - 1)
        return float(stats.nct.sf(limit, n - 1, difference / spread * math.sqrt(n)))

    n = problems_needed(difference, spread, power=power, level=level)
    assert reached(n) >= power - 0.005
    assert reached(n - max(2, n // 20)) < power
    assert problems_needed(-difference, spread, power=power, level=level) == n


def test_more_problems_for_less_and_never_fewer_than_two() -> None:
    assert problems_needed(0.02, 0.4) > 3 * problems_needed(0.04, 0.4) > problems_needed(0.04, 0.2)
    assert problems_needed(0.5, 0) == 2


@pytest.mark.parametrize(
    ("arguments", "more"),
    [
        ((0, 0.4), {}),
        ((math.nan, 0.4), {}),
        ((0.1, -1), {}),
        ((0.1, math.inf), {}),
        ((0.1, 0.4), {"power": 1}),
        ((0.1, 0.4), {"level": 0}),
        ((1e-300, 0.4), {}),
        ((0.1, 1e308), {}),
        ((0.1, 0.4), {"power": 0.01}),
    ],
)
def test_what_it_cannot_plan(arguments: tuple[float, float], more: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=r"but must be|no study sees"):
        problems_needed(*arguments, **more)


def test_interval_and_resampled_p_agree() -> None:
    """Near the limit too, where an exact test may say otherwise."""
    num_otherwise = 0
    for better in range(16):
        for worse in range(better + 1):
            values = np.r_[np.ones(better), -np.ones(worse), np.zeros(40 - better - worse)]
            found = paired_difference(np.maximum(values, 0), np.maximum(-values, 0), rng=np.random.default_rng(0))
            leaves_zero_out = not found.mean.low <= 0 <= found.mean.high
            assert leaves_zero_out == (found.resampled_p < 0.05)
            num_otherwise += leaves_zero_out != (found.p < 0.05)
    assert num_otherwise
