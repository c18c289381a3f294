"""Majority: the most frequent answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tts.search.parameters import Truncated
from tts.search.parts import Selected, Selection
from tts.search.search import Search
from tts.search.selections._common import select_class, voters_of
from tts.types import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Majority(Selection):
    """Chooses the most frequent answer (self-consistency).

    A candidate counts as one vote, or as the weight that its strategy gave.

    Source: Wang et al., "Self-Consistency Improves Chain of Thought Reasoning in Language Models" (2203.11171).

    Args:
        truncated: "vote": a truncated candidate with an answer counts; "drop": it does not.

    Cost: nothing.

    Example:
        >>> import tts
        >>> found = tts.solve("3 + 4 - 2 + 9", 400, model="toy", strategy="best_of_n(n=8) | majority")
        >>> found.answer, round(found.confidence, 2), found.usage.verifier_calls
        ('14', 0.88, 0)
    """

    registered_as = "majority"
    truncated: Truncated = "vote"

    async def select(self, candidates: Sequence[Candidate], search: Search) -> Selected:
        """Choose by count, or by the weights that the strategy gave."""
        del search
        weights = np.array([1.0 if math.isnan(c.weight) else c.weight for c in candidates])
        return select_class(candidates, weights, voters_of(candidates, self.truncated))
