"""Power sampling by lookahead: solutions by the model's law sharpened to p^alpha over whole texts.

They are written block by block, without chains.

    p^alpha(block | text)  is proportional to  p(block | text)^alpha x zeta,   zeta = sum of p(future | text,
    block)^alpha over all futures

    until the text has ended:
        draw candidate blocks at temperature 1 / alpha, and some continuations of each
        weight of a block = p(block)^alpha / q(block) x the mean over its continuations of p^alpha / q      q: the law
        that drew them choose one block by these weights, corrected by the jackknife

Source: Ji et al., "Scalable Power Sampling" (2601.21590), Theorem 3.1 and its jackknife estimator: alpha 4, 8
candidates, 8 rollouts, blocks of 192 of 3,072 tokens.

Differs:
- Candidates and continuations are drawn at temperature 1 / alpha, and weighed by p^alpha / q. The paper draws futures
  from the model, whose weight is p^(alpha - 1): the same mean with a larger variance.
- Continuations have as many tokens as a block by default, not the rest of the text: what follows later is left out of
  zeta.
- One block is chosen among those drawn. The paper ranks candidates by the model's probability first, and looks ahead
  for the best alone.
- Where the run filters tokens (top_p, top_k, min_p), the law is p^alpha over the texts that the filters leave.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from tts.checks import Count, Natural, number
from tts.search.ends import ROWS_FAILED, SearchEnded, Share, Tokens
from tts.search.needs import Needs
from tts.search.parts import Strategy
from tts.search.search import Search
from tts.search.strategies._common.stepping import rounds
from tts.types import Candidate, Trajectory
from tts_addons.zoo.power_sampling import chances

_PART = 1 / 16  # the default part of a solution that is a block: 192 of 3,072 tokens
_TRIES = 3  # tries of a block whose rows all fail


@dataclass(frozen=True, slots=True, kw_only=True)
class LookaheadPowerSampling(Strategy):
    """Texts whose blocks are drawn by their p^alpha and by a look at what may follow them.

    Only a horizon that reaches the ends of the texts gives p^alpha over whole texts. With the default horizon, a block,
    the law lies between that and temperature 1 / alpha. `power_sampling` has the law of whole texts at every setting.

    Args:
        n: The number of texts, one after another, at least 1; None: as many as the budget pays.
        alpha: The exponent of the model's law, at least 1; 1 is plain sampling.
        block: The tokens of a block, at least 1; None: a sixteenth of the length of a first solution at temperature 1 /
            alpha. This first solution has no vote once a text has ended.
        branching: The candidate blocks at each place (K in the paper), at least 1.
        rollouts: The continuations of each candidate (M in the paper), at least 0; 0 looks at the block alone.
        horizon: The most tokens of a continuation, at least 1; None: the tokens of a block.

    Cost: branching x (1 + rollouts x horizon / block) plain samples a text: 72 by default. A continuation reads prompt
        and prefix anew, as input.
    Random: which block is chosen, addressed by text and block.

    Example:
        >>> import tts
        >>> found = tts.solve(
        ...     "3 + 4 - 2 + 9",
        ...     400,
        ...     model="toy",
        ...     strategy="lookahead_power_sampling(n=1, block=6, branching=2, rollouts=2)",
        ... )
        >>> found.answer, found.usage.samples
        ('14', 14)
    """

    registered_as = "lookahead_power_sampling"
    sized_by_budget = ("n",)
    n: Count | None = None
    alpha: Annotated[float, number(1)] = 4.0
    block: Count | None = None
    branching: Count = 8
    rollouts: Natural = 8
    horizon: Count | None = None

    def needs(self) -> Needs:
        """Return the needs: blocks of tokens with log-probabilities, of the model and of the sampling law."""
        return Needs(capabilities=("steps", "token_ids", "logprobs", "sampling_logprobs"))

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Write one text after another."""
        first_solutions: Sequence[Candidate] = ()
        if self.block is None and not search.candidates:
            first_solutions = await search.complete([search.root], temperature=1 / self.alpha)
        for text_number in rounds(search, self.n):
            t = search.root
            try:
                for block_number in itertools.count():
                    t = await self._add_block(search, t, (text_number, block_number))
                    if t.status != "active":
                        break
            finally:
                if t.status == "finished" or (t.depth and not search.candidates):
                    with suppress(SearchEnded):  # a stop rule ends the search at its next call
                        search.finish(t)
            has_answer = any(c.answer is not None for c in search.candidates[len(first_solutions) :])
            if has_answer:
                for c in first_solutions:
                    search.finish(c.trajectory, weight=0.0)
        return search.candidates

    async def _add_block(self, search: Search, t: Trajectory, address: tuple[int, int]) -> Trajectory:
        """Return a text with one more block.

        Raises:
            SearchEnded: the budget is used up, or every row failed.
        """
        for _ in range(_TRIES):
            blocks = await self._blocks(search, t)
            if not blocks:
                continue
            futures = await self._futures(search, blocks)
            p = choice_law([self._log_weight(search, block, t) for block in blocks], futures)
            chosen = blocks[int(search.rng("block", *address).choice(len(blocks), p=p))]
            search.keep(chosen.path)
            return chosen
        raise SearchEnded(ROWS_FAILED)

    async def _blocks(self, search: Search, t: Trajectory) -> list[Trajectory]:
        """Draw candidates for the next block."""
        until = Share(_PART) if self.block is None else Tokens(self.block)
        [blocks] = await search.expand([t], self.branching, until, temperature=1 / self.alpha)
        return [block for block in blocks if block.status in ("active", "finished")]

    async def _futures(self, search: Search, blocks: Sequence[Trajectory]) -> NDArray[np.float64]:
        """Return the log-weights [K, M] of M continuations of K blocks; 0 after a block that ends the text."""
        active = [(i, block) for i, block in enumerate(blocks) if block.status == "active"]
        if not active or not self.rollouts:
            return np.zeros((len(blocks), 0))
        block_tokens = [block.num_tokens - (block.parent or block).num_tokens for _, block in active]
        horizon = self.horizon or max(1, *block_tokens)
        families = await search.expand(
            [block for _, block in active], self.rollouts, Tokens(horizon), temperature=1 / self.alpha
        )
        by_block: dict[int, list[float]] = {}
        for (i, block), continuations in zip(active, families, strict=True):
            complete = [t for t in continuations if t.status in ("active", "finished")]
            by_block[i] = [self._log_weight(search, t, block) for t in complete]
        num_futures = max(len(log_weights) for log_weights in by_block.values())  # M: the most that the budget paid
        futures = np.zeros((len(blocks), num_futures))
        for i, log_weights in by_block.items():
            # a block with fewer continuations has them repeated
            futures[i] = np.resize(log_weights, num_futures) if log_weights else -math.inf
        return futures

    def _log_weight(self, search: Search, t: Trajectory, prefix: Trajectory) -> float:
        """Return ln of p^alpha / q for the tokens of a path after a prefix."""
        tokens = chances(t)
        if tokens is None:
            search.notes.warn(
                "a text came without the log-probability of each of its tokens: its weight is that of a plain draw"
            )
            return 0.0
        return math.fsum(self.alpha * token.model - token.proposal for token in tokens[prefix.num_tokens :])


def choice_law(blocks: Sequence[float], futures: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the probabilities of candidate blocks [K].

    The probabilities are the normalized weights less their bias, which the jackknife over continuations estimates.

    Args:
        blocks: The log-weights [K] of the blocks.
        futures: The log-weights [K, M] of their continuations; M may be 0.
    """
    num_futures = futures.shape[1]
    estimate = _normalize(blocks, futures)
    if num_futures < 2:
        return estimate
    leave_one_out = np.mean([_normalize(blocks, np.delete(futures, s, axis=1)) for s in range(num_futures)], axis=0)
    corrected = np.maximum(0.0, num_futures * estimate - (num_futures - 1) * leave_one_out)
    return corrected / corrected.sum()


def _normalize(blocks: Sequence[float], futures: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return probabilities [K] of blocks: by block weight times the mean weight of its continuations."""
    num_futures = futures.shape[1]
    log_weights = np.array(blocks)  # [K]
    if num_futures:
        log_weights = log_weights + np.logaddexp.reduce(futures, axis=1) - math.log(num_futures)
    greatest = log_weights.max()
    weights = np.exp(log_weights - greatest) if np.isfinite(greatest) else np.ones(len(log_weights))
    return weights / weights.sum()
