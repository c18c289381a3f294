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
from tts.statistics.resampling import RESAMPLES, Floats, blocks, clustered_mean, vector

_OUTCOMES = 1_000_000  # most sums of signs that are listed
_SIZES = 10_000  # most distinct differences whose signs are drawn
_DRAWS = 20_000
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Difference:
    """What a first strategy has over a second on the same problems.

    Args:
        mean: The mean of first - second over problems, with its interval. Its `num` counts problems.
        p: Probability of a mean as far from 0, if it made no difference which strategy is which; NaN without
            problems.
        first_better: Problems on which the first is better.
        second_better: Problems on which the second is better.
        mcnemar: The p-value of McNemar's exact test of these two numbers, whatever the sizes of the differences; NaN
            without problems.
        spread: Standard deviation of the difference over problems, which `problems_needed` asks for; NaN with fewer
            than two.
    """

    mean: Estimate
    p: float
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

    It comes with the p-value of a sign-flip test.

    Idea: what makes problems hard is common to both, and cancels. The interval is that of the Bayesian bootstrap by
        problem, for which half a problem is imagined at either end of what was seen: plus and minus the greatest
        difference of any problem. With few problems that differ, resampling them alone would give too narrow an
        interval. The test flips the sign of each problem's difference: for problems that are solved or not it is
        McNemar's exact test.
    Source: Rubin, "The Bayesian bootstrap" (1981); Agresti and Min, "Effects and non-effects of paired identical
        observations in comparing proportions with binary matched-pairs data" (2004), for what is imagined; Fisher, "The
        design of experiments" (1935), section 21.

    Args:
        first: [P], a value of the first strategy for each problem, such as its mean over seeds.
        second: [P], such a value of the second, in the same order.
        rng: The generator of the resamples.
        level: The level of the interval, in (0, 1).
        resamples: The number of resamples.
        most: Greatest difference that is possible, imagined where no problem differs; None: unknown, and then such an
            interval is unknown too.

    Raises:
        ConfigError: lengths that differ, a value that is not known, a difference beyond `most`, or as `clustered_mean`.

    Random: resamples; signs, where they have more than a million outcomes. With more than 10,000 distinct differences
        the p-value is that of the normal law.
    """
    one, other = vector("first", first), vector("second", second)
    if len(one) != len(other):
        raise ConfigError(f"first is of length {len(one)} and second of {len(other)}, but must be of the same problems")
    differences = one - other
    # what differs by rounding alone does not differ
    differences[np.abs(differences) <= _ROUNDING * np.maximum(np.abs(one), np.abs(other))] = 0
    furthest = float(np.abs(differences).max(initial=0))
    if most is not None and furthest > most * (1 + _ROUNDING):
        raise ConfigError(
            f"first and second differ by {furthest}, but most is {most}", hint="most=None where no bound is known"
        )
    imagined = furthest or (math.nan if most is None else most)
    # the other way round the interval is mirrored, to the digit
    sign = float(np.sign(differences[differences != 0][:1].sum())) or 1.0
    mean = clustered_mean(sign * differences, rng=rng, level=level, resamples=resamples, bounds=(-imagined, imagined))
    if sign < 0:
        mean = dataclasses.replace(mean, value=-mean.value, low=-mean.high, high=-mean.low)
    elif not furthest:
        mean = dataclasses.replace(mean, low=(mean.low - mean.high) / 2, high=(mean.high - mean.low) / 2)
    first_better, second_better = int((differences > 0).sum()), int((differences < 0).sum())
    return Difference(
        mean,
        _sign_flip(differences, rng),
        first_better,
        second_better,
        float(differences.std(ddof=1)) if len(differences) > 1 else math.nan,
        mcnemar(first_better, second_better) if len(differences) else math.nan,
    )


def mcnemar(first_better: int, second_better: int) -> float:
    """Return the p-value of McNemar's exact test, two-sided.

    The null hypothesis is that each strategy is the better one of a problem with the same chance.

    Source: McNemar, "Note on the sampling error of the difference between correlated proportions or percentages"
    (1947), in its exact form,
        a sign test of the problems on which the strategies differ.

    Args:
        first_better: Problems on which the first strategy is better.
        second_better: Problems on which the second one is.

    Raises:
        ConfigError: one of them is no whole number of at least 0.

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

    All those below alpha may be believed, with a chance of alpha for any error.

    Source: Holm, "A simple sequentially rejective multiple test procedure" (1979).

    Args:
        p_values: [M], of one family of tests, such as all budgets of two strategies.

    Returns:
        [M], in the same order, in [0, 1]; never below what was given.

    Raises:
        ConfigError: a value that is not in [0, 1].
    """
    p = vector("p_values", p_values)
    if ((p < 0) | (p > 1)).any():
        raise ConfigError(f"p_values go from {p.min()} to {p.max()}, but must be probabilities")
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(stepped, 1)
    return adjusted


def problems_needed(difference: float, spread: float, *, power: float = 0.8, level: float = LEVEL) -> int:
    """Return how many problems it takes to see a difference between two strategies on the same problems.

    Source: Guenther, "Sample size formulas for normal theory t tests" (1981): ((z_level + z_power) spread /
    difference)^2 and half
        the square of z_level, for a spread that must be estimated too.

    Args:
        difference: The difference of the means that is to be seen, such as 0.02; its sign does not matter.
        spread: Standard deviation of the difference over problems (`Difference.spread` of a pilot). Of problems
            solved or not, of which a share d is solved by one strategy only, it is sqrt(d - difference^2); without a
            pilot, at most sqrt(2 a (1 - a)) for strategies of accuracy a.
        power: Probability to see it.
        level: What counts as seen: an interval of that confidence leaves out 0.

    Returns:
        At least 2.

    Raises:
        ConfigError: a difference of 0, or too small to be seen by a million million problems; a negative spread; a
            level outside (0, 1); or a power outside (1 - level, 1).
    """
    check_level(level)
    if not (math.isfinite(difference) and difference != 0):
        raise ConfigError(f"difference is {difference!r}, but must be a number other than 0")
    if not (math.isfinite(spread) and spread >= 0):
        raise ConfigError(f"spread is {spread!r}, but must be a number of at least 0")
    if not 1 - level < power < 1:
        raise ConfigError(f"power is {power!r}, but must be between {1 - level:g} and 1, such as 0.8")
    two_sided = float(stats.norm.isf((1 - level) / 2))
    shift = (two_sided + float(stats.norm.ppf(power))) * spread
    if shift > 1e6 * abs(difference):
        raise ConfigError(
            f"difference is {difference!r} and spread {spread!r}, but no study sees that: the ratio is at most 1e6"
        )
    normal = (shift / difference) ** 2
    return max(2, math.ceil(normal + two_sided**2 / 2))


def _sign_flip(differences: Floats, rng: np.random.Generator) -> float:
    """Return the share of all choices of signs whose sum is as far from 0.

    Differences of one size are flipped together: their sum has the law of a binomial number, so that a few sizes, as
    means over seeds have, are counted for however many problems.
    """
    if not len(differences):
        return math.nan
    observed = abs(float(differences.sum()))
    sizes, counts = np.unique(np.round(np.abs(differences[differences != 0]), 12), return_counts=True)
    far = observed - _ROUNDING * float(sizes @ counts)
    if math.prod((counts + 1).tolist()) <= _OUTCOMES:
        sums, chances = np.zeros(1), np.ones(1)
        for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
            flipped = np.arange(count + 1)
            sums = (sums[:, None] + size * (2 * flipped - count)).ravel()
            chances = (chances[:, None] * stats.binom.pmf(flipped, count, 0.5)).ravel()
        return min(1.0, float(chances[np.abs(sums) >= far].sum()))
    if len(sizes) > _SIZES:
        return float(2 * stats.norm.sf(observed / math.sqrt(float((differences**2).sum()))))
    found = [
        (2 * rng.binomial(counts, 0.5, (rows, len(sizes))) - counts) @ sizes for rows in blocks(_DRAWS, len(sizes))
    ]
    return (1 + int((np.abs(np.concatenate(found)) >= far).sum())) / (1 + _DRAWS)
