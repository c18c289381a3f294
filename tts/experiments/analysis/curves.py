"""Scaling curves: accuracy against cost, read from the results of a study.

Results are read once, in any order, and kept as columns of numbers: a million of them take some hundred megabytes.

Shapes: B points, P problems.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tts.errors import ConfigError, unknown_name
from tts.experiments.analysis.names import strategy_of
from tts.experiments.study.record import Cell, Result
from tts.statistics import Estimate, clustered_mean
from tts.types import Usage

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Kind = Literal["live", "replayed"]
Role = Literal["strategy", "uniform", "allocator", "oracle"]


@dataclass(frozen=True, slots=True)
class Axis:
    """A cost that accuracy is drawn against.

    Args:
        title: The title of the axis.
        unit: The unit as written after a number.
        of: A function that returns the cost of a usage; None: unknown.
    """

    title: str
    unit: str
    of: Callable[[Usage], float | None]


# Costs of one problem. Cancelled tokens were computed, and count.
AXES: Final[Mapping[str, Axis]] = {
    "samples": Axis("samples per problem", "samples", lambda usage: usage.samples),
    "requests": Axis("requests per problem", "requests", lambda usage: usage.requests),
    "generated_tokens": Axis(
        "generated tokens per problem",
        "generated tokens",
        lambda usage: usage.generated_tokens + usage.cancelled_tokens,
    ),
    "tokens": Axis("tokens per problem, verifier included", "tokens", lambda usage: usage.tokens),
    "path_tokens": Axis("tokens written one after another per problem", "tokens on the critical path", lambda _: None),
    "verifier_tokens": Axis("verifier tokens per problem", "verifier tokens", lambda usage: usage.verifier_tokens),
    "flops": Axis("FLOPs per problem, prompts included", "FLOPs", lambda usage: usage.flops),
    "seconds": Axis("seconds per problem (critical path, waiting included)", "seconds", lambda usage: usage.seconds),
    "work_seconds": Axis("seconds of work per problem", "seconds of work", lambda usage: usage.work_seconds),
    "usd": Axis("dollars per problem", "dollars", lambda usage: usage.usd),
    "kv_bytes": Axis("bytes of keys and values at the peak", "KV bytes", lambda usage: usage.peak_kv_bytes),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curve:
    """One line of a figure: a strategy at several budgets, on the same problems.

    Args:
        label: The label in legends.
        dataset: The data set that the curve was measured on.
        model: The model that the curve was measured with.
        verifier: The verifier that the curve was measured with; "none": there is none.
        costs: The costs by name in `AXES`, the mean cost of a problem at each point, [B]. Unknown axes are left out.
        accuracy: The accuracy at each point, with an interval over problems (`accuracies`).
        shares: [B, P], the share of a problem's seeds that were right at a point; NaN: the problem was not run.
        problems: [P], the ids of problems. Curves are compared on their common ids.
        seeds: The seeds of the runs, or of the recorded pools.
        kind: "live": each point is a run. "replayed": points are computed from recorded samples.
        role: "uniform", "allocator" and "oracle" are drawn as reference lines.
        group: The panel that the curve is drawn in.
        failed: The number of runs that failed and are in no point.
        strategy: The text of the strategy, where the label says more.
        units: The units that the budgets limit, which tell apart curves of the same strategy, model and verifier.
        setting: The setting of the curve's cells, which also tells such curves apart; see `Cell`.
        is_scored: Whether any run has scores of a verifier; None: unknown.
    """

    label: str
    dataset: str
    model: str
    verifier: str = "none"
    costs: Mapping[str, Floats]
    accuracy: Sequence[Estimate]
    shares: Floats
    problems: Sequence[str]
    seeds: Sequence[int]
    kind: Kind = "live"
    role: Role = "strategy"
    group: str | None = None
    failed: int = 0
    strategy: str = ""
    units: str = ""
    setting: str = ""
    is_scored: bool | None = None

    def __post_init__(self) -> None:
        shape = (len(self.accuracy), len(self.problems))
        if self.shares.shape != shape:
            raise ConfigError(f"shares is of shape {self.shares.shape}, but must be of {shape}: points, problems")
        for name, cost in self.costs.items():
            if name not in AXES or cost.shape != shape[:1]:
                raise ConfigError(
                    f"costs has {name!r} of shape {cost.shape}, but must have one value a point under a name in AXES"
                )

    def cost(self, axis: str) -> Floats:
        """Return the mean cost of a problem at each point, [B].

        Raises:
            ConfigError: there is no such axis, or this curve lacks the axis.
        """
        if axis not in AXES:
            raise unknown_name("axis", axis, AXES)
        if axis not in self.costs:
            known = ", ".join(name for name in AXES if name in self.costs)
            raise ConfigError(
                f"axis is {axis!r}, but that is unknown for {self.label!r}", hint=f"known for it: {known}"
            )
        return self.costs[axis]


def accuracies(shares: Floats, rng: np.random.Generator) -> tuple[Estimate, ...]:
    """Return the accuracy at each point of shares [B, P]. Problems with NaN are left out."""
    return tuple(accuracy(row[~np.isnan(row)], rng) for row in shares)


def accuracy(shares: Sequence[float] | Floats, rng: np.random.Generator) -> Estimate:
    """Return the accuracy: the mean over problems of the mean over seeds, with an interval over problems.

    Tables, curves and replays all use this estimator. Each problem has the same weight, however many of its runs are
    finished.

    Args:
        shares: [P], the share of each problem's seeds that were right.
        rng: The generator of the resamples.

    Random: the resamples of the interval, from a copy of the generator. Equal shares in any order have equal intervals.
    """
    return clustered_mean(np.sort(shares), rng=copy.deepcopy(rng), bounds=(0.0, 1.0))


class CurveKey(NamedTuple):
    """The fields that the results of one curve have in common."""

    dataset: str
    group: str | None
    strategy: str
    model: str
    verifier: str
    units: str  # units of its budgets: limits on tokens and limits on samples are two lines
    setting: str


_ROLES: Mapping[str, Role] = {
    "auto": "allocator",
    "best_of_n": "uniform",
}  # roles of strategies, in figures with an allocator

_LINE, _BUDGET, _PROBLEM, _SEED = range(4)  # columns of `_ResultColumns.keys`

# Fields of a line that its label gets, in this order, until no two lines of a panel have the same label.
_DISTINCTIONS = {"model": "on {}", "verifier": "with verifier {}", "units": "by {}", "setting": "setting {:.8}"}


@dataclass
class _ResultColumns:
    """Results as columns of numbers, with a row for each result that is known to be right or wrong.

    The tables of lines, budgets and problems give each distinct value its number, in order of first appearance.
    """

    lines: dict[CurveKey, int] = field(default_factory=dict[CurveKey, int])
    budgets: dict[tuple[tuple[str, float], ...], int] = field(default_factory=dict[tuple[tuple[str, float], ...], int])
    problems: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    failed: Counter[CurveKey] = field(default_factory=Counter[CurveKey])
    keys: array[int] = field(default_factory=lambda: array("q"))  # numbers of line, budget and problem, and the seed
    right: array[int] = field(default_factory=lambda: array("b"))
    costs: array[float] = field(default_factory=lambda: array("d"))  # costs of each row in the order of AXES
    ended_by_budget: array[int] = field(default_factory=lambda: array("b"))  # whether the budget ended the search
    unchecked: Counter[str] = field(default_factory=Counter[str])
    oracles: set[CurveKey] = field(default_factory=set[CurveKey])  # lines with a verifier that saw the reference answer
    scored: set[CurveKey] = field(default_factory=set[CurveKey])  # lines with scores of a verifier

    def add(self, result: Result, *, by_group: bool) -> None:
        """Add a row for a result, or count the result as failed or unchecked."""
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
        if result.is_scored:
            self.scored.add(line)
        budget = tuple(sorted(cell.budget.items()))
        line_number = self.lines.setdefault(line, len(self.lines))
        budget_number = self.budgets.setdefault(budget, len(self.budgets))
        problem_number = self.problems.setdefault((cell.dataset, cell.problem), len(self.problems))
        self.keys.extend((line_number, budget_number, problem_number, cell.seed))
        self.right.append(result.right)
        self.ended_by_budget.append(result.stopped_by.startswith("budget"))
        costs = (axis.of(usage) for axis in AXES.values())
        self.costs.extend(math.nan if value is None else value for value in costs)


def choose_curves(curves: Sequence[Curve], names: Sequence[str]) -> list[Curve]:
    """Return the curves whose label or strategy is named; all curves if there are no names.

    Args:
        curves: The curves.
        names: Labels, or strategies as `strategy_of` reads them.

    Raises:
        ConfigError: A name fits no curve.
    """
    if not names:
        return list(curves)
    labels = {curve.label for curve in curves}
    strategies = {curve.strategy for curve in curves if curve.strategy}
    chosen_names = {name if name in labels else strategy_of(name, strategies | labels) for name in names}
    return [curve for curve in curves if curve.label in chosen_names or curve.strategy in chosen_names]


def line_words(curves: Sequence[Curve], words: Mapping[str, str]) -> dict[str, str]:
    """Return the words of curves by their labels.

    Args:
        curves: The curves.
        words: The words by label, or by a strategy as `strategy_of` reads it.

    Raises:
        ConfigError: A name fits no curve.
    """
    return {curve.label: text for name, text in words.items() for curve in choose_curves(curves, [name])}


def curves_of(results: Iterable[Result], *, rng: np.random.Generator, by_group: bool = False) -> list[Curve]:
    """Return the curves of a study's results, in order of first appearance.

    A problem's share and cost at a point are means over its seeds. A point is the mean over problems. Failed runs are
    counted, but are in no point. Points of an unfinished study may be means over different problems. Two budgets are
    one point where they ended no search and every run drew equally many samples.

    Args:
        results: The results of any data sets, models and settings. Results of different settings are never averaged.
        rng: The generator of the intervals.
        by_group: Whether each group of problems has its own curve.

    Raises:
        ConfigError: a problem has no reference answer, so that its accuracy is unknown; or no run has finished without
            an error.
    """
    columns = _ResultColumns()
    for result in results:
        columns.add(result, by_group=by_group)
    if columns.unchecked:
        unchecked = ", ".join(f"{count} of data set {name!r}" for name, count in columns.unchecked.items())
        raise ConfigError(
            f"results without a reference answer: {unchecked}; accuracy is unknown for them",
            hint="give the problems answers, or leave the data set out of the study",
        )
    if not columns.lines:
        failed = columns.failed.total()
        reason = f"all {failed} runs failed" if failed else "no run is finished"
        raise ConfigError(
            f"there is nothing to draw: {reason}",
            hint="tts show lists what failed, and why" if failed else "start the study with tts run",
        )
    keys = np.frombuffer(columns.keys, np.int64).reshape(-1, 4)  # [rows, (line, budget, problem, seed)]
    right = np.frombuffer(columns.right, np.int8)  # [rows]
    costs = np.frombuffer(columns.costs, np.float64).reshape(-1, len(AXES))  # [rows, axes]
    ended_by_budget = np.frombuffer(columns.ended_by_budget, np.int8) == 1  # [rows]
    line_of_row = keys[:, _LINE]
    names = np.asarray([name for _, name in columns.problems], object)
    labels = labels_of(list(columns.lines))
    has_allocator = any(_kind(line) == "auto" for line in columns.lines)
    order = np.argsort(line_of_row, kind="stable")  # rows of the first line, then of the second line, …
    line_starts = np.searchsorted(line_of_row[order], np.arange(len(columns.lines) + 1))
    curves: list[Curve] = []
    for number, line in enumerate(columns.lines):
        rows = order[line_starts[number] : line_starts[number + 1]]
        line_keys = _pool_equal(keys[rows], costs[rows], ended_by_budget[rows])
        curve = _curve(line, labels[number], names, line_keys, right[rows], costs[rows], rng=rng)
        role: Role = "oracle" if line in columns.oracles else "strategy"
        if has_allocator and role == "strategy":  # the allocator and its reference line
            role = _ROLES.get(_kind(line), role)
        is_scored = line in columns.scored
        curves.append(dataclasses.replace(curve, failed=columns.failed[line], role=role, is_scored=is_scored))
    return curves


def _pool_equal(keys: Whole, costs: Floats, ended_by_budget: NDArray[np.bool_]) -> Whole:
    """Return the keys of a line's rows, in which budgets that made no difference become the first of them.

    Two budgets made no difference if they ended no search, and if every run under both drew equally many samples.

    Args:
        keys: [N, 4], the numbers of line, budget and problem of each row, and its seed.
        costs: [N, axes] in the order of `AXES`.
        ended_by_budget: [N], whether the budget ended the search.
    """
    samples = costs[:, list(AXES).index("samples")]
    first_budgets: dict[float, int] = {}  # by the number of samples that every run drew
    pooled_keys = keys.copy()
    for budget in np.unique(keys[:, _BUDGET]).tolist():
        has_budget = keys[:, _BUDGET] == budget
        sample_counts = np.unique(samples[has_budget])
        if len(sample_counts) == 1 and not ended_by_budget[has_budget].any():
            pooled_keys[has_budget, _BUDGET] = first_budgets.setdefault(float(sample_counts[0]), budget)
    return pooled_keys


def _kind(line: CurveKey) -> str:
    """Return the name of a line's strategy, without its parameters and its selection."""
    return line.strategy.partition("(")[0].partition(" ")[0]


