"""Laws of accuracy against samples: the law of coverage, and the law of saturation.

The law of saturation has the point from which more samples are not worth their cost.

Both laws have two parameters and are fitted to a mean curve by least squares; intervals come from problems drawn again,
with a fit for each draw. All fits are made at once, in arrays.

Shapes: P problems, U kinds of problems that are alike, K sizes, R curves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from tts.errors import ConfigError
from tts.statistics.proportions import LEVEL, Estimate, numbers
from tts.statistics.resampling import RESAMPLES, Floats, bootstrap_kinds, kinds, vector

_MOST_COORDINATE = 20.0  # where a coordinate on the whole line is as good as at its end
_ROUNDS = 100
_CONVERGED = 1e-7


@dataclass(frozen=True, slots=True)
class Fit:
    """How near a law comes to the curve it was fitted to.

    Args:
        k: Sizes, [K].
        observed: Means over problems, [K].
        fitted: Values of the law, [K].
        r2: Share of the curve's variance that the law has; NaN for a flat curve.
        gap: Greatest distance, which shows what r2 hides: of smooth rising curves every law has a high r2.
    """

    k: Floats
    observed: Floats
    fitted: Floats
    r2: float
    gap: float


@dataclass(frozen=True, slots=True)
class CoverageLaw:
    """coverage(k) = exp(a k^b) with a, b <= 0: the logarithm of coverage falls as a power of k."""

    a: Estimate
    b: Estimate
    fit: Fit

    def predict(self, k: ArrayLike) -> Floats:
        """Return the law at other sizes; far beyond those it was fitted to it is a guess."""
        return np.exp(self.a.value * np.asarray(k, np.float64) ** self.b.value)


@dataclass(frozen=True, slots=True)
class Saturation:
    """The law accuracy(N) = ceiling (1 - (1 - chance)^N), and its point of saturation.

    From that N on, one more sample gains no more than a gain that was asked for.

    Args:
        ceiling: What it tends to, F_max.
        chance: The chance that a further sample gets there, p.
        enough: N*, a whole number, and the interval's ends too.
    """

    ceiling: Estimate
    chance: Estimate
    enough: Estimate
    fit: Fit

    def predict(self, k: ArrayLike) -> Floats:
        """Return the law at other sizes."""
        return self.ceiling.value * (1 - (1 - self.chance.value) ** np.asarray(k, np.float64))


def space_sizes(most: int, num: int = 40) -> NDArray[np.int64]:
    """Return at most `num` whole sizes from 1 to `most`, evenly spaced in their logarithms.

    The laws are fitted at these sizes.

    Raises:
        ConfigError: most is below 1, or num below 2.
    """
    if most < 1 or num < 2:
        raise ConfigError(f"most is {most} and num is {num}, but must be at least 1 and 2")
    return np.unique(np.geomspace(1, most, num).round()).astype(np.int64)


def fit_coverage(
    k: ArrayLike, coverage: ArrayLike, *, rng: np.random.Generator, level: float = LEVEL, resamples: int = RESAMPLES
) -> CoverageLaw:
    """Fit the law of coverage to curves of problems.

    Source: Brown et al., "Large language monkeys" (2024), arXiv:2407.21787, section 3: least squares on the coverage
        itself, not on its double logarithm.

    Args:
        k: [K] sizes, such as `space_sizes(n)`.
        coverage: [P, K], the coverage of each problem: `pass_at_k(n, right[:, None], k)`.
        rng: The generator of the resamples.
        level: The level of the intervals, in (0, 1).
        resamples: The number of resamples.

    Returns:
        The law. Its parameters are NaN where no problem is ever solved, or all are solved at once, as any law fits
        then.

    Raises:
        ConfigError: fewer than two sizes, a size below 1, no problems, a value outside [0, 1] or not known, or as
            `bootstrap`.
    """
    (a, b), fit = _fit_law(_COVERAGE, k, coverage, rng, level, resamples)
    return CoverageLaw(a, b, fit)


def fit_saturation(
    k: ArrayLike,
    accuracy: ArrayLike,
    *,
    rng: np.random.Generator,
    gain: float = 0.01,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> Saturation:
    """Fit the law of saturation, and the number of samples, or rounds, after which more do not pay.

    Problems of unequal difficulty follow this law only in part: with one chance for all, hard problems seem to saturate
    too early. Where that matters, fit each group of difficulty by itself.

    Source: Wang et al., "Scaling over scaling" (2025), arXiv:2505.20522. Differs: the threshold is
        N* = ceil(ln(gain / (ceiling p)) / ln(1 - p)), the first N of which one more gains at most `gain`; 0 if even the
        first does.

    Args:
        k: As in `fit_coverage`.
        accuracy: As in `fit_coverage`, of any selection.
        rng: The generator of the resamples.
        gain: Least gain in accuracy that one more sample is worth.
        level: The level of the intervals, in (0, 1).
        resamples: The number of resamples.

    Returns:
        The law, whose parameters are NaN where nothing is ever right.

    Raises:
        ConfigError: as `fit_coverage`, or a gain that is not in (0, 1).
    """
    if not 0 < gain < 1:
        raise ConfigError(f"gain is {gain!r}, but must be between 0 and 1, such as 0.01")

    def with_enough(means: Floats, place: Floats) -> Floats:
        ceiling, chance = _SATURATION.parameters(means, place).T
        return np.stack([ceiling, chance, _enough_samples(ceiling, chance, gain)], axis=1)

    (ceiling, chance, enough), fit = _fit_law(
        _SATURATION._replace(parameters=with_enough), k, accuracy, rng, level, resamples
    )
    value, low, high = np.ceil([enough.value, enough.low, enough.high]).tolist()
    whole_enough = replace(enough, value=value, low=low, high=high)
    return Saturation(ceiling, chance, whole_enough, fit)


class _Law(NamedTuple):
    """A law with two parameters, as functions of a place: two unbounded coordinates that stand for the parameters.

    Args:
        start: A function from sizes [K] and curves [R, K] to first places [R, 2] of a fit.
        values: A function from sizes and places to values of the law [R, K] and its slopes [2, R, K].
        parameters: A function from curves and places to reported parameters [R, D]. They are NaN where the curve does
            not determine them.
    """

    start: Callable[[Floats, Floats], Floats]
    values: Callable[[Floats, Floats], tuple[Floats, Floats]]
    parameters: Callable[[Floats, Floats], Floats]


def _coverage_start(k: Floats, curves: Floats) -> Floats:
    """Return the places [R, 2] of the lines through ln(-ln coverage) over ln k: ln(-a) and ln(-b)."""
    log_log = np.log(-np.log(np.clip(curves, 1e-6, 1 - 1e-6)))
    x = np.log(k) - np.log(k).mean()
    slope = np.minimum(log_log @ x / (x @ x), -1e-3)
    intercept = log_log.mean(axis=1) - slope * np.log(k).mean()
    return np.stack([intercept, np.log(-slope)], axis=1)


def _coverage_values(k: Floats, place: Floats) -> tuple[Floats, Floats]:
    power = -np.exp(place[:, 1:]) * np.log(k)  # [R, K], b ln k
    log_coverage = -np.exp(place[:, :1] + power)  # a k^b
    value = np.exp(log_coverage)
    return value, np.stack([value * log_coverage, value * log_coverage * power])


def _coverage_parameters(means: Floats, place: Floats) -> Floats:
    is_determined = (means.max(axis=1) > 0) & (means.min(axis=1) < 1)
    return np.where(is_determined[:, None], -np.exp(place), np.nan)


def _saturation_start(k: Floats, curves: Floats) -> Floats:
    """Return the place of the best of 40 chances, each with the ceiling that fits the curve best."""
    chances = np.geomspace(0.1 / k.max(), 0.9, 40)
    shapes = 1 - (1 - chances[:, None]) ** k  # [40, K]
    products, squares = curves @ shapes.T, (shapes**2).sum(axis=1)
    ceilings = np.clip(products / squares, 1e-3, 1 - 1e-3)
    best = np.argmin(ceilings**2 * squares - 2 * ceilings * products, axis=1)  # least squared distance to the curve
    best_ceilings = ceilings[np.arange(len(curves)), best]
    return np.stack([special.logit(best_ceilings), special.logit(chances[best])], axis=1)


def _saturation_values(k: Floats, place: Floats) -> tuple[Floats, Floats]:
    ceiling, chance = special.expit(place[:, :1]), special.expit(place[:, 1:])
    missed = np.exp(k * special.log_expit(-place[:, 1:]))  # (1 - p)^N
    value = ceiling * (1 - missed)
    return value, np.stack([value * (1 - ceiling), ceiling * k * chance * missed])


def _saturation_parameters(means: Floats, place: Floats) -> Floats:
    return np.where(means.max(axis=1, keepdims=True) > 0, special.expit(place), np.nan)


_COVERAGE = _Law(_coverage_start, _coverage_values, _coverage_parameters)
_SATURATION = _Law(_saturation_start, _saturation_values, _saturation_parameters)


def _enough_samples(ceiling: Floats, chance: Floats, gain: float) -> Floats:
    """Return the number of samples, as a real number, after which one more gains at most `gain`."""
    first_gain = ceiling * chance
    is_paying = first_gain > gain  # the first sample
    num_enough = np.log(gain / np.where(is_paying, first_gain, 1)) / np.log1p(-np.minimum(chance, 1 - 1e-12))
    return np.where(np.isnan(first_gain), np.nan, np.where(is_paying, num_enough, 0.0))


def _fit_law(
    law: _Law, k: ArrayLike, values: ArrayLike, rng: np.random.Generator, level: float, resamples: int
) -> tuple[tuple[Estimate, ...], Fit]:
    """Return the parameters of a law with intervals from problems drawn again, and how well the law fits.

    Args:
        law: The law.
        k: The sizes [K].
        values: The curve of each problem [P, K].
        rng: The generator of the resamples.
        level: The level of the intervals.
        resamples: The number of resamples.

    Raises:
        ConfigError: the sizes or the curves are not valid.
    """
    sizes = vector("k", k)
    curves = numbers("the values", values)
    if len(sizes) < 2 or (sizes < 1).any() or len(np.unique(sizes)) < len(sizes):
        raise ConfigError(f"k is {sizes.tolist()[:8]}, but must be at least two different sizes of at least 1")
    if curves.ndim != 2 or curves.shape[1] != len(sizes) or not len(curves):
        raise ConfigError(
            f"the curves are of shape {curves.shape}, but must be [problems, {len(sizes)}], a value for each k"
        )
    if not ((curves >= 0) & (curves <= 1)).all():
        raise ConfigError(
            "the curves have values that are not from 0 to 1", hint="ask for no k beyond the samples of a problem"
        )
    curves, multiplicities = kinds(curves)

    def fit_means(counts: Floats) -> tuple[Floats, Floats]:
        means = counts @ curves / counts.sum(axis=1, keepdims=True)
        return means, _least_squares(law, sizes, means)

    estimates = bootstrap_kinds(
        lambda counts: law.parameters(*fit_means(counts)),
        multiplicities,
        rng,
        level=level,
        resamples=resamples,
        width=16 * len(sizes),
    )
    means, place = fit_means(multiplicities[None, :].astype(np.float64))
    observed, fitted = means[0], law.values(sizes, place)[0][0]  # [K]
    total_squares = float(((observed - observed.mean()) ** 2).sum())
    residual_squares = float(((observed - fitted) ** 2).sum())
    r2 = 1 - residual_squares / total_squares if total_squares > 1e-12 else math.nan
    return estimates, Fit(sizes, observed, fitted, r2, float(np.abs(observed - fitted).max()))


def _least_squares(law: _Law, k: Floats, curves: Floats) -> Floats:
    """Return the places [R, 2] at which the law has the least squared distance to each curve.

    All curves are fitted at once, by the method of Levenberg and Marquardt.

    Source: Marquardt, "An algorithm for least-squares estimation of nonlinear parameters" (1963).
    """
    place = np.clip(law.start(k, curves), -_MOST_COORDINATE, _MOST_COORDINATE)
    value, slopes = law.values(k, place)
    loss, damping = ((curves - value) ** 2).sum(axis=1), np.full(len(curves), 1e-3)
    for _ in range(_ROUNDS):
        gradient = (slopes * (curves - value)).sum(axis=2)  # [2, R]
        # the damped matrix [[a, b], [b, d]] of the normal equations, whose solution is the step
        a, b = (slopes * slopes[0]).sum(axis=2)
        d = (slopes[1] ** 2).sum(axis=1)
        a, d = a * (1 + damping) + 1e-15, d * (1 + damping) + 1e-15
        step = np.stack([d * gradient[0] - b * gradient[1], a * gradient[1] - b * gradient[0]]) / (a * d - b**2)
        trial = np.clip(place + np.clip(step.T, -2, 2), -_MOST_COORDINATE, _MOST_COORDINATE)
        trial_value, trial_slopes = law.values(k, trial)
        trial_loss = ((curves - trial_value) ** 2).sum(axis=1)
        is_better = trial_loss <= loss
        is_settled = bool((np.abs(trial - place) < _CONVERGED).all())
        place = np.where(is_better[:, None], trial, place)
        value = np.where(is_better[:, None], trial_value, value)
        slopes = np.where(is_better[:, None], trial_slopes, slopes)
        loss = np.where(is_better, trial_loss, loss)
        damping = np.clip(np.where(is_better, damping / 4, damping * 8), 1e-9, 1e9)
        if is_settled:
            break
    return place
