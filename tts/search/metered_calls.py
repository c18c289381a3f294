"""The models a verifier may call, metered: what it computes is charged to its problem, and never more than was granted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tts.backends.base import Backend, Reply, Row, RowSet, SampleRequest, Sampling, StopCondition
from tts.backends.capabilities import text_bound
from tts.backends.finite import clean_law
from tts.backends.reads import cancelled_and_done, read
from tts.blame import Blame
from tts.budget.account import Exhausted
from tts.budget.budget import Rates
from tts.characters import in_whole_characters, prompt_in_whole_characters
from tts.errors import BudgetExceeded, EngineError
from tts.randomness import hash64
from tts.tasks.base import Task
from tts.types import Prompt, Trajectory
from tts.verifiers.base import Verifier
from tts.verifiers.compatibility import token_rates

_COUNTS = ("computed", "written", "prompt", "reused")


class MeteredCalls:
    """Implements `tts.verifiers.base.Calls` for one scoring call.

    Args:
        backend: the model. task: of the problem. granted: most tokens that may be computed.
        granted_prompt: most tokens of prompts that a process model may read first.
        handles: returns the handles of trajectories on this backend.
            It charges what it must read for them.
        stream: address of the judge's own draws. seconds_left: of the budget; None: it does not limit them.

    Attributes:
        computed: tokens so far, of which `written` were generated. prompt: tokens of prompts that a process model read, beside.
        reused: tokens read again. seconds: of the model's work.
        estimated: whether a part of that is a bound, for want of a report.
        unknown: what could not be read, and of how many (see `Calls.unread`). failures: what the model failed in, by kind. causes: of
            the first of each.
    """

    def __init__(
        self,
        backend: Backend,
        task: Task,
        granted: int,
        handles: Callable[[Sequence[Trajectory], Callable[[Sequence[Reply[Any]]], object]], Awaitable[list[Any]]],
        stream: int,
        seconds_left: Callable[[], float | None] = lambda: None,
        granted_prompt: int = 0,
    ) -> None:
        self.task = task
        self.seconds_left = seconds_left
        self.computed = 0
        self.written = 0
        self.prompt = 0
        self.reused = 0
        self.seconds = 0.0
        self.estimated = False
        self.unknown: Counter[tuple[str, str]] = Counter()
        self.failures: Counter[str] = Counter()
        self.causes: dict[str, str] = {}
        self._backend = backend
        self._granted = granted
        self._granted_prompt = granted_prompt
        self._handles = handles
        self._stream = stream
        self._whole: MeteredCalls | None = None
        self._parts: list[tuple[Rates, MeteredCalls]] = []

    def part(self, verifier: Verifier) -> MeteredCalls:
        """See `Calls.part`. What the part computes counts here as well, within the same grants."""
        part = MeteredCalls(
            self._backend,
            self.task,
            self._granted - self.computed,
            self._handles,
            hash64("part", self._stream, len(self._parts)),
            self.seconds_left,
            self._granted_prompt - self.prompt,
        )
        part._whole = self
        self._parts.append((token_rates(verifier, self._backend), part))
        return part

    def cost(self, unit: str, rates: Rates) -> int:
        """Return what was computed, in `flops` or `usd`: that of the parts at their own rates, all else at these."""
        own = {name: getattr(self, name) - sum(getattr(part, name) for _, part in self._parts) for name in _COUNTS}
        computed = own["prompt"] + own["computed"] - own["written"]
        mine = rates.cost(unit, computed=computed, reused=own["reused"], generated=own["written"])
        return mine + sum(part.cost(unit, of) for of, part in self._parts)

    def _add(self, name: str, amount: float) -> None:
        """Count something, here and in the whole that this is a part of."""
        setattr(self, name, getattr(self, name) + amount)
        if self._whole is not None:
            self._whole._add(name, amount)

    async def value(self, trajectories: Sequence[Trajectory], head: str) -> list[NDArray[np.float64]]:
        """See `Calls.value`."""
        return await self._read(self._backend.value(await self._handles(trajectories, self.charge), head))

    async def next_logprobs(self, trajectories: Sequence[Trajectory], text: str, tokens: Sequence[str]) -> NDArray[np.float64]:
        """See `Calls.next_logprobs`."""
        handles, text = await self._handles(trajectories, self.charge), in_whole_characters(text)
        self._check(text_bound(self._backend, text) * len(handles))
        laws = await self._read(self._backend.next_logprobs(handles, [text] * len(handles), tokens))
        return clean_law(laws).reshape(len(handles), len(tokens))

    async def generate(self, prompts: Sequence[Prompt], *, max_tokens: int, sampling: Sampling) -> list[str | None]:
        """See `Calls.generate`."""
        return [first for (first,) in await self.replies(prompts, votes=1, max_tokens=max_tokens, sampling=sampling)]

    async def replies(self, prompts: Sequence[Prompt], *, votes: int, max_tokens: int, sampling: Sampling) -> list[tuple[str | None, ...]]:
        """See `Calls.replies`."""
        left = self.seconds_left()
        prompts = [prompt_in_whole_characters(prompt) for prompt in prompts]
        handles = await self._opened(prompts, votes * max_tokens)
        rowsets: list[RowSet] = []
        timer = None if left is None else asyncio.get_running_loop().call_later(left, _cancel, rowsets)
        try:
            for handle, prompt in zip(handles, prompts, strict=True):
                rows = tuple(Row(hash64("reply", self._stream, str(prompt), draw), 0, max_tokens) for draw in range(votes))
                # a prompt that is read again would pass the bound
                with self._blame:
                    rowsets.append(self._backend.sample(SampleRequest(handle, rows, sampling, StopCondition(), rereads=False)))
            with self._blame:
                samples = [[await rows.row(draw) for draw in range(votes)] for rows in rowsets]
        finally:
            if timer is not None:
                timer.cancel()
            try:
                await self._end(rowsets)
            finally:
                self._backend.release(handles)
        if any(sample.finish == "cancelled" for of_prompt in samples for sample in of_prompt):
            raise Exhausted("seconds")
        return [tuple(None if sample.finish == "error" else sample.text for sample in of_prompt) for of_prompt in samples]

    @property
    def _blame(self) -> Blame:
        return Blame(f"the backend {self._backend.name!r}", EngineError)

    async def choices(self, prompts: Sequence[Prompt], tokens: Sequence[str]) -> NDArray[np.float64]:
        """See `Calls.choices`."""
        handles = await self._opened([prompt_in_whole_characters(prompt) for prompt in prompts])
        try:
            laws = await self._read(self._backend.next_logprobs(handles, [""] * len(handles), tokens))
        finally:
            self._backend.release(handles)
        return clean_law(laws).reshape(len(handles), len(tokens))

    def count(self, prompt: Prompt) -> int:
        """See `Calls.count`."""
        return self._backend.count(prompt)

    def unread(self, what: str, number: int, of: int) -> None:
        """See `Calls.unread`."""
        if self._whole is not None:
            self._whole.unread(what, number, of)
        self.unknown[what, "of"] += of
        self.unknown[what, "number"] += number

    def failed(self, error: str, number: int = 1) -> None:
        """See `Calls.failed`."""
        if self._whole is not None:
            self._whole.failed(error, number)
        kind, _, cause = error.partition(": ")
        self.failures[kind] += number
        self.causes.setdefault(kind, cause)

    async def _opened(self, prompts: Sequence[Prompt], written: int = 0) -> list[Any]:
        """Return the handles of prompts, after each of which so many tokens may be written.

        Raises:
            Exhausted: the time is over. BudgetExceeded: the bound does not cover them.
        """
        left = self.seconds_left()
        if left is not None and left <= 0:
            raise Exhausted("seconds")
        self._check(sum(self._backend.count(prompt) + written for prompt in prompts))
        return await self._read(self._backend.open(prompts), opens=True)

    async def _end(self, rowsets: Sequence[RowSet]) -> None:
        """Charge what was written, whatever happened, and give up its states; a row that was lost is charged in full."""
        try:
            await cancelled_and_done(rowsets)
        finally:
            self._charge_rows(rowsets)

    def _charge_rows(self, rowsets: Sequence[RowSet]) -> None:
        """Charge rows that are done."""
        for rows in rowsets:
            self._add("computed", rows.prompt_tokens)
            self._add("reused", rows.reused_tokens or 0)
            for row, sample in zip(rows.request.rows, rows.samples, strict=True):
                if sample is None or sample.estimated:
                    self._estimate()
                if sample is None:
                    self._write(row.max_tokens)
                    continue
                self._write(sample.num_tokens)
                self._add("seconds", sample.seconds)
                if sample.error or sample.finish == "error":  # also where another try of the backend's made it good
                    self.failed(sample.error or "error")
                if sample.handle is not None:
                    self._backend.release([sample.handle])

    def _write(self, tokens: int) -> None:
        self._add("computed", tokens)
        self._add("written", tokens)

    def _estimate(self) -> None:
        self.estimated = True
        if self._whole is not None:
            self._whole._estimate()

    async def _read(self, call: Awaitable[Any], *, opens: bool = False) -> list[Any]:
        """Await a call that only reads, charge it also where the search is cancelled meanwhile, and return its values."""
        replies: list[Reply[Any]] = []
        try:
            await read(self._backend, call, replies, opens=opens)
        finally:
            values = self.charge(replies)
        return values

    def _check(self, needed: int) -> None:
        if self.computed + needed > self._granted:
            raise BudgetExceeded(f"a verifier asks for {needed} tokens, but {self._granted - self.computed} are left of its bound")

    def charge(self, replies: Sequence[Reply[Any]], *, estimated: bool = False) -> list[Any]:
        """See `Calls.charge`."""
        if estimated:
            self._estimate()
        for reply in replies:
            self._add("computed", reply.computed - reply.prompt)
            self._add("prompt", reply.prompt)
            self._add("reused", reply.reused or 0)
            self._add("seconds", reply.seconds)
        if self.computed > self._granted:
            raise BudgetExceeded(
                f"a verifier computed {self.computed} tokens, but states a bound of {self._granted}",
                hint="its bound(prefix_tokens, new_tokens) must cover what it reads and writes, prompts of its own included",
            )
        if self.prompt > self._granted_prompt:
            raise BudgetExceeded(
                f"a verifier's own model read {self.prompt} tokens of prompts, but states a bound of {self._granted_prompt}",
                hint="its prompt_bound(prompt_tokens) must cover what its model reads when a prompt was opened",
            )
        return [reply.value for reply in replies]


def _cancel(rowsets: Sequence[RowSet]) -> None:
    for rows in rowsets:
        rows.cancel()
