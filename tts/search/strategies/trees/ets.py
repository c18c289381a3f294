"""ETS, efficient tree search: REBASE on a part of the tree.

The part is chosen for its reward, its cost in memory and the kinds of steps that it covers.

At each level an integer program keeps the live nodes that are worth most. Each node adds the share that REBASE would
give it, less a charge for every distinct node that it keeps alive. Each covered kind of step adds a bonus. The whole
width goes to the kept nodes.

Source: algorithm A7, Hooper et al., "ETS: Efficient Tree Search for Inference-Time Scaling" (2502.13575): the algorithm
verified in the authors' code, the results in the abstract. Differs:
- The default embedder is hashed character n-grams, which find near-copies and no meaning. The code has a model of
  mathematical text.
- `cost="tokens"` charges what the keys and values of each node really take, where the paper counts nodes. The prompt
  costs nothing, because every choice keeps it.
- Where the solver finds no optimum in time, the level is balanced as in REBASE, and the solution has a warning.
- A width of 1 is not scored, as in REBASE here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from tts.checks import Amount, Rule, check_text, choice, number
from tts.registry import parse_call
from tts.search.algorithms.apportioning import apportion
from tts.search.algorithms.clustering import clusters
from tts.search.algorithms.pruning import KeptLeaves, LevelTree, best_leaves
from tts.search.needs import Needs
from tts.search.parts import EMBEDDERS
from tts.search.search import Search
from tts.search.strategies.trees.rebase import Counts, RewardBalanced
from tts.types import Trajectory

_HIDDEN = "hidden"


def _check_embedder(name: str, value: Any) -> None:
    """Raise ConfigError if no embedder has this name, or if a parameter is wrong."""
    check_text(name, value)
    if value != _HIDDEN:
        parse_call(EMBEDDERS, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ets(RewardBalanced):
    """Efficient tree search: REBASE on the live paths that an integer program keeps.

    The program weighs reward, memory and diversity.

    Args:
        charge: The cost in the objective of keeping all nodes of the tree (lambda_b), at least 0. A part of the nodes
            costs its share. The paper tries several values. A large value keeps a single leaf.
        coverage: The gain in the objective of keeping a leaf of every cluster (lambda_d), at least 0. A part of the
            clusters earns its share. The authors have 1.5 for a width of 16, 1.4 for 64 and 1.45 for 256.
        threshold: The cosine distance, in [0, 2], up to which steps are in one cluster.
        cost: The cost of a node: "nodes", the same for each, as in the paper; or "tokens", its number of tokens.
        embedder: The embedder of new steps, for the clusters. A name, such as "ngrams(size=4)" or "sentences", embeds
            the step's text. "hidden" is the policy's hidden state after the step, which depends on the whole path.
            None: the embedder given to `Solver`, else "ngrams".
        seconds: The time limit of the integer program at one level.
        n: As in `RewardBalanced`.
        balance_temperature: As in `RewardBalanced`.
        temperature: As in `RewardBalanced`.
        max_steps: As in `RewardBalanced`.
        verifier: As in `RewardBalanced`.
        aggregate: As in `RewardBalanced`.

    Cost: tokens, calls and samples as in REBASE. One integer program a level, booked as "search", with a variable for
        each leaf, inner node and cluster. Fewer tokens are live at once.
    Random: none of its own.

    Example:
        >>> import tts
        >>> found = tts.solve("3 + 4 - 2 + 9", 400, model="toy", strategy="ets(n=6)", verifier="toy(error=0.1)")
        >>> found.answer, found.usage.samples, found.usage.tokens
        ('14', 5, 126)
    """

    registered_as = "ets"
    charge: Amount = 1.0
    coverage: Amount = 1.5
    threshold: Annotated[float, number(0, 2)] = 0.05
    cost: Annotated[str, choice("nodes", "tokens")] = "nodes"
    embedder: Annotated[str, Rule(_check_embedder)] | None = None
    seconds: Amount = 10.0

    def needs(self) -> Needs:
        """Return the needs: steps, a verifier, and hidden states if these are the embedding."""
        capabilities = ("steps", "hidden") if self.embedder == _HIDDEN else ("steps",)
        return Needs(capabilities=capabilities, verifiers=(self.verifier,), scaled=True)

    async def balance(
        self, search: Search, live: Sequence[Trajectory], scores: NDArray[np.float64], left: int
    ) -> Counts:
        """Balance a level among the nodes that are worth keeping."""
        counts = apportion(scores, left, self.balance_temperature)  # line 1
        vectors = await self._vectors(search, live)
        tree = tree_of(live, in_tokens=self.cost == "tokens")
        kept = await search.run(self._keep, tree, counts / left, vectors)
        if not isinstance(kept, KeptLeaves):
            search.notes.warn(
                f"ets balanced a level as rebase does, for its integer program has no solution: {kept}", timed=True
            )
            return counts
        counts[:] = 0
        counts[kept.leaves] = apportion(scores[kept.leaves], left, self.balance_temperature)  # line 4
        return counts

    def _keep(
        self, tree: LevelTree, shares: NDArray[np.float64], vectors: NDArray[np.float64] | None
    ) -> KeptLeaves | str:
        """Return the leaves worth keeping, or the reason why the program has no solution."""
        kinds = None if vectors is None else clusters(vectors, self.threshold)  # line 2
        return best_leaves(tree, shares, self.charge, kinds, self.coverage, self.seconds)  # line 3

    async def _vectors(self, search: Search, live: Sequence[Trajectory]) -> NDArray[np.float64] | None:
        """Return the embedding of each node's new step; None if coverage does not matter."""
        steps = [t.text for t in live]
        if self.coverage == 0 or len(set(steps)) < 2:
            return None
        if self.embedder == _HIDDEN:
            return await search.hidden(live)
        embedder = None if self.embedder is None else parse_call(EMBEDDERS, self.embedder)
        return await search.embed(steps, embedder)


def tree_of(live: Sequence[Trajectory], *, in_tokens: bool) -> LevelTree:
    """Return live nodes as leaves of a tree with their ancestors.

    Each node costs 1 or, with `in_tokens`, its own tokens without the prompt.
    """
    places: dict[int, int] = {}  # node number of an ancestor -> its place in `ancestors`
    ancestors: list[Trajectory] = []
    for t in live:
        node = t.parent
        while node is not None and node.node not in places:
            places[node.node] = len(ancestors)
            ancestors.append(node)
            node = node.parent

    def costs(ts: Sequence[Trajectory]) -> NDArray[np.float64]:
        if not in_tokens:
            return np.ones(len(ts))
        return np.array([t.num_tokens - (0 if t.parent is None else t.parent.num_tokens) for t in ts], dtype=float)

    def parents(ts: Sequence[Trajectory]) -> NDArray[np.int64]:
        return np.array([-1 if t.parent is None else places[t.parent.node] for t in ts], dtype=np.int64)

    return LevelTree(
        leaf_parents=parents(live), node_parents=parents(ancestors), leaf_costs=costs(live), node_costs=costs(ancestors)
    )
