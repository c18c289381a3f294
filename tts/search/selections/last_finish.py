"""Last finish: the answer of the longest candidate, a baseline for selections by length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tts.search.parameters import Truncated
from tts.search.parts import Selected, Selection
from tts.search.search import Search
from tts.search.selections._common import select_class, voters_of
from tts.search.selections.shortest import places
from tts.types import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class LastFinish(Selection):
    """Chooses the answer of the candidate with the most tokens.

    Where all samples are written at once, this candidate finishes last.

    Source: a baseline. Candidates of one length share their vote.

    Args:
        truncated: "vote": a truncated candidate with an answer counts; "drop": it does not.

    Cost: nothing.

    Example:
        >>> import tts
        >>> found = tts.solve("3 + 4 - 2 + 9", 400, model="toy", strategy="best_of_n(n=8) | last_finish")
        >>> found.answer, round(found.confidence, 2)
        ('14', 0.88)
    """

    registered_as = "last_finish"
    truncated: Truncated = "vote"

    async def select(self, candidates: Sequence[Candidate], search: Search) -> Selected:
        """Choose the longest."""
        del search
        voters = voters_of(candidates, self.truncated)
        negative_lengths = [-candidates[i].trajectory.num_tokens for i in voters]
        weights = places(negative_lengths, voters, count=len(candidates), k=1)
        return select_class(candidates, weights, voters)
