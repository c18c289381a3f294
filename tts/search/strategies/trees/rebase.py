"""REBASE, reward-balanced search: every live node gets a share of the children.

The shares are in proportion to the softmax of the nodes' step scores.

The number of children is the same at every level, less one for each path that has ended, so that n paths end. Good
prefixes get more children, and bad prefixes none. There are no rollouts and no back-ups.

Source: algorithm A6, verified: Wu, Sun, Li, Welleck, Yang, "Inference Scaling Laws: An Empirical Analysis of
Compute-Optimal Inference for Problem-Solving with Language Models" (2408.00724, ICLR 2025), and the authors' code.
Children are apportioned as in the code (`tts.search.algorithms.apportioning`), because the paper's rounding does not
conserve the budget. Differs:
- A path that meets the depth cap runs to its end, where the reference drops it.
- A row that failed takes nothing of the width: the next level has it again.
- A width of 1, which balances nothing, is not scored.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from tts.checks import number
from tts.search.algorithms.apportioning import apportion
from tts.search.ends import Level
from tts.search.parts import Selection
from tts.search.search import Search
from tts.search.selections.majority import Majority
from tts.search.selections.weighted import Weighted
from tts.search.strategies._common.guided import Wide, split
from tts.search.strategies._common.stepping import advance
from tts.types import Candidate, Trajectory

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardBalanced(Wide):
    """The parameters of REBASE and of methods that build on it.

    Args:
        balance_temperature: The temperature of the softmax over scores in [0, 1] (T_b), at least 1e-6. Large values
            give all paths the same number of continuations; small values give all continuations to the best path.
    """

    maps_scores = True
    balance_temperature: Annotated[float, number(1e-6, hint="1e-06 gives all to the best")] = 0.2

    def default_selection(self, *, verified: bool) -> Selection:
        """Return `weighted` by the score that guided the search; `majority` where there is no verifier."""
        return Weighted(verifier=self.verifier, aggregate=self.aggregate) if verified else Majority()

    async def explore(self, search: Search, n: int) -> Sequence[Candidate]:
        """Search level by level until n paths have ended or no path is live.

        Comments name the lines of algorithm A6.
        """
        num_open, live = n, [search.root]  # line 1
        counts = np.array([num_open])
        search_start = len(search.candidates)
        search.notes.levels.append(_split_level(live, counts))
        while num_open > 0 and live:  # line 5
            rows = rows_of(live, counts)
            # line 7
            live, ended = split(await advance(search, rows, max_steps=self.max_steps, temperature=self.temperature))
            num_open -= len(ended)  # line 4
            counts = np.zeros(len(live), dtype=np.int64)
            if n == 1:
                counts[:] = num_open
            elif live and num_open > 0:
                scores = await search.estimate(live, self.verifier, self.aggregate, scale="unit")  # line 3
                counts = await self.balance(search, live, scores, num_open)  # line 6
            if live and num_open > 0:
                search.notes.levels.append(_split_level(live, counts))
            live = [t for t, count in zip(live, counts, strict=True) if count > 0]
            counts = counts[counts > 0]
            search.keep(live)
        return list(search.candidates[search_start:])

    @abstractmethod
    async def balance(
        self, search: Search, live: Sequence[Trajectory], scores: NDArray[np.float64], left: int
    ) -> Counts:
        """Return the number of children of each live node, by scores in [0, 1]; `left`: their sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebase(RewardBalanced):
    """Reward-balanced search: at each level a live path gets a share of the continuations.

    The shares are in proportion to the softmax of the paths' scores.

    Args:
        n: The continuations at the first level, and the paths to bring to an end (N in the paper). Each ended path
            takes one continuation from later levels. None: as many as the budget pays.
        balance_temperature: As in `RewardBalanced`.
        temperature: As in `RewardBalanced`.
        max_steps: As in `RewardBalanced`.
        verifier: As in `RewardBalanced`.
        aggregate: As in `RewardBalanced`.

    Cost: about n x mean length generated tokens. One verifier call for each step of a live path. In samples: n, plus
        one for each continuation of a path beyond its first. A search with a larger n does not contain one with a
        smaller n.
    Random: none of its own.

    Example:
        >>> import tts
        >>> found = tts.solve("3 + 4 - 2 + 9", 400, model="toy", strategy="rebase(n=6)", verifier="toy(error=0.1)")
        >>> found.answer, found.usage.samples, found.usage.tokens
        ('14', 4, 126)
    """

    registered_as = "rebase"

    async def balance(
        self, search: Search, live: Sequence[Trajectory], scores: NDArray[np.float64], left: int
    ) -> Counts:
        """Balance a level by scores alone."""
        del search, live
        return apportion(scores, left, self.balance_temperature)


def rows_of(ts: Sequence[Trajectory], counts: Counts) -> Iterator[Trajectory]:
    """Yield each path once for each of its children. First children of all come before second children."""
    remaining = list(zip(ts, counts.tolist(), strict=True))
    for turn in itertools.count():
        remaining = [(t, count) for t, count in remaining if count > turn]
        if not remaining:
            return
        yield from (t for t, _ in remaining)


def _split_level(live: Sequence[Trajectory], counts: Counts) -> Level:
    """Return the record of a level."""
    with np.errstate(divide="ignore"):
        shares = np.log(counts / max(1, int(counts.sum())))
    nodes = tuple(t.node for t in live)
    return Level("split", (0, 0), nodes, tuple(shares.tolist()), counts=tuple(counts.tolist()), is_fixed=False)
