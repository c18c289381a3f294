"""Majority of the bests: the answer that best-of-m gives most often.

Best-of-m is run over bootstrap samples of the candidates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tts.checks import Count
from tts.search.parts import Selected
from tts.search.search import Search
from tts.search.selections._common import Ballot, ByBallot


@dataclass(frozen=True, slots=True, kw_only=True)
class MajorityOfBests(ByBallot):
    """Chooses the most likely answer of best-of-m.

    The m candidates are drawn at random, with replacement, from all N candidates. A subset of one is a majority vote.
    The larger the subset is, the more the best score decides. Only the order of scores matters.

    Source: Rakhsha et al., "Majority of the Bests: Improving Best-of-N via Bootstrapping" (2511.18630), read in the
    abstract: the mode of the bootstrapped output of best-of-N; replacement is from memory. Differs:
    - The probability of each candidate is computed exactly from its rank, in place of many drawn samples.
    - m is the root of N, rounded up, unless `subset` gives it; the paper chooses it by the data.
    - Candidates of equal score share their probability evenly. An unknown score is the mean of the known ones. Without
      a single known score it is a majority vote.

    Args:
        subset: Candidates of a bootstrap sample, at least 1 (m in the paper); None: the root of N.
        verifier: As in `ByScore`.
        aggregate: As in `ByScore`.
        truncated: As in `ByScore`.

    Cost: one verifier call a candidate.

    Example:
        >>> import tts
        >>> found = tts.solve(
        ...     "3 + 4 - 2 + 9",
        ...     400,
        ...     model="toy",
        ...     strategy="best_of_n(n=8) | majority_of_bests",
        ...     verifier="toy(error=0.1)",
        ... )
        >>> found.answer, round(found.confidence, 2), found.usage.verifier_calls
        ('14', 1.0, 8)
    """

    registered_as = "majority_of_bests"
    only_voters = True
    subset: Count | None = None

    async def choose(self, ballot: Ballot, search: Search) -> Selected:
        """Choose by the probability of each candidate to be the best of m."""
        del search
        root_rounded_up = math.isqrt(len(ballot.voters) - 1) + 1
        chances = np.zeros(len(ballot.candidates))
        chances[ballot.voters] = best_of_chances(ballot.estimates[ballot.voters], self.subset or root_rounded_up)
        return ballot.select_class(chances)


def best_of_chances(scores: NDArray[np.float64], m: int) -> NDArray[np.float64]:
    """Return the probability, [N], that each of N scores is the best of m drawn with replacement.

    Let A of the N scores be at most x, and B be below x. Each score x has the probability
    ((A / N)^m - (B / N)^m) / (A - B).
    """
    _values, value_index, tie_counts = np.unique(scores, return_inverse=True, return_counts=True)
    num_at_most = np.cumsum(tie_counts)  # A of each different score
    num_below = num_at_most - tie_counts  # B
    if m == 1:
        return np.full(len(scores), 1 / len(scores))  # exact, so that equal votes tie
    chance_by_value = ((num_at_most / len(scores)) ** m - (num_below / len(scores)) ** m) / tie_counts
    return chance_by_value[value_index]
