"""Standard errors by the central limit theorem, as evaluation harnesses print them.

The module has the power of a study before it is run, too.

The intervals elsewhere in this package are resampled by problem and keep within what is possible. These are what
Inspect's `stderr` and `ci` and lm-evaluation-harness's `_stderr` show, so that figures can be compared.

Source: Miller, "Adding error bars to evals" (2411.00640), from memory but for the clustered error, which is as in the
code of Inspect 0.3.285: sums of deviations by cluster, with the factor C / (C - 1) for C clusters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from tts.checks import check_int
from tts.errors import ConfigError
from tts.statistics.proportions import LEVEL, Estimate, check_level, numbers
from tts.statistics.resampling import Floats, number_clusters, vector


@dataclass(frozen=True, slots=True)
class MeanWithError:
    """A mean and its standard error.

    Args:
        mean: The mean with the interval of Student's law with one degree of freedom fewer than clusters.
            Its `num` counts clusters.
        error: Standard error, NaN with fewer than two clusters.
        p: Probability of a mean as far from 0 if the true one is 0, by the same law.
    """

    mean: Estimate
    error: float
    p: float


def mean_with_error(values: ArrayLike, clusters: ArrayLike | None = None, *, level: float = LEVEL) -> MeanWithError:
    """Return the mean of values with its standard error, clustered where clusters are given.

    Values of one cluster, such as the samples of one problem or the questions on one text, may depend on each other.

    Args:
        values: [N], such as 1 for right and 0 for wrong.
        clusters: [N], a name for each; None: all values are independent.
        level: The level of the interval, in (0, 1).

    Raises:
        ConfigError: a value that is not known, other lengths, or a level outside (0, 1).
    """
    check_level(level)
    value = vector("values", values)
    at, num = number_clusters(np.arange(len(value)) if clusters is None else clusters, len(value))
    if not len(value):
        return MeanWithError(Estimate(math.nan, math.nan, math.nan, level, 0), math.nan, math.nan)
    mean = float(value.mean())
    if num < 2:
        return MeanWithError(Estimate(mean, math.nan, math.nan, level, num), math.nan, math.nan)
    sums = np.bincount(at, value - mean, num)
    error = math.sqrt(float(sums @ sums) * num / (num - 1)) / len(value)
    half = float(stats.t.isf((1 - level) / 2, num - 1)) * error
    p = float(2 * stats.t.sf(abs(mean) / error, num - 1)) if error else float(mean == 0)
    return MeanWithError(Estimate(mean, mean - half, mean + half, level, num), error, p)


def difference_with_error(
    first: ArrayLike, second: ArrayLike, clusters: ArrayLike | None = None, *, level: float = LEVEL
) -> MeanWithError:
    """Return the mean difference of two models on the same items, with its standard error.

    It is a paired t-test, clustered where asked.

    `paired_difference` has the exact test of the same question.

    Args:
        first: [N], a value of the first model for each item.
        second: [N], a value of the second for each item, in the same order.
        clusters: [N], as in `mean_with_error`.
        level: The level of the interval, in (0, 1).

    Raises:
        ConfigError: as `mean_with_error`, or lengths that differ.
    """
    one, other = vector("first", first), vector("second", second)
    if len(one) != len(other):
        raise ConfigError(f"first is of length {len(one)} and second of {len(other)}, but must be of the same items")
    return mean_with_error(one - other, clusters, level=level)


def spread_at(first: ArrayLike, second: ArrayLike, samples: int) -> float:
    """Return the standard deviation over problems of the difference of two means, from a pilot.

    Each mean is of `samples` samples.

    The variance has two parts: of the difference between problems, which is free of the noise of sampling, and that
    noise divided by `samples`. The first is estimated without bias and is 0 where that is negative.

    Args:
        first: [P, N], values of the first one's samples of each problem, N at least 2.
        second: [P, M], values of the second one's samples of the same problems, M at least 2.
        samples: The samples of each in the study.

    Returns:
        What `problems_needed`, `power_of` and `detectable_difference` ask for as spread.

    Raises:
        ConfigError: another shape, fewer than two problems or samples, or a value that is not known.
    """
    check_int("samples", samples, 1, optional=False)
    tables = [numbers(name, each) for name, each in (("first", first), ("second", second))]
    if any(t.ndim != 2 or min(t.shape) < 2 or not np.isfinite(t).all() for t in tables) or len(tables[0]) != len(
        tables[1]
    ):
        raise ConfigError(
            f"first is of shape {tables[0].shape} and second of {tables[1].shape}, but must be [problems, samples] "
            "of the same problems, at least 2 of both, with finite values"
        )
    seen = float((tables[0].mean(axis=1) - tables[1].mean(axis=1)).var(ddof=1))
    noise = [float(t.var(axis=1, ddof=1).mean()) for t in tables]
    between = max(0.0, seen - sum(one / t.shape[1] for one, t in zip(noise, tables, strict=True)))
    return math.sqrt(between + sum(noise) / samples)


def power_of(problems: int, difference: float, spread: float, *, level: float = LEVEL) -> float:
    """Return the probability that a study sees a difference between two strategies.

    Both are run on the same problems, and the test is the paired t-test.

    Args:
        problems: The number of problems, at least 2.
        difference: The difference of the means.
        spread: Standard deviation of the difference over problems, above 0.
        level: What counts as seen: an interval of that confidence leaves out 0.

    Raises:
        ConfigError: a number that cannot be one, or a level outside (0, 1).
    """
    check_int("problems", problems, 2, optional=False)
    check_level(level)
    if not (math.isfinite(spread) and spread > 0):
        raise ConfigError(f"spread is {spread!r}, but must be a number above 0")
    if not math.isfinite(difference):
        raise ConfigError(f"difference is {difference!r}, but must be a finite number")
    least, shift = stats.t.isf((1 - level) / 2, problems - 1), abs(difference) * math.sqrt(problems) / spread
    # the far tail of the noncentral law is lost to rounding at large shifts, where it is 0
    far = float(stats.nct.cdf(-least, problems - 1, shift)) if shift < 10 else 0.0
    return min(1.0, float(stats.nct.sf(least, problems - 1, shift)) + (0.0 if math.isnan(far) else far))


def detectable_difference(problems: int, spread: float, *, power: float = 0.8, level: float = LEVEL) -> float:
    """Return the smallest difference that a study of so many problems sees with the given power.

    Raises:
        ConfigError: as `power_of`, or a power that is not between 1 - level and 1.
    """
    if not 1 - level < power < 1:
        raise ConfigError(f"power is {power!r}, but must be between {1 - level:g} and 1, such as 0.8")
    low, high = 0.0, spread
    while power_of(problems, high, spread, level=level) < power:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if power_of(problems, middle, spread, level=level) >= power else (middle, high)
    return high


def normal_interval(value: float, error: float, level: float, num: int) -> Estimate:
    """Return an estimate with the interval of the normal law."""
    half = float(stats.norm.isf((1 - level) / 2)) * error
    return Estimate(value, value - half, value + half, level, num)


def check_table(name: str, table: Floats, least: float) -> None:
    """Refuse a table with a value that is not known or is below the least that it may be."""
    if table.ndim != 2 or not np.isfinite(table).all() or (table < least).any():
        raise ConfigError(
            f"{name} is of shape {table.shape}, but must be a table of known numbers of at least {least:g}"
        )
