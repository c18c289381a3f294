"""In a row: the last k candidates have one answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tts.checks import Count
from tts.search.ends import StopDecision
from tts.search.parts import StopRule
from tts.types import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class InARow(StopRule):
    """Stops when the last k candidates have the same answer, and returns this answer.

    A candidate without an answer breaks the row.

    Source: the rule of algorithm B9 (answers that have stopped changing), here over samples.

    Args:
        k: Equal answers in a row, at least 1.

    Example:
        >>> import tts
        >>> found = tts.solve("3 + 4 - 2 + 9", 400, model="toy", strategy="best_of_n(n=16) | in_a_row(k=3) | majority")
        >>> found.answer, found.usage.samples, found.stopped_by
        ('14', 9, 'in a row')
    """

    registered_as = "in_a_row"
    k: Count = 3

    def should_stop(self, candidates: Sequence[Candidate]) -> StopDecision | None:
        """Return a stop when the last candidate completes a row."""
        if len(candidates) < self.k:
            return None
        row = candidates[-self.k :]
        answer_class = row[0].answer_class
        if answer_class is None or any(c.answer_class != answer_class for c in row):
            return None
        return StopDecision("in a row", row[0].answer)
