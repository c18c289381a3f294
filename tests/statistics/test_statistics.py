"""Estimates against closed forms and enumeration, and intervals against what they promise: that they cover."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tests.support.repeats import repeats
from tts.errors import ConfigError
from tts.statistics import (
    Estimate,
    bootstrap,
    brier,
    clustered_auc,
    clustered_calibration_error,
    clustered_mean,
    expected_calibration_error,
    g_pass_at_k,
    max_at_k,
    pass_at_k,
    pass_hat_k,
    ratio,
    roc_auc,
    wilson,
)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# pass@k ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"), [(5, 2, 3, 0.9), (10, 3, 4, 5 / 6), (4, 4, 1, 1), (4, 0, 4, 0), (7, 1, 7, 1)]
)
def test_pass_at_k_by_known_values(n: int, c: int, k: int, expected: float) -> None:
    assert float(pass_at_k(n, c, k)) == pytest.approx(expected, abs=1e-12)


def test_pass_at_k_is_the_share_of_subsets_with_a_right_sample() -> None:
    for n in range(1, 8):
        for c, k in itertools.product(range(n + 1), range(1, n + 1)):
            subsets = list(itertools.combinations([i < c for i in range(n)], k))
            assert float(pass_at_k(n, c, k)) == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-12)


@given(st.integers(1, 3000), st.data())
@settings(deadline=None)
def test_pass_at_k_is_the_ratio_of_binomial_coefficients(n: int, data: st.DataObject) -> None:
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    exact = 1 - math.comb(n - c, k) / math.comb(n, k)
    assert float(pass_at_k(n, c, k)) == pytest.approx(exact, abs=1e-12)


def test_pass_at_k_grows_with_k_and_with_c_and_starts_at_the_share() -> None:
    table = pass_at_k(12, np.arange(13)[:, None], np.arange(1, 13)[None, :])
    assert table.shape == (13, 12)
    assert (np.diff(table, axis=0) >= -1e-15).all()
    assert (np.diff(table, axis=1) >= -1e-15).all()
    np.testing.assert_allclose(table[:, 0], np.arange(13) / 12, atol=1e-15)


def test_pass_hat_k_and_g_pass_at_k_are_shares_of_subsets() -> None:
    for n in range(1, 8):
        for c, k in itertools.product(range(n + 1), range(1, n + 1)):
            counts = [sum(subset) for subset in itertools.combinations([i < c for i in range(n)], k)]
            assert float(pass_hat_k(n, c, k)) == pytest.approx(np.mean([count == k for count in counts]), abs=1e-12)
            for share in (0.0, 0.25, 0.5, 0.75, 1.0):
                expected = np.mean([count >= max(1, math.ceil(share * k)) for count in counts])
                assert float(g_pass_at_k(n, c, k, share)) == pytest.approx(expected, abs=1e-12)


def test_the_ends_of_g_pass_at_k_are_pass_at_k_and_pass_hat_k() -> None:
    n, c, k = 20, np.arange(21)[:, None], np.arange(1, 21)[None, :]
    np.testing.assert_allclose(g_pass_at_k(n, c, k, 0.0), pass_at_k(n, c, k), atol=1e-12)
    np.testing.assert_allclose(g_pass_at_k(n, c, k, 1.0), pass_hat_k(n, c, k), atol=1e-12)
    assert float(g_pass_at_k(50, 7, 25, 0.28)) == pytest.approx(float(g_pass_at_k(50, 7, 25, 0.279)))  # 7 of 25, not 8


def test_they_are_unbiased_for_fresh_samples() -> None:
    """Over all outcomes of n tries of probability p, weighted by their chance, they are the binomial chances of k
    tries.
    """
    n, p = 9, 0.6
    chances = np.array([math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)])
    for k in range(1, n + 1):
        assert float(chances @ pass_hat_k(n, np.arange(n + 1), k)) == pytest.approx(p**k, abs=1e-12)
        expected = sum(math.comb(k, j) * p**j * (1 - p) ** (k - j) for j in range(math.ceil(k / 2), k + 1))
        assert float(chances @ g_pass_at_k(n, np.arange(n + 1), k, 0.5)) == pytest.approx(expected, abs=1e-12)


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=8))
@settings(deadline=None)
def test_max_at_k_is_the_mean_over_all_subsets(values: list[int]) -> None:
    found = max_at_k(values, np.arange(1, len(values) + 1))
    expected = [
        np.mean([max(subset) for subset in itertools.combinations(values, k)]) for k in range(1, len(values) + 1)
    ]
    assert found == pytest.approx(expected, abs=1e-12)
    assert np.isnan(max_at_k(values, [0, len(values) + 1, 1.5])).all()
    assert max_at_k([0, 1, 1, 0, 0], 2) == pytest.approx(pass_at_k(5, 2, 2))


@repeats(100, 600, "studies")
def test_intervals_of_pass_hat_k_over_problems_cover(studies: int) -> None:
    """Problems of chance p ~ Beta(2, 2), 8 samples each: E[p^3] = (2 3 4) / (4 5 6) = 0.2."""
    draws, covered = rng(3), 0
    for _ in range(studies):
        right = draws.binomial(8, draws.beta(2, 2, 40))
        covered += 0.2 in clustered_mean(pass_hat_k(8, right, 3), rng=draws, bounds=(0.0, 1.0), resamples=400)
    assert covered / studies > 0.95 - 0.02 - 3 * math.sqrt(0.95 * 0.05 / studies)


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan])
def test_a_share_outside_of_its_range_is_refused(share: float) -> None:
    with pytest.raises(ConfigError, match="share is"):
        g_pass_at_k(4, 2, 2, share)
    with pytest.raises(ConfigError, match="values is"):
        max_at_k([1.0, math.nan], 1)


def test_pass_at_k_outside_its_domain_is_unknown() -> None:
    n, c, k = [4, 4, 4, 4, 4.5, math.nan, math.inf, 4], [5, -1, 1, 1, 1, 1, 1, 1.5], [1, 1, 5, 0, 1, 1, 1, 1]
    assert np.isnan(pass_at_k(n, c, k)).all()
    assert pass_at_k([], [], []).shape == (0,)
    np.testing.assert_array_equal(pass_at_k([2, 8], 2, 4), [np.nan, pass_at_k(8, 2, 4)])


def test_the_mean_of_pass_at_k_is_the_chance_of_k_fresh_samples() -> None:
    """Unbiased: over all outcomes of n tries of probability p, weighted by their chance, it is 1 - (1 - p)^k."""
    n, p = 9, 0.3
    chances = [math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]
    for k in range(1, n + 1):
        assert float(np.dot(chances, pass_at_k(n, np.arange(n + 1), k))) == pytest.approx(1 - (1 - p) ** k, abs=1e-12)


# Wilson ---------------------------------------------------------------------------------------------------------------


def test_wilson_by_published_values() -> None:
    """Newcombe, "Two-sided confidence intervals for the single proportion" (1998), table I."""
    for successes, n, low, high in (
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ):
        found = wilson(successes, n)
        assert (found.value, found.num) == (successes / n, n)
        assert (found.low, found.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


def test_wilson_solves_its_equation_and_is_symmetric() -> None:
    z = 1.6448536269514722
    for successes, n in ((3, 10), (0, 5), (5, 5), (2.5, 7.25)):
        found, mirrored = wilson(successes, n, 0.9), wilson(n - successes, n, 0.9)
        assert (found.low, found.high) == (pytest.approx(1 - mirrored.high), pytest.approx(1 - mirrored.low))
        for end in (found.low, found.high):
            if 0 < end < 1:
                assert abs(successes / n - end) == pytest.approx(z * math.sqrt(end * (1 - end) / n))
        assert found.value in found


def test_wilson_without_trials_knows_nothing() -> None:
    found = wilson(0, 0)
    assert math.isnan(found.value)
    assert (found.low, found.high, found.num) == (0, 1, 0)


@pytest.mark.parametrize(
    ("successes", "n", "level"),
    [(3, 2, 0.95), (-1, 2, 0.95), (1, math.inf, 0.95), (1, 2, 0), (1, 2, 1), (math.nan, 2, 0.9)],
)
def test_wilson_refuses_what_is_no_proportion(successes: float, n: float, level: float) -> None:
    with pytest.raises(ConfigError, match="but must be"):
        wilson(successes, n, level)


# Resampling -----------------------------------------------------------------------------------------------------------


def test_a_mean_over_problems_is_their_mean_and_a_ratio_is_that_of_sums() -> None:
    assert clustered_mean([0.2, 0.4, 0.9], rng=rng()).value == pytest.approx(0.5)
    found = clustered_mean([3, 0, 1], [4, 2, 0 + 4], rng=rng())
    assert (found.value, found.num) == (pytest.approx(0.4), 3)
    with_silent = clustered_mean([3, 0, 0, 1], [4, 2, 0, 4], rng=rng())
    assert with_silent == found


def test_the_spread_of_resamples_is_that_of_a_mean() -> None:
    values = rng(1).normal(size=60)
    found = clustered_mean(values, rng=rng(), resamples=20_000)
    half = 2.0010 * values.std(ddof=1) / math.sqrt(60)  # Student's t of 59 degrees of freedom
    # 20,000 resamples place a .975 quantile within about .02 of a standard error
    assert found.high - found.value == pytest.approx(half, rel=0.05)
    assert found.value - found.low == pytest.approx(half, rel=0.05)


def test_samples_of_one_problem_are_no_independent_evidence() -> None:
    right = np.repeat([0.0, 1.0], 20)  # 40 problems, all samples of a problem alike
    by_problem = clustered_mean(right * 100, np.full(40, 100), rng=rng())
    by_sample = wilson(2000, 4000)
    assert by_problem.high - by_problem.low > 5 * (by_sample.high - by_sample.low)


def test_one_generator_gives_one_interval_in_blocks_of_whatever_size() -> None:
    values = rng(2).random(50)
    assert clustered_mean(values, rng=rng(3)) == clustered_mean(values, rng=rng(3))
    assert clustered_mean(values, rng=rng(3)) != clustered_mean(values, rng=rng(4))


def test_values_that_differ_by_rounding_have_the_interval_of_equal_ones() -> None:
    equal, rounded = [0.3, 0.3, 0.3, 0.9, 0.9, 0.0], [0.3, 0.1 + 0.2, 0.3, 0.9, 0.3 * 3, 0.0]
    assert len(set(rounded)) > len(set(equal))
    for bounds in (None, (0, 1)):
        one, two = (clustered_mean(values, rng=rng(), bounds=bounds) for values in (equal, rounded))
        assert (two.low, two.high) == pytest.approx((one.low, one.high), rel=1e-12)


@repeats(60, 200)
@pytest.mark.parametrize(
    ("problems", "a", "b"), [(10, 2, 2), (10, 9, 1), (10, 0.5, 9.5), (40, 2, 2), (40, 9, 1), (40, 0.5, 9.5)]
)
def test_the_interval_of_an_accuracy_covers_it(problems: int, a: float, b: float, runs: int) -> None:
    draws, covered = rng(problems), 0
    for _ in range(runs):
        right = draws.binomial(16, draws.beta(a, b, problems))
        covered += a / (a + b) in clustered_mean(right / 16, rng=draws, resamples=400, bounds=(0, 1))
    assert covered >= 0.95 * runs - 3 * math.sqrt(runs * 0.95 * 0.05)  # three standard errors


@pytest.mark.parametrize(("solved", "problems"), [(0, 20), (3, 20), (20, 20), (39, 40)])
def test_problems_that_are_solved_or_not_have_the_interval_of_jeffreys(solved: int, problems: int) -> None:
    found = clustered_mean([1.0] * solved + [0.0] * (problems - solved), rng=rng(), bounds=(0, 1), resamples=40_000)
    law = stats.beta(solved + 0.5, problems - solved + 0.5)
    # 40,000 draws place a .025 quantile within .004 in probability, four standard errors
    assert 0.021 <= law.cdf(found.low) <= 0.029 or found.low == found.value == 0
    assert 0.971 <= law.cdf(found.high) <= 0.979 or found.high == found.value == 1
    assert found.low < found.high


def test_an_interval_within_bounds_moves_with_them_and_counts_sizes() -> None:
    values = rng(3).random(15)
    plain = clustered_mean(values, rng=rng(), bounds=(0, 1))
    moved = clustered_mean(4 * values - 1, rng=rng(), bounds=(-1, 3))
    for end in ("value", "low", "high"):
        assert getattr(moved, end) == pytest.approx(4 * getattr(plain, end) - 1)
    sized = clustered_mean(7 * values, [7] * 15, rng=rng(), bounds=(0, 1))
    assert (sized.low, sized.high) == (pytest.approx(plain.low), pytest.approx(plain.high))


def test_nearly_all_problems_nearly_solved_leave_as_much_doubt_as_all_solved() -> None:
    nearly, solved = ([*[1.0] * 11, last] for last in (0.999, 1.0))
    ends = [clustered_mean(values, rng=rng(), bounds=(0, 1)).low for values in (nearly, solved)]
    assert ends[0] == pytest.approx(ends[1], abs=1e-3)
    assert ends[0] < 0.85


def test_too_little_data_gives_no_interval() -> None:
    none, one = clustered_mean([], rng=rng(), bounds=(0, 1)), clustered_mean([0.25], rng=rng())
    assert math.isnan(none.value)
    assert math.isnan(none.high)
    assert none.num == 0
    assert (one.value, one.num) == (0.25, 1)
    assert math.isnan(one.low)
    assert math.isnan(one.high)
    assert 0.25 not in one


def test_a_paired_difference_is_one_statistic_of_the_same_draws() -> None:
    difficulty = rng(5).normal(size=80)
    first, second = difficulty, difficulty + 0.1 + rng(6).normal(size=80) * 0.01
    found = bootstrap(lambda counts: ratio(counts @ (second - first), counts.sum(axis=-1)), 80, rng())
    assert found.value == pytest.approx((second - first).mean())
    assert 0.09 < found.low < 0.1 < found.high < 0.11  # although the means themselves are known to .2 only


def test_a_statistic_that_resampling_often_leaves_undefined_has_no_interval() -> None:
    found = bootstrap(lambda counts: np.where(counts[:, 0] > 0, 1.0, np.nan), 30, rng())  # undefined in a share of 1/e
    assert found.value == 1
    assert math.isnan(found.low)


@pytest.mark.parametrize(
    ("totals", "sizes", "more"),
    [
        ([0.1, math.nan], None, {}),
        ([0.1, math.inf], None, {}),
        ([0.1], [1, 2], {}),
        ([0.1, 0.2], [1, -1], {}),
        ([0.1, 0.2], [1, 0], {}),
        ([0.1, 1.2], None, {"bounds": (0, 1)}),
        ([0.1, 0.2], None, {"level": 1.0}),
        ([0.1, 0.2], None, {"resamples": 0}),
        ([0.1, 0.2], None, {"resamples": 0, "bounds": (0, 1)}),
        ([0.1, 0.2], None, {"level": 0.0, "bounds": (0, 1)}),
        ([[0.1, 0.2]], None, {}),
    ],
)
def test_a_mean_refuses_what_it_cannot_mean(
    totals: list[float], sizes: list[float] | None, more: dict[str, object]
) -> None:
    with pytest.raises(ConfigError, match="but"):
        clustered_mean(totals, sizes, rng=rng(), **more)  # type: ignore[arg-type]


# Scores and labels ----------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=30))
@settings(deadline=None)
def test_the_auc_is_the_share_of_pairs_in_order_and_ties_count_half(judged: list[tuple[int, bool]]) -> None:
    scores, labels = [score / 4 for score, _ in judged], [label for _, label in judged]
    pairs = [
        (p, n)
        for p, of_p in zip(scores, labels, strict=True)
        if of_p
        for n, of_n in zip(scores, labels, strict=True)
        if not of_n
    ]
    found, clustered = roc_auc(scores, labels), clustered_auc(scores, labels, range(len(scores)), rng=rng())
    if not pairs:
        assert math.isnan(found)
        assert math.isnan(clustered.value)
    else:
        assert found == pytest.approx(sum((p > n) + (p == n) / 2 for p, n in pairs) / len(pairs))
        assert clustered.value == pytest.approx(found)


def test_the_auc_of_a_score_turned_round_is_the_rest() -> None:
    scores, labels = rng(1).normal(size=200), rng(2).random(200) < 0.3
    assert roc_auc(-scores, labels) == pytest.approx(1 - roc_auc(scores, labels))
    assert roc_auc(np.exp(scores), labels) == pytest.approx(roc_auc(scores, labels))
    assert roc_auc(labels, labels) == 1
    assert roc_auc([-math.inf, math.inf], [0, 1]) == 1


def test_a_resampled_auc_is_that_of_the_resampled_observations() -> None:
    """The table of pairs gives what drawing the clusters' observations again gives."""
    draws = rng(3)
    clusters = draws.integers(0, 6, 80)
    scores, labels = draws.integers(0, 20, 80) / 20, draws.random(80) < 0.5
    found = clustered_auc(scores, labels, clusters, rng=rng(7))
    slow = [
        roc_auc(scores[again], labels[again])
        for row in rng(7).integers(6, size=(2000, 6))
        for again in [np.concatenate([np.flatnonzero(clusters == c) for c in row])]
    ]
    tail = 0.5 * math.erfc(math.sqrt(6 / 5) * 2.570582 / math.sqrt(2))  # Student's t of 5 degrees of freedom, widened
    assert found.low == pytest.approx(np.quantile(slow, tail), abs=1e-7)
    assert found.high == pytest.approx(np.quantile(slow, 1 - tail), abs=1e-7)


