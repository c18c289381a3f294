"""Calls that read and write nothing: forced text, the law of the next token behind a text, hidden states."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tts.backends.base import Backend, Extension, Reply
from tts.backends.facts import text_bound
from tts.search.opening import Opener, input_usage
from tts.search.spending import Spending
from tts.search.tree import Tree
from tts.types import Trajectory


class Reader:
    """Reads texts behind the trajectories of one search, and books it.

    Args:
        backends: by role. clock: seconds.
    """

    def __init__(self, backends: Mapping[str, Backend], opener: Opener, spending: Spending, tree: Tree, clock: Callable[[], float]) -> None:
        self._backends = backends
        self._opener = opener
        self._spending = spending
        self._tree = tree
        self._clock = clock

    async def extend(self, ts: Sequence[Trajectory], text: str, model: str, samples: int) -> list[Extension]:
        """Append a text to each; `samples`: what that costs in branches.

        Raises:
            Exhausted: the budget cannot pay it.
        """
        backend = self._backends[model]
        _, cost = self._cost(backend, ts, text)
        grant = self._spending.meter.amounts(samples=samples, **cost)
        replies: list[Reply[Extension]] = []
        started = self._clock()
        try:
            replies = await backend.extend(await self._opener.handles(ts, model), [text] * len(ts))
        finally:
            usage = input_usage(replies, samples=samples, seconds=self._clock() - started)
            self._spending.book("extend", model, len(ts), usage, rates=backend.rates, grant=grant)
        return [reply.value for reply in replies]

    async def ask(self, ts: Sequence[Trajectory], text: str, tokens: Sequence[str], model: str) -> NDArray[np.float64]:
        """Return the probabilities [trajectories, tokens] behind an appended text, which is charged as verifier tokens.

        Raises:
            Exhausted: the budget cannot pay it.
        """
        backend = self._backends[model]
        size, cost = self._cost(backend, ts, text)
        grant = self._spending.meter.amounts(tokens=size, verifier_tokens=size, verifier_calls=len(ts), **cost)
        replies: list[Reply[Any]] = []
        started = self._clock()
        try:
            replies = await backend.next_logprobs(await self._opener.handles(ts, model), [text] * len(ts), tokens)
        finally:
            usage = input_usage(replies, seconds=self._clock() - started, verifier=True)
            self._spending.book("ask", model, len(ts), usage, rates=backend.rates, grant=grant)
        return np.exp(np.array([reply.value for reply in replies]).reshape(len(ts), len(tokens)))

    async def hidden(self, ts: Sequence[Trajectory]) -> NDArray[np.float64]:
        """Return the policy's last hidden state at the end of each path: [trajectories, its width].

        Raises:
            Exhausted: the budget cannot pay it.
        """
        backend = self._backends["policy"]
        _, cost = self._cost(backend, ts, "")
        grant = self._spending.meter.amounts(**cost)
        replies: list[Reply[Any]] = []
        started = self._clock()
        try:
            replies = await backend.hidden(await self._opener.handles(ts, "policy"))
        finally:
            usage = input_usage(replies, seconds=self._clock() - started)
            self._spending.book("hidden", "policy", len(ts), usage, rates=backend.rates, grant=grant)
        return np.array([reply.value for reply in replies], dtype=np.float64)

    def _cost(self, backend: Backend, ts: Sequence[Trajectory], text: str) -> tuple[int, dict[str, int]]:
        """Return the most tokens that reading a text behind each computes, and what that costs."""
        paths, size = sum(map(self._tree.path_tokens, ts)), text_bound(backend, text) * len(ts)
        return size, {unit: backend.rates.cost(unit, computed=size, reused=paths) for unit in ("flops", "usd")}
