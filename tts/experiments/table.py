"""The one final table of a study: a row for each data set, model, setting, strategy and budget, with what it found and what that cost.

Runs are summed as they are read, so a table of any size takes one pass, and memory only for its problems. What is unknown is None.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tts.budget import Budget
from tts.experiments import curves
from tts.experiments.record import Result
from tts.statistics import Estimate

NOT_REPEATED: Final = frozenset(
    {"cancelled_tokens", "lost_tokens", "seconds", "work_seconds"}
)  # all other columns are equal after a restart
_SUMS: Final = (
    "prompt_tokens", "reused_tokens", "generated_tokens", "cancelled_tokens", "verifier_tokens", "flops", "usd", "seconds",
    "work_seconds",
)  # fmt: skip
_MOST_KINDS: Final = 3  # that a text names of stops, failures or errors


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """All runs that differ in problem and seed alone. Tokens, FLOPs, dollars and seconds are sums over them; None: unknown.

    Args:
        dataset, model, setting, verifiers, strategy, budget: as of `Cell`.
        problems, seeds: how many different ones. runs: finished cells. failed: those of them that came to an error.
        accuracy: the mean over problems of the share of right answers among a problem's runs that did not fail, with its interval over
            problems: as curves have it.
        no_accuracy: why there is none; None where there is one.
        prompt_tokens … work_seconds: as of `Usage`. lost_tokens: as of `Result`.
        stops: runs by why they stopped. failures: failed rows of them by kind. errors: failed runs by kind.
        notes: what holds of any of the runs: "oracle" (a verifier saw the reference answer), "estimated" (a server did not say what
            it spent), "not reproducible".
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
    prompt_tokens: int
    reused_tokens: int | None
    generated_tokens: int
    verifier_tokens: int
    cancelled_tokens: int
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
    right: int = 0
    judged: int = 0
    unanswerable: bool = False


@dataclass(slots=True)
class _Sums:
    """A row while its runs are read."""

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
        problem = self.problems.setdefault(result.cell.problem, _Problem())
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
        marks = {"oracle": result.oracle, "estimated": result.usage.estimated, "not reproducible": not result.reproducible}
        self.notes.update(note for note, holds in marks.items() if holds)

    def accuracy(self, rng: np.random.Generator) -> tuple[Estimate | None, str | None]:
        """Return the accuracy, or why there is none."""
        problems = self.problems.values()
        if unanswerable := sum(problem.unanswerable for problem in problems):
            return None, f"{unanswerable:,} of {len(problems):,} problems have no reference answer"
        if self.failed == self.runs:
            return None, "every run failed"
        return curves.accuracy([problem.right / problem.judged for problem in problems if problem.judged], rng), None


def table(results: Iterable[Result], *, rng: np.random.Generator) -> list[TableRow]:
    """Return the table of results, its rows in the order in which their strategies first appear, and by budget.

    Random: the intervals' resamples; a row's do not depend on the rows before it, and are those of the same point of a curve.
    """
    rows: dict[tuple[Any, ...], tuple[Result, _Sums]] = {}
    for result in results:
        cell = result.cell
        verifiers, budget = tuple(sorted(cell.verifiers.items())), tuple(sorted(cell.budget.items()))
        key = (cell.dataset, cell.model, cell.setting, verifiers, cell.strategy, budget)
        if key not in rows:
            rows[key] = result, _Sums()
        rows[key][1].add(result)
    lines = {key: (*key[:-1], *(unit for unit, _ in key[-1])) for key in rows}  # those of a line differ in how much, not in what is limited
    place = {line: place for place, line in enumerate(dict.fromkeys(lines.values()))}
    return [_row(*rows[key], rng) for key in sorted(rows, key=lambda key: (place[lines[key]], [limit for _, limit in key[-1]]))]


def _row(first: Result, sums: _Sums, rng: np.random.Generator) -> TableRow:
    cell = first.cell
    accuracy, no_accuracy = sums.accuracy(rng)
    return TableRow(
        dataset=cell.dataset, model=cell.model, setting=cell.setting, verifiers=cell.verifiers, strategy=cell.strategy,
        budget=cell.budget, problems=len(sums.problems), seeds=len(sums.seeds), runs=sums.runs, failed=sums.failed, accuracy=accuracy,
        no_accuracy=no_accuracy, lost_tokens=sums.lost_tokens, stops=_ranked(sums.stops), failures=_ranked(sums.failures),
        errors=_ranked(sums.errors), notes=tuple(sorted(sums.notes)), **sums.usage,
    )  # fmt: skip


def _ranked(counts: Counter[str]) -> dict[str, int]:
    """Return counts, the largest first and equal ones by name: the same however the runs came in."""
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def as_json(rows: Sequence[TableRow]) -> str:
    """Return the table as a JSON list of objects; what is unknown is null."""
    return json.dumps([dataclasses.asdict(row) for row in rows], indent=2, allow_nan=False)


