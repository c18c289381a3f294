"""Shortest: a vote of the shortest candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tts.checks import Count
from tts.search.parameters import Truncated
from tts.search.parts import Selected, Selection
from tts.search.search import Search
from tts.search.selections._common import select_class, voters_of
from tts.types import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortest(Selection):
    """Chooses the most frequent answer of the k candidates with the fewest tokens.

    Where all samples are written at once, these are the first k to finish.

    Source: Hassid et al., "Don't Overthink it. Preferring Shorter Thinking Chains for Improved LLM Reasoning"
    (2505.17813), short-m@k, read in the abstract: the majority of the first m to finish. Differs: candidates without an
    answer are not among the k. Those that share the length of the last place share the places that are left.

    Args:
        k: Candidates that vote, at least 1.
        truncated: "vote": a truncated candidate with an answer counts; "drop": it does not.

    Cost: nothing.

    Example:
        >>> import tts
        >>> found = tts.solve("3 + 4 - 2 + 9", 400, model="toy", strategy="best_of_n(n=8) | shortest")
        >>> found.answer, round(found.confidence, 2)
        ('14', 0.88)
    """

    registered_as = "shortest"
    k: Count = 3
    truncated: Truncated = "vote"

    async def select(self, candidates: Sequence[Candidate], search: Search) -> Selected:
        """Choose by the vote of the shortest."""
        del search
        voters = voters_of(candidates, self.truncated)
        lengths = [candidates[i].trajectory.num_tokens for i in voters]
        weights = places(lengths, voters, count=len(candidates), k=self.k)
        return select_class(candidates, weights, voters)


def places(lengths: Sequence[int], voters: Sequence[int], count: int, k: int) -> NDArray[np.float64]:
    """Return the weight of each of `count` candidates: 1 for the k first by length, 0 for the others.

    Candidates that tie for the last of the k places share these places evenly.

    Args:
        lengths: The length of each voter; the least lengths come first.
        voters: The indices of the voters among all candidates.
        count: The number of all candidates.
        k: The number of places.
    """
    weights = np.zeros(count)
    if not voters:
        return weights
    voter_lengths, voter_indices = np.asarray(lengths), np.asarray(voters)
    last_length = np.sort(voter_lengths)[min(k, len(voter_lengths)) - 1]
    is_shorter, is_tied = voter_lengths < last_length, voter_lengths == last_length
    places_left = k - is_shorter.sum()
    weights[voter_indices[is_shorter]] = 1.0
    weights[voter_indices[is_tied]] = min(1.0, places_left / is_tied.sum())
    return weights
