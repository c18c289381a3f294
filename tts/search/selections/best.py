"""Best: the answer of the candidate with the highest score."""

from __future__ import annotations

import math
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
    voters_of,
    with_weights,
)
from tts.types import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Best(ByScore):
    """Chooses the answer of the candidate with the highest score (plain best-of-N).

    Among equal scores the first candidate is chosen.

    Source: algorithm A1, mode plain. Differs: a candidate without an answer cannot win; without a single known score
    the first answer wins.

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
            first_answer = tuple(candidates[i].answer or "" for i in voters[:1])
            unweighted = with_weights(candidates, np.full(len(scores), math.nan))
            return Selected(first_answer, order_candidates(unweighted, voters), math.nan)
        weights = np.nan_to_num(units_of(scores, search, self.verifier), nan=0.0)
        scored_voters = [i for i in voters if not math.isnan(scores[i])]
        unscored_voters = [i for i in voters if math.isnan(scores[i])]
        order = [*sorted(scored_voters, key=lambda i: (-scores[i], i)), *unscored_voters]
        judged = with_weights(candidates, weights, (self.verifier, scores))
        ranked = order_candidates(judged, order)
        if not order:
            return Selected((), ranked, no_answer(candidates))
        return Selected((first_writing(ranked[0], judged),), ranked, share_of(ranked, weights))
