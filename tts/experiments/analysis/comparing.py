"""Compares curves: the Pareto front, gains at equal accuracy, differences at equal cost, crossings.

Between its points a curve is linear in accuracy and in the logarithm of the cost, as in figures.

Shapes: B points, P problems, R resamples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tts.errors import ConfigError
from tts.experiments.analysis.curves import AXES, Curve, Floats
from tts.experiments.analysis.names import strategy_of
from tts.statistics import Estimate, bootstrap, paired_difference


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """A point that no other beats in both cost and accuracy."""

    cost: float
    accuracy: float
    label: str


def pareto_front(curves: Sequence[Curve], axis: str) -> list[FrontPoint]:
    """Return the points of the Pareto front, cheapest first.

    A point is on the front where every point of at least its accuracy costs more. Oracles are left out.
    """
    points = [
        FrontPoint(float(cost), estimate.value, curve.label)
        for curve in curves
        if curve.role != "oracle"
        for cost, estimate in zip(curve.cost(axis), curve.accuracy, strict=True)
    ]
    front: list[FrontPoint] = []
    for point in sorted(points, key=lambda point: (point.cost, -point.accuracy)):
        if not front or point.accuracy > front[-1].accuracy:
            front.append(point)
    return front


@dataclass(frozen=True, slots=True)
class Gain:
    """The saving in cost of a curve over a base at equal accuracy.

    Args:
        accuracy: The accuracy at which the curves are compared.
        cost: The cost of the curve at this accuracy.
        base_cost: The cost of the base at this accuracy.
        ratio: The quotient `base_cost / cost`, with an interval over problems: 2 means half the cost.
        at_least: Whether the curve's cheapest point already has the accuracy, so that the true ratio may be larger.
    """

    accuracy: float
    cost: float
    base_cost: float
    ratio: Estimate
    at_least: bool


def gain(
    curve: Curve, base: Curve, axis: str, *, rng: np.random.Generator, accuracy: float | None = None
) -> Gain | None:
    """Return the efficiency gain of a curve over a base at equal accuracy.

    The gain is computed on the problems that both curves have at every point.

    Idea: the cost of an accuracy is where the line through a curve's points first reaches the accuracy. The line is
        linear in accuracy and in the logarithm of the cost. The interval resamples problems for both curves at once,
        and is therefore wide where a curve is flat. Costs are taken as measured.

    Args:
        curve: The curve whose gain is computed.
        base: The curve to compare with.
        axis: A name in `AXES`.
        rng: The generator of the resamples.
        accuracy: The accuracy to compare at; None: the highest that both reach, in each resample anew.

    Returns:
        The gain; None: a curve never reaches the accuracy, or the accuracy is 0, which costs nothing.

    Raises:
        ConfigError: the axis is unknown for a curve, a cost is not above 0, or the curves share no problem.
    """
    (x, mine), (base_x, theirs) = _pair(curve, base, axis)

    def logs(counts: Floats) -> tuple[Floats, Floats, Floats]:
        """Return [R] each: the accuracy compared at, and the logarithms of both costs."""
        total = counts.sum(axis=1, keepdims=True)
        means, base_means = counts @ mine.T / total, counts @ theirs.T / total
        level = (
            np.minimum(means.max(axis=1), base_means.max(axis=1))
            if accuracy is None
            else np.full(len(counts), accuracy)
        )
        return level, _crossing_points(means, np.log(x), level), _crossing_points(base_means, np.log(base_x), level)

    def ratio(counts: Floats) -> Floats:
        _, cost, base_cost = logs(counts)
        return np.exp(base_cost - cost)

    level, log_cost, log_base = (float(value[0]) for value in logs(np.ones((1, mine.shape[1]))))
    if level <= 0 or np.isnan(log_cost) or np.isnan(log_base):
        return None
    at_least = bool(log_cost <= np.log(x[0]) and log_base > np.log(base_x[0]))
    return Gain(level, float(np.exp(log_cost)), float(np.exp(log_base)), bootstrap(ratio, mine.shape[1], rng), at_least)


@dataclass(frozen=True, slots=True)
class CurveDifference:
    """The difference in accuracy of two curves at one cost, with a paired interval over problems."""

    cost: float
    value: Estimate


def differences(curve: Curve, base: Curve, axis: str, *, rng: np.random.Generator) -> list[CurveDifference]:
    """Return the paired differences at equal cost, with the interval of `paired_difference`.

    Differences are taken at each cost where one curve has a point and the other has points on both sides.

    Raises:
        ConfigError: as `gain`.
    """
    (x, mine), (base_x, theirs) = _pair(curve, base, axis)
    low, high = max(x[0], base_x[0]), min(x[-1], base_x[-1])
    places = [float(cost) for cost in np.union1d(x, base_x) if low <= cost <= high]
    pairs = zip(_interpolate_shares(mine, x, places), _interpolate_shares(theirs, base_x, places), strict=True)
    return [
        CurveDifference(cost, paired_difference(*pair, rng=rng).mean) for cost, pair in zip(places, pairs, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Crossing:
    """A cost at which the better of two curves changes.

    Args:
        cost: The cost at which the lines cross.
        rises: Whether the curve is above the base beyond this cost.
        clear: Whether each side, up to the next crossing, has a difference whose interval excludes 0.
    """

    cost: float
    rises: bool
    clear: bool


def crossings(found: Sequence[CurveDifference]) -> list[Crossing]:
    """Return the crossings where `differences` change sign, cheapest first. Touching curves do not cross."""
    nonzero = [difference for difference in found if difference.value.value != 0]
    flips = [i for i in range(1, len(nonzero)) if (nonzero[i].value.value > 0) != (nonzero[i - 1].value.value > 0)]
    found_crossings: list[Crossing] = []
    for number, i in enumerate(flips):
        left, right = nonzero[i - 1], nonzero[i]
        share = left.value.value / (left.value.value - right.value.value)
        cost = float(np.exp((1 - share) * np.log(left.cost) + share * np.log(right.cost)))
        before = nonzero[flips[number - 1] if number else 0 : i]
        after = nonzero[i : flips[number + 1] if number + 1 < len(flips) else len(nonzero)]
        clear = all(any(0.0 not in difference.value for difference in side) for side in (before, after))
        found_crossings.append(Crossing(cost, right.value.value > 0, clear))
    return found_crossings


@dataclass(frozen=True, slots=True)
class Comparison:
    """A curve compared with a base, both by their labels.

    `gain` is None where a curve never reaches the other's accuracy.
    """

    label: str
    base: str
    dataset: str
    group: str | None
    gain: Gain | None
    differences: Sequence[CurveDifference]
    crossings: Sequence[Crossing]


_ALIKE: Final = ("units", "model", "verifier", "setting")  # what a base should share with a curve, by priority


def compare(curves: Sequence[Curve], base: str, axis: str, *, rng: np.random.Generator) -> list[Comparison]:
    """Return the comparison of each curve with the base in its data set and group. Oracles are left out.

    Args:
        curves: The curves to compare.
        base: A label, or a strategy. Where the strategy has several curves, each curve is compared with the most
            similar of these: by limits, then by model, verifier and setting.
        axis: A name in `AXES`.
        rng: The generator of the resamples.

    Raises:
        ConfigError: as `bases_of`, or as `gain`.
    """
    bases, comparisons = bases_of(curves, base), list[Comparison]()
    for curve in curves:
        candidates = [
            base_curve for base_curve in bases if (base_curve.dataset, base_curve.group) == (curve.dataset, curve.group)
        ]
        if not candidates or curve in bases or curve.role == "oracle":
            continue
        nearest = max(
            candidates, key=lambda base_curve: [getattr(base_curve, part) == getattr(curve, part) for part in _ALIKE]
        )
        curve_differences = differences(curve, nearest, axis, rng=rng)
        curve_gain = gain(curve, nearest, axis, rng=rng)
        comparisons.append(
            Comparison(
                curve.label,
                nearest.label,
                curve.dataset,
                curve.group,
                curve_gain,
                curve_differences,
                crossings(curve_differences),
            )
        )
    return comparisons


def bases_of(curves: Sequence[Curve], base: str) -> list[Curve]:
    """Return the curves with a label, else the curves of a strategy, as `strategy_of` reads it.

    Raises:
        ConfigError: There is no such curve.
    """
    if matches := [curve for curve in curves if curve.label == base]:
        return matches
    strategy = strategy_of(
        base, {name for curve in curves for name in (curve.label, curve.strategy) if name}, "baseline"
    )
    return [curve for curve in curves if strategy in (curve.strategy, curve.label)]


def amount(value: float) -> str:
    """Return a cost in short form: 1.5k, 20M, 0.004."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def format_points(difference: Estimate) -> str:
    """Return a difference of shares in percentage points, with its interval."""
    value, low, high = (100 * part for part in (difference.value, difference.low, difference.high))
    return f"{value:+.1f} [{low:+.1f}, {high:+.1f}] points"