def test_the_auc_in_blocks_is_the_auc(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = rng(4)
    scores, labels, clusters = draws.integers(0, 50, 300), draws.random(300) < 0.4, draws.integers(0, 9, 300)
    whole = clustered_auc(scores, labels, clusters, rng=rng())
    monkeypatch.setattr("tts.statistics.resampling._BLOCK", 9 * 7)
    assert clustered_auc(scores, labels, clusters, rng=rng()) == whole
    assert whole.value == pytest.approx(roc_auc(scores, labels))


@pytest.mark.slow
@repeats(40, 120)
def test_the_interval_of_an_auc_covers_it(runs: int) -> None:
    """Scores of a problem share its level; the truth is measured on far more problems."""
    draws, covered = rng(8), 0

    def sample(problems: int, each: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        x = draws.normal(size=(problems, 1)) + draws.normal(size=(problems, each))
        return (x + draws.normal(size=x.shape)).ravel(), (x > 0).ravel(), np.repeat(np.arange(problems), each)

    truth = roc_auc(*sample(20_000, 10)[:2])  # known to .0015
    for _ in range(runs):
        scores, labels, clusters = sample(50, 8)
        covered += truth in clustered_auc(scores, labels, clusters, rng=draws)
    assert covered >= 0.95 * runs - 3 * math.sqrt(runs * 0.95 * 0.05)


def test_the_calibration_error_by_hand() -> None:
    found = expected_calibration_error([0.1, 0.1, 0.8, 1.0], [0, 1, 1, 1], bins=2)
    # below one half: score .1, frequency .5; above: score .9, frequency 1; two of four each
    assert found.error == pytest.approx((0.4 + 0.1) / 2)
    assert [(b.low, b.high, b.num) for b in found.table] == [(0, 0.5, 2), (0.5, 1, 2)]
    assert [(b.score, b.label) for b in found.table] == [(pytest.approx(0.1), 0.5), (pytest.approx(0.9), 1)]


def test_bins_are_of_equal_width_and_empty_ones_are_unknown() -> None:
    table = expected_calibration_error([0.0, 0.25, 1.0], [0, 0, 1], bins=4).table
    assert [b.num for b in table] == [1, 1, 0, 1]
    assert math.isnan(table[2].score)
    assert math.isnan(table[2].label)
    assert math.isnan(expected_calibration_error([], []).error)


def test_a_probability_is_calibrated_and_its_error_is_chance_alone() -> None:
    scores = rng(9).random(40_000)
    labels = rng(10).random(40_000) < scores
    error = expected_calibration_error(scores, labels).error
    assert 0 < error < 3 * math.sqrt(10 / 40_000) / 3
    sharper = np.where(scores > 0.5, 1 - (1 - scores) / 2, scores / 2)
    assert expected_calibration_error(sharper, labels).error == pytest.approx(0.125, abs=0.01)


@repeats(40, 120)
def test_the_interval_of_a_calibration_error_covers_it(runs: int) -> None:
    draws, covered = rng(11), 0

    def sample(problems: int, each: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        x = draws.normal(size=(problems, 1)) + draws.normal(size=(problems, each))
        return (
            1 / (1 + np.exp(-1.5 * x.ravel())),
            draws.random(x.size) < 1 / (1 + np.exp(-x.ravel())),
            np.repeat(np.arange(problems), each),
        )

    truth = expected_calibration_error(*sample(40_000, 10)[:2]).error
    assert truth > 0.05
    for _ in range(runs):
        found = clustered_calibration_error(*sample(80, 15), rng=draws)
        covered += truth in found
    assert covered >= 0.95 * runs - 3 * math.sqrt(runs * 0.95 * 0.05)


def test_a_clustered_calibration_error_is_the_calibration_error() -> None:
    scores, labels, clusters = rng(12).random(90), rng(13).random(90) < 0.5, rng(14).integers(0, 7, 90)
    found = clustered_calibration_error(scores, labels, clusters, rng=rng())
    assert found.value == pytest.approx(expected_calibration_error(scores, labels).error)
    assert 0 <= found.low <= found.high <= 1
    assert found.num == 7


def test_brier_by_hand() -> None:
    assert brier([0.0, 1.0], [0, 1]) == 0
    assert brier([0.5, 0.5, 0.8], [0, 1, 0]) == pytest.approx((0.25 + 0.25 + 0.64) / 3)
    assert math.isnan(brier([], []))


@pytest.mark.parametrize("of", [roc_auc, brier, expected_calibration_error])
@pytest.mark.parametrize(
    ("scores", "labels", "rule"),
    [
        ([0.1, math.nan, math.nan], [0, 1, 1], "scores has 2 NaN of 3"),
        ([0.1, 0.2], [0, 2], "neither 0 nor 1"),
        ([0.1, 0.2], [0, math.nan], "neither 0 nor 1"),
        ([0.1, 0.2], [0], r"scores is of shape \(2,\) and labels of \(1,\)"),
    ],
)
def test_scores_that_cannot_be_judged_are_refused(
    of: object, scores: list[float], labels: list[float], rule: str
) -> None:
    with pytest.raises(ConfigError, match=rule):
        of(scores, labels)  # type: ignore[operator]


def test_probabilities_are_asked_for_where_they_are_needed() -> None:
    for of in (brier, expected_calibration_error):
        with pytest.raises(ConfigError, match=r"scores.*0\.5.*1\.5"):
            of([0.5, 1.5], [0, 1])
    assert roc_auc([0.5, 1.5], [0, 1]) == 1
    with pytest.raises(ConfigError, match="bins is 0"):
        expected_calibration_error([0.5], [1], bins=0)
    with pytest.raises(ConfigError, match="clusters is of shape"):
        clustered_auc([0.5, 0.6], [0, 1], [1], rng=rng())


def test_an_estimate_says_what_it_holds() -> None:
    found = Estimate(0.5, 0.4, 0.6, 0.9, 12)
    assert 0.4 in found
    assert 0.61 not in found
    assert (found.level, found.num) == (0.9, 12)
