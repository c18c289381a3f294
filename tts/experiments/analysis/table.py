"""The final table of a study: accuracy and cost by data set, model, setting, strategy and budget.

Results are summed as they are read: a table takes one pass, and memory for its problems only. Unknown values are None.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tts.experiments.analysis import curves
from tts.experiments.study.record import Result
from tts.statistics import Estimate, mean_with_error

NOT_REPEATED: Final = frozenset(
    {"cancelled_tokens", "lost_tokens", "seconds", "work_seconds"}
)  # all other columns are equal after a resumed run
_SUMS: Final = (
    "prompt_tokens", "reused_tokens", "generated_tokens", "cancelled_tokens", "truncated_tokens", "verifier_tokens",
    "flops", "usd", "seconds", "work_seconds",
)  # fmt: skip


_LEAST_GROUPS = 10


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
            report its usage), "not reproducible".
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

    def add(self, result: Result) -> None:
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
        for name, total in self.usage.items():
            value = getattr(result.usage, name)
            self.usage[name] = None if value is None or total is None else total + value
        self.stops[result.stopped_by] += 1
        self.failures.update(result.failures)
        marks = {
            "oracle": result.oracle,
            "estimated": result.usage.estimated,
            "not reproducible": not result.reproducible,
        }
        self.notes.update(note for note, holds in marks.items() if holds)

    def accuracy(self, rng: np.random.Generator) -> tuple[Estimate | None, str | None]:
        """Return the accuracy and None, or None and the reason why there is no accuracy."""
        problems = self.problems.values()
        if unanswerable := sum(problem.unanswerable for problem in problems):
            return None, f"{unanswerable:,} of {len(problems):,} problems have no reference answer"
        if self.failed == self.runs:
            return None, "every run failed"
        return curves.accuracy([problem.right / problem.judged for problem in problems if problem.judged], rng), None

    def standard_errors(self) -> tuple[float | None, float | None]:
        """Return the standard error of the accuracy by problem, and by group."""
        problems = [problem for problem in self.problems.values() if problem.judged]
        values = [problem.right / problem.judged for problem in problems]
        groups = [problem.group for problem in problems if problem.group is not None]
        clustered = len(groups) == len(values) and len(set(groups)) >= _LEAST_GROUPS
        errors = mean_with_error(values).error, mean_with_error(values, groups).error if clustered else math.nan
        plain, grouped = (None if math.isnan(error) else error for error in errors)
        return plain, grouped


def table(results: Iterable[Result], *, rng: np.random.Generator) -> list[TableRow]:
    """Return the table of results, in the order in which strategies first appear, then by budget.

    Random: the intervals' resamples. A row's resamples do not depend on other rows, and equal the resamples of the
    same point of a curve.
    """
    rows: dict[tuple[Any, ...], tuple[Result, _RowSums]] = {}
    for result in results:
        cell = result.cell
        verifiers, budget = tuple(sorted(cell.verifiers.items())), tuple(sorted(cell.budget.items()))
        key = (cell.dataset, cell.model, cell.setting, verifiers, cell.strategy, budget)
        if key not in rows:
            rows[key] = result, _RowSums()
        rows[key][1].add(result)
    # budgets of one line limit the same units
    lines = {key: (*key[:-1], *(unit for unit, _ in key[-1])) for key in rows}
    place = {line: place for place, line in enumerate(dict.fromkeys(lines.values()))}
    return [
        _row(*rows[key], rng)
        for key in sorted(rows, key=lambda key: (place[lines[key]], [limit for _, limit in key[-1]]))
    ]


def _row(first: Result, sums: _RowSums, rng: np.random.Generator) -> TableRow:
    cell = first.cell
    accuracy, no_accuracy = sums.accuracy(rng)
    standard_error, group_error = (None, None) if accuracy is None else sums.standard_errors()
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
        accuracy=accuracy,
        no_accuracy=no_accuracy,
        standard_error=standard_error,
        group_error=group_error,
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
