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
from tts.renamed import refuse_old_members
from tts.statistics.proportions import LEVEL, Estimate, numbers
from tts.statistics.resampling import RESAMPLES, Floats, bootstrap_kinds, kinds, vector

_FURTHEST = 20.0  # where a coordinate on the whole line is as good as at its end
_ROUNDS = 100
_SETTLED = 1e-7


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


@refuse_old_members
@dataclass(frozen=True, slots=True)
class CoverageLaw:
    """coverage(k) = exp(a k^b) with a, b <= 0: the logarithm of coverage falls as a power of k."""

    a: Estimate
    b: Estimate
    fit: Fit

    def predict(self, k: ArrayLike) -> Floats:
        """Return the law at other sizes; far beyond those it was fitted to it is a guess."""
        return np.exp(self.a.value * np.asarray(k, np.float64) ** self.b.value)


@refuse_old_members
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
        k: [K] sizes, such as `spaced(n)`.
        coverage: [P, K], of each problem: `pass_at_k(n, right[:, None], k)`.
        rng: The generator of the resamples.
        level: The level of the intervals, in (0, 1).
        resamples: The number of resamples.

    Returns:
        Parameters are NaN where no problem is ever solved, or all are at once: then any law is as good.

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
    """Fit where more samples, or rounds, stop paying.

    Problems of unequal difficulty follow this law only in part: one chance for all of them ends too early for the hard
    ones. Where that matters, fit each group of difficulty by itself.

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
        Parameters are NaN where nothing is ever right.

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
    whole = replace(enough, **{end: float(np.ceil(getattr(enough, end))) for end in ("value", "low", "high")})
    return Saturation(ceiling, chance, whole, fit)


class _Law(NamedTuple):
    """A law whose place is two coordinates on the whole line.

    Args:
        start: Sizes [K] and curves [R, K] to places [R, 2].
        values: Sizes and places to the law [R, K] and its slopes [2, R, K].
        parameters: Curves and places to what is reported, [R, D]; NaN where the curve does not determine it.
    """

    start: Callable[[Floats, Floats], Floats]
    values: Callable[[Floats, Floats], tuple[Floats, Floats]]
    parameters: Callable[[Floats, Floats], Floats]


def _coverage_start(k: Floats, curves: Floats) -> Floats:
    """Return the line through ln(-ln coverage) over ln k."""
    doubled = np.log(-np.log(np.clip(curves, 1e-6, 1 - 1e-6)))
    x = np.log(k) - np.log(k).mean()
    slope = np.minimum(doubled @ x / (x @ x), -1e-3)
    return np.stack([doubled.mean(axis=1) - slope * np.log(k).mean(), np.log(-slope)], axis=1)


def _coverage_values(k: Floats, place: Floats) -> tuple[Floats, Floats]:
    power = -np.exp(place[:, 1:]) * np.log(k)  # [R, K], b ln k
    log = -np.exp(place[:, :1] + power)  # a k^b
    value = np.exp(log)
    return value, np.stack([value * log, value * log * power])


def _coverage_parameters(means: Floats, place: Floats) -> Floats:
    told = (means.max(axis=1) > 0) & (means.min(axis=1) < 1)
    return np.where(told[:, None], -np.exp(place), np.nan)


def _saturation_start(k: Floats, curves: Floats) -> Floats:
    """Return the best of a row of chances, each with the ceiling that suits it best."""
    chances = np.geomspace(0.1 / k.max(), 0.9, 40)
    shapes = 1 - (1 - chances[:, None]) ** k  # [40, K]
    along, square = curves @ shapes.T, (shapes**2).sum(axis=1)
    ceilings = np.clip(along / square, 1e-3, 1 - 1e-3)
    best = np.argmin(ceilings**2 * square - 2 * ceilings * along, axis=1)
    return np.stack([special.logit(ceilings[np.arange(len(curves)), best]), special.logit(chances[best])], axis=1)


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
    """Return the N, as a real number, from which one more gains at most `gain`."""
    first = ceiling * chance
    worth = first > gain
    rest = np.log(gain / np.where(worth, first, 1)) / np.log1p(-np.minimum(chance, 1 - 1e-12))
    return np.where(np.isnan(first), np.nan, np.where(worth, rest, 0.0))


def _fit_law(
    law: _Law, k: ArrayLike, values: ArrayLike, rng: np.random.Generator, level: float, resamples: int
) -> tuple[tuple[Estimate, ...], Fit]:
    """Return the parameters, by problems drawn again, and how well the law fits."""
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
    curves, alike = kinds(curves)

    def fit_means(counts: Floats) -> tuple[Floats, Floats]:
        means = counts @ curves / counts.sum(axis=1, keepdims=True)
        return means, _least_squares(law, sizes, means)

    estimates = bootstrap_kinds(
        lambda counts: law.parameters(*fit_means(counts)),
        alike,
        rng,
        level=level,
        resamples=resamples,
        width=16 * len(sizes),
    )
    means, place = fit_means(alike[None, :].astype(np.float64))
    observed, fitted = means[0], law.values(sizes, place)[0][0]
    spread, missed = float(((observed - observed.mean()) ** 2).sum()), float(((observed - fitted) ** 2).sum())
    r2 = 1 - missed / spread if spread > 1e-12 else math.nan
    return estimates, Fit(sizes, observed, fitted, r2, float(np.abs(observed - fitted).max()))


def _least_squares(law: _Law, k: Floats, curves: Floats) -> Floats:
    """Return the places [R, 2] of least squared distance to each curve, all at once.

    The method is Levenberg's and Marquardt's.

    Source: Marquardt, "An algorithm for least-squares estimation of nonlinear parameters" (1963).
    """
    place = np.clip(law.start(k, curves), -_FURTHEST, _FURTHEST)
    value, slopes = law.values(k, place)
    loss, damping = ((curves - value) ** 2).sum(axis=1), np.full(len(curves), 1e-3)
    for _ in range(_ROUNDS):
        pull = (slopes * (curves - value)).sum(axis=2)  # [2, R]
        (first, cross), second = (slopes * slopes[0]).sum(axis=2), (slopes[1] ** 2).sum(axis=1)
        first, second = first * (1 + damping) + 1e-15, second * (1 + damping) + 1e-15
        step = np.stack([second * pull[0] - cross * pull[1], first * pull[1] - cross * pull[0]]) / (
            first * second - cross**2
        )
        trial = np.clip(place + np.clip(step.T, -2, 2), -_FURTHEST, _FURTHEST)
        value_there, slopes_there = law.values(k, trial)
        loss_there = ((curves - value_there) ** 2).sum(axis=1)
        better = loss_there <= loss
        settled = bool((np.abs(trial - place) < _SETTLED).all())
        place, value = np.where(better[:, None], trial, place), np.where(better[:, None], value_there, value)
        slopes, loss = np.where(better[:, None], slopes_there, slopes), np.where(better, loss_there, loss)
        damping = np.clip(np.where(better, damping / 4, damping * 8), 1e-9, 1e9)
        if settled:
            break
    return place
