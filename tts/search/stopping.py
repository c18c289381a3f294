"""When to stop before the budget does: rules over the candidates so far, in index order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tts.search.base import Named, Stop, whole
from tts.types import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Never(Named):
    """Stops never: the strategy and the budget decide."""

    registered_as = "never"

    def should_stop(self, candidates: Sequence[Candidate]) -> Stop | None:
        """Return None."""
        del candidates
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanimous(Named):
    """Stops at the first window of candidates that all agree, and returns that window's answer, whatever was seen before.

    Windows do not overlap; a candidate without an answer keeps its window from agreeing.

    Source: ESC, Li et al., "Escape Sky-high Cost" (2401.10480, ICLR 2024); the authors' code returns the window's answer too.

    Args:
        window: candidates in a window (w in the paper), at least 1.

    Cost: expected samples w [sum_{i<m-1} q (1-q)^i (i+1) + (1-q)^(m-1) m] for m windows, q = sum_a p_a^w.
    """

    registered_as = "unanimous"
    window: int = 5

    def __post_init__(self) -> None:
        whole("window", self.window, 1, optional=False)

    def should_stop(self, candidates: Sequence[Candidate]) -> Stop | None:
        """Return a stop when the last candidate completes a unanimous window."""
        if not candidates or len(candidates) % self.window:
            return None
        last = candidates[-self.window :]
        if last[0].answer_class is None or any(c.answer_class != last[0].answer_class for c in last):
            return None
        return Stop("unanimous", last[0].answer, slice(len(candidates)))
