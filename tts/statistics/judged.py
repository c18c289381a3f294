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
    the weighted chances. The problems are taken as given: the interval covers no others, so that it is narrower than
    one resampled by problem.

    Source: Bayes@N, Hariri et al., "Don't Pass@k" (2510.04265), equations from the authors' package. Differs: problems
    may have different numbers of samples.

    Args:
        counts: [P, C], how many samples of each problem are of each category; for verdicts, wrong and right ones.
        weights: [C], the score of each category.
        prior: Parameters of the Dirichlet law, a number or broadcast to [P, C], above 0; 1: uniform.
        level: The level of the interval, in (0, 1).

    Raises:
        ConfigError: no problem, a negative or unknown count, rows or weights of another length.
    """
    check_level(level)
    table, weight = numbers("counts", counts), vector("weights", weights)
    check_table("counts", table, 0)
    if not len(table) or table.shape[1] != len(weight):
        raise ConfigError(
            f"counts is of shape {table.shape} and weights of {weight.shape}, but must be [P, C] and [C], with P of "
            "at least 1"
        )
    given = numbers("prior", prior)
    try:
        before = np.broadcast_to(given, table.shape)
    except ValueError:
        raise ConfigError(f"prior is of shape {given.shape}, but must be a number or fit {table.shape}") from None
    if not (np.isfinite(before).all() and (before > 0).all()):
        raise ConfigError("prior has a value that is not above 0")
    after = table + before
    total = after.sum(axis=1)
    means = after @ weight / total
    variances = (after @ weight**2 / total - means**2) / (total + 1)
    deviation = math.sqrt(max(0.0, float(variances.sum()))) / len(table)
    return Belief(normal_interval(float(means.mean()), deviation, level, len(table)), deviation)


@dataclass(frozen=True, slots=True)
class CorrectedMean:
    """The accuracy of what a judge scored, corrected by checked verdicts.

    Args:
        mean: The mean with the interval of the normal law. Its `num` counts checked verdicts.
        error: Standard error.
        weight: What the judge's scores count, in [0, 1]; 0: checked verdicts alone.
        judged: The mean of all the judge's scores, without correction.
    """

    mean: Estimate
    error: float
    weight: float
    judged: float


def corrected_mean(verdicts: ArrayLike, scores: ArrayLike, others: ArrayLike, *, level: float = LEVEL) -> CorrectedMean:
    """Return the mean verdict over all items, from a judge's scores and a few true verdicts.

    The scores are of all items. The true verdicts are of items that were drawn at random.

    A judge may be wrong in any way: the mean is free of its bias, and the better it agrees, the narrower the interval.

    Source: Angelopoulos, Duchi, Zrnic, "PPI++" (2311.01453), the mean with power tuning, from the code of ppi_py as
    remembered; weights are clipped to [0, 1] as there. The interval is asymptotic: with few checked items it is too
    narrow.

    Args:
        verdicts: [n], true verdicts of the checked items, n at least 2.
        scores: [n], the judge's of the same items.
        others: [N], the judge's of the items that were not checked, N at least 2. Items must be independent.
        level: The level of the interval, in (0, 1).

    Raises:
        ConfigError: a value that is not known, lengths that differ, or fewer than two items.
    """
    check_level(level)
    truth, seen, unseen = vector("verdicts", verdicts), vector("scores", scores), vector("others", others)
    if len(truth) != len(seen) or min(len(truth), len(unseen)) < 2:
        raise ConfigError(
            f"verdicts is of length {len(truth)}, scores of {len(seen)} and others of {len(unseen)}, but must be of "
            "one length "
            "(verdicts and scores), and of at least 2 each"
        )
    n, rest, both = len(truth), len(unseen), np.concatenate([seen, unseen])
    spread = float(both.var())
    together = float(((truth - truth.mean()) * (seen - seen.mean())).mean())
    weight = min(1.0, max(0.0, together / ((1 + n / rest) * spread))) if spread > 0 else 0.0
    value = float(truth.mean() + weight * (unseen.mean() - seen.mean()))
    error = math.sqrt(float((truth - weight * seen).var(ddof=1)) / n + weight**2 * float(unseen.var(ddof=1)) / rest)
    return CorrectedMean(normal_interval(value, error, level, n), error, weight, float(both.mean()))
