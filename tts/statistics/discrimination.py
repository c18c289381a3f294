"""How well a score tells right from wrong, and whether it is a probability."""

from __future__ import annotations

import math
from dataclasses import dataclass

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
        num: How many.
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
    """Return the probability that an observation of label 1 scores above one of label 0.

    A tie counts half.

    Args:
        scores: [N], any numbers.
        labels: [N], 0 or 1.

    Returns:
        In [0, 1]; NaN where one of the labels is absent.

    Raises:
        ConfigError: a NaN among the scores, another label, or lengths that differ.
    """
    score, label = scores_and_labels(scores, labels)
    positives, negatives = label.sum(), (1 - label).sum()
    if not positives or not negatives:
        return math.nan
    below = stats.rankdata(score)[label == 1].sum() - positives * (positives + 1) / 2
    return float(below / (positives * negatives))


def brier(scores: ArrayLike, labels: ArrayLike) -> float:
    """Return the mean squared difference between scores in [0, 1] and labels.

    It is NaN without observations. The arguments are those of `roc_auc`.
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
        bins: K; each is 1/K wide, and 1 belongs to the last.

    Raises:
        ConfigError: as `roc_auc`, a score outside [0, 1], or fewer than one bin.
    """
    score, label = scores_and_labels(scores, labels, unit=True)
    at = _bin(score, bins)
    num, score_sum, label_sum = (np.bincount(at, weights, bins) for weights in (None, score, label))
    table = tuple(
        Bin(
            i / bins,
            (i + 1) / bins,
            int(num[i]),
            *(float(each[i] / num[i]) if num[i] else math.nan for each in (score_sum, label_sum)),
        )
        for i in range(bins)
    )
    return Calibration(float(np.abs(score_sum - label_sum).sum() / len(score)) if len(score) else math.nan, table)


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

    A pair of observations is counted as often as the clusters of both were drawn: positives and negatives of each level
    of score are summed with those counts, so that a resample costs what one pass over the observations does.

    Args:
        scores: [N], a score of each observation.
        labels: [N], whether each observation is positive.
        clusters: [N], which problem each observation is of, in whatever numbering.
        rng: The generator of the resamples.
        level: The level of the interval, in (0, 1).
        resamples: The number of resamples.

    Raises:
        ConfigError: as `roc_auc`.
    """
    score, label = scores_and_labels(scores, labels)
    at, num_clusters = number_clusters(clusters, len(score))
    levels, level_at = np.unique(score, return_inverse=True)
    shape = (num_clusters, len(levels))
    negatives, positives = (
        sparse.csr_array((np.ones((label == i).sum()), (at[label == i], level_at[label == i])), shape) for i in (0, 1)
    )

    def auc(counts: Floats) -> Floats:
        above, below = counts @ positives, counts @ negatives  # [R, levels]
        wins = (above * (np.cumsum(below, axis=1) - below / 2)).sum(axis=1)
        return ratio(wins, above.sum(axis=1) * below.sum(axis=1))

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
    at, num_clusters = number_clusters(clusters, len(score))
    place = at * bins + _bin(score, bins)
    gaps = np.bincount(place, score - label, num_clusters * bins).reshape(num_clusters, bins)
    sizes = np.bincount(at, minlength=num_clusters).astype(np.float64)

    def error(counts: Floats) -> Floats:
        return ratio(np.abs(counts @ gaps).sum(axis=-1), counts @ sizes)

    estimate = bootstrap(error, num_clusters, rng, level=level, resamples=resamples, method="basic")
    low, high = (max(0.0, min(1.0, end)) if not math.isnan(end) else end for end in (estimate.low, estimate.high))
    return Estimate(estimate.value, low, high, level, num_clusters)


def _bin(score: Floats, bins: int) -> Whole:
    if bins < 1:
        raise ConfigError(f"bins is {bins}, but must be at least 1")
    return np.minimum((score * bins).astype(np.int64), bins - 1)


def scores_and_labels(scores: ArrayLike, labels: ArrayLike, *, unit: bool = False) -> tuple[Floats, Floats]:
    """Return both as arrays of one length.

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
    if (missing := int(np.isnan(score).sum())) > 0:
        raise ConfigError(
            f"scores has {missing} NaN of {len(score)}, but must be known",
            hint="leave those out, and say how many they are",
        )
    if not np.isin(label, (0, 1)).all():
        raise ConfigError("labels has a value that is neither 0 nor 1")
    if unit and ((score < 0) | (score > 1)).any():
        raise ConfigError(
            f"scores go from {score.min()} to {score.max()}, but must be probabilities", hint="map them to [0, 1] first"
        )
    return score, label
