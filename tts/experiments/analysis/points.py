"""The points of live and replayed curves as rows of a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tts.errors import ConfigError
from tts.experiments.analysis.comparing import pareto_front
from tts.experiments.analysis.curves import AXES, Curve, Kind
from tts.statistics import Estimate

if TYPE_CHECKING:
    from tts.experiments.analysis.replay import ReplayedCurve


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A point of a curve.

    Args:
        dataset: The data set of its curve.
        group: The group of its curve.
        model: The model of its curve.
        verifier: The verifier of its curve.
        strategy: The strategy of its curve.
        kind: The kind of its curve.
        problems: The number of problems that the point is averaged over.
        seeds: The number of seeds that the point is averaged over.
        accuracy: The accuracy with its interval over problems.
        drawing_error: The part of the standard error that random subsets cause; 0: none; None: the point is live.
        too_small: The number of problems left out, because their pools are too small.
        order: The order of a replayed point's samples: "recorded", or the mean over "all"; None: the point is live.
        answered: The share of right answers among the given ones; None: unknown, or the plan does not abstain.
        coverage: The share of runs that give an answer; None: the plan does not abstain, or the point is live.
        costs: The costs of one problem on average, by name in `AXES`; None: unknown.
    """

    dataset: str
    group: str | None
    model: str
    verifier: str
    strategy: str
    kind: Kind
    problems: int
    seeds: int
    accuracy: Estimate
    drawing_error: float | None
    too_small: int
    order: str | None
    answered: float | None
    coverage: float | None
    costs: dict[str, float | None]


def points_of(curves: Iterable[Curve | ReplayedCurve]) -> list[Point]:
    """Return the points of curves, in order."""
    return [point for curve in curves for point in _points(curve)]


def front_points(curves: Sequence[Curve], axis: str) -> list[Point]:
    """Return the points of the Pareto front of curves, cheapest first, as `pareto_front` chooses them.

    Args:
        curves: The curves of one data set and model.
        axis: The cost, a name in `AXES`.

    Raises:
        ConfigError: The curves are of several data sets, or a curve lacks the axis.
    """
    datasets = sorted({curve.dataset for curve in curves})
    if len(datasets) > 1:
        raise ConfigError(
            f"the curves are of the data sets {', '.join(datasets)}, but a front is of one",
            hint="run a study of one data set",
        )
    points = points_of(curve for curve in curves if curve.role != "oracle")
    front = {(point.label, point.cost, point.accuracy) for point in pareto_front(curves, axis)}
    points_on_front = [point for point in points if (point.strategy, point.costs[axis], point.accuracy.value) in front]
    return sorted(points_on_front, key=lambda point: point.costs[axis] or 0.0)


def _points(line: Curve | ReplayedCurve) -> list[Point]:
    """Return the points of a live or replayed curve."""
    curve, replayed = (line, None) if isinstance(line, Curve) else (line.curve, line)
    known = None if replayed is None else replayed.coverage
    coverage: list[float | None] = [None] * len(curve.accuracy) if known is None else known.tolist()
    return [
        Point(
            dataset=curve.dataset,
            group=curve.group,
            model=curve.model,
            verifier=curve.verifier,
            strategy=curve.label,
            kind=curve.kind,
            problems=accuracy.num,
            seeds=len(curve.seeds),
            accuracy=accuracy,
            drawing_error=None if replayed is None else float(replayed.errors[i]),
            too_small=0 if replayed is None else replayed.too_small[i],
            order=None if replayed is None else replayed.order,
            answered=accuracy.value / share if (share := coverage[i]) else None,
            coverage=coverage[i],
            costs={name: float(curve.costs[name][i]) if name in curve.costs else None for name in AXES},
        )
        for i, accuracy in enumerate(curve.accuracy)
    ]
