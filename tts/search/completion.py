"""How a search comes to an answer where its strategy cannot: its best path is completed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from tts.search.algorithms.aggregation import aggregate_scores
from tts.search.ends import MOST_TOKENS, SearchEnded, Thought
from tts.search.scoring import Scoring
from tts.search.tree import Tree
from tts.search.writer import Writer
from tts.types import Trajectory
from tts.verifiers.base import estimate_unknown


class Completing(Protocol):
    """What is asked of a search here; see `tts.search.search.Search`."""

    root: Any
    left: Any
    rows: Writer
    tree: Tree
    scoring: Scoring

    async def expand(self, ts: Sequence[Trajectory], n: int, until: Thought, /, *, model: str) -> Any:
        """See `Search.expand`."""

    async def extend(self, ts: Sequence[Trajectory], text: str, *, model: str) -> Any:
        """See `Search.extend`."""

    async def complete(self, ts: Sequence[Trajectory]) -> Any:
        """See `Search.complete`."""

    def finish(self, t: Trajectory) -> Any:
        """See `Search.finish`."""


async def responding(search: Completing, t: Trajectory) -> Trajectory:
    """End an open thought that leaves room for a response, and return the path with its thought ended.

    Other paths, and thoughts that met the end of the context or whose rows failed, are returned as they are. So is a
    thought for which no request of its own is left: one request then writes thought and response.

    Raises:
        SearchEnded: the budget cannot pay the rest of the thought.
    """
    caps = search.rows.caps_of(t.model)
    if not (t.num_tokens and t.is_thinking and caps.thoughts) or caps.extend == "absent":
        return t
    try:
        (children,) = await search.expand([t], 1, Thought(MOST_TOKENS), model=t.model)
    except SearchEnded as end:
        if end.out_of_budget and search.left.get("requests", 0) > 0:
            return t
        raise
    path = children[0] if children else t
    if path.is_thinking and path.status in ("active", "finished"):
        (path,) = await search.extend([path], path.marks.close, model=path.model)
    return path


def best_active(search: Completing) -> Trajectory:
    """Return the live trajectory most worth completing, or the root.

    The greatest score by the first verifier decides, then whether the path is the plain sample's, then its length.
    """
    tree = search.tree
    excluded = tree.scratch | {t.node for t in search.rows.open_paths}
    paths = [t for t in tree.held.values() if t.status == "active" and t.parent is not None and t.node not in excluded]
    leaves = [t for t in paths if not tree.children_of(t)]  # another child would cost a sample
    scores = [[tree.scores[t.node, r] for r in search.scoring.verifiers if (t.node, r) in tree.scores] for t in leaves]
    known = np.array([aggregate_scores(first[0], "last") if first else math.nan for first in scores])
    estimates = estimate_unknown(known, otherwise=0.0).tolist()
    order = [(s, t.stream == t.root.stream, t.num_tokens, -t.node) for s, t in zip(estimates, leaves, strict=True)]
    return leaves[order.index(max(order))] if leaves else search.root


async def complete_best(search: Completing) -> None:
    """Complete the best active trajectory, or draw a plain sample. The reserve for this purpose pays.

    Raises:
        SearchEnded: the budget cannot pay the path, or the stop rule fires.
    """
    search.rows.stop_assuming()
    best = await responding(search, best_active(search))
    if best.status == "active":
        await search.complete([best])
    else:
        search.finish(best)


async def learn_length(search: Completing, end: SearchEnded) -> bool:
    """Complete a path where only an assumed length keeps rows from beginning; return whether it did.

    This happens once in a search. Until a path has ended, the reserve for the end of a path is the task's constant.
    Small budgets may not pay this reserve, although they pay many solutions. Afterwards lengths are known.

    Args:
        search: The search.
        end: The end of the request for rows.

    Raises:
        SearchEnded: the budget cannot pay the path, or the stop rule fires.
    """
    if not end.out_of_budget or not search.rows.take_assumption():
        return False
    await complete_best(search)
    return True
