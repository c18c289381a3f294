"""How a search comes to an answer where its strategy cannot: the most promising open path is completed, or a plain sample is drawn."""

from __future__ import annotations

import math

from tts.search.algorithms.aggregation import aggregate_scores
from tts.search.ends import MOST_TOKENS, SearchEnded, Thought
from tts.search.state import SearchState
from tts.types import Trajectory


async def responding(search: SearchState, t: Trajectory) -> Trajectory:
    """Return a path whose thought went on while enough was left for a response, and has ended; any other path as it is.

    Where the thought met the end of the context, or its rows failed, there is nothing more to write: the path is returned as it is then.

    Raises:
        SearchEnded: the budget cannot pay it.
    """
    caps = search.caps_of(t.model)
    if not (t.num_tokens and t.is_thinking and caps.thoughts) or caps.extend == "absent":
        return t
    (made,) = await search.expand([t], 1, Thought(MOST_TOKENS), model=t.model)
    t = next(iter(made), t)
    goes_on = t.is_thinking and t.status in ("active", "finished")
    return (await search.extend([t], t.marks.close, t.model))[0] if goes_on else t


def best_active(search: SearchState) -> Trajectory:
    """Return the live trajectory most worth completing: highest scored, then the plain sample's, then the longest; or the root."""
    tree, roles = search.tree, list(search.scoring.verifiers)
    interrupted = {t.node for t in search.rows.open_paths}
    held = [t for t in tree.held.values() if t.status == "active" and t.node not in tree.scratch | interrupted and t.parent is not None]
    live = [t for t in held if not tree.children_of(t)]  # another child would cost a sample

    def promise(t: Trajectory) -> tuple[float, bool, int, int]:
        known = [scores for role in roles if (scores := tree.scores.get((t.node, role))) is not None]
        score = aggregate_scores(known[0], "last") if known else 0.0
        return (0.0 if math.isnan(score) else score, t.stream == t.root.stream, t.num_tokens, -t.node)

    return max(live, key=promise) if live else search.root


async def complete_best(search: SearchState) -> None:
    """Complete the best active trajectory, or draw a plain sample, from what is held back for that.

    Raises:
        SearchEnded: the budget cannot pay it, or the stop rule fires.
    """
    best = await responding(search, best_active(search))
    if best.status == "active":
        await search.complete([best])
    else:
        search.finish(best)


async def learn_length(search: SearchState, end: SearchEnded) -> bool:
    """Complete a path where an assumed length alone keeps rows from beginning, once in a search; return whether that was done.

    What is held back to bring a path to its end is the task's constant until a path has ended. Small budgets may not pay that, although
    they pay many solutions. The path that is completed is the one that the search would end with. After it, lengths are known.

    Args:
        end: how the request of the rows ended.

    Raises:
        SearchEnded: the budget cannot pay the path, or the stop rule fires.
    """
    if not end.out_of_budget or not search.rows.take_assumption():
        return False
    await complete_best(search)
    return True
