"""What still brings an answer when a search ends without one; and what would leave nothing for it, refused before."""

from __future__ import annotations

import math

from tts.backends.protocol import BackendProtocol, require
from tts.budget.budget import Budget
from tts.errors import ConfigError
from tts.search.algorithms.aggregation import aggregate_scores
from tts.search.ends import MOST_TOKENS, Thought
from tts.search.protocols import AsksEffort, LimitsThoughts, StrategyProtocol
from tts.search.state import SearchState
from tts.types import Trajectory


def check_thoughts(strategy: StrategyProtocol, budget: Budget, policy: BackendProtocol) -> None:
    """Refuse an effort that the backend does not take, and a thinking budget that leaves nothing for a response.

    Raises:
        CapabilityError, ConfigError: so it is.
    """
    if isinstance(strategy, AsksEffort) and strategy.effort:
        require(policy, ["efforts"], f"the strategy {strategy}")
    if not isinstance(strategy, LimitsThoughts):
        return
    for unit in ("tokens", "generated_tokens"):
        if strategy.thought_tokens >= (limit := budget.limits.get(unit, math.inf)):
            raise ConfigError(
                f"thought_tokens is {strategy.thought_tokens}, but must be below the budget of {limit:g} {unit}, "
                "which pays the response too",
                hint=f"for example thought_tokens={max(1, int(limit) // 2)}",
            )


async def responding(search: SearchState, t: Trajectory, backend: BackendProtocol) -> Trajectory:
    """Return a path whose thought went on while enough was left for a response, and has ended; any other path as it is.

    Where the thought met the end of the context, or its rows failed, there is nothing more to write: the path is returned as it is then.

    Raises:
        SearchEnded: the budget cannot pay it.
    """
    if not (t.num_tokens and t.is_thinking and backend.caps.thoughts) or backend.caps.extend == "absent":
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
