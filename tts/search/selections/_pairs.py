"""What selections share that hold tournaments: who compares, what is held for it, and what is known of pairs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tts.checks import Text
from tts.search.lengths import waves_of
from tts.search.needs import Needs
from tts.search.parameters import Truncated
from tts.search.parts import Selection
from tts.search.search import Search
from tts.types import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class ByPairs(Selection):
    """The parameters of selections that go by comparisons of two.

    Args:
        verifier: the role that compares (`judge`). truncated: as in `Majority`.
    """

    verifier: Text = "main"
    truncated: Truncated = "vote"

    def needs(self) -> Needs:
        """A verifier that compares."""
        return Needs(verifiers=(self.verifier,), pairs={self.verifier: 0})


@dataclass(frozen=True, slots=True, kw_only=True)
class Tournament(ByPairs):
    """A tournament in which candidates of different answers meet. Its comparisons are held for with every row."""

    def needs(self) -> Needs:
        """A verifier that compares: one comparison for each candidate that may win."""
        return Needs(verifiers=(self.verifier,), pairs={self.verifier: 1})

    def may_score(self, candidate: Candidate, agreeing: int) -> bool:
        """It asks about those that may win."""
        del agreeing
        return candidate.answer_class is not None and (self.truncated == "vote" or not candidate.truncated)


async def preferences(
    candidates: Sequence[Candidate], pairs: Iterable[tuple[int, int]], verifier: str, search: Search
) -> dict[tuple[int, int], float]:
    """Return how far the first of each pair of indices is preferred, in [0, 1]; NaN where it is unknown, or the budget cannot pay it.

    Pairs are asked for in waves. The last wave is the first of which nothing is known.
    """
    known: dict[tuple[int, int], float] = {}
    for wave in waves_of(pairs):
        paths = [(candidates[a].trajectory, candidates[b].trajectory) for a, b in wave]
        said = await search.scoring.compare(paths, verifier, search.problem)
        known.update(zip(wave, said, strict=True))
        if all(map(math.isnan, said)):
            break
    return known
