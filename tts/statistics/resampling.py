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
_MOST_UNDEFINED = 0.05  # share of resamples with an undefined statistic; with more there is no interval
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

    Idea: a statistic is a function of the counts of clusters, that is how often each was drawn. So all resamples are
        one product of matrices. A difference of two systems is one statistic, which computes both systems from the same
        counts: so the systems are paired.
    Source: Efron and Tibshirani, "An introduction to the bootstrap" (1993), chapter 13. The ends are widened as in
        Hesterberg, "What teachers should know about the bootstrap" (2015), arXiv:1411.5279. So the interval of a mean
        is right for few clusters too, where plain percentiles are too narrow.

    Args:
        statistic: A function from counts [R, P] to values [R].
        num_clusters: The number P of clusters.
        rng: The generator of the resamples.
        level: The level of the interval, in (0, 1).
        resamples: The number of resamples.
        method: "percentile": the quantiles of the resamples. "basic": these quantiles reflected at the estimate, for a
            statistic that resampling moves to one side, as a calibration error, which grows.
        width: The numbers that the statistic holds for one resample, if more than P. This width bounds the resamples
            computed at once, hence the memory.

    Returns:
        The statistic with its interval. Ends are NaN with fewer than two clusters, or where more than a twentieth of
        the resamples leave the statistic undefined.

    Raises:
        ConfigError: a level outside (0, 1), or fewer than one resample.
    """
    if num_clusters == 0:
        _check(level, resamples)
        return Estimate(math.nan, math.nan, math.nan, level, 0)
    (estimate,) = bootstrap_kinds(
        lambda counts: statistic(counts)[:, None],
        np.ones(num_clusters),
        rng,
        level=level,
        resamples=resamples,
        method=method,
        width=width,
    )
    return estimate


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

    Clusters that are alike are of one kind, and are drawn together. So a million problems that are solved or not cost
    as much as two.

    Args:
        statistics: A function from the counts of kinds, [R, U], to values [R, D].
        sizes: [U], the number of clusters of each kind, at least one.
        rng: As in `bootstrap`.
        level: As in `bootstrap`.
        resamples: As in `bootstrap`.
        method: As in `bootstrap`.
        width: As in `bootstrap`.

    Raises:
        ConfigError: as `bootstrap`, or no clusters.
    """
    _check(level, resamples)
    kind_sizes = np.asarray(sizes).astype(np.int64)
    if not len(kind_sizes) or (kind_sizes < 1).any():
        raise ConfigError(
            f"sizes has {len(kind_sizes)} kinds, the least of {kind_sizes.min(initial=0)} clusters, but must have one "
            "of each at least"
        )
    num_clusters = int(kind_sizes.sum())
    values = statistics(kind_sizes[None, :].astype(np.float64))[0].tolist()
    if num_clusters == 1:
        return tuple(Estimate(value, math.nan, math.nan, level, 1) for value in values)
    block_rows = blocks(resamples, max(width, len(kind_sizes)))
    resampled = np.concatenate([statistics(_counts(rng, rows, kind_sizes)) for rows in block_rows])  # [R, D]
    z_widened = math.sqrt(num_clusters / (num_clusters - 1)) * stats.t.isf((1 - level) / 2, num_clusters - 1)
    tail = float(stats.norm.sf(z_widened))
    estimates: list[Estimate] = []
    for value, resampled_values in zip(values, resampled.T, strict=True):
        low, high = _ends(value, resampled_values, tail, method)
        estimates.append(Estimate(value, low, high, level, num_clusters))
    return tuple(estimates)


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
    a problem of the usual size is imagined at either bound. So the interval is never a point: where all problems are
    solved, resampled problems are solved too, which is no evidence for a new problem. For problems that are solved or
    not the interval is Jeffreys's.

    Source: Rubin, "The Bayesian bootstrap" (1981); Brown, Cai and DasGupta, "Interval estimation for a binomial
    proportion"
        (2001), for Jeffreys's interval.

    Args:
        totals: [P], a value for each problem, or the sum of its observations.
        sizes: [P], the number of observations of each problem; None: one each.
        rng: The generator of the resamples.
        level: The level of the interval, in (0, 1).
        resamples: The number of resamples.
        bounds: The least and the greatest possible value, such as (0, 1) for shares.

    Returns:
        The sum of totals over the sum of sizes; NaN if all sizes are 0. Problems of size 0 do not count.

    Raises:
        ConfigError: a NaN or infinite value, lengths that differ, a negative size, or a value outside the bounds.
    """
    return resample_mean(totals, sizes, rng=rng, level=level, resamples=resamples, bounds=bounds)[0]


def resample_mean(
    totals: ArrayLike,
    sizes: ArrayLike | None = None,
    *,
    rng: np.random.Generator,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    bounds: tuple[float, float] | None = None,
) -> tuple[Estimate, Floats]:
    """Return `clustered_mean`, and the means of its resamples, [R].

    Without bounds or clusters there are no means.
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
    num_clusters = len(total)
    if num_clusters == 0:
        return Estimate(math.nan, math.nan, math.nan, level, 0), np.zeros(0)
    value = float(total.sum() / size.sum())
    distinct_rows, multiplicities = kinds(np.stack([total, size], axis=1))
    total, size = distinct_rows.T

    def mean(counts: Floats) -> Floats:
        return ratio(counts @ total, counts @ size)

    if bounds is None:
        (estimate,) = bootstrap_kinds(
            lambda counts: mean(counts)[:, None], multiplicities, rng, level=level, resamples=resamples
        )
        return replace(estimate, value=value), np.zeros(0)
    means = total / size
    least, greatest = bounds
    if (means < least - _ROUNDING).any() or (means > greatest + _ROUNDING).any():
        raise ConfigError(f"totals has means from {means.min()} to {means.max()}, but bounds is {bounds}")
    imagined_sizes = np.full(2, size @ multiplicities / num_clusters)
    total, size = np.r_[total, imagined_sizes * bounds], np.r_[size, imagined_sizes]
    shapes = np.r_[multiplicities, 0.5, 0.5]  # of the gamma law; equal problems share one weight
    # gamma weights over their sum have Dirichlet's law
    weight_blocks = (rng.standard_gamma(shapes, (rows, len(shapes))) for rows in blocks(resamples, len(shapes)))
    resampled_means = np.concatenate([mean(weights) for weights in weight_blocks])
    low, high = np.quantile(resampled_means, [(1 - level) / 2, (1 + level) / 2]).tolist()
    return Estimate(value, min(low, value), max(high, value), level, num_clusters), resampled_means


