"""Monte-Carlo tree search over steps, guided by UCT.

Each round goes down the tree by UCT, writes the children of a leaf, values them, and backs the values up.

Source: algorithm B15, standard MCTS, read in the code of treequest (Inoue et al., "Wider or Deeper?", 2503.04412):
score of a child = value / visits + c prior sqrt(ln N_parent / n), c = sqrt 2, prior = softmax of the siblings' scores.
Differs:
- A node is a step, not a whole answer. Its value is the verifier's score of the prefix, or of a solution written from
  there.
- A solution that values a node stays a candidate.
- Paths that have ended, and subtrees in which all have, are not visited again. The search ends where nothing is left to
  write.
- An unknown score is the mean of the known ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np

from tts.checks import Amount, Count, choice
from tts.search.algorithms.resampling import softmax
from tts.search.search import Search
from tts.search.strategies._common.guided import Guided
from tts.search.strategies._common.stepping import advance, draw, rounds
from tts.types import Candidate, Trajectory


@dataclass(slots=True, eq=False)
class VisitedNode:
    """A path of the tree, with the result of its visits.

    Args:
        path: The path.
        parent: The node above; None: the root has none.
        prior: The node's share of the prior among its siblings.
        total: The sum of the values backed up.
        visits: The number of these values.
        closed: Whether nothing is left to write below the node.
        children: The nodes below.
    """

    path: Trajectory
    parent: VisitedNode | None = None
    prior: float = 1.0
    total: float = 0.0
    visits: int = 0
    closed: bool = False
    children: list[VisitedNode] = field(default_factory=list["VisitedNode"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Mcts(Guided):
    """Rounds of selection, expansion, valuation and backing up.

    Args:
        n: The rounds, at least 1; None: as many as the budget pays.
        width: The children of a leaf, at least 1.
        exploration: The factor c in the formula; with 0 the mean value alone decides.
        value: "verifier": the score of the child's prefix; "rollout": the score of a solution written from the child.
        temperature: As in `Guided`.
        max_steps: As in `Guided`.
        verifier: As in `Guided`.
        aggregate: As in `Guided`.

    Cost: n x width steps and as many verifier calls; with "rollout" n x width solutions instead of prefixes. Anytime:
    nested in n.

    Example:
        >>> import tts
        >>> found = tts.solve("3 + 4 - 2 + 9", 400, model="toy", strategy="mcts(n=6, width=2)", verifier="toy")
        >>> found.answer, found.usage.samples, found.usage.tokens
        ('14', 7, 150)
    """

    registered_as = "mcts"
    maps_scores = True
    n: Count | None = None
    width: Count = 4
    exploration: Amount = 2**0.5
    value: Annotated[str, choice("verifier", "rollout")] = "verifier"

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Grow the tree round by round."""
        root = VisitedNode(search.root)
        for _ in rounds(search, self.n):
            leaf = self._select(root)
            (paths,) = await advance(
                search, [leaf.path], self.width, max_steps=self.max_steps, temperature=self.temperature
            )
            values = await self._value(search, paths)
            priors = softmax(np.array(values))
            for path, value, prior in zip(paths, values, priors.tolist(), strict=True):
                child = VisitedNode(path, leaf, prior, closed=path.status != "active")
                leaf.children.append(child)
                _back_up(child, value)
            _close(leaf)
            if root.closed and self.n is not None:
                break
            root.closed = False  # nothing is left to write below, so the root gets further children
        return search.candidates

    def _select(self, root: VisitedNode) -> VisitedNode:
        """Go down from the root to a leaf that is open."""
        node = root
        while any(not child.closed for child in node.children):
            open_children = [child for child in node.children if not child.closed]
            bounds = [
                uct(child.total / child.visits, child.prior, node.visits, child.visits, self.exploration)
                for child in open_children
            ]
            node = open_children[bounds.index(max(bounds))]
        return node

    async def _value(self, search: Search, paths: Sequence[Trajectory]) -> list[float]:
        """Return the value in [0, 1] of each new path."""
        ends = list(paths)
        if self.value == "rollout":
            active = [i for i, t in enumerate(ends) if t.status == "active"]
            candidates = await draw(search, [ends[i] for i in active], self.temperature)
            for i, candidate in zip(active, candidates, strict=True):
                ends[i] = candidate.trajectory
        return (await search.estimate(ends, self.verifier, self.aggregate, scale="unit")).tolist()


def uct(mean: float, prior: float, parent_visits: int, visits: int, exploration: float) -> float:
    """Return mean + c prior sqrt(ln N_parent / n): the known value of a child and a bonus for few visits."""
    return mean + exploration * prior * math.sqrt(math.log(parent_visits) / visits)


def _back_up(node: VisitedNode, value: float) -> None:
    """Add a value, and a visit, to a node and all its ancestors."""
    ancestor: VisitedNode | None = node
    while ancestor is not None:
        ancestor.total += value
        ancestor.visits += 1
        ancestor = ancestor.parent


def _close(node: VisitedNode) -> None:
    """Close a node if all its children are closed, then its ancestors by the same rule."""
    ancestor: VisitedNode | None = node
    while ancestor is not None and all(child.closed for child in ancestor.children):
        ancestor.closed = True
        ancestor = ancestor.parent
