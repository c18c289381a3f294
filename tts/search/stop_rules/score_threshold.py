"""Score threshold: a candidate's score is high enough."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from tts.checks import Text, number
from tts.search.ends import StopDecision
from tts.search.needs import Needs
from tts.search.parameters import Aggregate
from tts.search.parts import StopRule
from tts.types import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreThreshold(StopRule):
    """Stops at the first candidate with an answer whose score reaches the threshold.

    The selection chooses.

    With the verifier `self_evaluation` the score is the model's own prediction that a fresh start would do no better.
    Each candidate is scored when it has ended. A candidate whose score is unknown, or cannot be paid, stops nothing.

    Source: algorithm A13, Manvi, Singh, Ermon, "Adaptive Inference-Time Compute" (2410.02725); the rule itself is from
    memory.

    Args:
        threshold: The threshold in the verifier's range (theta).
        verifier: The role that scores.
        aggregate: How the scores of steps become one.

    Cost: one verifier call a candidate. Whole solutions are drawn one after another, since each may be the last.

    Example:
        >>> import tts
        >>> found = tts.solve(
        ...     "3 + 4 - 2 + 9",
        ...     400,
        ...     model="toy",
        ...     strategy="best_of_n(n=16) | score_threshold(threshold=0.9) | majority",
        ...     verifier="toy",
        ... )
        >>> found.answer, found.usage.samples, found.stopped_by
        ('24', 2, 'score')
    """

    registered_as = "score_threshold"
    threshold: Annotated[float, number()] = 0.9
    verifier: Text = "main"
    aggregate: Aggregate = "last"

    def needs(self) -> Needs:
        """Return the needs: scores of the candidates."""
        return Needs(verifiers=(self.verifier,), aggregate=self.aggregate)

    def should_stop(self, candidates: Sequence[Candidate]) -> StopDecision | None:
        """Return a stop when the last candidate is good enough."""
        if not candidates or candidates[-1].answer_class is None:
            return None
        last_score = candidates[-1].scores.get(self.verifier, math.nan)
        return StopDecision("score") if last_score >= self.threshold else None
