"""The points of curves as one table, live and replayed ones together: each row says which it is."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tts.experiments.curves import AXES, Curve, Kind
from tts.experiments.replay import Replayed
from tts.experiments.table import text_of
from tts.statistics import Estimate

_COSTS = tuple(AXES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A point of a curve.

    Args:
        dataset, group, model, verifier, strategy, kind: of its curve. problems, seeds: it stands on.
        accuracy: with its interval over problems. drawing_error: the part of its standard error that comes from subsets that were
            drawn; 0: there is none; None: the point is live.
        too_small: problems that are left out of it, because their pools are too small.
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
    costs: dict[str, float | None]


def points_of(curves: Iterable[Curve | Replayed]) -> list[Point]:
    """Return the points of curves, in order."""
    return [point for one in curves for point in _points(one)]


def _points(one: Curve | Replayed) -> list[Point]:
    curve, replayed = (one.curve, one) if isinstance(one, Replayed) else (one, None)
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
            costs={name: float(curve.costs[name][i]) if name in curve.costs else None for name in _COSTS},
        )
        for i, accuracy in enumerate(curve.accuracy)
    ]


def as_text(points: Sequence[Point]) -> str:
    """Return points as a table for people."""
    columns = {
        "data set": [point.dataset for point in points],
        "group": [point.group or "" for point in points],
        "model": [point.model for point in points],
        "verifiers": [point.verifier for point in points],
        "seeds": [f"{point.seeds}" for point in points],
        "problems": [f"{point.problems:,}" for point in points],
        "pools too small": [f"{point.too_small or ''}" for point in points],
        "strategy": [point.strategy for point in points],
        "points": [_origin(point) for point in points],
        "samples": [_short(point.costs["samples"]) for point in points],
        "out": [_short(point.costs["generated_tokens"]) for point in points],
        "verifier": [_short(point.costs["verifier_tokens"]) for point in points],
        "accuracy [95 %]": [f"{_percent(a.value)} % [{_percent(a.low)}, {_percent(a.high)}]" for a in (point.accuracy for point in points)],
    }
    return text_of(columns)


def _origin(point: Point) -> str:
    """Return where a point comes from."""
    if point.drawing_error is None:
        return "live"
    return f"replayed, ± {_percent(point.drawing_error)} % by drawing" if point.drawing_error else "replayed, exact"


def _short(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.0f}" if value == round(value) or value >= 100 else f"{value:,.1f}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def as_json(points: Sequence[Point]) -> str:
    """Return points as a JSON list of objects; what is unknown is null."""
    return json.dumps([dataclasses.asdict(point) for point in points], indent=2, allow_nan=False)


def as_csv(points: Sequence[Point]) -> str:
    """Return points as CSV with a header; what is unknown is empty."""
    text = io.StringIO()
    rows = [_flat(point) for point in points]
    names = [f.name for f in dataclasses.fields(Point) if f.name != "costs"]
    at = names.index("accuracy") + 1
    writer = csv.DictWriter(text, [*names[:at], "accuracy_low", "accuracy_high", *names[at:], *_COSTS], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _flat(point: Point) -> dict[str, Any]:
    record = {f.name: getattr(point, f.name) for f in dataclasses.fields(Point) if f.name != "costs"}
    return {
        **record,
        "accuracy": point.accuracy.value,
        "accuracy_low": point.accuracy.low,
        "accuracy_high": point.accuracy.high,
        **point.costs,
    }