def describe_result(what: Gain | CurveDifference | Crossing, axis: str) -> str:
    """Return a gain, difference or crossing as a phrase, with its interval."""
    unit = AXES[axis].unit
    if isinstance(what, Crossing):
        return (
            f"{'ahead' if what.rises else 'behind'} from {amount(what.cost)} "
            f"{unit}{'' if what.clear else ', within the noise'}"
        )
    if isinstance(what, Gain):
        ratio, prefix = what.ratio, "at most " if what.at_least else ""
        cost, low, high = (f"{1 / bound:.2g}" for bound in (ratio.value, ratio.high, ratio.low))
        accuracy = f"{100 * what.accuracy:.{2 if what.accuracy < 0.995 else 3}g} %"  # 100 of two digits is 1e+02
        return f"{prefix}{cost} times [{low}, {high}] the {unit} for {accuracy}"
    return f"{format_points(what.value)} at {amount(what.cost)} {unit}"


def _pair(curve: Curve, base: Curve, axis: str) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Return costs [B] and shares [B, P] of both curves, cheapest first, on their common problems.

    A common problem has a value at every point of both curves.
    """
    base_complete = np.flatnonzero(~np.isnan(base.shares).any(axis=0)).tolist()
    places = {base.problems[i]: i for i in base_complete}
    complete = np.flatnonzero(~np.isnan(curve.shares).any(axis=0)).tolist()
    pairs = [(i, places[curve.problems[i]]) for i in complete if curve.problems[i] in places]
    if not pairs or curve.dataset != base.dataset:
        raise ConfigError(
            f"{curve.label!r} and {base.label!r} have no problem in common that is finished at every point of both",
            hint="finish the study, or compare curves of one data set",
        )
    columns, base_columns = (np.asarray(side) for side in zip(*pairs, strict=True))
    return _sort(curve, axis, columns), _sort(base, axis, base_columns)


def _sort(curve: Curve, axis: str, columns: NDArray[np.int64]) -> tuple[Floats, Floats]:
    cost = curve.cost(axis)
    if not (cost > 0).all():
        raise ConfigError(
            f"{axis} is {float(cost.min()):g} at a point of {curve.label!r}, but costs that are compared as ratios "
            "must be above 0",
            hint="compare by another axis, such as tokens",
        )
    order = np.argsort(cost, kind="stable")
    return cost[order], curve.shares[np.ix_(order, columns)]


def _crossing_points(accuracy: Floats, x: Floats, level: Floats) -> Floats:
    """Return the x where lines of accuracy [R, B] over x [B] first reach their level [R]; NaN: nowhere."""
    point = (accuracy >= level[:, None]).argmax(axis=1)
    row = np.arange(len(accuracy))
    previous = np.maximum(point - 1, 0)
    low, high = accuracy[row, previous], accuracy[row, point]
    share = np.where(point > 0, (level - low) / np.where(point > 0, high - low, 1), 1)
    return np.where(high >= level, x[previous] + share * (x[point] - x[previous]), np.nan)


def _interpolate_shares(shares: Floats, x: Floats, places: Sequence[float]) -> Floats:
    """Return shares [B, P] over costs x [B], interpolated at other costs: [len(places), P].

    Interpolation is linear in the logarithm of the cost.
    """
    logs, log_places = np.log(x), np.log(np.asarray(places))
    right = np.clip(np.searchsorted(logs, log_places), 1, max(1, len(x) - 1))
    if len(x) == 1:
        return np.repeat(shares, len(places), axis=0)
    width = logs[right] - logs[right - 1]
    share = np.where(width > 0, (log_places - logs[right - 1]) / np.where(width > 0, width, 1), 1)[:, None]
    return (1 - share) * shares[right - 1] + share * shares[right]
