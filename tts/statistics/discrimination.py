"""How well a score tells right from wrong, and whether it is a probability."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse, stats

from tts.errors import ConfigError
from tts.statistics.proportions import LEVEL, Estimate, numbers
from tts.statistics.resampling import RESAMPLES, Floats, Whole, bootstrap, number_clusters, ratio


@dataclass(frozen=True, slots=True)
class Bin:
    """Observations whose score is in [low, high), or in [low, high] for the last bin.

    Args:
        num: The number of observations.
        score: The mean of their scores; NaN without any.
        label: The mean of their labels; NaN without any.
    """

    low: float
    high: float
    num: int
    score: float
    label: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """The distance of scores from frequencies, and the reliability table behind it.

    The `error` is in [0, 1], and NaN without observations.
    """

    error: float
    table: tuple[Bin, ...]


def roc_auc(scores: ArrayLike, labels: ArrayLike) -> float:
    """Return the probability that an observation of label 1 scores above an observation of label 0.

    A tie counts half.

    Args:
        scores: [N], any numbers.
        labels: [N], 0 or 1.

    Returns:
        A probability in [0, 1]; NaN where one of the labels is absent.

    Raises:
        ConfigError: a NaN among the scores, another label, or lengths that differ.
    """
    score, label = scores_and_labels(scores, labels)
    positives, negatives = label.sum(), (1 - label).sum()
    if not positives or not negatives:
        return math.nan
    positive_ranks = stats.rankdata(score)[label == 1]
    wins = positive_ranks.sum() - positives * (positives + 1) / 2  # pairs in which the positive scores higher
    return float(wins / (positives * negatives))


def brier(scores: ArrayLike, labels: ArrayLike) -> float:
    """Return the mean squared difference between scores in [0, 1] and labels.

    The result is NaN without observations. The arguments are those of `roc_auc`.
    """
    score, label = scores_and_labels(scores, labels, unit=True)
    return float(((score - label) ** 2).mean()) if len(score) else math.nan


def expected_calibration_error(scores: ArrayLike, labels: ArrayLike, bins: int = 10) -> Calibration:
    """Return the mean distance between score and frequency over bins of equal *width*.

    Bins are weighted by their observations.

    The distance is never below 0, so that by chance alone even a perfect score has an error of about sqrt(bins / N) /
    3.

    Source: Naeini, Cooper and Hauskrecht, "Obtaining well calibrated probabilities using Bayesian binning" (2015).

    Args:
        scores: [N], probabilities in [0, 1].
        labels: [N], 0 or 1.
        bins: The number K of bins. Each is 1/K wide, and a score of 1 belongs to the last.

    Raises:
        ConfigError: as `roc_auc`, a score outside [0, 1], or fewer than one bin.
    """
    score, label = scores_and_labels(scores, labels, unit=True)
    bin_of = _bin(score, bins)
    bin_sizes = np.bincount(bin_of, minlength=bins)
    counts = bin_sizes.astype(np.float64)
    score_sums = np.bincount(bin_of, score, bins).astype(np.float64)
    label_sums = np.bincount(bin_of, label, bins).astype(np.float64)
    mean_scores, mean_labels = ratio(score_sums, counts), ratio(label_sums, counts)
    table = tuple(
        Bin(
            low=i / bins,
            high=(i + 1) / bins,
            num=int(bin_sizes[i]),
            score=float(mean_scores[i]),
            label=float(mean_labels[i]),
        )
        for i in range(bins)
    )
    error = float(np.abs(score_sums - label_sums).sum() / len(score)) if len(score) else math.nan
    return Calibration(error, table)


def clustered_auc(
    scores: ArrayLike,
    labels: ArrayLike,
    clusters: ArrayLike,
    *,
    rng: np.random.Generator,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> Estimate:
    """Return `roc_auc` with an interval from clusters drawn again.

    A pair of observations counts as often as the clusters of both were drawn. Positives and negatives of each distinct
    score are summed with the counts of their clusters, so that a resample costs one pass over the observations.

    Args:
        scores: [N], a score of each observation.
        labels: [N], whether each observation is positive.
        clusters: [N], the problem of each observation, as any number or name.
        rng: The generator of the resamples.
        level: The level of the interval, in (0, 1).
        resamples: The number of resamples.

    Raises:
        ConfigError: as `roc_auc`.
    """
    score, label = scores_and_labels(scores, labels)
    cluster_of, num_clusters = number_clusters(clusters, len(score))
    levels, level_of = np.unique(score, return_inverse=True)

    def count_label(value: int) -> Any:  # a sparse table [clusters, levels] of the observations with a label
        has_label = label == value
        places = (cluster_of[has_label], level_of[has_label])
        return sparse.csr_array((np.ones(has_label.sum()), places), (num_clusters, len(levels)))

    negatives, positives = count_label(0), count_label(1)

    def auc(counts: Floats) -> Floats:
        num_positive, num_negative = counts @ positives, counts @ negatives  # [R, levels]
        num_below = np.cumsum(num_negative, axis=1) - num_negative / 2  # a tie counts half
        wins = (num_positive * num_below).sum(axis=1)
        return ratio(wins, num_positive.sum(axis=1) * num_negative.sum(axis=1))

    return bootstrap(auc, num_clusters, rng, level=level, resamples=resamples, width=4 * len(levels))


def clustered_calibration_error(
    scores: ArrayLike,
    labels: ArrayLike,
    clusters: ArrayLike,
    bins: int = 10,
    *,
    rng: np.random.Generator,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> Estimate:
    """Return `expected_calibration_error` with a basic bootstrap interval within [0, 1].

    Clusters are as in `clustered_auc`.

    Raises:
        ConfigError: as `expected_calibration_error`.
    """
    score, label = scores_and_labels(scores, labels, unit=True)
    cluster_of, num_clusters = number_clusters(clusters, len(score))
    cell_of = cluster_of * bins + _bin(score, bins)
    gaps = np.bincount(cell_of, score - label, num_clusters * bins).reshape(num_clusters, bins)
    sizes = np.bincount(cluster_of, minlength=num_clusters).astype(np.float64)

    def error(counts: Floats) -> Floats:
        return ratio(np.abs(counts @ gaps).sum(axis=-1), counts @ sizes)

    estimate = bootstrap(error, num_clusters, rng, level=level, resamples=resamples, method="basic")
    low, high = np.clip([estimate.low, estimate.high], 0.0, 1.0).tolist()  # NaN stays NaN
    return Estimate(estimate.value, low, high, level, num_clusters)


def _bin(score: Floats, bins: int) -> Whole:
    if bins < 1:
        raise ConfigError(f"bins is {bins}, but must be at least 1")
    return np.minimum((score * bins).astype(np.int64), bins - 1)


def scores_and_labels(scores: ArrayLike, labels: ArrayLike, *, unit: bool = False) -> tuple[Floats, Floats]:
    """Return scores and labels as arrays of one length.

    Args:
        scores: [N], a score of each observation.
        labels: [N], whether each observation is positive.
        unit: Whether scores must be probabilities.

    Raises:
        ConfigError: a score that is unknown or out of range, another label, or lengths that differ.
    """
    score, label = numbers("scores", scores), numbers("labels", labels)
    if score.ndim != 1 or score.shape != label.shape:
        raise ConfigError(
            f"scores is of shape {score.shape} and labels of {label.shape}, but must be two lists of one length"
        )
    num_unknown = int(np.isnan(score).sum())
    if num_unknown > 0:
        raise ConfigError(
            f"scores has {num_unknown} NaN of {len(score)}, but must be known",
            hint="leave those out, and say how many they are",
        )
    if not np.isin(label, (0, 1)).all():
        raise ConfigError("labels has a value that is neither 0 nor 1")
    if unit and ((score < 0) | (score > 1)).any():
        raise ConfigError(
            f"scores go from {score.min()} to {score.max()}, but must be probabilities", hint="map them to [0, 1] first"
        )
    return score, label
