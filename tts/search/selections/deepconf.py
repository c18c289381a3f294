"""DeepConf's vote: the least confident candidates are dropped, and the others vote.

Each vote weighs its candidate's confidence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tts.checks import Count, number
from tts.search.parts import Selected
from tts.search.search import Search
from tts.search.selections._common import Ballot, ByBallot, warn_of_scores

_LEAST_KEPT = 5  # candidates whose vote is more than the choice of the best


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepConfidence(ByBallot):
    """Chooses the answer with the largest sum of scores among the highest-scored candidates.

    The other candidates are dropped.

    With `keep=100` all candidates are kept, as in a confidence-weighted vote. The paper's offline confidences are
    `verifier="confidence(measure='top', over='tail')"` and `over='bottom'`, the mean of the lowest tenth of the
    windows, on a backend that keeps top log-probabilities. `over='lowest'` is the score of the online form. Other
    scores work too. A warning names the paper's score if the role `main` has another verifier.

    Source: algorithm B6, offline form, Fu, Wang, Tian, Zhao, "Deep Think with Confidence" (2508.15260), from code.
    Differs: the share that is kept depends by default on the number of candidates. The percentile is taken over the
    candidates that may win. Scores that may be negative are mapped to [0, 1] first. An unknown score is the mean of the
    known ones; if all scores are unknown, the majority wins. With `among` it is the vote of the online form,
    `deepconf_online`, which stops traces while they are written.

    Args:
        keep: The percent of the candidates that are kept, ties included, above 0 and at most 100. It is η in the paper,
            10 or 90; with 10, confident wrong answers can win, and of at most 10 candidates it keeps one, as `best`
            does. None: 10, or as many percent as keep five candidates.
        among: The number of first candidates from which the percentile is computed, for all candidates; None: all of
            them.
        verifier: As in `ByScore`.
        aggregate: As in `ByScore`.
        truncated: As in `ByScore`.

    Cost: one verifier call a candidate.

    Example:
        >>> import tts
        >>> found = tts.solve(
        ...     "3 + 4 - 2 + 9", 400, model="toy", strategy="best_of_n(n=8) | deepconf(keep=50)", verifier="confidence"
        ... )
        >>> found.answer, round(found.confidence, 2), found.usage.verifier_calls
        ('14', 1.0, 8)
    """

    registered_as = "deepconf"
    keep: Annotated[float, number(1e-9, 100)] | None = None
    among: Count | None = None

    async def choose(self, ballot: Ballot, search: Search) -> Selected:
        """Choose the answer with the largest sum of confidence among the kept candidates."""
        is_online = self.among is not None
        windows = "lowest" if is_online else "tail"  # the windows of tokens whose confidence the paper takes
        warn_of_scores(self, search, f"confidence(measure='top', over='{windows}')")
        voters, estimates = ballot.voters, ballot.estimates
        positive_scores = estimates if ballot.bounds[0] >= 0 else ballot.units
        measured = [i for i in voters if self.among is None or ballot.candidates[i].index < self.among] or voters
        keep = self.keep or max(10.0, 100 * min(1.0, _LEAST_KEPT / len(measured)))
        threshold = np.percentile(estimates[measured], 100 - keep)
        return ballot.select_class(np.where(estimates >= threshold, positive_scores, 0.0))
