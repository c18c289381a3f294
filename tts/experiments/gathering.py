"""Curves from the results of a study: one line for each thing that was run, a point for each of its budgets.

Results are read once, in any order, and kept as columns of numbers, so that a million of them take some hundred megabytes.
"""

from __future__ import annotations

import dataclasses
import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tts.errors import ConfigError
from tts.experiments.curves import AXES, Curve, Floats, Role, accuracies
from tts.experiments.record import Cell, Result

Whole = NDArray[np.int64]


class Line(NamedTuple):
    """What the points of a curve have in common."""

    dataset: str
    group: str | None
    strategy: str
    model: str
    verifier: str
    units: str  # of its budgets: limits on tokens and on samples are two lines
    setting: str


_ROLES: Mapping[str, Role] = {"auto": "allocator", "best_of_n": "uniform"}  # of strategies, where one allocates

# Parts of a line by which a legend tells two of one strategy apart, as far as needed.
_TOLD_APART_BY = {"model": "on {}", "verifier": "with verifier {}", "units": "by {}", "setting": "setting {:.8}"}


@dataclass
class _Columns:
    """What is kept of results: a row for each that says whether it is right."""

    lines: dict[Line, int] = field(default_factory=dict[Line, int])
    budgets: dict[tuple[tuple[str, float], ...], int] = field(default_factory=dict[tuple[tuple[str, float], ...], int])
    problems: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    failed: Counter[Line] = field(default_factory=Counter[Line])
    place: array[int] = field(default_factory=lambda: array("q"))  # of each row: line, budget, problem, seed
    right: array[int] = field(default_factory=lambda: array("b"))
    costs: array[float] = field(default_factory=lambda: array("d"))  # of each row: in the order of AXES
    unchecked: Counter[str] = field(default_factory=Counter[str])
    oracles: set[Line] = field(default_factory=set[Line])  # lines with a run whose verifier saw the reference answer

    def add(self, result: Result, *, by_group: bool) -> None:
        cell, usage = result.cell, result.usage
        line = _line(cell, by_group=by_group)
        if result.error is not None:
            self.failed[line] += 1
            return
        if result.right is None:
            self.unchecked[cell.dataset] += 1
            return
        if result.oracle:
            self.oracles.add(line)
        row = (
            self.lines.setdefault(line, len(self.lines)),
            self.budgets.setdefault(tuple(sorted(cell.budget.items())), len(self.budgets)),
            self.problems.setdefault((cell.dataset, cell.problem), len(self.problems)),
            cell.seed,
        )
        self.place.extend(row)
        self.right.append(result.right)
        known = (axis.of(usage) for axis in AXES.values())
        self.costs.extend(math.nan if value is None else value for value in known)


def curves_of(results: Iterable[Result], *, rng: np.random.Generator, by_group: bool = False) -> list[Curve]:
    """Return the curves of a study's results, in order of first appearance.

    A problem's share at a point is the mean over its seeds; its cost likewise; a point is the mean over problems. Failed runs are in
    no point: they are counted. In a study that is unfinished, points may stand on different problems.

    Args:
        results: of cells that may belong to several data sets, models and settings: those are never averaged.
        rng: draws the intervals. by_group: a curve for each group of problems, for small multiples.

    Raises:
        ConfigError: a problem has no reference answer, so that its accuracy is unknown; or no run has ended without failing.
    """
    columns = _Columns()
    for result in results:
        columns.add(result, by_group=by_group)
    if columns.unchecked:
        where = ", ".join(f"{count} of data set {name!r}" for name, count in columns.unchecked.items())
        raise ConfigError(
            f"results without a reference answer: {where}; accuracy is unknown for them",
            hint="give the problems answers, or leave the data set out of the study",
        )
    if not columns.lines:
        failed = columns.failed.total()
        raise ConfigError(
            f"there is nothing to draw: {f'all {failed} runs failed' if failed else 'no run is finished'}",
            hint="tts show lists what failed, and why" if failed else "start the study with tts run",
        )
    place = np.frombuffer(columns.place, np.int64).reshape(-1, 4)
    right = np.frombuffer(columns.right, np.int8)
    costs = np.frombuffer(columns.costs, np.float64).reshape(-1, len(AXES))
    order = np.argsort(place[:, 0], kind="stable")
    ends = np.searchsorted(place[order, 0], np.arange(len(columns.lines) + 1))
    names = np.asarray([name for _, name in columns.problems], object)
    labels = labels_of(list(columns.lines))
    has_allocator = any(_kind(line) == "auto" for line in columns.lines)
    curves: list[Curve] = []
    for number, line in enumerate(columns.lines):
        rows = order[ends[number] : ends[number + 1]]
        curve = _curve(line, labels[number], names, place[rows], right[rows], costs[rows], rng=rng)
        role: Role = "oracle" if line in columns.oracles else "strategy"
        if has_allocator and role == "strategy":  # and what it is held against
            role = _ROLES.get(_kind(line), role)
        curves.append(dataclasses.replace(curve, failed=columns.failed[line], role=role))
    return curves


