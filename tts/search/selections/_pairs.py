"""Common code of selections that hold tournaments.

It has who compares, what is held for it, and what is known of pairs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tts.checks import Text
from tts.search.lengths import waves_of
from tts.search.needs import Needs
from tts.search.parameters import Truncated
from tts.search.parts import Selected, Selection
from tts.search.search import Search
from tts.search.selections._common import first_writing, order_candidates, select_class, share_of, with_weights
from tts.types import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class ByPairs(Selection):
    """The parameters of selections that go by comparisons of two.

    Args:
        verifier: The role that compares (`judge`).
        truncated: As in `Majority`.
    """

    verifier: Text = "main"
    truncated: Truncated = "vote"

    def needs(self) -> Needs:
        """Return the needs: a verifier that compares."""
        return Needs(verifiers=(self.verifier,), pairs={self.verifier: 0})


@dataclass(frozen=True, slots=True, kw_only=True)
class Tournament(ByPairs):
    """A tournament in which candidates of different answers meet.

    The cost of its comparisons is held with every row.
    """

    def needs(self) -> Needs:
        """Return the needs: a verifier that compares: one comparison for each candidate that may win."""
        return Needs(verifiers=(self.verifier,), pairs={self.verifier: 1})

    def may_score(self, candidate: Candidate, agreeing: int) -> bool:
        """It asks about those that may win."""
        del agreeing
        return candidate.answer_class is not None and (self.truncated == "vote" or not candidate.truncated)


async def preferences(
    candidates: Sequence[Candidate], pairs: Iterable[tuple[int, int]], verifier: str, search: Search
) -> dict[tuple[int, int], float]:
    """Return how far the first of each pair of indices is preferred, in [0, 1].

    It is NaN where it is unknown, or the budget cannot pay it.

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


def mean_wins(entrants: Sequence[int], said: Mapping[tuple[int, int], float]) -> dict[int, float]:
    """Return the mean preference for each entrant over its known matches; a half for one without any.

    Args:
        entrants: The indices of those that play.
        said: How far the first of each pair is preferred; NaN where it is unknown.
    """
    won: dict[int, list[float]] = {i: [] for i in entrants}
    for (a, b), one in said.items():
        if not math.isnan(one):
            won[a].append(one)
            won[b].append(1 - one)
    return {i: math.fsum(shares) / len(shares) if shares else 0.5 for i, shares in won.items()}


def order_of(candidates: Sequence[Candidate], means: Mapping[int, float]) -> list[int]:
    """Return entrants by their means; equal ones by the more frequent answer, then by their order."""
    votes = Counter(candidates[i].answer_class for i in means)
    return sorted(means, key=lambda i: (-means[i], -votes[candidates[i].answer_class], i))


def select_mean_win(
    candidates: Sequence[Candidate], voters: Sequence[int], said: Mapping[tuple[int, int], float]
) -> Selected:
    """Return the candidate with the highest mean win; without one known match, the majority.

    Args:
        candidates: All candidates.
        voters: The indices of those that may win.
        said: How far the first of each pair is preferred; NaN where it is unknown.
    """
    if all(map(math.isnan, said.values())):
        return select_class(candidates, np.ones(len(candidates)), voters)
    wins, means = mean_wins(voters, said), np.zeros(len(candidates))
    means[voters] = [wins[i] for i in voters]
    judged = with_weights(candidates, means)
    ranked = order_candidates(judged, order_of(candidates, wins))
    return Selected((first_writing(ranked[0], judged),), ranked, share_of(ranked, means))
