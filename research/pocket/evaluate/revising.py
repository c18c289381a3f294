"""Revision: solutions written after earlier attempts, beside fresh solutions of the same problems.

Attempts are chosen among the first half of a problem's samples, and fresh accuracy is that of the second half. So a
problem's place in the table says nothing about the samples that it is compared with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from research.pocket.evaluate.intervals import Intervals
from research.pocket.evaluate.pools import Pool, Revision, mean_right
from research.pocket.evaluate.restarting import GROUPS
from research.pocket.evaluate.tables import Entry, Table

_NOTE = (
    "Temperature 0.8; means over problems with 95 % intervals, resampled by problem. fixed: a wrong attempt in the "
    "prompt, or up to four "
    "wrong ones as they were drawn, and the revised solution is right. broken: a right attempt in the prompt, and the "
    "revised solution is "
    "wrong. fresh: other samples of the same problems, without any attempt. gain: fixed less fresh, paired by problem."
)


def revision_tables(main: Sequence[Pool], intervals: Intervals) -> list[Table]:
    """Return fix rates and right-to-wrong rates by difficulty."""
    if not any(pool.revisions for pool in main):
        return []
    rows: list[list[Entry]] = []
    for low, high in (*GROUPS, (GROUPS[0][0], GROUPS[-1][1])):
        pools = [pool for pool in main if low <= pool.item.cell.size <= high]
        rows.append([f"{low} to {high}", *_row(pools, intervals, f"{low}-{high}")])
    columns = {
        "operations": "operations",
        "wrong": "with a wrong attempt",
        "fresh": "fresh",
        "fixed_first": "fixed, 1 attempt",
        "fixed_several": "fixed, up to 4",
        "gain_first": "gain, 1",
        "gain_several": "gain, up to 4",
        "kept": "with a right attempt",
        "fresh_wrong": "fresh, wrong",
        "broken": "broken",
    }
    return [Table("revision", "Revision of earlier attempts", _NOTE, columns, rows)]


def _row(pools: Sequence[Pool], intervals: Intervals, part: str) -> list[Entry]:
    wrong, right = ([pool for pool in pools if name in pool.revisions] for name in ("first", "kept"))
    fresh = [mean_right(pool.halves()[1]) for pool in wrong]
    first, several = ([_rate(pool, name) for pool in wrong] for name in ("first", "several"))
    return [
        len(wrong),
        intervals.share(fresh, "revision", part, "fresh"),
        intervals.share(first, "revision", part, "first"),
        intervals.share(several, "revision", part, "several"),
        intervals.difference(first, fresh, "revision", part, "gain first"),
        intervals.difference(several, fresh, "revision", part, "gain several"),
        len(right),
        intervals.share([1 - mean_right(pool.halves()[1]) for pool in right], "revision", part, "fresh wrong"),
        intervals.share([1 - _rate(pool, "kept") for pool in right], "revision", part, "broken"),
    ]


def _rate(pool: Pool, name: Revision) -> float:
    return mean_right(pool.revisions[name]) if name in pool.revisions else math.nan
