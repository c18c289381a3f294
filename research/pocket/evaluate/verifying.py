"""How well the process model and the probe tell right from wrong, by line.

A reading stands after each line of a sample and is held against two labels:

    leads:  whether this very sample ended right: one Monte Carlo continuation of the prefix, which is the training
            target of the models
    right:  whether this line is right, given the lines before it (`tts.tasks.arithmetic.judging`), which is no
            training target
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from research.pocket.evaluate.intervals import Intervals, Observed, base_rate, num_unknown
from research.pocket.evaluate.pools import Attempt, Pool
from research.pocket.evaluate.problems import KIND_NAMES, MAIN, Cell
from research.pocket.evaluate.tables import Entry, Table
from tts.statistics import brier
from tts.tasks.arithmetic.lines import ANSWER

TITLES = {"process": "process model", "probe": "probe", "self": "self-evaluation"}
_POSITIONS = ((1, 1), (2, 2), (3, 3), (4, 5), (6, 8), (9, math.inf))
_COLUMNS = {
    "lines": "lines",
    "leads_share": "leads",
    "leads_auc": "AUC",
    "leads_auc_within": "AUC within problems",
    "leads_ece": "ECE",
    "right_share": "right",
    "right_auc": "AUC, right",
    "right_auc_within": "AUC within, right",
    "right_ece": "ECE, right",
}
_NOTE = (
    "Readings behind whole lines of samples at temperature 0.8. leads: share of lines whose sample ended right, and "
    "AUC and ECE (ten bins "
    "of equal width) of the reading against that. right: share of lines that are right given what stands before them, "
    "and the same "
    "reading against that. within problems: the AUC among the lines of one problem, averaged over problems that have "
    "both kinds; what a "
    "search needs, where the other AUC also counts that some problems are harder. 95 % intervals, resampled by problem."
)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a sample as verifiers read it.

    Args:
        cell: The difficulty of its problem.
        problem: The number of its problem.
        number: The number of the line, from 1.
        final: Whether the line is the answer line.
        readings: The reading of each verifier.
        leads: Whether the sample ended right.
        right: Whether the line is right.
    """

    cell: Cell
    problem: int
    number: int
    final: bool
    readings: Mapping[str, float]
    leads: bool
    right: bool


def verifier_tables(main: Sequence[Pool], others: Sequence[Pool], intervals: Intervals) -> list[Table]:
    """Return the quality of each verifier by position and by difficulty, and of all on whole solutions."""
    lines, other_lines = lines_of(main), lines_of(others)
    names = [
        name
        for name in ("process", "probe")
        if any(name in attempt.readings for pool in main for attempt in pool.attempts)
    ]
    tables = [table for name in names for table in _quality(name, lines, other_lines, intervals)]
    return [*tables, final_table(main, names, intervals)] if names else []


def lines_of(pools: Sequence[Pool]) -> list[Line]:
    """Return all whole lines that verifiers have read, up to the answer line."""
    lines: list[Line] = []
    for number, pool in enumerate(pools):
        for attempt in pool.attempts:
            if not attempt.readings:
                continue
            verdicts = pool.item.judge(attempt.lines)
            for i, line in enumerate(attempt.lines):
                if not line.endswith("\n"):
                    break
                readings = {name: of_lines[i] for name, of_lines in attempt.readings.items()}
                final = line.startswith(ANSWER)
                lines.append(Line(pool.item.cell, number, i + 1, final, readings, attempt.right, verdicts[i]))
                if final:
                    break
    return lines


def final_table(pools: Sequence[Pool], names: Sequence[str], intervals: Intervals) -> Table:
    """Return how well each verifier and self-evaluation tell right solutions from wrong ones.

    The last reading of a solution counts.
    """
    rows: list[list[Entry]] = []
    for name in (*names, "self"):
        scores: Callable[[Attempt], float] = (
            (lambda a: a.restart) if name == "self" else (lambda a, name=name: a.last_reading(name))
        )
        read = [Observed(scores(a), a.right, i) for i, pool in enumerate(pools) for a in pool.attempts]
        observed = [each for each in read if not math.isnan(each.score)]
        if not observed:
            continue
        rows.append(
            [
                TITLES[name],
                len(observed),
                base_rate(observed),
                intervals.auc(observed, "final", name, "auc"),
                intervals.auc_within(observed, "final", name, "within"),
                intervals.ece(observed, "final", name, "ece"),
                brier([each.score for each in observed], [each.label for each in observed]),
            ]
        )
    note = (
        "The last reading of each sample against whether it is right; of self-evaluation, which was trained to tell "
        "whether a fresh start "
        "would do better, its P(no). within: the AUC among the samples of one problem, which is what choosing among "
        "them needs, averaged "
        "over the problems that have right and wrong ones."
    )
    columns = {
        "verifier": "verifier",
        "samples": "samples",
        "share": "right",
        "auc": "AUC",
        "auc_within": "AUC within problems",
    }
    return Table(
        "final_answer", "Whole solutions: right or wrong", note, {**columns, "ece": "ECE", "brier": "Brier"}, rows
    )


def _quality(name: str, main: Sequence[Line], others: Sequence[Line], intervals: Intervals) -> list[Table]:
    """Return a verifier's tables by position and by difficulty."""

    def row(heading: str, lines: Sequence[Line]) -> list[Entry]:
        return [heading, *_row(lines, intervals, name, heading)]

    steps = [line for line in main if not line.final]
    by_position = [
        row(_range(low, high), [line for line in steps if low <= line.number <= high]) for low, high in _POSITIONS
    ]
    by_position += [row("answer line", [line for line in main if line.final]), row("all lines", main)]
    of_size = {cell.size: [line for line in main if line.cell == cell] for cell in MAIN}
    by_difficulty = [row(f"{size} operation{'s' * (size > 1)}", lines) for size, lines in of_size.items()]
    for kind, title in KIND_NAMES.items():
        if of_kind := [line for line in others if line.cell.kind == kind]:
            by_difficulty.append(row(title, of_kind))
    unknown = num_unknown([Observed(line.readings[name], line.leads, 0) for line in main])
    note = f"{_NOTE} {unknown} readings are unknown and left out."
    title = TITLES[name].capitalize()
    return [
        Table(f"{name}_by_position", f"{title} by step position", note, {"position": "step", **_COLUMNS}, by_position),
        Table(
            f"{name}_by_difficulty",
            f"{title} by difficulty",
            "As above.",
            {"difficulty": "difficulty", **_COLUMNS},
            by_difficulty,
        ),
    ]


def _row(lines: Sequence[Line], intervals: Intervals, name: str, part: str) -> list[Entry]:
    entries: list[Entry] = [len(lines)]
    for label in ("leads", "right"):
        observed = [
            Observed(line.readings[name], line.leads if label == "leads" else line.right, line.problem)
            for line in lines
        ]
        address = ("verifier", name, part, label)
        entries += [
            base_rate(observed),
            intervals.auc(observed, *address, "auc"),
            intervals.auc_within(observed, *address, "within"),
            intervals.ece(observed, *address, "ece"),
        ]
    return entries


def _range(low: float, high: float) -> str:
    return f"{low:.0f}" if low == high else f"{low:.0f} and later" if math.isinf(high) else f"{low:.0f} to {high:.0f}"
