"""The accuracy of the policy by difficulty: one sample, the best of several, and the majority."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

import numpy as np

from research.pocket.evaluate.intervals import Intervals
from research.pocket.evaluate.pools import Attempt, Pool, mean_right
from research.pocket.evaluate.problems import KIND_NAMES, Cell
from research.pocket.evaluate.tables import Entry, Table
from tts.statistics import pass_at_k

AGREED = 16  # samples that vote
_KS = (1, 4, 16, 64)


def accuracy_tables(main: Sequence[Pool], others: Sequence[Pool], intervals: Intervals) -> list[Table]:
    """Return the tables of accuracy on the main difficulties and on the others."""
    note = (
        "Temperature 0.8; means over problems with 95 % intervals, resampled by problem. pass@k is unbiased, from all "
        "samples of the "
        f"problems that have k. majority and best: the first {AGREED} samples, the answer that most of them have, or "
        "whose process scores "
        "sum to most; ties go to the answer that came first."
    )
    headings = _headings([*main, *others])
    columns = {"problems": "problems", **headings}
    return [
        Table(
            "accuracy",
            "Accuracy by number of operations, plain expressions with operands to 99",
            f"{note} {_describe_draws(main)}",
            {"operations": "operations", **columns},
            [[cell.size, *_row(pools, intervals, cell, headings)] for cell, pools in group_by_cell(main)],
        ),
        Table(
            "accuracy_others",
            "Accuracy on the other kinds",
            f"As above. {_describe_draws(others)}",
            {"difficulty": "difficulty", **columns},
            [[_cell_name(cell), *_row(pools, intervals, cell, headings)] for cell, pools in group_by_cell(others)],
        ),
    ]


def drawn_table(parts: Mapping[str, Sequence[Pool]]) -> Table:
    """Return the table of what was drawn, and of samples that ended without an answer."""
    rows: list[list[Entry]] = []
    for name, pools in parts.items():
        drawn = [attempt for pool in pools for attempt in pool.everything]
        unread = sum(attempt.answer is None for attempt in drawn)
        unfinished = sum(not attempt.finished for attempt in drawn)
        rows.append([name, len(pools), len(drawn), sum(attempt.num_tokens for attempt in drawn), unfinished, unread])
    columns = {
        "set": "set",
        "problems": "problems",
        "samples": "samples",
        "tokens": "tokens",
        "unfinished": "unfinished",
        "unanswered": "without an answer",
    }
    return Table("drawn", "What was drawn", "Samples without an answer count as wrong and have no vote.", columns, rows)


def group_by_cell(pools: Sequence[Pool]) -> list[tuple[Cell, list[Pool]]]:
    """Return the pools of each difficulty, in their order."""
    return [(cell, list(found)) for cell, found in groupby(pools, key=lambda pool: pool.item.cell)]


def vote(attempts: Sequence[Attempt], weight: Callable[[Attempt], float] = lambda _: 1.0) -> bool:
    """Return whether the answer of most weight is right; of equal answers the first counts.

    Without any answer, False is returned.
    """
    totals: dict[str, float] = {}
    for attempt in attempts:
        if attempt.answer is not None:
            totals[attempt.answer] = totals.get(attempt.answer, 0.0) + np.nan_to_num(weight(attempt))
    if not totals:
        return False
    chosen = max(totals, key=lambda answer: totals[answer])
    return any(attempt.right for attempt in attempts if attempt.answer == chosen)


def _headings(pools: Sequence[Pool]) -> dict[str, str]:
    judged = any("process" in attempt.readings for pool in pools for attempt in pool.attempts)
    return {
        "greedy": "greedy",
        **{f"pass_{k}": f"pass@{k}" for k in _KS},
        "majority": f"majority@{AGREED}",
        **({"best": f"best of {AGREED}, weighted"} if judged else {}),
    }


def _row(pools: Sequence[Pool], intervals: Intervals, cell: Cell, headings: Mapping[str, str]) -> list[Entry]:
    def share(name: str, values: Sequence[float]) -> Entry:
        return intervals.share(values, "accuracy", cell.kind, cell.size, name)

    sizes, right = [len(pool.attempts) for pool in pools], [pool.num_right for pool in pools]
    enough = [pool for pool in pools if len(pool.attempts) >= AGREED]
    voted = {
        "majority": [vote(pool.attempts[:AGREED]) for pool in enough],
        "best": [vote(pool.attempts[:AGREED], lambda attempt: attempt.last_reading("process")) for pool in enough],
    }
    return [
        len(pools),
        share("greedy", [mean_right([pool.greedy]) if pool.greedy else np.nan for pool in pools]),
        *(share(f"pass_{k}", pass_at_k(sizes, right, k).tolist()) for k in _KS),
        *(share(name, [float(one) for one in voted[name]]) for name in headings if name in voted),
    ]


def _cell_name(cell: Cell) -> str:
    return f"{KIND_NAMES[cell.kind]}; {cell.size} {'numbers' if cell.kind == 'countdown' else 'operations'}"


def _describe_draws(pools: Sequence[Pool]) -> str:
    counts = sorted({len(pool.attempts) for pool in pools})
    told = [f"{count} samples of {sum(len(pool.attempts) == count for pool in pools):,} problems" for count in counts]
    return f"Drawn: {', '.join(told)}." if told else ""
