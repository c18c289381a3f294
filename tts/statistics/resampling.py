"""Means and other statistics of clustered observations: the bootstrap by problem."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from tts.errors import ConfigError, quote
from tts.statistics.proportions import LEVEL, Estimate, check_level, numbers

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
# How often each cluster was drawn, [R, P], to the statistic of each resample, [R]; NaN where it is undefined.
Statistic = Callable[[Floats], Floats]
Method = Literal["percentile", "basic"]

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
    method: Method = "percentile",
    width: int = 1,
) -> Estimate:
    """Return a statistic of clusters with an interval from clusters drawn again with replacement.

    Idea: a statistic is written as a function of how often each cluster counts, so that all resamples are one product
        of matrices. A difference of two systems is one statistic that computes both from the same counts: so the
        systems are paired.
    Source: Efron and Tibshirani, "An introduction to the bootstrap" (1993), chapter 13. The ends are widened as in
        Hesterberg, "What teachers should know about the bootstrap" (2015), arXiv:1411.5279. So the interval of a mean
        is right for few clusters too, where plain percentiles are too narrow.

    Args:
        statistic: Counts [R, P] to values [R].
        num_clusters: P.
        rng: Draws the resamples.
        level: The level of the interval, in (0, 1).
        resamples: The number of resamples.
        method: "percentile": the resamples' quantiles. "basic": those reflected at the estimate, for a statistic that
            resampling moves to one side (a calibration error grows by it).
        width: The numbers that the statistic holds for one resample, if more than P. They bound how many resamples are
            computed at once, hence the memory.

    Returns:
        Ends are NaN with fewer than two clusters, or where more than a twentieth of the resamples leave the statistic
        undefined.

    Raises:
        ConfigError: a level outside (0, 1), or fewer than one resample.
    """
    if num_clusters == 0:
        _check(level, resamples)
        return Estimate(math.nan, math.nan, math.nan, level, 0)
    return bootstrap_kinds(
        lambda counts: statistic(counts)[:, None],
        np.ones(num_clusters),
        rng,
        level=level,
        resamples=resamples,
        method=method,
        width=width,
    )[0]


def bootstrap_kinds(
    statistics: Statistic,
    sizes: ArrayLike,
    rng: np.random.Generator,
    *,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    method: Method = "percentile",
    width: int = 1,
) -> tuple[Estimate, ...]:
    """Return several statistics of the same resamples, as `bootstrap` does.

    Clusters that are alike are drawn together.

    So a million problems that are solved or not cost what two do.

    Args:
        statistics: How often each kind of cluster counts, [R, U], to values [R, D].
        sizes: [U], how many clusters of each kind there are, at least one each.
        rng: As in `bootstrap`.
        level: As in `bootstrap`.
        resamples: As in `bootstrap`.
        method: As in `bootstrap`.
        width: As in `bootstrap`.

    Raises:
        ConfigError: as `bootstrap`, or no clusters.
    """
    _check(level, resamples)
    size = np.asarray(sizes).astype(np.int64)
    if not len(size) or (size < 1).any():
        raise ConfigError(
            f"sizes has {len(size)} kinds, the least of {size.min(initial=0)} clusters, but must have one of each at "
            "least"
        )
    num_clusters = int(size.sum())
    values = statistics(size[None, :].astype(np.float64))[0].tolist()
    if num_clusters == 1:
        return tuple(Estimate(value, math.nan, math.nan, level, 1) for value in values)
    found = np.concatenate([statistics(_counts(rng, rows, size)) for rows in blocks(resamples, max(width, len(size)))])
    widened = math.sqrt(num_clusters / (num_clusters - 1)) * stats.t.isf((1 - level) / 2, num_clusters - 1)
    tail = float(stats.norm.sf(widened))
    return tuple(
        Estimate(value, *_ends(value, each, tail, method), level, num_clusters)
        for value, each in zip(values, found.T, strict=True)
    )


def clustered_mean(
    totals: ArrayLike,
    sizes: ArrayLike | None = None,
    *,
    rng: np.random.Generator,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    bounds: tuple[float, float] | None = None,
) -> Estimate:
    """Return a mean over clusters: of a statistic of each problem, or of all observations with `sizes`.

    With `sizes` the observations of all problems count together.

    Without bounds the interval is that of `bootstrap`. With bounds it is that of the Bayesian bootstrap, for which half
    a problem of the usual size is imagined at either bound. So it is never a point: where all problems are solved,
    those drawn again would be solved too, which is no evidence for the next one. Of problems that are solved or not it
    is Jeffreys's interval.

    Source: Rubin, "The Bayesian bootstrap" (1981); Brown, Cai and DasGupta, "Interval estimation for a binomial
    proportion"
        (2001), for Jeffreys's interval.

    Args:
        totals: [P], a value for each problem, or the sum of its observations.
        sizes: [P], how many those are; None: one each.
        rng: The generator of the resamples.
        level: The level of the interval, in (0, 1).
        resamples: The number of resamples.
        bounds: Least and greatest possible value, such as (0, 1) for shares.

    Returns:
        The sum of totals over the sum of sizes; NaN where that is 0. Problems of size 0 do not count.

    Raises:
        ConfigError: a NaN or infinite value, lengths that differ, a negative size, or a value outside the bounds.
    """
    total = vector("totals", totals)
    size = np.ones(len(total)) if sizes is None else vector("sizes", sizes)
    if len(size) != len(total) or (size < 0).any():
        raise ConfigError(
            f"sizes is of length {len(size)} for {len(total)} totals, but must have a number of at least 0 for each"
        )
    if (total[size == 0] != 0).any():
        raise ConfigError("totals has a value for a problem of size 0, but must be 0 there")
    _check(level, resamples)
    total, size = total[size > 0], size[size > 0]
    if not (num := len(total)):
        return Estimate(math.nan, math.nan, math.nan, level, 0)
    value = float(total.sum() / size.sum())
    different, alike = kinds(np.stack([total, size], axis=1))
    total, size = different.T

    def mean(counts: Floats) -> Floats:
        return ratio(counts @ total, counts @ size)

    if bounds is None:
        estimate = bootstrap_kinds(lambda counts: mean(counts)[:, None], alike, rng, level=level, resamples=resamples)[
            0
        ]
        return replace(estimate, value=value)
    means = total / size
    if (means < bounds[0] - _ROUNDING).any() or (means > bounds[1] + _ROUNDING).any():
        raise ConfigError(f"totals has means from {means.min()} to {means.max()}, but bounds is {bounds}")
    imagined = np.full(2, size @ alike / num)
    total, size, alike = np.r_[total, imagined * bounds], np.r_[size, imagined], np.r_[alike, 0.5, 0.5]
    # gamma weights that sum to one are of Dirichlet's law; equal problems have one weight, whose shape is their number
    drawn = (rng.standard_gamma(alike, (rows, len(alike))) for rows in blocks(resamples, len(alike)))
    found = np.concatenate([mean(weights) for weights in drawn])
    low, high = (float(end) for end in np.quantile(found, [(1 - level) / 2, (1 + level) / 2]))
    return Estimate(value, min(low, value), max(high, value), level, num)


def _ends(value: float, found: Floats, tail: float, method: Method) -> tuple[float, float]:
    undefined = np.isnan(found)
    if math.isnan(value) or undefined.mean() > _MOST_UNDEFINED:
        return math.nan, math.nan
    low, high = (float(end) for end in np.quantile(found[~undefined], [tail, 1 - tail]))
    return (2 * value - high, 2 * value - low) if method == "basic" else (low, high)


def _counts(rng: np.random.Generator, rows: int, sizes: Whole) -> Floats:
    """Return how often each kind is drawn, [rows, U], as many clusters being drawn as there are."""
    kinds, num_clusters = len(sizes), int(sizes.sum())
    if kinds < num_clusters:
        return rng.multinomial(num_clusters, sizes / num_clusters, rows).astype(np.float64)
    drawn = rng.integers(kinds, size=(rows, kinds)) + kinds * np.arange(rows)[:, None]
    return np.bincount(drawn.ravel(), minlength=rows * kinds).reshape(rows, kinds).astype(np.float64)


def kinds(rows: Floats) -> tuple[Floats, Whole]:
    """Return the different rows of a table [P, D] in ascending order, and how often each occurs.

    Rows that differ by rounding are equal. So the number of kinds, and the draws of resamples, do not depend on the
    machine.
    """
    scale = np.abs(rows).max(axis=0)
    keys = np.round(rows / np.where(scale > 0, scale, 1), 12)
    _, first, counts = np.unique(keys, axis=0, return_index=True, return_counts=True)
    return rows[first], counts


def blocks(rows: int, width: int) -> list[int]:
    """Return how many rows of that width to make at once, so that a table of them stays small."""
    most = max(1, _BLOCK // width)
    return [min(most, rows - start) for start in range(0, rows, most)]


def ratio(above: Floats, below: Floats) -> Floats:
    """Return a quotient of counts, NaN where there is nothing below."""
    return np.where(below > 0, above / np.where(below > 0, below, 1), np.nan)


def _check(level: float, resamples: int) -> None:
    check_level(level)
    if resamples < 1:
        raise ConfigError(f"resamples is {resamples}, but must be at least 1")


def number_clusters(clusters: ArrayLike, length: int) -> tuple[Whole, int]:
    """Return the number of each value's cluster, [length], and how many clusters there are.

    Raises:
        ConfigError: there is not one name for each value.
    """
    try:
        names, at = np.unique(given := np.asarray(clusters), return_inverse=True)
    except (TypeError, ValueError):
        raise ConfigError(
            f"clusters is {quote(clusters)}, but must name one cluster for each of {length} values, all by texts or "
            "all by numbers"
        ) from None
    if given.shape != (length,):
        raise ConfigError(f"clusters is of shape {given.shape}, but must name one cluster for each of {length} values")
    return at.astype(np.int64), len(names)


def vector(name: str, values: ArrayLike) -> Floats:
    """Return a list of numbers; refuse what is none, and values that are not known."""
    found = numbers(name, values)
    if found.ndim != 1:
        raise ConfigError(f"{name} is of shape {found.shape}, but must be a list of numbers")
    if not np.isfinite(found).all():
        raise ConfigError(
            f"{name} has {int((~np.isfinite(found)).sum())} values of {len(found)} that are NaN or infinite, but must "
            "be known",
            hint="leave those problems out, and say how many they are",
        )
    return found
