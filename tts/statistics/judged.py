"""Accuracy by posterior belief (Bayes@N), and accuracy by a judge that a few checked verdicts correct."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from tts.errors import ConfigError
from tts.statistics.proportions import LEVEL, Estimate, check_level, numbers
from tts.statistics.resampling import vector
from tts.statistics.standard_errors import check_table, normal_interval


@dataclass(frozen=True, slots=True)
class Belief:
    """A posterior mean with a credible interval of the normal law, and the posterior's standard deviation."""

    mean: Estimate
    deviation: float


def bayes_at_n(
    counts: ArrayLike, weights: ArrayLike = (0.0, 1.0), *, prior: ArrayLike = 1.0, level: float = LEVEL
) -> Belief:
    """Return the posterior mean of a model's score on these problems, and its uncertainty.

    Both come from a few samples of each problem.

    Each problem's outcomes are categorical, under a Dirichlet prior of its own. The score is the mean over problems of
    the weighted chances. The problems are taken as given: the interval covers no other problems, so that it is narrower
    than an interval from problems drawn again.

    Source: Bayes@N, Hariri et al., "Don't Pass@k" (2510.04265), equations from the authors' package. Differs: problems
    may have different numbers of samples.

    Args:
        counts: [P, C], the number of samples of each problem in each category; for verdicts: wrong, right.
        weights: [C], the score of each category.
        prior: Parameters of the Dirichlet law above 0, one number or an array that fits [P, C]; 1: uniform.
        level: The level of the interval, in (0, 1).

    Raises:
        ConfigError: no problem, a negative or unknown count, rows or weights of another length.
    """
    check_level(level)
    count_table, category_weights = numbers("counts", counts), vector("weights", weights)
    check_table("counts", count_table, 0)
    if not len(count_table) or count_table.shape[1] != len(category_weights):
        raise ConfigError(
            f"counts is of shape {count_table.shape} and weights of {category_weights.shape}, but must be [P, C] and "
            "[C], with P of at least 1"
        )
    prior_values = numbers("prior", prior)
    try:
        prior_table = np.broadcast_to(prior_values, count_table.shape)
    except ValueError:
        raise ConfigError(
            f"prior is of shape {prior_values.shape}, but must be a number or fit {count_table.shape}"
        ) from None
    if not (np.isfinite(prior_table).all() and (prior_table > 0).all()):
        raise ConfigError("prior has a value that is not above 0")
    posterior = count_table + prior_table  # [P, C], parameters of Dirichlet laws
    posterior_sums = posterior.sum(axis=1)
    means = posterior @ category_weights / posterior_sums
    variances = (posterior @ category_weights**2 / posterior_sums - means**2) / (posterior_sums + 1)
    deviation = math.sqrt(max(0.0, float(variances.sum()))) / len(count_table)
    return Belief(normal_interval(float(means.mean()), deviation, level, len(count_table)), deviation)


@dataclass(frozen=True, slots=True)
class CorrectedMean:
    """The accuracy of items that a judge scored, corrected by checked verdicts.

    Args:
        mean: The mean with the interval of the normal law. Its `num` counts checked verdicts.
        error: Standard error.
        weight: The weight of the judge's scores, in [0, 1]; 0: checked verdicts alone count.
        judged: The mean of all the judge's scores, without correction.
    """

    mean: Estimate
    error: float
    weight: float
    judged: float


def corrected_mean(verdicts: ArrayLike, scores: ArrayLike, others: ArrayLike, *, level: float = LEVEL) -> CorrectedMean:
    """Return the mean verdict over all items, from a judge's scores and a few true verdicts.

    The judge scores all items. The true verdicts are of items that were drawn at random.

    A judge may be wrong in any way: the mean is free of the judge's bias. The better the judge agrees with the true
    verdicts, the narrower the interval.

    Source: Angelopoulos, Duchi, Zrnic, "PPI++" (2311.01453), the mean with power tuning, from the code of ppi_py as
    remembered; weights are clipped to [0, 1] as there. The interval is asymptotic: with few checked items it is too
    narrow.

    Args:
        verdicts: [n], true verdicts of the checked items, n at least 2.
        scores: [n], the judge's scores of the checked items.
        others: [N], the judge's scores of all other items, N at least 2. Items must be independent.
        level: The level of the interval, in (0, 1).

    Raises:
        ConfigError: a value that is not known, lengths that differ, or fewer than two items.
    """
    check_level(level)
    true_verdicts, checked_scores = vector("verdicts", verdicts), vector("scores", scores)
    other_scores = vector("others", others)
    if len(true_verdicts) != len(checked_scores) or min(len(true_verdicts), len(other_scores)) < 2:
        raise ConfigError(
            f"verdicts is of length {len(true_verdicts)}, scores of {len(checked_scores)} and others of "
            f"{len(other_scores)}, but must be of one length (verdicts and scores), and of at least 2 each"
        )
    num_checked, num_others = len(true_verdicts), len(other_scores)
    all_scores = np.concatenate([checked_scores, other_scores])
    variance = float(all_scores.var())
    covariance = float(((true_verdicts - true_verdicts.mean()) * (checked_scores - checked_scores.mean())).mean())
    weight = 0.0
    if variance > 0:
        weight = min(1.0, max(0.0, covariance / ((1 + num_checked / num_others) * variance)))
    value = float(true_verdicts.mean() + weight * (other_scores.mean() - checked_scores.mean()))
    error = math.sqrt(
        float((true_verdicts - weight * checked_scores).var(ddof=1)) / num_checked
        + weight**2 * float(other_scores.var(ddof=1)) / num_others
    )
    return CorrectedMean(normal_interval(value, error, level, num_checked), error, weight, float(all_scores.mean()))
