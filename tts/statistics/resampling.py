"""Means and other statistics of clustered observations: the bootstrap by problem."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from tts.errors import ConfigError
from tts.statistics.proportions import LEVEL, Estimate, check_level

Floats = NDArray[np.float64]
# How often each cluster was drawn, [R, P], to the statistic of each resample, [R]; NaN where it is undefined.
Statistic = Callable[[Floats], Floats]

RESAMPLES = 2000
_MOST_UNDEFINED = 0.05  # share of resamples; with more, the rest is no fair picture of the whole
_BLOCK = 2_000_000  # numbers of a table that is made at once
_ROUNDING = 1e-9


def bootstrap(
    statistic: Statistic,
    num_clusters: int,
    rng: np.random.Generator,
    *,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    method: Literal["percentile", "basic"] = "percentile",
) -> Estimate:
    """Return a statistic of clusters with an interval from clusters drawn again with replacement.

    Idea: a statistic is written as a function of how often each cluster counts, so that all resamples are one product of
        matrices. A difference of two systems is one statistic that computes both from the same counts: that pairs them.
    Source: Efron and Tibshirani, "An introduction to the bootstrap" (1993), chapter 13. The ends are widened as Hesterberg, "What
        teachers should know about the bootstrap" (2015), arXiv:1411.5279, has it, by which the interval of a mean is right for few
        clusters too: plain percentiles are those of a normal law with too small a variance.

    Args:
        statistic: counts [R, P] to values [R]. num_clusters: P. rng: draws the resamples.
        method: "percentile": the resamples' quantiles. "basic": those reflected at the estimate, for a statistic that resampling
            moves to one side (a calibration error grows by it).

    Returns:
        Ends are NaN with fewer than two clusters, or where more than a twentieth of the resamples leave the statistic undefined.

    Raises:
        ConfigError: a level outside (0, 1), or fewer than one resample.
    """
    _check(level, resamples)
    if num_clusters == 0:
        return Estimate(math.nan, math.nan, math.nan, level, 0)
    value = float(statistic(np.ones((1, num_clusters)))[0])
    if num_clusters == 1 or math.isnan(value):
        return Estimate(value, math.nan, math.nan, level, num_clusters)
    rows = max(1, _BLOCK // num_clusters)
    sizes = [min(rows, resamples - start) for start in range(0, resamples, rows)]
    found = np.concatenate([statistic(_counts(rng, size, num_clusters)) for size in sizes])
    undefined = np.isnan(found)
    if undefined.mean() > _MOST_UNDEFINED:
        return Estimate(value, math.nan, math.nan, level, num_clusters)
    widened = math.sqrt(num_clusters / (num_clusters - 1)) * stats.t.isf((1 - level) / 2, num_clusters - 1)
    tail = float(stats.norm.sf(widened))
    low, high = (float(end) for end in np.quantile(found[~undefined], [tail, 1 - tail]))
    if method == "basic":
        low, high = 2 * value - high, 2 * value - low
    return Estimate(value, low, high, level, num_clusters)


def clustered_mean(
    totals: ArrayLike,
    sizes: ArrayLike | None = None,
    *,
    rng: np.random.Generator,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    bounds: tuple[float, float] | None = None,
) -> Estimate:
    """Return a mean over clusters: of a statistic of each problem, or, with sizes, of all their observations together.

    Without bounds the interval is that of `bootstrap`. With bounds it is that of the Bayesian bootstrap, for which half a problem
    of the usual size is imagined at either bound. So it is never a point: where all problems are solved, those drawn again would be
    solved too, which says nothing of the next one. Of problems that are solved or not it is Jeffreys's interval.

    Source: Rubin, "The Bayesian bootstrap" (1981); Brown, Cai and DasGupta, "Interval estimation for a binomial proportion"
        (2001), for Jeffreys's interval.

    Args:
        totals: [P], a value for each problem, or the sum of its observations. sizes: [P], how many those are; None: one each.
        bounds: least and greatest possible value, such as (0, 1) for shares.

    Returns:
        The sum of totals over the sum of sizes; NaN where that is 0. Problems of size 0 say nothing and do not count.

    Raises:
        ConfigError: a NaN or infinite value, lengths that differ, a negative size, or a value outside the bounds.
    """
    total = _vector("totals", totals)
    size = np.ones(len(total)) if sizes is None else _vector("sizes", sizes)
    if len(size) != len(total) or (size < 0).any():
        raise ConfigError(f"sizes is of length {len(size)} for {len(total)} totals, but must have a number of at least 0 for each")
    if (total[size == 0] != 0).any():
        raise ConfigError("totals has a value for a problem of size 0, but must be 0 there")
    total, size = total[size > 0], size[size > 0]
    if bounds is None or not len(total):
        return bootstrap(lambda counts: ratio(counts @ total, counts @ size), len(total), rng, level=level, resamples=resamples)
    means = total / size
    if (means < bounds[0] - _ROUNDING).any() or (means > bounds[1] + _ROUNDING).any():
        raise ConfigError(f"totals has means from {means.min()} to {means.max()}, but bounds is {bounds}")
    _check(level, resamples)
    shape = np.r_[np.ones(len(total)), 0.5, 0.5]
    weights = rng.standard_gamma(shape, (resamples, len(shape)))  # [R, P + 2]; what sums to one is drawn from Dirichlet's law
    imagined = np.full(2, size.mean())
    found = (weights @ np.r_[total, imagined * bounds]) / (weights @ np.r_[size, imagined])
    value = float(total.sum() / size.sum())
    low, high = (float(end) for end in np.quantile(found, [(1 - level) / 2, (1 + level) / 2]))
    return Estimate(value, min(low, value), max(high, value), level, len(total))


def _counts(rng: np.random.Generator, rows: int, num_clusters: int) -> Floats:
    """Return how often each cluster is drawn, [rows, P], as many being drawn as there are."""
    drawn = rng.integers(num_clusters, size=(rows, num_clusters)) + num_clusters * np.arange(rows)[:, None]
    return np.bincount(drawn.ravel(), minlength=rows * num_clusters).reshape(rows, num_clusters).astype(np.float64)


def ratio(above: Floats, below: Floats) -> Floats:
    """Return a quotient of counts, NaN where there is nothing below."""
    return np.where(below > 0, above / np.where(below > 0, below, 1), np.nan)


def _check(level: float, resamples: int) -> None:
    check_level(level)
    if resamples < 1:
        raise ConfigError(f"resamples is {resamples}, but must be at least 1")


def _vector(name: str, values: ArrayLike) -> Floats:
    found = np.asarray(values, np.float64)
    if found.ndim != 1:
        raise ConfigError(f"{name} is of shape {found.shape}, but must be a list of numbers")
    if not np.isfinite(found).all():
        raise ConfigError(
            f"{name} has {int((~np.isfinite(found)).sum())} values of {len(found)} that are NaN or infinite, but must be known",
            hint="leave those problems out, and say how many they are",
        )
    return found
