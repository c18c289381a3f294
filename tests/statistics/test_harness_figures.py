"""Figures that evaluation harnesses print, posterior belief and corrected judges: against draws and the plain way."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tts.errors import ConfigError
from tts.statistics import (
    bayes_at_n,
    best_at_k,
    bootstrap_kinds,
    corrected_mean,
    detectable_difference,
    difference_with_error,
    majority_at_k,
    mean_with_error,
    paired_difference,
    pass_at_k,
    power_of,
    problems_needed,
    spread_at,
    wilson,
)


def rng(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(seed))


def test_without_clusters_it_is_the_error_of_both_harnesses() -> None:
    values = rng(0).integers(0, 2, 57).astype(float)
    found = mean_with_error(values)
    assert found.error == pytest.approx(values.std(ddof=1) / math.sqrt(57))
    plain: Any = stats.ttest_1samp(values, 0.0)
    interval = plain.confidence_interval(0.95)
    assert (found.mean.low, found.mean.high) == pytest.approx((interval.low, interval.high))
    assert found.p == pytest.approx(plain.pvalue)


def test_clustered_errors_are_the_double_sum_over_pairs_of_a_cluster() -> None:
    draw = rng(1)
    clusters = draw.integers(0, 9, 60)
    values = draw.random(60) + 0.3 * clusters
    mean = values.mean()
    pairs = sum(
        (values[i] - mean) * (values[j] - mean) for i in range(60) for j in range(60) if clusters[i] == clusters[j]
    )
    assert mean_with_error(values, clusters).error == pytest.approx(math.sqrt(pairs * 9 / 8) / 60)
    assert mean_with_error(values, [f"c{c}" for c in clusters]) == mean_with_error(values, clusters)
    assert mean_with_error(values, np.arange(60)) == mean_with_error(values)


def test_the_clustered_interval_covers_the_mean_and_the_plain_one_does_not() -> None:
    draw, clustered, plain = rng(2), 0, 0
    for _ in range(400):
        rates = draw.beta(0.5, 0.5, 40)
        values = (draw.random((40, 8)) < rates[:, None]).astype(float).ravel()
        clustered += 0.5 in mean_with_error(values, np.repeat(np.arange(40), 8)).mean
        plain += 0.5 in mean_with_error(values).mean
    assert 0.95 in wilson(clustered, 400, 0.999)
    assert plain / 400 < 0.75


def test_a_paired_difference_is_the_paired_t_test_and_agrees_with_the_exact_one() -> None:
    draw = rng(3)
    first, second = draw.integers(0, 2, 200).astype(float), draw.integers(0, 2, 200).astype(float)
    found = difference_with_error(first, second)
    assert found.p == pytest.approx(stats.ttest_rel(first, second).pvalue)
    shares = draw.random(200), draw.random(200)
    exact, normal = paired_difference(*shares, rng=rng(0)), difference_with_error(*shares)
    assert exact.mean.value == pytest.approx(normal.mean.value)
    assert exact.p == pytest.approx(normal.p, abs=0.02)


def test_ends_of_few_values() -> None:
    assert math.isnan(mean_with_error([]).mean.value)
    assert math.isnan(mean_with_error([1.0]).error)
    assert math.isnan(mean_with_error([1.0, 0.0], ["a", "a"]).error)
    assert mean_with_error([1.0, 1.0]).p == 0.0
    assert difference_with_error([1.0, 0.0], [1.0, 0.0]).p == 1.0


# Power ----------------------------------------------------------------------------------------------------------------


def test_power_is_the_share_of_studies_that_see_the_difference() -> None:
    draw, seen = rng(4), 0
    for _ in range(2000):
        found = mean_with_error(0.1 + 0.5 * draw.standard_normal(80))
        seen += 0.0 not in found.mean
    assert power_of(80, 0.1, 0.5) in wilson(seen, 2000, 0.999)
    assert power_of(80, 0.0, 0.5) == pytest.approx(0.05)
    assert power_of(80, 30.0, 0.5) == 1.0


@pytest.mark.parametrize("problems", [2, 5, 30, 400])
def test_the_detectable_difference_has_the_power_that_was_asked_for(problems: int) -> None:
    gap = detectable_difference(problems, 0.6, power=0.8)
    assert power_of(problems, gap, 0.6) == pytest.approx(0.8, abs=1e-6)
    if problems >= 30:
        assert problems_needed(gap, 0.6) == pytest.approx(problems, abs=1)


def test_the_spread_at_another_number_of_samples_is_that_of_such_studies() -> None:
    draw = rng(5)

    def samples(num: int, problems: int) -> tuple[np.ndarray, np.ndarray]:
        rates = draw.beta(1, 1, problems)
        other = np.clip(rates + draw.normal(0, 0.1, problems), 0, 1)
        return tuple((draw.random((problems, num)) < each[:, None]).astype(float) for each in (rates, other))  # type: ignore[return-value]

    pilot = samples(6, 4000)
    for num in (1, 3, 24):
        one, other = samples(num, 20000)
        direct = float((one.mean(axis=1) - other.mean(axis=1)).std(ddof=1))
        assert spread_at(*pilot, num) == pytest.approx(direct, rel=0.04)
    same = np.tile([[0.0, 1.0]], (50, 3))
    assert spread_at(same, same, 10**9) == pytest.approx(0.0, abs=1e-4)


# Belief and correction ------------------------------------------------------------------------------------------------


def test_the_belief_is_that_of_draws_from_the_posteriors() -> None:
    counts = np.array([[3, 1, 0], [0, 0, 5], [2, 2, 2], [7, 0, 1]])
    weights = np.array([0.0, 0.4, 1.0])
    draw = rng(6)
    scores = np.mean([draw.dirichlet(row + 1.0, 200_000) @ weights for row in counts], axis=0)
    found = bayes_at_n(counts, weights)
    assert found.mean.value == pytest.approx(scores.mean(), abs=float(5 * scores.std()) / math.sqrt(200_000))
    assert found.deviation == pytest.approx(scores.std(), rel=0.01)
    within = np.mean((scores >= found.mean.low) & (scores <= found.mean.high))
    assert within == pytest.approx(0.95, abs=0.01)


def test_the_figures_of_the_authors_package() -> None:
    counts, weights = [[1, 2, 2], [1, 2, 2]], [0.0, 0.5, 1.0]
    plain = bayes_at_n(counts, weights)
    assert (round(plain.mean.value, 6), round(plain.deviation, 6)) == (0.5625, 0.091998)
    informed = bayes_at_n(counts, weights, prior=[[2, 1, 2], [1, 2, 2]])  # one each, and two earlier outcomes
    assert (round(informed.mean.value, 6), round(informed.deviation, 6)) == (0.575, 0.084275)


def test_with_verdicts_it_is_the_mean_of_laplaces_rule() -> None:
    n, right = np.array([4, 10, 1]), np.array([4, 0, 1])
    assert bayes_at_n(np.stack([n - right, right], axis=1)).mean.value == pytest.approx(np.mean((right + 1) / (n + 2)))


def judged(draw: np.random.Generator, num: int, lenient: float) -> tuple[np.ndarray, np.ndarray]:
    truth = (draw.random(num) < 0.6).astype(float)
    return truth, np.where(truth == 1, draw.random(num) < 0.95, draw.random(num) < lenient).astype(float)


def test_a_corrected_judge_is_free_of_bias_and_better_than_the_checked_alone() -> None:
    draw, found, plain, covered = rng(7), [], [], 0
    for _ in range(600):
        truth, scores = judged(draw, 1060, 0.3)
        one = corrected_mean(truth[:60], scores[:60], scores[60:])
        found.append(one.mean.value)
        plain.append(truth[:60].mean())
        covered += 0.6 in one.mean
        assert one.judged == pytest.approx(scores.mean())
    assert np.mean(found) == pytest.approx(0.6, abs=float(4 * np.std(found)) / math.sqrt(600))
    assert np.std(found) < 0.85 * np.std(plain)
    assert covered / 600 > 0.92  # asymptotic: 60 checked items


def test_a_judge_that_knows_nothing_counts_nothing_and_one_that_knows_all_counts_all() -> None:
    draw = rng(8)
    truth = (draw.random(3000) < 0.5).astype(float)
    noise = draw.random(3000)
    idle = corrected_mean(truth[:1000], noise[:1000], noise[1000:])
    assert idle.weight < 0.1
    assert idle.mean.value == pytest.approx(truth[:1000].mean(), abs=0.005)
    assert corrected_mean(truth[:100], np.ones(100), np.ones(50)).weight == 0.0
    sure = corrected_mean(truth[:30], truth[:30], truth[30:])
    assert sure.weight > 0.8
    assert sure.error < 0.3 * truth[:30].std() / math.sqrt(30)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: bayes_at_n([[1, 2]], [1.0]),
        lambda: bayes_at_n([[1, -2]]),
        lambda: bayes_at_n([[1, 2], [3]]),
        lambda: bayes_at_n([["one", 2]]),
        lambda: bayes_at_n([[1, 2]], prior=[[1.0], [1.0, 2.0]]),
        lambda: mean_with_error([1.0, [2.0, 3.0]]),
        lambda: mean_with_error([1.0, 2.0], [["a"], ["b", "c"]]),
        lambda: spread_at([[1.0, 2.0], [1.0]], [[1.0, 2.0], [1.0, 3.0]], 2),
        lambda: majority_at_k([0, [1, 2]], [1, 1], 1),
        lambda: best_at_k([0, 1], [0.5, "high"], [1, 1], 1),
        lambda: pass_at_k([2, [3]], 1, 1),
        lambda: pass_at_k([2, 3], [1, 1, 1], 1),
        lambda: bayes_at_n([[1, 2]], prior=0.0),
        lambda: bayes_at_n([[1, 2]], prior=[1.0, 1.0, 1.0]),
        lambda: corrected_mean([1.0], [1.0], [1.0, 0.0]),
        lambda: corrected_mean([1.0, math.nan], [1.0, 0.0], [1.0, 0.0]),
        lambda: mean_with_error([1.0, 2.0], ["a"]),
        lambda: difference_with_error([1.0], [1.0, 0.0]),
        lambda: spread_at([[1.0]], [[1.0]], 1),
        lambda: power_of(10, 0.1, 0.0),
        lambda: power_of(1, 0.1, 1.0),
        lambda: power_of(10, math.inf, 1.0),
        lambda: bootstrap_kinds(lambda counts: counts, [3, 0], rng(0)),
        lambda: detectable_difference(10, 1.0, power=0.01),
    ],
)
def test_what_means_nothing_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"but must|not above 0") as refused:
        wrong()
    assert "\n" not in str(refused.value)