def as_csv(rows: Sequence[TableRow]) -> str:
    """Return the table as CSV with a header; what is unknown is empty, and what is nested is JSON."""
    text = io.StringIO()
    names = [f.name for f in dataclasses.fields(TableRow)]
    at = names.index("accuracy") + 1
    writer = csv.DictWriter(text, [*names[:at], "accuracy_low", "accuracy_high", *names[at:]], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        record: dict[str, Any] = {name: getattr(row, name) for name in names}
        if row.accuracy is not None:
            record |= {"accuracy": row.accuracy.value, "accuracy_low": row.accuracy.low, "accuracy_high": row.accuracy.high}
        writer.writerow({name: json.dumps(value) if isinstance(value, dict | tuple) else value for name, value in record.items()})
    return text.getvalue()


def as_text(rows: Sequence[TableRow]) -> str:
    """Return the table for people: what is the same in all rows stands above them, once."""
    if not rows:
        return "no results yet"
    return text_of(columns(rows))


def columns(rows: Sequence[TableRow]) -> dict[str, list[str]]:
    """Return the table as people read it: by title, what stands in each row."""
    return {title: [" ".join(show(row).split()) for row in rows] for title, show in _SHOWN.items()}


def text_of(columns: Mapping[str, Sequence[str]]) -> str:
    """Return columns of cells, by their titles, as text: what is the same in all rows stands above them, once."""
    same = {title: cells[0] for title, cells in columns.items() if len(set(cells)) == 1 and cells[0]}
    varied = {title: cells for title, cells in columns.items() if len(set(cells)) > 1}
    margin = max(map(len, same), default=0)
    lines = [f"{title:<{margin}}  {cell}" for title, cell in same.items()]
    if varied:
        lines += [""] if lines else []
        lines += _aligned(varied)
    return "\n".join(lines)


def _aligned(columns: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a header and the rows below it, numbers at the right of their columns."""
    widths = {title: max(len(title), *map(len, cells)) for title, cells in columns.items()}
    sides = {title: "<" if title in _LEFT else ">" for title in columns}
    rows = [list(columns), *zip(*columns.values(), strict=True)]
    return ["  ".join(f"{cell:{sides[title]}{widths[title]}}" for title, cell in zip(columns, row, strict=True)).rstrip() for row in rows]


def _counted(counts: Mapping[str, int]) -> str:
    shown = [f"{count:,} {kind}" for kind, count in list(counts.items())[:_MOST_KINDS]]
    rest = sum(list(counts.values())[_MOST_KINDS:])
    return ", ".join([*shown, *([f"{rest:,} others"] if rest else [])])


def _accuracy(row: TableRow) -> str:
    if row.accuracy is None:
        return f"unknown: {row.no_accuracy}"
    value, low, high = (100 * each for each in (row.accuracy.value, row.accuracy.low, row.accuracy.high))
    return f"{value:.1f} % [{low:.1f}, {high:.1f}]"


def _known(value: float | None, form: str = ",") -> str:
    return "unknown" if value is None or math.isnan(value) else f"{value:{form}}"


_LEFT: Final = frozenset(
    {"data set", "group", "model", "setting", "verifiers", "strategy", "budget", "points", "stopped by", "failed rows", "errors", "notes"}
)
_SHOWN: Final[Mapping[str, Callable[[TableRow], str]]] = {
    "data set": lambda row: row.dataset,
    "model": lambda row: row.model,
    "setting": lambda row: row.setting[:12],
    "verifiers": lambda row: ", ".join(f"{role}: {name}" for role, name in row.verifiers.items()),
    "strategy": lambda row: row.strategy,
    "budget": lambda row: str(Budget(**row.budget)),  # pyright: ignore[reportArgumentType]
    "problems": lambda row: f"{row.problems:,}",
    "seeds": lambda row: f"{row.seeds:,}",
    "runs": lambda row: f"{row.runs:,}",
    "accuracy [95 %]": _accuracy,
    "tokens in": lambda row: f"{row.prompt_tokens:,}",
    "reused": lambda row: _known(row.reused_tokens),
    "out": lambda row: f"{row.generated_tokens:,}",
    "verifier": lambda row: f"{row.verifier_tokens:,}",
    "cancelled": lambda row: f"{row.cancelled_tokens:,}",
    "lost": lambda row: f"{row.lost_tokens:,}",
    "FLOPs": lambda row: _known(row.flops, ".3g"),
    "dollars": lambda row: _known(row.usd, ",.4f"),
    "seconds": lambda row: f"{row.seconds:,.1f}",
    "work seconds": lambda row: f"{row.work_seconds:,.1f}",
    "stopped by": lambda row: _counted(row.stops),
    "failed rows": lambda row: _counted(row.failures) or "none",
    "failed runs": lambda row: f"{row.failed:,}",
    "errors": lambda row: _counted(row.errors),
    "notes": lambda row: ", ".join(row.notes),
}
