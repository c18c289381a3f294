"""Early pruning: begin many solutions, judge their first tokens, and finish only the promising ones.

Source: algorithm A13, EARLY_PRUNE, Manvi, Singh, Ermon, "Adaptive Inference-Time Compute: LLMs Can Predict if They Can
Do Better, Even Mid-Generation" (2410.02725). The abstract says that half to three quarters of the samples can be pruned
early with little loss. Lengths are unverified (from memory: 64 or 128 tokens). The scores come from the verifier
`self_evaluation`, or from any other that judges a part of a solution.

Differs, where the paper leaves it open:
- A solution that ended within its first tokens is a candidate whatever its score, because it costs no more.
- Unknown scores are pruned first; among equal scores the earlier sample stays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tts.checks import Count, Proportion
from tts.search.ends import ROWS_FAILED, SearchEnded, Share, Tokens
from tts.search.needs import Needs
from tts.search.search import Search
from tts.search.strategies._common.judged import Judged
from tts.search.strategies._common.stepping import affordable_width, draw, rounds
from tts.types import Candidate, Trajectory

_PART = 0.25  # the default part of a solution that is written before it is judged
_MOST = 1024  # the most solutions of a round where the budget decides


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyPruning(Judged):
    """N solutions begun, (1 - pruned) N finished.

    Args:
        tokens: The tokens of each solution that are written before it is judged (m), at least 1; None: a quarter of the
            expected length.
        pruned: The share of solutions that are given up (rho), in [0, 1]; at least one is finished. 0: none is given
            up, and none is judged early.
        n: As in `Judged`; None: each round begins as many as the rest of the budget pays, by typical lengths and the
            cost below.
        temperature: As in `Judged`.
        verifier: As in `Judged`.
        aggregate: As in `Judged`.

    Cost: n m + (1 - pruned) n (mean length - m) generated tokens; n (2 - pruned) verifier calls, or n if pruned is 0.

    Example:
        >>> import tts
        >>> found = tts.solve(
        ...     "3 + 4 - 2 + 9", 400, model="toy", strategy="early_pruning(n=4, tokens=6)", verifier="toy(error=0.1)"
        ... )
        >>> found.answer, found.usage.samples, found.usage.tokens
        ('14', 4, 108)
    """

    registered_as = "early_pruning"
    tokens: Count | None = None
    pruned: Proportion = 0.5

    def needs(self) -> Needs:
        """Return the needs: rows that are cut and continued, and a verifier."""
        return Needs(capabilities=("steps",), verifiers=(self.verifier,))

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Begin, judge, prune and finish solutions; if n is None, again until the budget is used up."""
        until = Share(_PART) if self.tokens is None else Tokens(self.tokens)
        for _ in rounds(search, None if self.n is None else 1):
            n = self.n
            if n is None:
                num_whole = await affordable_width(search, self.temperature, stepwise=False)
                n = self._affordable(num_whole, self._part(search))
            (paths,) = await search.expand([search.root], n, until, temperature=self.temperature)
            for t in paths:
                search.finish(t)
            active = await self._promising(search, [t for t in paths if t.status == "active"], len(paths))
            search.keep(active)
            await draw(search, active, self.temperature)
        if not search.candidates:
            raise SearchEnded(ROWS_FAILED)
        return search.candidates

    def _part(self, search: Search) -> float:
        """Return the part of a solution that is written before it is judged, by the known lengths."""
        if self.tokens is None:
            return _PART
        lengths = [candidate.trajectory.num_tokens for candidate in search.candidates]
        if not lengths:
            lengths = [search.task.typical_tokens("solve")]
        return min(1.0, self.tokens * len(lengths) / max(1, sum(lengths)))

    def _affordable(self, units: int, share: float) -> int:
        """Return the number of solutions to begin, where the budget pays `units` whole solutions.

        The first `share` of each solution is written before it may be pruned.
        """
        cost = share + (1 - self.pruned) * (1 - share)
        return min(_MOST, max(1, int(units / cost)))

    async def _promising(self, search: Search, active: Sequence[Trajectory], num_begun: int) -> list[Trajectory]:
        """Return the best active solutions, in their order. Solutions that ended already count as kept."""
        num_kept = max(1, math.ceil((1 - self.pruned) * num_begun - 1e-9))  # rounding errors add no solution
        num_ended = num_begun - len(active)
        num_going_on = max(0, num_kept - num_ended)
        if num_going_on >= len(active):
            return list(active)
        scores = await search.estimate(active, self.verifier, self.aggregate)
        best_first = np.argsort(-scores, kind="stable").tolist()
        return [active[i] for i in sorted(best_first[:num_going_on])]
