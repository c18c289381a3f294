"""Comparison of two strategies on the same problems.

The module has their difference, whether it is chance, and how many problems it takes to see one.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from tts.checks import check_int
from tts.errors import ConfigError
from tts.statistics.proportions import LEVEL, Estimate, check_level
from tts.statistics.resampling import RESAMPLES, Floats, blocks, resample_mean, vector

_OUTCOMES = 1_000_000  # most sums of signs that are listed
_SIZES = 10_000  # most distinct differences whose signs are drawn
_DRAWS = 20_000
_ROUNDING = 1e-9
_FEWEST_BEYOND = 10  # resamples beyond 0 by which a p-value is counted


@dataclass(frozen=True, slots=True)
class Difference:
    """What a first strategy has over a second on the same problems.

    Args:
        mean: The mean of first - second over problems, with its interval. Its `num` counts problems.
        p: Probability of a mean as far from 0, if it made no difference which strategy is which; NaN without
            problems.
        resampled_p: A p-value that is below 1 - level if and only if the interval of `mean` leaves 0 out.
        first_better: Problems on which the first is better.
        second_better: Problems on which the second is better.
        mcnemar: The p-value of McNemar's exact test of these two numbers, whatever the sizes of the differences; NaN
            without problems.
        spread: Standard deviation of the difference over problems, which `problems_needed` asks for; NaN with fewer
            than two.
    """

    mean: Estimate
    p: float
    resampled_p: float
    first_better: int
    second_better: int
    spread: float
    mcnemar: float = math.nan


def paired_difference(
    first: ArrayLike,
    second: ArrayLike,
    *,
    rng: np.random.Generator,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    most: float | None = 1.0,
) -> Difference:
    """Return the mean difference of two strategies on the same problems, with its interval.

    The result also has the p-value of a sign-flip test.

    Idea: what makes problems hard is common to both, and cancels. The interval is that of the Bayesian bootstrap by
        problem, for which half a problem is imagined at either end of what was seen: plus and minus the greatest
        difference of any problem. With few problems that differ, resampling them alone would give too narrow an
        interval. The test flips the sign of each problem's difference: for problems that are solved or not it is
        McNemar's exact test. `resampled_p` is twice the share of the interval's resamples beyond 0.
    Source: Rubin, "The Bayesian bootstrap" (1981); Agresti and Min, "Effects and non-effects of paired identical
        observations in comparing proportions with binary matched-pairs data" (2004), for what is imagined; Fisher, "The
        design of experiments" (1935), section 21.

    Args:
        first: [P], a value of the first strategy for each problem, such as its mean over seeds.
        second: [P], such a value of the second, in the same order.
        rng: The generator of the resamples.
        level: The level of the interval, in (0, 1).
        resamples: The number of resamples.
        most: The greatest possible difference, which is imagined where no problem differs. None: unknown; without a
            problem that differs, the interval is then unknown too.

    Raises:
        ConfigError: lengths that differ, a value that is not known, a difference beyond `most`, or as `clustered_mean`.

    Random: resamples; signs, where they have more than a million outcomes. With more than 10,000 distinct differences
        the p-value is that of the normal law.
    """
    first_values, second_values = vector("first", first), vector("second", second)
    if len(first_values) != len(second_values):
        raise ConfigError(
            f"first is of length {len(first_values)} and second of {len(second_values)}, but must be of the same "
            "problems"
        )
    differences = first_values - second_values
    rounding_error = _ROUNDING * np.maximum(np.abs(first_values), np.abs(second_values))
    differences[np.abs(differences) <= rounding_error] = 0
    greatest = float(np.abs(differences).max(initial=0))
    if most is not None and greatest > most * (1 + _ROUNDING):
        raise ConfigError(
            f"first and second differ by {greatest}, but most is {most}", hint="most=None where no bound is known"
        )
    bound = greatest
    if greatest == 0:
        bound = math.nan if most is None else most
    # the first difference counts as positive, so that swapped strategies have the mirrored interval, to the digit
    nonzero = differences[differences != 0]
    sign = float(np.sign(nonzero[0])) if len(nonzero) else 1.0
    mean, means = resample_mean(sign * differences, rng=rng, level=level, resamples=resamples, bounds=(-bound, bound))
    if sign < 0:
        mean = dataclasses.replace(mean, value=-mean.value, low=-mean.high, high=-mean.low)
    elif greatest == 0:  # make the interval symmetric
        mean = dataclasses.replace(mean, low=(mean.low - mean.high) / 2, high=(mean.high - mean.low) / 2)
    first_better, second_better = int((differences > 0).sum()), int((differences < 0).sum())
    return Difference(
        mean=mean,
        p=(p := _sign_flip(differences, rng)),
        resampled_p=p if greatest == 0 else _p_of(mean, means, p),
        first_better=first_better,
        second_better=second_better,
        spread=float(differences.std(ddof=1)) if len(differences) > 1 else math.nan,
        mcnemar=mcnemar(first_better, second_better) if len(differences) else math.nan,
    )


def mcnemar(first_better: int, second_better: int) -> float:
    """Return the p-value of McNemar's exact test, two-sided.

    The null hypothesis is that each strategy is the better one of a problem with the same chance.

    Source: McNemar, "Note on the sampling error of the difference between correlated proportions or percentages"
    (1947), in its exact form,
        a sign test of the problems on which the strategies differ.

    Args:
        first_better: Problems on which the first strategy is better.
        second_better: Problems on which the second strategy is better.

    Raises:
        ConfigError: a number of problems is no whole number of at least 0.

    Example:
        >>> from tts.statistics import mcnemar
        >>> mcnemar(1, 5)
        0.21875
    """
    check_int("first_better", first_better, 0, optional=False)
    check_int("second_better", second_better, 0, optional=False)
    if not first_better + second_better:
        return 1.0
    return float(stats.binomtest(first_better, first_better + second_better).pvalue)


def holm(p_values: ArrayLike) -> Floats:
    """Return p-values adjusted for their number.

    All adjusted values below alpha may be believed, with a chance of at most alpha for any error.

    Source: Holm, "A simple sequentially rejective multiple test procedure" (1979).

    Args:
        p_values: [M], of one family of tests, such as all budgets of two strategies.

    Returns:
        [M], the adjusted values in the same order, in [0, 1]; none is below its p-value.

    Raises:
        ConfigError: a value that is not in [0, 1].
    """
    p = vector("p_values", p_values)
    if ((p < 0) | (p > 1)).any():
        raise ConfigError(f"p_values go from {p.min()} to {p.max()}, but must be probabilities")
    order = np.argsort(p, kind="stable")
    num_remaining = np.arange(len(p), 0, -1)  # tests from this rank on
    stepped = np.maximum.accumulate(p[order] * num_remaining)
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(stepped, 1)
    return adjusted


def problems_needed(difference: float, spread: float, *, power: float = 0.8, level: float = LEVEL) -> int:
    """Return the number of problems that shows a difference between two strategies on the same problems.

    Source: Guenther, "Sample size formulas for normal theory t tests" (1981): ((z_level + z_power) spread /
    difference)^2 and half
        the square of z_level, for a spread that must be estimated too.

    Args:
        difference: The difference of the means that is to be seen, such as 0.02; its sign does not matter.
        spread: Standard deviation of the difference over problems (`Difference.spread` of a pilot). If a share d of
            the problems is solved by exactly one strategy, the spread is sqrt(d - difference^2). Without a pilot: at
            most sqrt(2 a (1 - a)) for strategies of accuracy a.
        power: The probability to see the difference.
        level: The confidence of the interval. A difference is seen if the interval leaves out 0.

    Returns:
        A number of at least 2.

    Raises:
        ConfigError: the difference is 0, or too small to be seen by a million million problems. Or spread is negative,
            level outside (0, 1), or power outside (1 - level, 1).
    """
    check_level(level)
    if not (math.isfinite(difference) and difference != 0):
        raise ConfigError(f"difference is {difference!r}, but must be a number other than 0")
    if not (math.isfinite(spread) and spread >= 0):
        raise ConfigError(f"spread is {spread!r}, but must be a number of at least 0")
    if not 1 - level < power < 1:
        raise ConfigError(f"power is {power!r}, but must be between {1 - level:g} and 1, such as 0.8")
    z_level = float(stats.norm.isf((1 - level) / 2))
    shift = (z_level + float(stats.norm.ppf(power))) * spread
    if shift > 1e6 * abs(difference):
        raise ConfigError(
            f"difference is {difference!r} and spread {spread!r}, but no study sees that: the ratio is at most 1e6"
        )
    num_known_spread = (shift / difference) ** 2  # enough if the spread were known
    return max(2, math.ceil(num_known_spread + z_level**2 / 2))


def _p_of(mean: Estimate, means: Floats, exact_p: float) -> float:
    """Return the p-value of a mean difference, from the resamples of its interval.

    Args:
        mean: The mean with its interval.
        means: [R], the means of the resamples.
        exact_p: The p-value of the sign-flip test, which is taken where few resamples are beyond 0.
    """
    num_beyond = min(int((means <= 0).sum()), int((means >= 0).sum()))
    alpha = 1 - mean.level
    p = exact_p if num_beyond < _FEWEST_BEYOND else min(1.0, 2 * num_beyond / len(means))
    # quantiles lie between resamples, so that the two may differ by one resample
    return max(p, alpha) if mean.low <= 0 <= mean.high else min(p, math.nextafter(alpha, 0))


def _sign_flip(differences: Floats, rng: np.random.Generator) -> float:
    """Return the share of all choices of signs that take the sum of differences as far from 0.

    Differences of one size are flipped together: the number of flips has a binomial law. So the sums of a few sizes,
    as means over seeds have, can be listed for any number of problems.
    """
    if not len(differences):
        return math.nan
    observed = abs(float(differences.sum()))
    sizes, counts = np.unique(np.round(np.abs(differences[differences != 0]), 12), return_counts=True)
    least_distance = observed - _ROUNDING * float(sizes @ counts)
    if math.prod((counts + 1).tolist()) <= _OUTCOMES:
        sums, chances = np.zeros(1), np.ones(1)
        for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
            num_positive = np.arange(count + 1)
            sums = (sums[:, None] + size * (2 * num_positive - count)).ravel()
            chances = (chances[:, None] * stats.binom.pmf(num_positive, count, 0.5)).ravel()
        return min(1.0, float(chances[np.abs(sums) >= least_distance].sum()))
    if len(sizes) > _SIZES:
        return float(2 * stats.norm.sf(observed / math.sqrt(float((differences**2).sum()))))
    num_far = 0
    for rows in blocks(_DRAWS, len(sizes)):
        num_positive = rng.binomial(counts, 0.5, (rows, len(sizes)))
        drawn_sums = (2 * num_positive - counts) @ sizes
        num_far += int((np.abs(drawn_sums) >= least_distance).sum())
    return (1 + num_far) / (1 + _DRAWS)
