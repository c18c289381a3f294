"""Best: the answer of the candidate with the highest score."""

from __future__ import annotations

from dataclasses import dataclass

from tts.search.parts import Selected
from tts.search.search import Search
from tts.search.selections._common import Ballot, ByBallot, first_writing, order_candidates, share_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Best(ByBallot):
    """Chooses the answer of the candidate with the highest score (plain best-of-N).

    Among equal scores the first candidate is chosen.

    Source: algorithm A1, mode plain. Differs: a candidate without an answer cannot win; an unknown score is the mean of
    the known ones; without a single known score the majority wins.

    Args:
        verifier: As in `ByScore`.
        aggregate: As in `ByScore`.
        truncated: As in `ByScore`.

    Cost: one verifier call a candidate.

    Example:
        >>> import tts
        >>> found = tts.solve(
        ...     "3 + 4 - 2 + 9", 400, model="toy", strategy="best_of_n(n=8) | best", verifier="toy(error=0.1)"
        ... )
        >>> found.answer, round(found.confidence, 2), found.usage.verifier_calls
        ('14', 0.98, 8)
    """

    registered_as = "best"

    async def choose(self, ballot: Ballot, search: Search) -> Selected:
        """Choose by highest score."""
        del search
        weights, estimates = ballot.units, ballot.estimates
        judged = ballot.with_weights(weights)
        ranked = order_candidates(judged, sorted(ballot.voters, key=lambda i: (-estimates[i], i)))
        return Selected((first_writing(ranked[0], judged),), ranked, share_of(ranked, weights))
