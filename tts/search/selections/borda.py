"""Borda voting: candidates are ranked by a score, and a higher rank is worth more votes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from tts.checks import number
from tts.search.parts import Selected
from tts.search.search import Search
from tts.search.selections._common import Ballot, ByBallot, warn_of_scores


@dataclass(frozen=True, slots=True, kw_only=True)
class Borda(ByBallot):
    """Chooses the answer with most votes, where candidates vote by their rank.

    The candidate of rank r among N has (N - r + 1) ** exponent votes.

    Only the order of scores matters, so any verifier will do, on any scale; the paper's is self-certainty,
    `verifier="confidence(measure='certainty')"`.

    Source: algorithm B4, Kang, Zhao, Song, "Scalable Best-of-N Selection for Large Language Models via Self-Certainty"
    (2502.18581), from code: votes, and candidates without an answer behind all others. Differs:
    - An unknown score is the mean of the known ones.
    - Candidates of equal score share their votes evenly, where the code goes by index.
    - Without a single known score it is a majority vote.

    A warning names the paper's score where the role `main` has another verifier.

    Args:
        exponent: 0 is a majority vote, and the larger it is, the more the best-ranked decides; 0.3 for few samples, 0.7
            to 1.2 for many (secondary), 0.5 by the paper's script.
        verifier: As in `ByScore`.
        aggregate: As in `ByScore`.
        truncated: As in `ByScore`.

    Cost: one verifier call a candidate.

    Example:
        >>> import tts
        >>> found = tts.solve(
        ...     "3 + 4 - 2 + 9", 400, model="toy", strategy="best_of_n(n=8) | borda", verifier="toy(error=0.1)"
        ... )
        >>> found.answer, round(found.confidence, 2), found.usage.verifier_calls
        ('14', 0.94, 8)
    """

    registered_as = "borda"
    only_voters = True
    exponent: Annotated[float, number(0, 100)] = 0.5

    async def choose(self, ballot: Ballot, search: Search) -> Selected:
        """Choose by votes."""
        warn_of_scores(self, search, "confidence(measure='certainty')")
        ranked_scores = np.full(len(ballot.candidates), -math.inf)  # candidates without an answer are behind all others
        ranked_scores[ballot.voters] = ballot.estimates[ballot.voters]
        return ballot.select_class(ballots(ranked_scores, self.exponent))


def ballots(scores: NDArray[np.float64], exponent: float) -> NDArray[np.float64]:
    """Return the votes of each score [N]: 1 for the first rank, and less for later ranks.

    Equal scores share the votes of their ranks evenly.
    """
    votes_by_rank = (np.arange(len(scores), 0, -1) / max(1, len(scores))) ** exponent  # a quotient cannot overflow
    _values, value_index, tie_counts = np.unique(-scores, return_inverse=True, return_counts=True)
    last_ranks = np.cumsum(tie_counts)
    shared_votes = [
        votes_by_rank[last_rank - tie_count : last_rank].mean()
        for last_rank, tie_count in zip(last_ranks, tie_counts, strict=True)
    ]
    return np.array(shared_votes)[value_index]
