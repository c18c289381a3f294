"""How well the process model, the probe and self-evaluation tell right solutions from wrong ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from research.pocket.evaluate.intervals import Intervals, Observed, base_rate
from research.pocket.evaluate.pools import Attempt, Pool
from research.pocket.evaluate.tables import Entry, Table
from tts.statistics import brier

TITLES = {"process": "process model", "probe": "probe", "self": "self-evaluation"}
_COLUMNS = {
    "verifier": "verifier",
    "samples": "samples",
    "share": "right",
    "auc": "AUC",
    "auc_within": "AUC within problems",
    "ece": "ECE",
    "brier": "Brier",
}
_NOTE = (
    "The last reading of each sample against whether it is right; of self-evaluation, which was trained to tell "
    "whether a fresh start would do better, its P(no). within: the AUC among the samples of one problem, which is "
    "what choosing among them needs, averaged over the problems that have right and wrong ones."
)


def solution_table(pools: Sequence[Pool], intervals: Intervals) -> Table:
    """Return the quality of each verifier that has read the solutions, and of self-evaluation."""
    rows = [_row(name, pools, intervals) for name in TITLES]
    return Table("final_answer", "Whole solutions: right or wrong", _NOTE, _COLUMNS, [row for row in rows if row])


def _row(name: str, pools: Sequence[Pool], intervals: Intervals) -> list[Entry]:
    """Return the row of a verifier; empty: it has read nothing."""
    score: Callable[[Attempt], float] = (
        (lambda attempt: attempt.restart) if name == "self" else (lambda attempt: attempt.last_reading(name))
    )
    read = [Observed(score(one), one.right, i) for i, pool in enumerate(pools) for one in pool.attempts]
    observed = [each for each in read if not math.isnan(each.score)]
    if not observed:
        return []
    return [
        TITLES[name],
        len(observed),
        base_rate(observed),
        intervals.auc(observed, "final", name, "auc"),
        intervals.auc_within(observed, "final", name, "within"),
        intervals.ece(observed, "final", name, "ece"),
        brier([each.score for each in observed], [each.label for each in observed]),
    ]
