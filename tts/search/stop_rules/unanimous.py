"""Unanimous: the first window of candidates that all agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tts.checks import Count
from tts.search.ends import StopDecision
from tts.search.parts import StopRule
from tts.types import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanimous(StopRule):
    """Stops at the first window of candidates that all agree, and returns that window's answer.

    Answers of earlier windows do not count. Windows do not overlap. A window with a candidate without an answer does
    not agree.

    Source: ESC, Li et al., "Escape Sky-high Cost" (2401.10480, ICLR 2024); the authors' code returns the window's
    answer too.

    Args:
        window: Candidates in a window (w in the paper), at least 1.

    Cost: expected samples w [sum_{i<m-1} q (1-q)^i (i+1) + (1-q)^(m-1) m] for m windows, q = sum_a p_a^w.

    Example:
        >>> import tts
        >>> found = tts.solve(
        ...     "3 + 4 - 2 + 9", 400, model="toy", strategy="best_of_n(n=16) | unanimous(window=3) | majority"
        ... )
        >>> found.answer, found.usage.samples, found.stopped_by
        ('14', 9, 'unanimous')
    """

    registered_as = "unanimous"
    window: Count = 5

    def should_stop(self, candidates: Sequence[Candidate]) -> StopDecision | None:
        """Return a stop when the last candidate completes a unanimous window."""
        if not candidates or len(candidates) % self.window:
            return None
        window = candidates[-self.window :]
        answer_class = window[0].answer_class
        if answer_class is None or any(c.answer_class != answer_class for c in window):
            return None
        return StopDecision("unanimous", window[0].answer, slice(len(candidates)))
