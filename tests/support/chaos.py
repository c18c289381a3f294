"""A backend for tests that is as unkind as a real one may be.

Rows are late, come out of order, fail, and are slow to cancel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tts.backends.base import Backend, Counters, Extension, Reply, Row, RowSet, Sample, SampleRequest
from tts.backends.capabilities import prompt_logprobs, text_bound
from tts.backends.metadata import BackendMetadata, metadata_of
from tts.backends.prompt_logprobs import PromptLogprobs
from tts.budget.budget import Rates
from tts.errors import EngineError
from tts.randomness import hash64
from tts.types import Prompt

FAILURE = "ChaosFailure"


class ChaosBackend(Backend):
    """Wraps a backend: rows say what the inner backend's rows say, but may be late, reordered or lost.

    Every decision is a hash of the row's stream and position (of the text, for reads), so that it is the same under any
    batching. A failed row is charged a part of what it generated, and so is a cancelled one. Rows of a broken call that
    were not delivered are charged in full, for nobody can know better.

    Args:
        inner: The wrapped backend.
        seed: The seed of every decision.
        fail: The share of rows that fail.
        slow: The most event-loop turns that a row or a read is late.
        broken: The share of requests that break as a whole.
        unread: The share of reads that raise.
        rates: Rates in place of the inner backend's; None: the inner backend's.

    Attributes:
        counters: The backend's own count of what it reported.
        live: The handles given out and not released.
        most_live: The most live handles at one time.
        rows_made: The rows that were asked for.
        rows_cancelled: The rows that were cancelled.
    """

    def __init__(
        self,
        inner: Backend,
        seed: int,
        fail: float = 0.0,
        slow: int = 4,
        broken: float = 0.0,
        unread: float = 0.0,
        rates: Rates | None = None,
    ) -> None:
        self.inner = inner
        self.name = inner.name
        self.caps = inner.caps
        self.context = inner.context
        self.rates = rates or inner.rates
        self.kv_bytes_per_token = inner.kv_bytes_per_token
        self.identity = inner.identity
        known = metadata_of(inner)
        self.metadata = BackendMetadata(
            value_heads=known.value_heads,
            count_text=partial(text_bound, inner),
            text_of=known.text_of,
            finishes_reads=known.finishes_reads,
        )
        self.counters = Counters()
        self.live: set[Any] = set()
        self.most_live = 0
        self.rows_made = 0
        self.rows_cancelled = 0
        self._seed = seed
        self._fail, self._slow, self._broken, self._unread = fail, slow, broken, unread
        self._tasks: set[asyncio.Task[None]] = set()

    def _chance(self, *address: int | str) -> float:
        return hash64("chaos", self._seed, *address) * 2.0**-64

    @property
    def late(self) -> int:
        """Requests whose rows are still on their way."""
        return len(self._tasks)

    def count(self, prompt: Prompt) -> int:
        return self.inner.count(prompt)

    # Rows -------------------------------------------------------------------------------------------------------------

    def sample(self, request: SampleRequest) -> RowSet:
        rows = RowSet(request)
        self.rows_made += len(request.rows)
        task = asyncio.get_running_loop().create_task(self._deliver(rows, self.inner.sample(request)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return rows

    async def _deliver(self, rows: RowSet, inner: RowSet) -> None:
        try:
            await inner.drain()
            samples = [await inner.row(i) for i in range(len(inner.samples))]
        except Exception as failure:  # noqa: BLE001 - whatever broke the inner call breaks this one
            rows.fail(failure)
            return
        rows.prompt_tokens, rows.reused_tokens = inner.prompt_tokens, inner.reused_tokens
        self.counters.prompt_tokens += inner.prompt_tokens
        self.counters.reused_tokens += inner.reused_tokens or 0
        requested = rows.request.rows
        waits = [self._chance("late", row.stream, row.position, row.word) * self._slow for row in requested]
        order = sorted(range(len(requested)), key=waits.__getitem__)
        breaks = self._chance("broken", requested[0].stream, requested[0].position, requested[0].word) < self._broken
        turn = 0
        for place, index in enumerate(order):
            while turn < int(waits[index]) + 1:
                await asyncio.sleep(0)
                turn += 1
            if breaks and not rows.cancelled and place >= len(order) // 2:
                self._break(rows, samples, order[place:])
                return
            rows.resolve(index, self._outcome(rows, requested[index], samples[index]))

    def _outcome(self, rows: RowSet, row: Row, sample: Sample) -> Sample:
        part = int(self._chance("part", row.stream, row.position, row.word) * (sample.num_tokens + 1))
        if rows.cancelled:
            self.rows_cancelled += 1
            sample = self._drop_state(sample, Sample("", (), (), "cancelled", None, part))
        elif self._chance("fail", row.stream, row.position, row.word) < self._fail:
            sample = self._drop_state(sample, Sample("", (), (), "error", None, part, error=FAILURE))
        self.counters.generated_tokens += sample.num_tokens
        return self._hand_out(sample)

    def _break(self, rows: RowSet, samples: Sequence[Sample], lost: Sequence[int]) -> None:
        for index in lost:
            self._drop_state(samples[index], samples[index])
            self.counters.generated_tokens += rows.request.unseen_cost(rows.request.rows[index].max_tokens)
        rows.fail(EngineError("the whole call broke"))

    def _drop_state(self, sample: Sample, instead: Sample) -> Sample:
        if sample.handle is not None:
            self.inner.release([sample.handle])
        return instead

    def _hand_out(self, sample: Sample) -> Sample:
        if sample.handle is not None:
            self._give(sample.handle)
        return sample

    def _give(self, handle: Any) -> None:
        self.live.add(handle)
        self.most_live = max(self.most_live, len(self.live))

    # Reads ------------------------------------------------------------------------------------------------------------

    async def _delay(self, kind: str, texts: Sequence[str]) -> None:
        """Wait some turns, then raise or return.

        Nothing is computed before, so a cancelled read costs nothing.
        """
        address = (kind, *texts)
        for _ in range(int(self._chance("late", *address) * self._slow) + 1):
            await asyncio.sleep(0)
        if self._chance("unread", *address) < self._unread:
            raise EngineError(f"the read {kind!r} broke")

    def _count(self, replies: list[Reply[Any]]) -> list[Reply[Any]]:
        for reply in replies:
            self.counters.prompt_tokens += reply.computed
            self.counters.reused_tokens += reply.reused or 0
        return replies

    async def open(self, prompts: Sequence[Prompt]) -> list[Reply[Any]]:
        await self._delay("open", [str(prompt) for prompt in prompts])
        replies = self._count(await self.inner.open(prompts))
        for reply in replies:
            self._give(reply.value)
        return replies

    async def extend(self, handles: Sequence[Any], texts: Sequence[str]) -> list[Reply[Extension]]:
        await self._delay("extend", texts)
        replies = self._count(await self.inner.extend(handles, texts))
        for reply in replies:
            self._give(reply.value.handle)
        return replies

    async def score(self, handles: Sequence[Any], texts: Sequence[str]) -> list[Reply[NDArray[np.float64]]]:
        await self._delay("score", texts)
        return self._count(await self.inner.score(handles, texts))

    async def next_logprobs(
        self, handles: Sequence[Any], texts: Sequence[str], tokens: Sequence[str]
    ) -> list[Reply[NDArray[np.float64]]]:
        await self._delay("next_logprobs", texts)
        return self._count(await self.inner.next_logprobs(handles, texts, tokens))

    async def value(self, handles: Sequence[Any], head: str) -> list[Reply[NDArray[np.float64]]]:
        await self._delay("value", [head, str(len(handles))])
        return self._count(await self.inner.value(handles, head))

    async def prompt_logprobs(self, prompts: Sequence[Prompt], top: int = 0) -> list[Reply[PromptLogprobs]]:
        await self._delay("prompt_logprobs", [str(prompt) for prompt in prompts])
        return self._count(await prompt_logprobs(self.inner, prompts, top))

    async def hidden(self, handles: Sequence[Any]) -> list[Reply[NDArray[np.float32]]]:
        await self._delay("hidden", [])
        return self._count(await self.inner.hidden(handles))

    def fork(self, handle: Any, count: int) -> list[Any]:
        forks = self.inner.fork(handle, count)
        for fork in forks:
            self._give(fork)
        return forks

    def release(self, handles: Sequence[Any]) -> None:
        self.live.difference_update(handles)
        self.inner.release(handles)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self.inner.close()
