"""Weighted: the answer with the largest sum of its candidates' scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tts.checks import number_above
from tts.search.algorithms.apportioning import softmax_weights
from tts.search.parts import Selected
from tts.search.search import Search
from tts.search.selections._common import Ballot, ByBallot


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighted(ByBallot):
    """Chooses the answer with the largest sum of its candidates' scores (weighted best-of-N).

    Source: algorithm A1, mode weighted (Li et al. 2206.02336; Snell et al. 2408.03314). Differs: scores are mapped from
    the verifier's range to [0, 1], since sums of signed scores mean nothing. Scores of a range with one infinite end
    count by their ranks. An unknown score is the mean of the known ones; if all are unknown, it is a majority vote.

    With `temperature` it is CISC: Taubenfeld et al., "Confidence Improves Self-Consistency in LLMs" (2502.06233), read
    in the authors' code. The weights are then the softmax of the scores, as the verifier gives them, over the
    candidates of the problem. Only differences of scores count. A high temperature gives the majority vote, a low one
    the answer of the best score.

    Args:
        verifier: The role that scores.
        aggregate: The way in which step scores are combined, such as "last", "min", "prod" or "mean".
        truncated: "vote": a truncated candidate with an answer counts; "drop": it does not.
        temperature: The temperature of the softmax, above 0, in units of the score; None: the scores are summed as they
            are. The paper tunes it for each model and kind of confidence on other problems.

    Cost: one verifier call for each candidate, also for those without an answer, since the confidence needs all scores.

    Example:
        >>> import tts
        >>> found = tts.solve(
        ...     "3 + 4 - 2 + 9", 400, model="toy", strategy="best_of_n(n=8) | weighted", verifier="toy(error=0.1)"
        ... )
        >>> found.answer, round(found.confidence, 2), found.usage.verifier_calls
        ('14', 0.98, 8)
    """

    registered_as = "weighted"
    temperature: Annotated[float, number_above(0)] | None = None

    async def choose(self, ballot: Ballot, search: Search) -> Selected:
        """Choose the answer with the largest sum of scores."""
        del search
        if self.temperature is None:
            return ballot.select_class(ballot.units)
        return ballot.select_class(softmax_weights(ballot.estimates, self.temperature))