def _line(cell: Cell, *, by_group: bool) -> CurveKey:
    """Return the line of a cell: the fields that it has in common with all cells of its curve."""
    return CurveKey(
        dataset=cell.dataset,
        group=cell.group if by_group else None,
        strategy=cell.strategy,
        model=cell.model,
        verifier=verifiers_in_words(cell),
        units=", ".join(sorted(cell.budget)),
        setting=cell.setting,
    )


def _curve(
    line: CurveKey,
    label: str,
    names: NDArray[np.object_],
    keys: Whole,
    right: NDArray[np.int8],
    costs: Floats,
    *,
    rng: np.random.Generator,
) -> Curve:
    """Return the curve of a line.

    Args:
        line: The line.
        label: The label of the curve.
        names: The ids of all problems, by the problems' numbers.
        keys: [N, 4], the numbers of line, budget and problem of each row, and its seed.
        right: [N], whether each row is right.
        costs: [N, axes] in the order of `AXES`.
        rng: The generator of the intervals.
    """
    budgets, budget_index = np.unique(keys[:, _BUDGET], return_inverse=True)
    problems, problem_index = np.unique(keys[:, _PROBLEM], return_inverse=True)
    shape = (len(budgets), len(problems))
    num_entries = len(budgets) * len(problems)
    index = budget_index * len(problems) + problem_index  # [N], the place of each row in a flat table [B, P]
    runs = np.bincount(index, minlength=num_entries).reshape(shape)

    def mean(values: Floats) -> Floats:
        """Return the mean over seeds, [B, P]; NaN: there is no run."""
        sums = np.bincount(index, values, num_entries).reshape(shape)
        return np.where(runs > 0, sums / np.maximum(runs, 1), np.nan)

    shares = mean(right.astype(np.float64))
    means = {name: mean(costs[:, i]) for i, name in enumerate(AXES) if not np.isnan(costs[:, i]).any()}
    return Curve(
        label=label,
        **line._asdict(),
        costs={name: np.nanmean(cost, axis=1) for name, cost in means.items()},
        accuracy=accuracies(shares, rng),
        shares=shares,
        problems=names[problems].tolist(),
        seeds=[int(seed) for seed in np.unique(keys[:, _SEED])],
    )


def verifiers_in_words(cell: Cell) -> str:
    """Return the verifiers of a cell as text for legends; "none": it has no verifier."""
    roles = sorted(cell.verifiers.items())
    return ", ".join(text if role == "main" else f"{role}: {text}" for role, text in roles) or "none"


def labels_of(lines: Sequence[CurveKey | Curve]) -> list[str]:
    """Return a label for each line: its strategy, and the fields by which it differs from other lines.

    Labels differ only within a panel, which is a data set and a group of problems.
    """
    labels = [line.strategy for line in lines]
    for field_name, words in _DISTINCTIONS.items():
        values: dict[tuple[str, str | None, str], set[str]] = {}  # by data set, group and label
        for line, label in zip(lines, labels, strict=True):
            values.setdefault((line.dataset, line.group, label), set()).add(getattr(line, field_name))
        ambiguous_labels = {label for (_, _, label), label_values in values.items() if len(label_values) > 1}
        for i, line in enumerate(lines):
            if labels[i] in ambiguous_labels:
                labels[i] += f", {words.format(getattr(line, field_name))}"
    return labels
