"""Entropy: the answers so far agree well."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from tts.checks import Proportion, whole
from tts.search.answers import votes_of
from tts.search.ends import StopDecision
from tts.search.parts import StopRule
from tts.types import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Entropy(StopRule):
    """Stops when the answers so far agree well.

    Their entropy is then at most the threshold, as a share of the greatest possible entropy.

    The share is H / ln k over the k candidates with an answer: 0 where all agree, 1 where all differ. The selection
    chooses.

    Source: the entropy rule in the code of ASC (algorithm B1, 2305.11860: at most .75); its normaliser, and `least`,
    are ours.

    Args:
        threshold: The threshold in [0, 1]; 0 stops only where all agree.
        least: Answers before it may stop, at least 2.

    Example:
        >>> import tts
        >>> found = tts.solve("3 + 4 - 2 + 9", 400, model="toy", strategy="best_of_n(n=16) | entropy | majority")
        >>> found.answer, found.usage.samples, found.stopped_by
        ('14', 9, 'entropy')
    """

    registered_as = "entropy"
    threshold: Proportion = 0.75
    least: Annotated[int, whole(2)] = 4

    def should_stop(self, candidates: Sequence[Candidate]) -> StopDecision | None:
        """Return a stop when the entropy is low enough."""
        votes = votes_of(candidates)
        if votes.total < self.least:
            return None
        greatest_entropy = math.log(votes.total)
        is_low = votes.entropy <= self.threshold * greatest_entropy + 1e-12
        return StopDecision("entropy") if is_low else None


def answer_entropy(votes: Sequence[int]) -> float:
    """Return the entropy, in nats, of the answers with so many votes each; 0 without any."""
    total = sum(votes)
    return math.fsum(-count / total * math.log(count / total) for count in votes if count)