def _ends(value: float, resampled: Floats, tail: float, method: Method) -> tuple[float, float]:
    """Return the ends of an interval from resampled values [R]; NaN where too many are undefined."""
    is_undefined = np.isnan(resampled)
    if math.isnan(value) or is_undefined.mean() > _MOST_UNDEFINED:
        return math.nan, math.nan
    low, high = np.quantile(resampled[~is_undefined], [tail, 1 - tail]).tolist()
    if method == "basic":
        return 2 * value - high, 2 * value - low
    return low, high


def _counts(rng: np.random.Generator, rows: int, sizes: Whole) -> Floats:
    """Draw as many clusters as there are, `rows` times, and return the counts of kinds, [rows, U]."""
    num_kinds, num_clusters = len(sizes), int(sizes.sum())
    if num_kinds < num_clusters:
        return rng.multinomial(num_clusters, sizes / num_clusters, rows).astype(np.float64)
    kind_draws = rng.integers(num_kinds, size=(rows, num_kinds))
    places = kind_draws + num_kinds * np.arange(rows)[:, None]  # in a flat table [rows, kinds]
    counts = np.bincount(places.ravel(), minlength=rows * num_kinds)
    return counts.reshape(rows, num_kinds).astype(np.float64)


def kinds(rows: Floats) -> tuple[Floats, Whole]:
    """Return the distinct rows of a table [P, D] in ascending order, and how often each occurs.

    Rows that differ by rounding are equal. So the number of kinds, and the draws of resamples, do not depend on the
    machine.
    """
    scale = np.abs(rows).max(axis=0)
    keys = np.round(rows / np.where(scale > 0, scale, 1), 12)
    _, first_places, counts = np.unique(keys, axis=0, return_index=True, return_counts=True)
    return rows[first_places], counts


def blocks(rows: int, width: int) -> list[int]:
    """Return the numbers of rows of the blocks into which a table is divided, so that each is small."""
    rows_per_block = max(1, _BLOCK // width)
    return [min(rows_per_block, rows - start) for start in range(0, rows, rows_per_block)]


def ratio(above: Floats, below: Floats) -> Floats:
    """Return a quotient of counts, NaN where there is nothing below."""
    return np.where(below > 0, above / np.where(below > 0, below, 1), np.nan)


def _check(level: float, resamples: int) -> None:
    check_level(level)
    if resamples < 1:
        raise ConfigError(f"resamples is {resamples}, but must be at least 1")


def number_clusters(clusters: ArrayLike, length: int) -> tuple[Whole, int]:
    """Return the number of each value's cluster, [length], and the count of clusters.

    Raises:
        ConfigError: there is not one name for each value.
    """
    try:
        cluster_names = np.asarray(clusters)
        distinct_names, cluster_of = np.unique(cluster_names, return_inverse=True)
    except (TypeError, ValueError):
        raise ConfigError(
            f"clusters is {quote(clusters)}, but must name one cluster for each of {length} values, all by texts or "
            "all by numbers"
        ) from None
    if cluster_names.shape != (length,):
        raise ConfigError(
            f"clusters is of shape {cluster_names.shape}, but must name one cluster for each of {length} values"
        )
    return cluster_of.astype(np.int64), len(distinct_names)


def vector(name: str, values: ArrayLike) -> Floats:
    """Return a list of finite numbers as an array.

    Raises:
        ConfigError: the values are no list of numbers, or one is NaN or infinite.
    """
    array = numbers(name, values)
    if array.ndim != 1:
        raise ConfigError(f"{name} is of shape {array.shape}, but must be a list of numbers")
    num_unknown = int((~np.isfinite(array)).sum())
    if num_unknown > 0:
        raise ConfigError(
            f"{name} has {num_unknown} values of {len(array)} that are NaN or infinite, but must be known",
            hint="leave those problems out, and say how many they are",
        )
    return array
