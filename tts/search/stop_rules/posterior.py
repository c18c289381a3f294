"""Posterior: the most frequent answer is unlikely to be overtaken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from scipy.special import betainc

from tts.checks import Proportion
from tts.search.answers import votes_of
from tts.search.ends import StopDecision
from tts.search.parts import StopRule
from tts.types import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior(StopRule):
    """Stops when the most frequent answer is unlikely to be overtaken by the second.

    With a votes for the one and b for the other it stops once Pr[X > 1/2] >= threshold, X ~ Beta(a + 1, b + 1).
    Candidates without an answer do not vote. The selection chooses the answer.

    Source: ASC, algorithm B1, Aggarwal et al., "Let's Sample Step by Step: Adaptive-Consistency" (2305.11860), its Beta
    rule, verified in the paper and its code; 40 samples at most there (give the strategy n=40). The test is sequential,
    so the threshold is no error rate.

    Args:
        threshold: The threshold in [0, 1]; 1 stops never. At 0.95 four equal answers stop.

    Example:
        >>> import tts
        >>> found = tts.solve("3 + 4 - 2 + 9", 400, model="toy", strategy="best_of_n(n=16) | posterior | majority")
        >>> found.answer, found.usage.samples, found.stopped_by
        ('14', 9, 'posterior')
    """

    registered_as = "posterior"
    threshold: Proportion = 0.95

    def should_stop(self, candidates: Sequence[Candidate]) -> StopDecision | None:
        """Return a stop when the leader is safe."""
        votes = votes_of(candidates)
        if not votes.total or self.threshold == 1:
            return None
        is_safe = overtaking_probability(votes.first, votes.second) <= 1 - self.threshold
        return StopDecision("posterior") if is_safe else None


@lru_cache(maxsize=1 << 16)
def overtaking_probability(first: int, second: int) -> float:
    """Return the chance that the second answer is likelier: Pr[X < 1/2], X ~ Beta(first + 1, second + 1)."""
    return float(betainc(first + 1, second + 1, 0.5))
