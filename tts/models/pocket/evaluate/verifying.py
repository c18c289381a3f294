"""How well the process model and the probe tell what leads to the right answer, and which steps are right.

A reading stands behind each line of a sample and is held against two labels:
    leads:  whether this very sample ended right: one Monte Carlo continuation of the prefix, what the models were trained on
    right:  whether this line is right, given what stands before it (`tts.tasks.arithmetic.judging`), which they were not trained on
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tts.models.pocket.evaluate.accuracy import by_cell
from tts.models.pocket.evaluate.intervals import Intervals, Observed, base_rate, num_unknown
from tts.models.pocket.evaluate.pools import Attempt, Pool
from tts.models.pocket.evaluate.problems import KIND_NAMES
from tts.models.pocket.evaluate.tables import Entry, Table
from tts.statistics import brier, roc_auc

TITLES = {"process": "process model", "probe": "probe", "self": "self-evaluation"}
_POSITIONS = ((1, 1), (2, 2), (3, 3), (4, 5), (6, 8), (9, math.inf))
_COLUMNS = {
    "lines": "lines",
    "leads_share": "leads",
    "leads_auc": "AUC",
    "leads_ece": "ECE",
    "right_share": "right",
    "right_auc": "AUC, right",
    "right_ece": "ECE, right",
}
_NOTE = (
    "Readings behind whole lines of samples at temperature 0.8. leads: share of lines whose sample ended right, and AUC and ECE (ten bins "
    "of equal width) of the reading against that. right: share of lines that are right given what stands before them, and the same "
    "reading against that. 95 % intervals, resampled by problem."
)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a sample as a verifier read it. number: from 1. final: whether it is the answer line."""

    number: int
    final: bool
    score: float
    leads: bool
    right: bool
    problem: int


def verifier_tables(main: Sequence[Pool], others: Sequence[Pool], intervals: Intervals) -> list[Table]:
    """Return, for each verifier that has read, its quality by position and by difficulty; and all of them on whole solutions."""
    names = [name for name in ("process", "probe") if any(_has_read(pool, name) for pool in main)]
    tables = [table for name in names for table in _quality(name, main, others, intervals)]
    return [*tables, final_table(main, names, intervals)] if names else []


def lines_of(pools: Sequence[Pool], verifier: str) -> list[Line]:
    """Return all whole lines that a verifier has read; what follows an answer line is left out."""
    found: list[Line] = []
    for number, pool in enumerate(pools):
        for attempt in pool.attempts:
            readings = attempt.readings.get(verifier, ())
            for i, (line, score, right) in enumerate(zip(attempt.lines, readings, pool.item.judge(attempt.lines), strict=False)):
                if line.endswith("\n"):
                    found.append(Line(i + 1, line.startswith("A:"), score, attempt.right, right, number))
                if line.startswith("A:"):
                    break
    return found


def final_table(pools: Sequence[Pool], names: Sequence[str], intervals: Intervals) -> Table:
    """Return how well each verifier, and self-evaluation, tell right solutions from wrong ones by their last reading."""
    rows: list[list[Entry]] = []
    for name in (*names, "self"):
        scores: Callable[[Attempt], float] = (lambda a: a.restart) if name == "self" else (lambda a, name=name: a.last(name))
        read = [[Observed(scores(a), a.right, i) for a in pool.attempts if _was_read(a)] for i, pool in enumerate(pools)]
        observed = [each for of_pool in read for each in of_pool if not math.isnan(each.score)]
        if not observed:
            continue
        rows.append(
            [
                TITLES[name],
                len(observed),
                base_rate(observed),
                intervals.auc(observed, "final", name, "auc"),
                intervals.share([_auc_within(of_pool) for of_pool in read], "final", name, "within"),
                intervals.ece(observed, "final", name, "ece"),
                brier([each.score for each in observed], [each.label for each in observed]),
            ]
        )
    note = (
        "The last reading of each sample against whether it is right; of self-evaluation, which was trained to tell whether a fresh start "
        "would do better, its P(no). within: the AUC among the samples of one problem, which is what choosing among them needs, averaged "
        "over the problems that have right and wrong ones."
    )
    columns = {"verifier": "verifier", "samples": "samples", "share": "right", "auc": "AUC", "auc_within": "AUC within problems"}
    return Table("final_answer", "Whole solutions: right or wrong", note, {**columns, "ece": "ECE", "brier": "Brier"}, rows)


def _quality(name: str, main: Sequence[Pool], others: Sequence[Pool], intervals: Intervals) -> list[Table]:
    """Return a verifier's tables by position and by difficulty."""

    def row(part: str, lines: Iterable[Line]) -> list[Entry]:
        return _row(list(lines), intervals, name, part)

    lines = lines_of(main, name)
    steps = [line for line in lines if not line.final]
    positions = [
        [_range(low, high), *row(_range(low, high), (line for line in steps if low <= line.number <= high))] for low, high in _POSITIONS
    ]
    by_position = [*positions, ["answer line", *row("answer", (line for line in lines if line.final))], ["all lines", *row("all", lines)]]
    by_difficulty = [[f"{cell.size} operations", *row(f"size {cell.size}", lines_of(pools, name))] for cell, pools in by_cell(main)]
    for kind, title in KIND_NAMES.items():
        if pools := [pool for pool in others if pool.item.cell.kind == kind and _has_read(pool, name)]:
            by_difficulty.append([title, *row(kind, lines_of(pools, name))])
    unknown = num_unknown([Observed(line.score, line.leads, 0) for line in lines])
    note = f"{_NOTE} {unknown} readings are unknown and left out."
    title = TITLES[name].capitalize()
    return [
        Table(f"{name}_by_position", f"{title} by step position", note, {"position": "step", **_COLUMNS}, by_position),
        Table(f"{name}_by_difficulty", f"{title} by difficulty", "As above.", {"difficulty": "difficulty", **_COLUMNS}, by_difficulty),
    ]


def _row(lines: Sequence[Line], intervals: Intervals, name: str, part: str) -> list[Entry]:
    leads = [Observed(line.score, line.leads, line.problem) for line in lines]
    right = [Observed(line.score, line.right, line.problem) for line in lines]
    entries: list[Entry] = [len(lines)]
    for label, observed in (("leads", leads), ("right", right)):
        address = ("verifier", name, part, label)
        entries += [base_rate(observed), intervals.auc(observed, *address, "auc"), intervals.ece(observed, *address, "ece")]
    return entries


def _auc_within(observed: Sequence[Observed]) -> float:
    known = [each for each in observed if not math.isnan(each.score)]
    return roc_auc([each.score for each in known], [each.label for each in known])


def _was_read(attempt: Attempt) -> bool:
    return bool(attempt.readings) or not math.isnan(attempt.restart)


def _has_read(pool: Pool, name: str) -> bool:
    return any(name in attempt.readings for attempt in pool.attempts)


def _range(low: float, high: float) -> str:
    return f"{low:.0f}" if low == high else f"{low:.0f} and later" if math.isinf(high) else f"{low:.0f} to {high:.0f}"