def _kind(line: Line) -> str:
    return line.strategy.partition("(")[0].partition(" ")[0]


def _line(cell: Cell, *, by_group: bool) -> Line:
    return Line(
        dataset=cell.dataset,
        group=cell.group if by_group else None,
        strategy=cell.strategy,
        model=cell.model,
        verifier=verifiers_in_words(cell),
        units=", ".join(sorted(cell.budget)),
        setting=cell.setting,
    )


def _curve(
    line: Line, label: str, names: NDArray[np.object_], place: Whole, right: NDArray[np.int8], costs: Floats, *, rng: np.random.Generator
) -> Curve:  # fmt: skip
    budgets, point = np.unique(place[:, 1], return_inverse=True)
    problems, column = np.unique(place[:, 2], return_inverse=True)
    shape = (len(budgets), len(problems))
    at = point * shape[1] + column
    runs = np.bincount(at, minlength=shape[0] * shape[1]).reshape(shape)

    def mean(values: Floats) -> Floats:
        """Return [B, P], the mean over seeds, NaN where there is no run."""
        sums = np.bincount(at, values, shape[0] * shape[1]).reshape(shape)
        return np.where(runs > 0, sums / np.maximum(runs, 1), np.nan)

    shares = mean(right.astype(np.float64))
    known = {name: mean(costs[:, i]) for i, name in enumerate(AXES) if not np.isnan(costs[:, i]).any()}
    return Curve(
        label=label,
        dataset=line.dataset,
        model=line.model,
        verifier=line.verifier,
        costs={name: np.nanmean(cost, axis=1) for name, cost in known.items()},
        accuracy=accuracies(shares, rng),
        shares=shares,
        problems=names[problems].tolist(),
        seeds=[int(seed) for seed in np.unique(place[:, 3])],
        group=line.group,
        strategy=line.strategy,
        units=line.units,
        setting=line.setting,
    )


def verifiers_in_words(cell: Cell) -> str:
    """Return the verifiers of a cell as a legend has them; "none" without one."""
    return ", ".join(text if role == "main" else f"{role}: {text}" for role, text in sorted(cell.verifiers.items())) or "none"


def labels_of(lines: Sequence[Line]) -> list[str]:
    """Return the strategy of each line, and what else is needed to tell lines of the same panel apart."""
    labels = [line.strategy for line in lines]
    for part, words in _TOLD_APART_BY.items():
        values: dict[tuple[str, str | None, str], set[str]] = {}
        for line, label in zip(lines, labels, strict=True):
            values.setdefault((line.dataset, line.group, label), set()).add(getattr(line, part))
        clashing = {label for (_, _, label), found in values.items() if len(found) > 1}
        labels = [
            f"{label}, {words.format(getattr(line, part))}" if label in clashing else label
            for line, label in zip(lines, labels, strict=True)
        ]
    return labels
