"""Never: the strategy and the budget decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tts.search.ends import StopDecision
from tts.search.parts import StopRule
from tts.types import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Never(StopRule):
    """Stops never: the strategy and the budget decide.

    Example:
        >>> import tts
        >>> found = tts.solve("3 + 4 - 2 + 9", 400, model="toy", strategy="best_of_n(n=16) | never | majority")
        >>> found.answer, found.usage.samples, found.stopped_by
        ('14', 16, 'done')
    """

    registered_as = "never"

    def should_stop(self, candidates: Sequence[Candidate]) -> StopDecision | None:
        """Return None."""
        del candidates
        return None
