"""Best: the answer of the candidate with the highest score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tts.search.parts import Selected
from tts.search.search import Search
from tts.search.selections._common import (
    ByScore,
    first_writing,
    no_answer,
    order_candidates,
    scores_of,
    share_of,
    units_of,
    vote_without_scores,
    voters_of,
    with_weights,
)
from tts.types import Candidate
from tts.verifiers.base import estimate_unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Best(ByScore):
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

    async def select(self, candidates: Sequence[Candidate], search: Search) -> Selected:
        """Choose by highest score."""
        scores = await scores_of(candidates, search, self.verifier, self.aggregate)
        voters = voters_of(candidates, self.truncated)
        if np.isnan(scores).all():
            return vote_without_scores(candidates, voters)
        weights = units_of(scores, search, self.verifier)
        estimates = estimate_unknown(scores)
        order = sorted(voters, key=lambda i: (-estimates[i], i))
        judged = with_weights(candidates, weights, (self.verifier, scores))
        ranked = order_candidates(judged, order)
        if not order:
            return Selected((), ranked, no_answer(candidates))
        return Selected((first_writing(ranked[0], judged),), ranked, share_of(ranked, weights))
