"""The calls of a search that read: scores, questions to the model, embeddings, work beside models."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tts._common.characters import join_surrogates
from tts._core.threads import run_in_thread
from tts.backends.capabilities import require
from tts.budget.account import Account, Exhausted
from tts.search.algorithms.aggregation import aggregate_scores, check_aggregate
from tts.search.algorithms.embedding import CountedEmbedder, Embedder, HashedNgrams, refuse_unpriced
from tts.search.context import SearchContext
from tts.search.ends import SearchEnded
from tts.search.prompts import Prompts
from tts.search.scoring import Scoring
from tts.types import Trajectory
from tts.verifiers.base import Scale

T = TypeVar("T")
_FEW_CHARACTERS = 20_000  # texts up to this size are embedded as n-grams without a thread


class ReadingCalls:
    """The calls of a search that read and do not write.

    Args:
        context: What the parts of the search share.
        prompts: The prompts that were read.
        scoring: The verifiers by role.
    """

    def __init__(self, context: SearchContext, prompts: Prompts, scoring: Scoring) -> None:
        self.tree = context.tree
        self.scoring = scoring
        self._backends = context.backends
        self._costs = context.costs
        self._prompts = prompts
        self._clock = context.clock
        self._is_over = False  # whether the strategy has ended, so that a selection chooses

    def _call(self, *, writes: bool = False) -> AbstractContextManager[None]:
        """Return the context of one call."""
        raise NotImplementedError

    @property
    def account(self) -> Account:
        """The account that pays: limits, spend and what is left."""
        return self._costs.account

    @property
    def left(self) -> Mapping[str, float]:
        """The amounts left by limited unit, in whole units (dollars in 1e-15), and `seconds` of limited time."""
        account = self.account
        amounts = {unit: float(account.available(unit)) for unit in account.units}
        if account.seconds_left is not None:
            amounts["seconds"] = account.seconds_left
        return amounts

    async def score(
        self,
        ts: Sequence[Trajectory],
        verifier: str = "main",
        aggregate: str = "last",
        *,
        scale: Scale = "raw",
        required: bool = True,
    ) -> NDArray[np.float64]:
        """Return one score a trajectory, NaN where unknown. Each node is scored once, and its score is kept.

        Args:
            ts: The trajectories.
            verifier: The role.
            aggregate: "last", "min", "prod", "mean" or "model".
            scale: "raw": the verifier's own scale. "unit": mapped from the verifier's range to [0, 1]. "log_odds":
                ln(r / (1 - r)) of the unit score r; an unbounded score is a log-odds already.
            required: Whether the search ends where the budget cannot pay for a single score, in place of NaN.

        Raises:
            SearchEnded: The budget cannot pay for a single score.
            ConfigError: The scores are to be mapped, but have no scale.
        """
        check_aggregate(aggregate)
        with self._call():
            shortage = await self.scoring.score(ts, verifier)
        scores = np.full(len(ts), np.nan)
        for i, t in enumerate(ts):
            if (t.node, verifier) in self.tree.scores:
                scores[i] = aggregate_scores(self.tree.scores[t.node, verifier], aggregate)
        if shortage is not None and required and not self._is_over and np.isnan(scores).all():
            raise SearchEnded(f"budget: {shortage.unit}")
        return self.scoring.map_scores(scores, verifier, scale)

    async def estimate(
        self, ts: Sequence[Trajectory], verifier: str = "main", aggregate: str = "last", *, scale: Scale = "raw"
    ) -> NDArray[np.float64]:
        """Return scores as `score` does, with estimates for unknown ones; see `Scoring.with_estimates`."""
        scores = await self.score(ts, verifier, aggregate, scale=scale)
        return self.scoring.with_estimates(scores, verifier, aggregate, scale)

    async def ask(
        self, ts: Sequence[Trajectory], text: str, tokens: Sequence[str], *, model: str = "policy"
    ) -> NDArray[np.float64]:
        """Return the probabilities [trajectories, tokens] of next tokens after an appended text, untempered.

        The text is charged as verifier tokens. It does not become part of the path.
        """
        require(self._backends[model], ["next_logprobs"], "asking for the next token")
        with self._call():
            return await self._prompts.ask(ts, join_surrogates(text), tokens, model)

    async def hidden(self, ts: Sequence[Trajectory]) -> NDArray[np.float64]:
        """Return the policy's last hidden state at each path's end [trajectories, width]; paid as `extend`."""
        require(self._backends["policy"], ["hidden"], "reading hidden states")
        with self._call():
            return await self._prompts.hidden(ts)

    async def embed(self, texts: Sequence[str], embedder: Embedder | None = None) -> NDArray[np.float64]:
        """Return the unit vectors [texts, dimensions] of texts, by an embedder or by default the solver's."""
        embedder = embedder or self.scoring.embedder
        if isinstance(embedder, HashedNgrams) and sum(map(len, texts)) > _FEW_CHARACTERS:
            return await self.run(embedder.vectors, texts)
        if not isinstance(embedder, CountedEmbedder):
            with self._call():
                return await self._within_time(embedder.embed(texts))
        refuse_unpriced(embedder, self.account.units)
        with self._call():
            vectors, counted = await self._within_time(embedder.embed_and_count(texts))
            tokens = sum(len(text.encode()) for text in texts) if counted is None else counted
            is_estimated = counted is None
            self.account.book(
                "embed", rows=len(texts), prompt_tokens=tokens, estimated=is_estimated, flops=None, usd=None
            )
            return vectors

    async def run(self, fn: Callable[..., T], *args: Any) -> T:
        """Run CPU work (an integer program, clustering) beside the event loop, booked as "search".

        Raises:
            SearchEnded: the time is over. The function cannot be stopped, but the search no longer waits for it.
        """
        with self._call():
            return await self._within_time(run_in_thread(fn, *args))

    async def _within_time(self, work: Awaitable[T]) -> T:
        """Await work within the time left, and book its seconds. The work calls no model.

        Raises:
            Exhausted: the time is over. A thread cannot be stopped and ends by itself.
        """
        account, started = self.account, self._clock()
        limit = asyncio.timeout(account.seconds_left)
        try:
            async with limit:
                return await work
        except TimeoutError:
            if limit.expired():  # whatever the account's own clock says at this moment
                raise Exhausted("seconds") from None
            raise
        finally:
            seconds = self._clock() - started
            account.book("search", seconds=seconds, work_seconds=seconds)
