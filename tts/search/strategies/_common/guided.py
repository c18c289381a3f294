"""Common code of tree methods: their parameters, and the scores that guide them.

The score of a path is its own score, or the score at the end of a lookahead.

Source: algorithm A4 (Snell et al., "Scaling LLM Test-Time Compute Optimally can be More Effective than Scaling Model
Parameters", 2408.03314; search-and-learn's code): a lookahead is greedy, its end is scored, and it is dropped. Differs:
search-and-learn's beam search writes the lookahead and then scores the path without it, so that it changes nothing;
here it is scored, in every method. An unknown score (NaN) promises the mean of the known ones.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tts.checks import Count, Natural, Text
from tts.search.needs import Needs
from tts.search.parameters import Aggregate, Temperature
from tts.search.parts import Selection, Strategy
from tts.search.search import Search
from tts.search.selections.best import Best
from tts.search.selections.majority import Majority
from tts.search.strategies._common.stepping import MAX_STEPS, affordable_width, rounds
from tts.types import Candidate, Trajectory

MOST_WIDTH = 1024  # paths of a search that is sized by its budget


@dataclass(frozen=True, slots=True, kw_only=True)
class Guided(Strategy):
    """The parameters of every tree method.

    Args:
        temperature: The temperature of the policy; None: the run's.
        max_steps: The most steps of a path, the last of which runs to the end of the solution (D in the papers).
        verifier: The role that scores.
        aggregate: The aggregate of the scores of steps; "last" of a process model is its score of the prefix.
    """

    maps_scores: ClassVar[bool] = False  # see `Needs.scaled`
    temperature: Temperature | None = None
    max_steps: Count = MAX_STEPS
    verifier: Text = "main"
    aggregate: Aggregate = "last"

    def needs(self) -> Needs:
        """Return the needs: steps, and a verifier."""
        return Needs(capabilities=("steps",), verifiers=(self.verifier,), scaled=self.maps_scores)

    def default_selection(self, *, verified: bool) -> Selection:
        """Return `best` by the score that guided the search; `majority` where there is no verifier."""
        return Best(verifier=self.verifier, aggregate=self.aggregate) if verified else Majority()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wide(Guided):
    """The parameters of tree methods of a fixed width.

    Args:
        n: The paths at each level, at least 1; None: as many as the budget pays, at most 1,024. The lengths of a plain
            solution that is written first, and of later solutions, decide. The rest of the budget pays another search.
    """

    n: Count | None = None

    def written_per_token(self) -> int:
        """Return the number of tokens written for each token of a path: above 1 with a lookahead."""
        return 1

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Search with n paths; if n is None, again and again until the budget is used up.

        Raises:
            SearchEnded: n is None, and the budget is used up. Every path that has ended is a candidate.
        """
        candidates: list[Candidate] = []
        for _ in rounds(search, None if self.n is None else 1):
            n = self.n
            if n is None:
                width = await affordable_width(search, self.temperature) // self.written_per_token()
                n = max(1, min(MOST_WIDTH, width))
            candidates += await self.explore(search, n)
        return candidates

    @abstractmethod
    async def explore(self, search: Search, n: int) -> Sequence[Candidate]:
        """Return the candidates of one search with n paths."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WideAhead(Wide):
    """The parameters of tree methods of a fixed width that may look ahead.

    Args:
        branching: The continuations of each kept path, at least 1.
        lookahead: The greedy steps that are written after a path, scored with the path, and then dropped; 0: none.
    """

    branching: Count = 4
    lookahead: Natural = 0

    def written_per_token(self) -> int:
        """Return 1 and the steps of the lookahead."""
        return 1 + self.lookahead


async def promises(search: Search, method: Guided, ts: Sequence[Trajectory], lookahead: int = 0) -> NDArray[np.float64]:
    """Return the score that guides the search for each path, estimated where the score is unknown.

    With a lookahead a path is scored together with up to `lookahead` greedy steps after the path, at most `max_steps`.

    Raises:
        SearchEnded: the budget cannot pay for a single score.
    """
    steps = min(lookahead, method.max_steps)
    ends = await search.rollout(ts, steps, temperature=0.0) if steps else ts
    return await search.estimate(ends, method.verifier, method.aggregate)


def split(children: Sequence[Sequence[Trajectory]]) -> tuple[list[Trajectory], list[Trajectory]]:
    """Return the active children and the ended children, each in order."""
    paths = list(chain.from_iterable(children))
    return [t for t in paths if t.status == "active"], [t for t in paths if t.status != "active"]


def distinct(ts: Sequence[Trajectory]) -> list[Trajectory]:
    """Return the first path of each text, in order. The parents of the paths have different texts already."""
    by_text: dict[tuple[int | None, str], Trajectory] = {}
    for t in ts:
        parent_node = None if t.parent is None else t.parent.node
        by_text.setdefault((parent_node, t.text), t)
    return list(by_text.values())
