"""DeepConf's vote: the least confident candidates are dropped, and those that stay vote with their confidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tts.checks import check_int, check_number
from tts.search.protocols import Selected
from tts.search.search import Search, state_of
from tts.search.selections._common import ByScore, by_class, scores_of, voters_of, warn_of_scores
from tts.types import Candidate
from tts.verifiers.base import to_unit
from tts.verifiers.ranges import range_of


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepConfidence(ByScore):
    """Keeps the candidates whose score is among the highest, and chooses the answer whose kept scores sum highest.

    With `keep=100` nothing is dropped: a confidence-weighted vote. The paper's confidence is
    `verifier="confidence(measure='top', over='lowest')"`, on a backend that keeps top log-probabilities; any score will do.

    Source: algorithm B6, offline form, Fu, Wang, Tian, Zhao, "Deep Think with Confidence" (2508.15260), from code. Differs:
    - The percentile is taken over the candidates that may win.
    - Scores that may be negative are mapped to [0, 1] first.
    - An unknown score is dropped. Without a single known one it is a majority vote.

    With `among` it is the vote of the online form, `deepconf_online`, which stops traces while they are written. A warning names the
    paper's score where the role `main` has another verifier.

    Args:
        keep: percent of the candidates kept, above 0 and at most 100, inclusive of ties; η in the paper, 10 or 90. 10 can lock on
            confident wrong answers.
        among: the percentile is that of the first so many candidates, and all others are held against it; None: of all.
        verifier, aggregate, truncated: as in `ByScore`.

    Cost: one verifier call a candidate.

    Example:
        >>> import tts
        >>> found = tts.solve("3 + 4 - 2 + 9", 400, model="toy", strategy="best_of_n(n=8) | deepconf(keep=50)", verifier="confidence")
        >>> found.answer, round(found.confidence, 2), found.usage.verifier_calls
        ('14', 1.0, 8)
    """

    registered_as = "deepconf"
    keep: float = 10.0
    among: int | None = None

    def __post_init__(self) -> None:
        ByScore.__post_init__(self)
        check_number("keep", self.keep, 1e-9, 100, optional=False)
        check_int("among", self.among, 1)

    async def select(self, candidates: Sequence[Candidate], search: Search) -> Selected:
        """Choose by the summed confidence of those that are kept."""
        warn_of_scores(self, search, "confidence(measure='top', over='lowest')")
        scores = await scores_of(candidates, search, self.verifier, self.aggregate)
        voters = voters_of(candidates, self.truncated)
        known = ~np.isnan(scores)
        if not known[voters].any():
            return by_class(candidates, np.ones(len(candidates)), voters)
        bounds = range_of(state_of(search).scoring.get(self.verifier), scores)
        units = scores if bounds[0] >= 0 else to_unit(scores, bounds)
        measured = [i for i in voters if known[i]]
        first = [i for i in measured if self.among is None or candidates[i].index < self.among]
        least = np.percentile(scores[first or measured], 100 - self.keep)
        weights = np.where(scores >= least, np.nan_to_num(units, nan=0.0), 0.0)
        return by_class(candidates, weights, voters, (self.verifier, scores))
