"""The points of curves as rows of a table, live and replayed ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tts.experiments.analysis.curves import AXES, Curve, Kind
from tts.experiments.analysis.replay import ReplayedCurve
from tts.statistics import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A point of a curve.

    Args:
        dataset, group, model, verifier, strategy, kind: of its curve. problems, seeds: how many it is averaged over.
        accuracy: with its interval over problems. drawing_error: the part of its standard error from random subsets; 0: it is exact;
            None: the point is live.
        too_small: problems left out of it, because their pools are too small.
        order: of a replayed point's samples: "recorded", or the mean over "all"; None: the point is live.
        costs: of one problem on average, by name in `AXES`; None: unknown.
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
    costs: dict[str, float | None]


def points_of(curves: Iterable[Curve | ReplayedCurve]) -> list[Point]:
    """Return the points of curves, in order."""
    return [point for one in curves for point in _points(one)]


def _points(one: Curve | ReplayedCurve) -> list[Point]:
    curve, replayed = (one.curve, one) if isinstance(one, ReplayedCurve) else (one, None)
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
            costs={name: float(curve.costs[name][i]) if name in curve.costs else None for name in AXES},
        )
        for i, accuracy in enumerate(curve.accuracy)
    ]
