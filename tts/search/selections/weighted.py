"""Weighted: the answer with the largest sum of its candidates' scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tts.search.parts import Selected
from tts.search.search import Search
from tts.search.selections._common import ByScore, by_class, scores_of, units_of, voters_of
from tts.types import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighted(ByScore):
    """Chooses the answer with the largest sum of its candidates' scores (weighted best-of-N).

    Source: algorithm A1, mode weighted (Li et al. 2206.02336; Snell et al. 2408.03314). Differs: scores are mapped from the
    verifier's range to [0, 1], since sums of signed scores mean nothing. If all scores are unknown, it is a majority vote.

    Args:
        verifier, aggregate, truncated: as in `ByScore`.

    Cost: one verifier call for each candidate, also for those without an answer, since the confidence needs all scores.

    Example:
        >>> import tts
        >>> found = tts.solve("3 + 4 - 2 + 9", 400, model="toy", strategy="best_of_n(n=8) | weighted", verifier="toy(error=0.1)")
        >>> found.answer, round(found.confidence, 2), found.usage.verifier_calls
        ('14', 0.98, 8)
    """

    registered_as = "weighted"

    async def select(self, candidates: Sequence[Candidate], search: Search) -> Selected:
        """Choose the answer with the largest sum of scores."""
        scores = await scores_of(candidates, search, self.verifier, self.aggregate)
        weights = np.ones(len(candidates))
        if not np.isnan(scores).all():
            weights = np.nan_to_num(units_of(scores, search, self.verifier), nan=0.0)
        return by_class(candidates, weights, voters_of(candidates, self.truncated), (self.verifier, scores))
