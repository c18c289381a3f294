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
        ConfigError: a value is NaN or infinite, `clusters` has another length than `values`, or the level is outside
            (0, 1).
    """
    check_level(level)
    value_array = vector("values", values)  # [N]
    num_values = len(value_array)
    if clusters is None:
        clusters = np.arange(num_values)  # a cluster for each value
    cluster_of, num_clusters = number_clusters(clusters, num_values)
    if not num_values:
        return MeanWithError(Estimate(math.nan, math.nan, math.nan, level, 0), math.nan, math.nan)
    mean = float(value_array.mean())
    if num_clusters < 2:
        return MeanWithError(Estimate(mean, math.nan, math.nan, level, num_clusters), math.nan, math.nan)
    deviations = np.bincount(cluster_of, value_array - mean, num_clusters)  # [clusters], summed by cluster
    error = math.sqrt(float(deviations @ deviations) * num_clusters / (num_clusters - 1)) / num_values
    half_width = float(stats.t.isf((1 - level) / 2, num_clusters - 1)) * error
    p = float(mean == 0)  # the mean is exact where the error is 0
    if error:
        p = float(2 * stats.t.sf(abs(mean) / error, num_clusters - 1))
    estimate = Estimate(mean, mean - half_width, mean + half_width, level, num_clusters)
    return MeanWithError(estimate, error, p)


def difference_with_error(
    first: ArrayLike, second: ArrayLike, clusters: ArrayLike | None = None, *, level: float = LEVEL
) -> MeanWithError:
    """Return the mean difference of two models on the same items, with its standard error.

    The result is that of a paired t-test, clustered where clusters are given. `paired_difference` has the exact test of
    the same question.

    Args:
        first: [N], a value of the first model for each item.
        second: [N], a value of the second for each item, in the same order.
        clusters: [N], as in `mean_with_error`.
        level: The level of the interval, in (0, 1).

    Raises:
        ConfigError: as `mean_with_error`, or lengths that differ.
    """
    first_values, second_values = vector("first", first), vector("second", second)
    if len(first_values) != len(second_values):
        raise ConfigError(
            f"first is of length {len(first_values)} and second of {len(second_values)}, but must be of the same items"
        )
    return mean_with_error(first_values - second_values, clusters, level=level)


def spread_at(first: ArrayLike, second: ArrayLike, samples: int) -> float:
    """Return the standard deviation over problems of the difference of two means, from a pilot.

    Each mean is of `samples` samples.

    The variance has two parts: the variance between problems, which is free of the noise of sampling, and this noise
    divided by `samples`. The estimate of the first part has no bias, except that a negative estimate is set to 0.

    Args:
        first: [P, N], values of N samples of the first strategy for each problem, N at least 2.
        second: [P, M], values of M samples of the second strategy for the same problems, M at least 2.
        samples: The samples of each problem by each strategy in the study.

    Returns:
        The spread that `problems_needed`, `power_of` and `detectable_difference` take.

    Raises:
        ConfigError: another shape, fewer than two problems or samples, or a value that is not known.
    """
    check_int("samples", samples, 1, optional=False)
    first_table, second_table = numbers("first", first), numbers("second", second)
    are_tables = all(
        table.ndim == 2 and min(table.shape) >= 2 and np.isfinite(table).all() for table in (first_table, second_table)
    )
    if not are_tables or len(first_table) != len(second_table):
        raise ConfigError(
            f"first is of shape {first_table.shape} and second of {second_table.shape}, but must be [problems, "
            "samples] of the same problems, at least 2 of both, with finite values"
        )
    observed = float((first_table.mean(axis=1) - second_table.mean(axis=1)).var(ddof=1))
    first_noise = float(first_table.var(axis=1, ddof=1).mean())
    second_noise = float(second_table.var(axis=1, ddof=1).mean())
    noise_of_pilot = first_noise / first_table.shape[1] + second_noise / second_table.shape[1]
    between_problems = max(0.0, observed - noise_of_pilot)
    return math.sqrt(between_problems + (first_noise + second_noise) / samples)


def power_of(problems: int, difference: float, spread: float, *, level: float = LEVEL) -> float:
    """Return the probability that a study sees a difference between two strategies.

    Both are run on the same problems, and the test is the paired t-test.

    Args:
        problems: The number of problems, at least 2.
        difference: The difference of the means.
        spread: Standard deviation of the difference over problems, above 0.
        level: The confidence of the interval. A difference is seen if the interval leaves out 0.

    Raises:
        ConfigError: an argument is out of its range.
    """
    check_int("problems", problems, 2, optional=False)
    check_level(level)
    if not (math.isfinite(spread) and spread > 0):
        raise ConfigError(f"spread is {spread!r}, but must be a number above 0")
    if not math.isfinite(difference):
        raise ConfigError(f"difference is {difference!r}, but must be a finite number")
    critical_t = stats.t.isf((1 - level) / 2, problems - 1)
    shift = abs(difference) * math.sqrt(problems) / spread
    near_tail = float(stats.nct.sf(critical_t, problems - 1, shift))
    # the far tail of the noncentral law is lost to rounding at large shifts, where it is 0
    far_tail = float(stats.nct.cdf(-critical_t, problems - 1, shift)) if shift < 10 else 0.0
    if math.isnan(far_tail):
        far_tail = 0.0
    return min(1.0, near_tail + far_tail)


def detectable_difference(problems: int, spread: float, *, power: float = 0.8, level: float = LEVEL) -> float:
    """Return the smallest difference that a study of `problems` problems sees with the given power.

    Raises:
        ConfigError: as `power_of`, or a power that is not between 1 - level and 1.
    """
    if not 1 - level < power < 1:
        raise ConfigError(f"power is {power!r}, but must be between {1 - level:g} and 1, such as 0.8")
    low, high = 0.0, spread
    while power_of(problems, high, spread, level=level) < power:
        low, high = high, 2 * high
    for _ in range(60):  # halve the interval that has the difference
        middle = (low + high) / 2
        if power_of(problems, middle, spread, level=level) >= power:
            high = middle
        else:
            low = middle
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
