"""The points of live and replayed curves as rows of a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
