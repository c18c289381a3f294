"""What a score goes with: AUC within problems, and rank correlations with something held fixed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tts.errors import ConfigError
from tts.statistics import clustered_auc, clustered_auc_within, clustered_correlation, roc_auc


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def drawn(num_clusters: int = 60, size: int = 8) -> tuple[np.ndarray, ...]:
    made = rng()
    at = np.repeat(np.arange(num_clusters), size)
    hard = made.normal(size=num_clusters)[at]
    label = (made.random(len(at)) < 1 / (1 + np.exp(hard))).astype(float)
    return at, hard, label, np.round(made.normal(size=len(at)) + label, 1)


def test_auc_within_is_the_mean_of_each_problems_own_ties_included() -> None:
    at, _, label, score = drawn()
    shuffled = rng().permutation(len(at))
    names = np.array([f"problem {i}" for i in at])
    found = clustered_auc_within(score[shuffled], label[shuffled], names[shuffled], rng=rng())
    each = [roc_auc(score[at == i], label[at == i]) for i in range(60)]
    assert found.value == pytest.approx(np.nanmean(each))
    assert found.num == np.isfinite(each).sum() < 60
    assert found.low < found.value < found.high


def test_infinite_scores_rank_as_any_other() -> None:
    """Log-odds of a sure verifier are infinite."""
    assert (
        clustered_auc_within([-np.inf, 0, np.inf], [0, 0, 1], [0, 0, 0], rng=rng()).value
        == roc_auc([-np.inf, 0, np.inf], [0, 0, 1])
        == 1
    )


def test_a_score_that_only_knows_the_problem_tells_nothing_within_it() -> None:
    at, hard, label, _ = drawn()
    assert clustered_auc(-hard, label, at, rng=rng()).value > 0.6
    assert clustered_auc_within(-hard, label, at, rng=rng()).value == 0.5


def test_auc_within_is_unknown_where_no_problem_has_both_kinds() -> None:
    found = clustered_auc_within([1, 2, 3], [1, 1, 0], [0, 0, 1], rng=rng())
    assert np.isnan(found.value)
    assert found.num == 0
    assert np.isnan(clustered_auc_within([], [], [], rng=rng()).value)


def test_without_anything_held_fixed_it_is_spearmans_correlation() -> None:
    at, hard, _, score = drawn()
    found = clustered_correlation(score, hard + score, at, rng=rng())
    assert found.value == pytest.approx(stats.spearmanr(score, hard + score)[0])
    assert found.low < found.value < found.high


def test_of_two_kinds_it_is_the_partial_correlation_given_their_indicator() -> None:
    at, hard, label, score = drawn()
    x, y = stats.rankdata(score), stats.rankdata(hard - score + 2 * label)
    r = np.corrcoef([x, y, label])
    partial = (r[0, 1] - r[0, 2] * r[1, 2]) / np.sqrt((1 - r[0, 2] ** 2) * (1 - r[1, 2] ** 2))
    assert clustered_correlation(score, hard - score + 2 * label, at, label, rng=rng()).value == pytest.approx(partial)


def test_kinds_within_problems_and_across_them_are_summed_alike() -> None:
    """The short way, where each kind is of one problem, against the long one, which one kind of two problems is enough
    to ask for.
    """
    at, hard, label, score = drawn()
    kinds = 2 * at + label
    alone = clustered_correlation(score, hard + score**2, at, kinds, rng=rng())
    # two observations of a kind of their own add nothing to either sum but the ranks they hold, which are above all
    # others
    of_all = (
        np.r_[values, pair]
        for values, pair in ((score, (9, 9)), (hard + score**2, (99, 99)), (at, (0, 1)), (kinds, (999, 999)))
    )
    both = clustered_correlation(*of_all, rng=rng())
    assert (both.value, both.low, both.high) == pytest.approx((alone.value, alone.low, alone.high), abs=1e-9)


def test_what_does_not_vary_has_no_correlation() -> None:
    assert np.isnan(clustered_correlation([1, 2, 3, 4], [5, 5, 5, 5], [0, 0, 1, 1], rng=rng()).value)
    assert np.isnan(clustered_correlation([1, 2, 3, 4], [1, 2, 3, 4], [0, 1, 2, 3], [0, 1, 2, 3], rng=rng()).value)
    assert np.isnan(clustered_correlation([], [], [], rng=rng()).value)


def test_an_interval_over_problems_holds_what_samples_of_one_problem_share() -> None:
    """Ten samples of each problem that say the same are one sample: the interval is as wide."""
    made = rng()
    x = made.normal(size=80)
    y = x + made.normal(size=80)
    once = clustered_correlation(x, y, np.arange(80), rng=rng())
    tenfold = clustered_correlation(*(np.repeat(each, 10) for each in (x, y, np.arange(80))), rng=rng())
    assert (tenfold.low, tenfold.high) == pytest.approx((once.low, once.high), abs=1e-9)


def test_what_is_not_valid_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"scores.*1.*2"):
        clustered_auc_within([1, np.nan], [0, 1], [0, 0], rng=rng())
    with pytest.raises(ConfigError, match=r"labels.*that.*0.*1"):
        clustered_auc_within([1, 2], [0, 2], [0, 0], rng=rng())
    with pytest.raises(ConfigError, match="lengths 2, 3, 2"):
        clustered_correlation([1, 2], [1, 2, 3], [0, 0], rng=rng())
