"""The final table of a study: accuracy and cost by data set, model, setting, strategy and budget.

Results are summed as they are read: a table takes one pass, and memory for its problems only. Unknown values are None.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from tts.experiments.analysis import curves
from tts.experiments.analysis.names import condition_of
from tts.experiments.study.record import Cell, Result
from tts.statistics import Estimate, mean_with_error

SEED: Final = 0  # seed of the intervals' resamples: equal results give equal tables
NOT_REPEATED: Final = frozenset(
    {"cancelled_tokens", "lost_tokens", "seconds", "work_seconds"}
)  # all other columns are equal after a resumed run
_SUMS: Final = (
    "prompt_tokens", "reused_tokens", "generated_tokens", "cancelled_tokens", "truncated_tokens", "verifier_tokens",
    "flops", "usd", "seconds", "work_seconds",
)  # fmt: skip


# the strategy, the condition, and the limits by unit, which all runs of a row have in common
_Key = tuple[str, tuple[object, ...], tuple[tuple[str, float], ...]]
UNSCORED: Final = "verifier never called"
_LEAST_GROUPS = 10  # number of groups below which an error by group is unreliable


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """All runs that differ only in problem and seed.

    Tokens, FLOPs, dollars and seconds are sums over the runs; None: unknown.

    Args:
        dataset: As in `Cell`.
        model: As in `Cell`.
        setting: As in `Cell`.
        verifiers: As in `Cell`.
        strategy: As in `Cell`.
        budget: As in `Cell`.
        problems: The number of different problems.
        seeds: The number of different seeds.
        runs: The number of finished cells.
        failed: The number of finished cells with an error.
        accuracy: The mean over problems of the share of right answers among a problem's runs that did not fail, with
            an interval over problems; None: `no_accuracy` has the reason.
        no_accuracy: The reason why there is no accuracy; None: there is an accuracy.
        standard_error: The standard error of the accuracy, by problem.
        group_error: The standard error by group, for problems that depend on each other, such as questions on one
            text (`tts.statistics.mean_with_error`). None: unknown, or there are fewer than ten groups. Levels of
            difficulty are no clusters, and an error from few groups is unreliable.
        prompt_tokens: As in `Usage`.
        reused_tokens: As in `Usage`.
        generated_tokens: As in `Usage`.
        verifier_tokens: As in `Usage`.
        cancelled_tokens: As in `Usage`.
        truncated_tokens: As in `Usage`.
        lost_tokens: As in `Result`.
        flops: As in `Usage`.
        usd: As in `Usage`.
        seconds: As in `Usage`.
        work_seconds: As in `Usage`.
        stops: The number of runs by the reason of their end.
        failures: The number of failed rows by kind.
        errors: The number of failed runs by kind.
        notes: Notes on any of the runs: "oracle" (a verifier saw the reference answer), "estimated" (a server did not
            report its usage), "not reproducible"; or, on all runs, "verifier never called".
    """

    dataset: str
    model: str
    setting: str
    verifiers: Mapping[str, str]
    strategy: str
    budget: Mapping[str, float]
    problems: int
    seeds: int
    runs: int
    failed: int
    accuracy: Estimate | None
    no_accuracy: str | None
    standard_error: float | None
    group_error: float | None
    prompt_tokens: int
    reused_tokens: int | None
    generated_tokens: int
    verifier_tokens: int
    cancelled_tokens: int
    truncated_tokens: int
    lost_tokens: int
    flops: int | None
    usd: float | None
    seconds: float
    work_seconds: float
    stops: Mapping[str, int]
    failures: Mapping[str, int]
    errors: Mapping[str, int]
    notes: tuple[str, ...]


@dataclass(slots=True)
class _Problem:
    """The runs of a problem: how many of them were judged, and how many were right."""

    group: str | None = None
    right: int = 0
    judged: int = 0
    unanswerable: bool = False


@dataclass(slots=True)
class _RowSums:
    """The sums of a row."""

    problems: dict[str, _Problem] = field(default_factory=dict[str, _Problem])
    seeds: set[int] = field(default_factory=set[int])
    runs: int = 0
    failed: int = 0
    lost_tokens: int = 0
    usage: dict[str, Any] = field(default_factory=lambda: dict.fromkeys(_SUMS, 0))
    stops: Counter[str] = field(default_factory=Counter[str])
    failures: Counter[str] = field(default_factory=Counter[str])
    errors: Counter[str] = field(default_factory=Counter[str])
    notes: set[str] = field(default_factory=set[str])
    is_scored: bool = False

    def add(self, result: Result) -> None:
        """Add a run."""
        problem = self.problems.setdefault(result.cell.problem, _Problem(result.cell.group))
        self.seeds.add(result.cell.seed)
        self.runs += 1
        if result.error is not None:
            self.failed += 1
            self.errors[result.error.partition(":")[0]] += 1
        elif result.right is None:
            problem.unanswerable = True
        else:
            problem.judged += 1
            problem.right += result.right
        self.lost_tokens += result.lost_tokens
        self.is_scored |= result.is_scored
        for name, total in self.usage.items():
            value = getattr(result.usage, name)
            self.usage[name] = None if value is None or total is None else total + value
        self.stops[result.stopped_by] += 1
        self.failures.update(result.failures)
        if result.oracle:
            self.notes.add("oracle")
        if result.usage.estimated:
            self.notes.add("estimated")
        if not result.reproducible:
            self.notes.add("not reproducible")

    def accuracy(self, rng: np.random.Generator) -> _Accuracy:
        """Return the accuracy with its standard errors, or the reason why there is no accuracy."""
        num_unanswerable = sum(problem.unanswerable for problem in self.problems.values())
        if num_unanswerable:
            num_problems = len(self.problems)
            return _Accuracy(reason=f"{num_unanswerable:,} of {num_problems:,} problems have no reference answer")
        if self.failed == self.runs:
            return _Accuracy(reason="every run failed")
        problems = [problem for problem in self.problems.values() if problem.judged]
        shares = [problem.right / problem.judged for problem in problems]
        groups = [problem.group for problem in problems if problem.group is not None]
        group_error = math.nan
        if len(groups) == len(shares) and len(set(groups)) >= _LEAST_GROUPS:
            group_error = mean_with_error(shares, groups).error
        errors = [None if math.isnan(error) else error for error in (mean_with_error(shares).error, group_error)]
        return _Accuracy(curves.accuracy(shares, rng), None, *errors)


class _Accuracy(NamedTuple):
    """An accuracy with its standard errors by problem and by group; None: unknown."""

    value: Estimate | None = None
    reason: str | None = None  # why there is no accuracy
    error: float | None = None
    group_error: float | None = None


def table(results: Iterable[Result], *, rng: np.random.Generator) -> list[TableRow]:
    """Return the table of results, in the order in which strategies first appear, then by budget.

    Random: the intervals' resamples. A row's resamples do not depend on other rows, and equal the resamples of the
    same point of a curve.
    """
    first_cells: dict[_Key, Cell] = {}
    row_sums: dict[_Key, _RowSums] = {}
    for result in results:
        cell = result.cell
        key = (cell.strategy, condition_of(cell), tuple(sorted(cell.budget.items())))
        first_cells.setdefault(key, cell)
        row_sums.setdefault(key, _RowSums()).add(result)
    # a line: rows that differ only in the limits of their budgets
    line_of = {key: (*key[:2], tuple(unit for unit, _ in key[2])) for key in row_sums}
    rank = {line: i for i, line in enumerate(dict.fromkeys(line_of.values()))}
    keys = sorted(row_sums, key=lambda key: (rank[line_of[key]], [limit for _, limit in key[2]]))
    return [_row(first_cells[key], row_sums[key], rng) for key in keys]


def _row(cell: Cell, sums: _RowSums, rng: np.random.Generator) -> TableRow:
    """Return the row of runs with these sums, whose first run has the given cell."""
    accuracy = sums.accuracy(rng)
    if cell.verifiers and not sums.is_scored:
        sums.notes.add(UNSCORED)
    return TableRow(
        dataset=cell.dataset,
        model=cell.model,
        setting=cell.setting,
        verifiers=cell.verifiers,
        strategy=cell.strategy,
        budget=cell.budget,
        problems=len(sums.problems),
        seeds=len(sums.seeds),
        runs=sums.runs,
        failed=sums.failed,
        accuracy=accuracy.value,
        no_accuracy=accuracy.reason,
        standard_error=accuracy.error,
        group_error=accuracy.group_error,
        lost_tokens=sums.lost_tokens,
        stops=_rank(sums.stops),
        failures=_rank(sums.failures),
        errors=_rank(sums.errors),
        notes=tuple(sorted(sums.notes)),
        **sums.usage,
    )


def _rank(counts: Counter[str]) -> dict[str, int]:
    """Return counts in descending order, and equal counts by name."""
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))
