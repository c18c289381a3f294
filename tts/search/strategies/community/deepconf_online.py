"""DeepConf online: a few whole traces set a threshold of confidence.

Every later trace is stopped once its confidence falls below the threshold.

Source: algorithm B6, online form, Fu, Wang, Tian, Zhao, "Deep Think with Confidence" (2508.15260). Read in the authors'
code: warm-up, percentile, discarded traces, votes by lowest group confidence, stop at a consensus. The paper's
confidence is the verifier `confidence(measure='top', over='lowest')`, on a backend that keeps top log-probabilities.
Any verifier of unfinished paths will do.

Differs:
- A trace is scored after each piece of some tokens, not after each token, so it may be stopped a piece late. None is
  missed, since a lowest group stays the lowest.
- A trace that falls below the threshold in its last piece has no vote. Neither has one that is shorter than a group and
  below the threshold as a whole.
- The consensus is checked after each wave of `width` traces.
- The percentile is that of the warm-up traces with an answer. A trace whose score is unknown is not stopped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Annotated

import numpy as np

from tts.checks import Amount, Count, number
from tts.search.ends import END, SearchEnded, Tokens
from tts.search.needs import Needs
from tts.search.parts import Selection
from tts.search.search import Search
from tts.search.selections.deepconf import DeepConfidence
from tts.search.selections.majority import Majority
from tts.search.strategies._common.judged import Judged
from tts.search.strategies._common.stepping import rounds
from tts.types import Candidate, Trajectory
from tts.verifiers.base import traits_of

_LOOKS = 1024  # the most scores of a trace; afterwards the trace runs to its end


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepConfidenceOnline(Judged):
    """Writes traces, and stops each as soon as its confidence is too low.

    Args:
        warmup: The traces that are written whole, whatever their confidence (N0), at least 1.
        keep: The percentage of the warm-up traces whose score is at least the threshold, above 0 and at most 100 (eta).
            10 stops most traces, and may keep only confident wrong answers. 90 stops few.
        consensus: The share of the vote with which an answer ends the search, at least 0; above 1: never.
        width: The traces that are written at once after the warm-up, at least 1. A greater width is faster, but may
            write traces that were not needed.
        tokens: The tokens between two scores of a trace, at least 1; None: an eighth of the mean length of the traces
            so far.
        n: The traces, with the warm-up (B in the paper, 512 there); None: as many as the budget pays.
        temperature: As in `Judged`; the paper's is 0.6.
        verifier: As in `Judged`.
        aggregate: As in `Judged`.

    Cost: at most n samples, `warmup` of them whole and the others up to where they are stopped. A verifier call each,
        and one more for every `tokens` of a trace beyond the verifier's first group.

    Example:
        >>> import tts
        >>> found = tts.solve(
        ...     "3 + 4 - 2 + 9",
        ...     400,
        ...     model="toy",
        ...     strategy="deepconf_online(n=8, warmup=3, keep=50, tokens=6)",
        ...     verifier="confidence",
        ... )
        >>> found.answer, found.usage.samples, found.usage.tokens
        ('14', 3, 63)
    """

    registered_as = "deepconf_online"
    warmup: Count = 16
    keep: Annotated[float, number(1e-9, 100)] = 10.0
    consensus: Amount = 0.95
    width: Count = 1
    tokens: Count | None = None

    def needs(self) -> Needs:
        """Return the needs: rows that are cut and continued, and a verifier."""
        return Needs(capabilities=("steps",), verifiers=(self.verifier,))

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Warm up, then write traces until they agree. Comments name the lines of algorithm B6, online."""
        num_traces = self.warmup if self.n is None else min(self.n, self.warmup)
        await search.complete([search.root], num_traces, temperature=self.temperature)  # line 1
        threshold = await self._threshold(search)
        num_rounds = None if self.n is None else math.ceil((self.n - num_traces) / self.width)
        for _ in rounds(search, num_rounds):
            selected = await self._vote().select(search.candidates, search)
            if selected.confidence >= self.consensus:  # lines 3 and 4
                raise SearchEnded("consensus")
            width = self.width if self.n is None else min(self.width, self.n - num_traces)
            await self._traces(search, width, threshold)  # line 2
            num_traces += width
        return search.candidates

    async def _threshold(self, search: Search) -> float:
        """Return the percentile of the warm-up traces' scores; -inf where no score is known."""
        scores = await search.score(
            [c.trajectory for c in search.candidates if c.answer is not None], self.verifier, self.aggregate
        )
        known_scores = scores[~np.isnan(scores)]
        return float(np.percentile(known_scores, 100 - self.keep)) if len(known_scores) else -math.inf

    async def _traces(self, search: Search, width: int, threshold: float) -> None:
        """Write some traces a piece at a time, and give up traces whose confidence falls below the threshold."""
        piece_tokens = self.tokens or self._piece(search)
        traces = [search.root]
        for look in range(1, _LOOKS + 2):  # a look is a score of unfinished traces
            until = END if look > _LOOKS else Tokens(piece_tokens)
            num_children = width if look == 1 else 1  # all traces begin at the root
            families = await search.expand(traces, num_children, until, temperature=self.temperature)
            longer_traces = list(chain.from_iterable(families))
            for t in longer_traces:
                search.finish(t)
            traces = await self._confident(search, [t for t in longer_traces if t.status == "active"], threshold)
            if not traces:
                return

    @staticmethod
    def _piece(search: Search) -> int:
        """Return the tokens of a piece: an eighth of the mean length of the warm-up's traces."""
        lengths = [candidate.trajectory.num_tokens for candidate in search.candidates]
        return max(1, sum(lengths) // (8 * max(1, len(lengths))))

    async def _confident(self, search: Search, active: Sequence[Trajectory], threshold: float) -> list[Trajectory]:
        """Return the traces that are confident enough to go on, and drop the others."""
        window = traits_of(search.scoring.get(self.verifier)).window or 0
        judged = [t for t in active if t.num_tokens >= window]  # shorter traces have no score yet
        scores = await search.score(judged, self.verifier, self.aggregate) if judged else np.zeros(0)
        stopped = {t.node: t for t, score in zip(judged, scores.tolist(), strict=True) if score < threshold}
        search.drop(list(stopped.values()))
        return [t for t in active if t.node not in stopped]

    def _vote(self) -> DeepConfidence:
        return DeepConfidence(keep=self.keep, among=self.warmup, verifier=self.verifier, aggregate=self.aggregate)

    def default_selection(self, *, verified: bool) -> Selection:
        """Return the vote of the traces that are at least as confident as the threshold."""
        return self._vote() if verified else Majority()
