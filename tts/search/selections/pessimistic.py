"""Pessimistic best-of-N: a high score that few samples have counts for little."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from tts.checks import choice, number_above
from tts.search.parts import Selected
from tts.search.search import Search
from tts.search.selections._common import Ballot, ByBallot


@dataclass(frozen=True, slots=True, kw_only=True)
class Pessimistic(ByBallot):
    """Chooses by the law of InferenceTimePessimism.

    The law gives score r the probability max(0, r - threshold) / (N beta).

        r_1 .. r_N = the scores of N samples
        threshold: (1/N) sum_i max(0, (r_i - threshold) / beta) = 1
        draw one of the samples with probability max(0, r_i - threshold) / (N beta)

    It maximizes the expected score less beta / 2 times the chi-squared divergence from the samples. A small beta is
    `best`, and a large one counts all samples alike. So a few wrong solutions of high score cannot win alone.

    Source: Huang, Block, Liu, Jiang, Krishnamurthy, Foster, "Is Best-of-N the Best of Them? Coverage, Scaling, and
    Optimality in Inference-Time Alignment" (2503.21878), algorithm 2, and public implementations of it. Differs:
    - By default the answer with the largest probability is chosen; the paper draws a sample (`by="draw"`).
    - The draw is of the law itself. The paper's rejection sampling takes an unscored sample where it rejects all N.
    - Scores are mapped to [0, 1]. Candidates without an answer are no samples.
    - An unknown score is the mean of the known ones.

    Args:
        beta: The weight of the divergence, above 0, in units of a score in [0, 1].
        by: "mass": the answer with the largest probability wins; "draw": that of one sample of the law.
        verifier: The role that scores.
        aggregate: The way in which step scores are combined, such as "last", "min", "prod" or "mean".
        truncated: "vote": a truncated candidate with an answer counts; "drop": it does not.

    Cost: one verifier call a candidate.
    Random: the draw, addressed by problem and seed; nothing with `by="mass"`.

    Example:
        >>> import tts
        >>> found = tts.solve(
        ...     "3 + 4 - 2 + 9", 400, model="toy", strategy="best_of_n(n=8) | pessimistic", verifier="toy(error=0.1)"
        ... )
        >>> found.answer, round(found.confidence, 2), found.usage.verifier_calls
        ('14', 1.0, 8)
    """

    registered_as = "pessimistic"
    beta: Annotated[float, number_above(0)] = 0.1
    by: Annotated[str, choice("mass", "draw")] = "mass"

    async def choose(self, ballot: Ballot, search: Search) -> Selected:
        """Choose by the law (the probabilities of the candidates)."""
        law = np.zeros(len(ballot.candidates))
        law[ballot.voters] = pessimistic_law(ballot.units[ballot.voters], self.beta)
        most_likely = ballot.select_class(law)
        if self.by == "mass":
            return most_likely
        drawn_index = int(search.rng("pessimistic").choice(len(law), p=law / law.sum()))
        drawn = ballot.with_weights(law)[drawn_index]
        others = (c for c in most_likely.ranked if c.index != drawn.index)
        return Selected((drawn.answer or "",), (drawn, *others), most_likely.confidence)


def pessimistic_law(scores: NDArray[np.float64], beta: float) -> NDArray[np.float64]:
    """Return the probability of each of N scores: the projection of scores / (N beta) onto the simplex.

    With the scores in falling order, the threshold is the greatest value of ((sum of the first k scores) - N beta) / k
    over all k.
    """
    falling_scores = np.sort(scores)[::-1]
    count = len(scores)
    values = (np.cumsum(falling_scores) - count * beta) / np.arange(1, count + 1)  # by k from 1
    threshold = values.max()
    return np.maximum(scores - threshold, 0) / (count * beta)
