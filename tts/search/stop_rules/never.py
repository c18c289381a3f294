"""Never: the strategy and the budget decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tts.search.ends import StopDecision
from tts.search.parts import StopRule
from tts.types import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Never(StopRule):
    """Stops never: the strategy and the budget decide."""

    registered_as = "never"

    def should_stop(self, candidates: Sequence[Candidate]) -> StopDecision | None:
        """Return None."""
        del candidates
        return None
