"""Self-evaluation: does the policy know whether a fresh start would do better?

Its score is P(no), the predicted probability that a solution does at least as well as a fresh one. The label is drawn.
It is 1 if the solution ended right, or if another sample of the same problem, drawn at random, is wrong as well. So
the label of a wrong solution is 1 with the probability that a fresh start fails too.

Source: Manvi, Singh, Ermon, "Adaptive inference-time compute" (2024), arXiv:2410.02725.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from research.pocket.evaluate.intervals import Intervals, Observed, base_rate
from research.pocket.evaluate.pools import Pool
from research.pocket.evaluate.tables import Entry, Table

GROUPS = ((1, 2), (3, 4), (5, 6), (7, 8), (9, 10))  # numbers of operations
_NOTE = (
    "P(no) behind whole solutions, and behind samples cut at a random token, against whether the solution wins or "
    "ties with another sample "
    "of the problem, drawn at random. share: how often it does. 95 % intervals, resampled by problem."
)


def restart_tables(main: Sequence[Pool], intervals: Intervals) -> list[Table]:
    """Return the quality of self-evaluation by difficulty."""
    whole, cut = observations(main, intervals.rng("restart", "siblings"))
    if not whole:
        return []
    rows: list[list[Entry]] = []
    for low, high in (*GROUPS, (GROUPS[0][0], GROUPS[-1][1])):
        inside = {i for i, pool in enumerate(main) if low <= pool.item.cell.size <= high}
        entries: list[Entry] = [f"{low} to {high}"]
        for name, observed in (("whole", whole), ("cut", cut)):
            found, address = [each for each in observed if each.problem in inside], ("restart", name, low, high)
            entries += [
                len(found),
                base_rate(found),
                intervals.auc(found, *address, "auc"),
                intervals.ece(found, *address, "ece"),
            ]
        rows.append(entries)
    columns = {"operations": "operations"}
    for name, heading in (("whole", "whole"), ("cut", "cut")):
        columns |= {
            f"{name}_num": heading,
            f"{name}_share": "share",
            f"{name}_auc": f"AUC, {heading}",
            f"{name}_ece": f"ECE, {heading}",
        }
    return [Table("self_evaluation", "Self-evaluation: would a fresh start do better?", _NOTE, columns, rows)]


def observations(pools: Sequence[Pool], rng: np.random.Generator) -> tuple[list[Observed], list[Observed]]:
    """Return scores and drawn labels of whole solutions and of cut ones.

    A cut of a solution has the solution's label.
    """
    whole: list[Observed] = []
    cut: list[Observed] = []
    for number, pool in enumerate(pools):
        for i, attempt in enumerate(pool.attempts):
            asked = not math.isnan(attempt.restart)
            if len(pool.attempts) < 2 or not (asked or attempt.cuts):
                continue
            rival = int(rng.integers(len(pool.attempts) - 1))
            label = attempt.right or not pool.attempts[rival + (rival >= i)].right
            whole += [Observed(attempt.restart, label, number)] * asked
            cut += [Observed(score, label, number) for score in attempt.cuts]
    return whole, cut
