"""Compares curves: the Pareto front, gains at equal accuracy, differences at equal cost.

Between its points a curve is linear in accuracy and in the logarithm of the cost, as in figures.

Shapes: B points, P problems, R resamples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tts.budget.units import format_plain
from tts.errors import ConfigError
from tts.experiments.analysis.curves import AXES, Curve, Floats
from tts.experiments.analysis.names import strategy_of
from tts.statistics import Estimate, bootstrap, paired_difference


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """A point of a curve, such that every other point costs more or is less accurate."""

    cost: float
    accuracy: float
    label: str


def pareto_front(curves: Sequence[Curve], axis: str) -> list[FrontPoint]:
    """Return the points of the Pareto front, cheapest first.

    A point is on the front if it is more accurate than every cheaper point. Oracles are left out.
    """
    points: list[FrontPoint] = []
    for curve in curves:
        if curve.role != "oracle":
            for cost, estimate in zip(curve.cost(axis), curve.accuracy, strict=True):
                points.append(FrontPoint(float(cost), estimate.value, curve.label))
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
        at_most: Whether the base's cheapest point already has more, so that the true ratio may be smaller.
    """

    accuracy: float
    cost: float
    base_cost: float
    ratio: Estimate
    at_least: bool
    at_most: bool = False


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
    (costs, shares), (base_costs, base_shares) = _pair(curve, base, axis)
    log_costs, log_base_costs = np.log(costs), np.log(base_costs)
    num_problems = shares.shape[1]

    def log_costs_at_level(counts: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the accuracy of the comparison, and the logarithms of both costs of this accuracy, [R] each.

        Args:
            counts: [R, P], the number of times that each resample contains each problem.
        """
        total = counts.sum(axis=1, keepdims=True)
        means, base_means = counts @ shares.T / total, counts @ base_shares.T / total  # [R, B]
        if accuracy is None:
            level = np.minimum(means.max(axis=1), base_means.max(axis=1))
        else:
            level = np.full(len(counts), accuracy)
        return (
            level,
            _crossing_points(means, log_costs, level),
            _crossing_points(base_means, log_base_costs, level),
        )

    def ratio(counts: Floats) -> Floats:
        _, log_cost, log_base_cost = log_costs_at_level(counts)
        return np.exp(log_base_cost - log_cost)

    every_problem_once = np.ones((1, num_problems))
    level, log_cost, log_base_cost = (float(values[0]) for values in log_costs_at_level(every_problem_once))
    if level <= 0 or np.isnan(log_cost) or np.isnan(log_base_cost):
        return None
    is_above, is_base_above = (float(first.mean()) > level + _ROUNDING for first in (shares[0], base_shares[0]))
    return Gain(
        accuracy=level,
        cost=float(np.exp(log_cost)),
        base_cost=float(np.exp(log_base_cost)),
        ratio=bootstrap(ratio, num_problems, rng),
        at_least=bool(log_cost <= log_costs[0] and (log_base_cost > log_base_costs[0] or is_above > is_base_above)),
        at_most=is_base_above and not is_above,
    )


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
    (costs, shares), (base_costs, base_shares) = _pair(curve, base, axis)
    lowest_cost, highest_cost = max(costs[0], base_costs[0]), min(costs[-1], base_costs[-1])
    common_costs = [float(cost) for cost in np.union1d(costs, base_costs) if lowest_cost <= cost <= highest_cost]
    shares_at = _interpolate_shares(shares, costs, common_costs)
    base_shares_at = _interpolate_shares(base_shares, base_costs, common_costs)
    return [
        CurveDifference(cost, paired_difference(cost_shares, base_cost_shares, rng=rng).mean)
        for cost, cost_shares, base_cost_shares in zip(common_costs, shares_at, base_shares_at, strict=True)
    ]


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


_ROUNDING: Final = 1e-9  # of accuracies
_BASE_FIELDS: Final = ("units", "model", "verifier", "setting")  # what a base should share with a curve, by priority


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
    bases = bases_of(curves, base)
    comparisons: list[Comparison] = []
    for curve in curves:
        panel_bases = [
            base_curve for base_curve in bases if (base_curve.dataset, base_curve.group) == (curve.dataset, curve.group)
        ]
        if not panel_bases or curve in bases or curve.role == "oracle":
            continue
        is_equal = [
            [getattr(base_curve, name) == getattr(curve, name) for name in _BASE_FIELDS] for base_curve in panel_bases
        ]
        most_similar = panel_bases[is_equal.index(max(is_equal))]
        comparisons.append(
            Comparison(
                label=curve.label,
                base=most_similar.label,
                dataset=curve.dataset,
                group=curve.group,
                differences=differences(curve, most_similar, axis, rng=rng),
                gain=gain(curve, most_similar, axis, rng=rng),
            )
        )
    return comparisons


def bases_of(curves: Sequence[Curve], base: str) -> list[Curve]:
    """Return the curves with the label `base`, else the curves of a strategy.

    The strategy is the one that `strategy_of` finds for `base`.

    Raises:
        ConfigError: There is no such curve.
    """
    labeled_curves = [curve for curve in curves if curve.label == base]
    if labeled_curves:
        return labeled_curves
    labels = {curve.label for curve in curves}
    strategies = {curve.strategy for curve in curves}
    strategy = strategy_of(base, (labels | strategies) - {""}, "baseline")
    return [curve for curve in curves if strategy in (curve.strategy, curve.label)]


def amount(value: float) -> str:
    """Return a cost in short form: 1.5k, 20M, 0.004."""
    for factor, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g}{letter}"
    return format_plain(value, 3)


def format_points(difference: Estimate) -> str:
    """Return a difference of shares in percentage points, with its interval."""
    value, low, high = 100 * difference.value, 100 * difference.low, 100 * difference.high
    return f"{value:+.1f} [{low:+.1f}, {high:+.1f}] points"


def describe_result(what: Gain | CurveDifference, axis: str) -> str:
    """Return a gain or a difference as a phrase, with its interval."""
    unit = AXES[axis].unit
    if isinstance(what, Gain):
        prefix = "at most " if what.at_least else "at least " if what.at_most else ""
        # the share of the base's cost is the inverse of the ratio, whose bounds change places
        share, low, high = (f"{1 / bound:.2g}" for bound in (what.ratio.value, what.ratio.high, what.ratio.low))
        percent = 100 * what.accuracy
        accuracy = f"{percent:.2g} %" if what.accuracy < 0.995 else f"{percent:.3g} %"  # two digits of 100: 1e+02
        return f"{prefix}{share} times [{low}, {high}] the {unit} for {accuracy}"
    return f"{format_points(what.value)} at {amount(what.cost)} {unit}"


def _pair(curve: Curve, base: Curve, axis: str) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Return costs [B] and shares [B, P] of both curves, cheapest first, on their common problems.

    A common problem has a value at every point of both curves.
    """
    columns_by_problem = _complete_columns(curve)
    base_columns_by_problem = _complete_columns(base)
    common_problems = [problem for problem in columns_by_problem if problem in base_columns_by_problem]
    if not common_problems or curve.dataset != base.dataset:
        raise ConfigError(
            f"{curve.label!r} and {base.label!r} have no problem in common that is finished at every point of both",
            hint="finish the study, or compare curves of one data set",
        )
    columns = np.asarray([columns_by_problem[problem] for problem in common_problems])
    base_columns = np.asarray([base_columns_by_problem[problem] for problem in common_problems])
    return _sort(curve, axis, columns), _sort(base, axis, base_columns)


def _complete_columns(curve: Curve) -> dict[str, int]:
    """Return the columns in `shares` of the problems with a value at every point, by problem."""
    is_complete = ~np.isnan(curve.shares).any(axis=0)  # [P]
    return {curve.problems[i]: i for i in np.flatnonzero(is_complete).tolist()}


def _sort(curve: Curve, axis: str, columns: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Return the costs [B] of a curve, ascending, and the shares [B, len(columns)] of the problems of some columns.

    Raises:
        ConfigError: A cost is not above 0.
    """
    costs = curve.cost(axis)
    if not (costs > 0).all():
        raise ConfigError(
            f"{axis} is {float(costs.min()):g} at a point of {curve.label!r}, but costs that are compared as ratios "
            "must be above 0",
            hint="compare by another axis, such as tokens",
        )
    order = np.argsort(costs, kind="stable")
    return costs[order], curve.shares[np.ix_(order, columns)]


def _crossing_points(accuracy: Floats, x: Floats, level: Floats) -> Floats:
    """Return the x where lines of accuracy first reach their level, [R]; NaN: a line never reaches its level.

    Args:
        accuracy: [R, B], the accuracy of each line at each point.
        x: [B], the place of each point, ascending.
        level: [R], the accuracy to reach.
    """
    row = np.arange(len(accuracy))
    point = (accuracy >= level[:, None]).argmax(axis=1)  # [R], the first point that reaches the level, else 0
    previous = np.maximum(point - 1, 0)
    previous_accuracy, point_accuracy = accuracy[row, previous], accuracy[row, point]
    rise = np.where(point > 0, point_accuracy - previous_accuracy, 1)
    share = np.where(point > 0, (level - previous_accuracy) / rise, 1)  # of the way from the previous point
    crossing = x[previous] + share * (x[point] - x[previous])
    return np.where(point_accuracy >= level, crossing, np.nan)


def _interpolate_shares(shares: Floats, costs: Floats, new_costs: Sequence[float]) -> Floats:
    """Return shares at other costs, [len(new_costs), P], linear in the logarithm of the cost between points.

    Args:
        shares: [B, P], the shares at each point.
        costs: [B], the cost of each point, ascending.
        new_costs: The costs to interpolate at, within the range of `costs`.
    """
    if len(costs) == 1:
        return np.repeat(shares, len(new_costs), axis=0)
    log_costs, log_new_costs = np.log(costs), np.log(np.asarray(new_costs))
    right = np.clip(np.searchsorted(log_costs, log_new_costs), 1, len(costs) - 1)  # the point after each new cost
    width = log_costs[right] - log_costs[right - 1]
    safe_width = np.where(width > 0, width, 1)
    right_weight = np.where(width > 0, (log_new_costs - log_costs[right - 1]) / safe_width, 1)[:, None]
    return (1 - right_weight) * shares[right - 1] + right_weight * shares[right]
