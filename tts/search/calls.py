"""Calls of a verifier's model within a grant, charged to the problem of the verifier."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tts._common.blame import Blame
from tts._common.characters import join_surrogates, prompt_in_whole_characters
from tts.backends.base import Backend, Reply, Row, RowSet, Sample, SampleRequest, Sampling, StopCondition
from tts.backends.capabilities import count_tokens, text_bound
from tts.backends.finite import clean_law
from tts.backends.metadata import metadata_of
from tts.backends.prompt_logprobs import law_of_tops
from tts.backends.reads import cancelled_and_done, read
from tts.budget.account import Exhausted
from tts.budget.budget import Rates
from tts.errors import BudgetExceeded, EngineError
from tts.randomness import hash64
from tts.search.ends import CallNotes
from tts.tasks.base import Task
from tts.thoughts import THINK
from tts.types import Prompt, Trajectory, prompt_text
from tts.verifiers.base import Judgement, Verifier
from tts.verifiers.compatibility import token_rates


class MeteredCalls:
    """Implements `tts.verifiers.base.Calls` for one scoring call.

    Args:
        backend: The model.
        task: The task of the problem.
        granted: The most tokens that may be computed.
        handles: A function that returns the handles of trajectories on this backend, and charges what it must read.
        stream: The address of the judge's own draws.
        seconds_left: A function that returns the seconds left; None: time is not limited.
        granted_prompt: The most tokens of prompts that a process model may read first.
        role: The role of the verifier.
        granted_requests: The most prompts to which the model may reply; None: requests are not limited.
        notes: What the calls add their notes to; None: notes of their own.
        whole: The calls that these calls are a part of.

    Attributes:
        computed: The tokens so far, with those of `written`.
        written: The generated tokens so far.
        prompt: The tokens of prompts that a process model read; `computed` does not contain them.
        reused: The tokens that were read again.
        requests: The prompts that the model was asked to reply to.
        seconds: The seconds of the model's work.
        estimated: Whether a part of the tokens is a bound, because the model reported no number.
        notes: What the calls leave beside scores and costs.
    """

    def __init__(  # noqa: PLR0913 - what calls depend on, by name
        self,
        backend: Backend,
        task: Task,
        granted: int,
        handles: Callable[[Sequence[Trajectory], Callable[[Sequence[Reply[Any]]], object]], Awaitable[list[Any]]],
        stream: int,
        *,
        seconds_left: Callable[[], float | None] = lambda: None,
        granted_prompt: int = 0,
        role: str = "",
        granted_requests: int | None = None,
        notes: CallNotes | None = None,
        whole: MeteredCalls | None = None,
    ) -> None:
        self.task = task
        self.seconds_left = seconds_left
        self.computed = self.written = self.prompt = self.reused = self.requests = 0
        self.seconds = 0.0
        self.estimated = self._leaves_out = False
        self.notes = notes or CallNotes()
        self._backend = backend
        self._granted = granted
        self._granted_prompt = granted_prompt
        self._granted_requests = granted_requests
        self._handles = handles
        self._stream = stream
        self._role = role
        self._blame = Blame(f"the backend {backend.name!r}", EngineError)
        self._parts: list[tuple[Rates, MeteredCalls]] = []
        # these calls, and all that they are a part of: a count goes to each
        self._chain: tuple[MeteredCalls, ...] = (self,) if whole is None else (self, *whole._chain)

    def part(self, verifier: Verifier) -> MeteredCalls:
        """See `Calls.part`. The part's tokens count here as well, within the same grants."""
        part = MeteredCalls(
            self._backend,
            self.task,
            self._granted - self.computed,
            self._handles,
            hash64("part", self._stream, len(self._parts)),
            seconds_left=self.seconds_left,
            granted_prompt=self._granted_prompt - self.prompt,
            role=self._role,
            granted_requests=None if self._granted_requests is None else self._granted_requests - self.requests,
            notes=self.notes,
            whole=self,
        )
        self._parts.append((token_rates(verifier, self._backend), part))
        return part

    @property
    def is_shown(self) -> bool:
        """Whether a part of the verifier saw a solution; False where every prompt was too long."""
        own = bool(self.requests or self.computed) or not self._leaves_out
        return any(part.is_shown for _rates, part in self._parts) if self._parts else own

    def cost(self, unit: str, rates: Rates) -> int:
        """Return the cost of all tokens so far, in `flops` or `usd`.

        The parts' tokens cost the parts' own rates, all other tokens cost `rates`.
        """
        parts = [part for _rates, part in self._parts]
        written = self.written - sum(part.written for part in parts)
        computed = self.prompt + self.computed - sum(part.prompt + part.computed for part in parts) - written
        reused = self.reused - sum(part.reused for part in parts)
        own_cost = rates.cost(unit, computed=computed, reused=reused, generated=written)
        return own_cost + sum(part.cost(unit, part_rates) for part_rates, part in self._parts)

    def _count(
        self,
        *,
        computed: int = 0,
        written: int = 0,
        prompt: int = 0,
        reused: int = 0,
        requests: int = 0,
        seconds: float = 0.0,
        estimated: bool = False,
    ) -> None:
        """Add to the counts, here and in the calls that these are a part of."""
        for calls in self._chain:
            calls.computed += computed
            calls.written += written
            calls.prompt += prompt
            calls.reused += reused
            calls.requests += requests
            calls.seconds += seconds
            calls.estimated = calls.estimated or estimated

    async def value(self, trajectories: Sequence[Trajectory], head: str) -> list[NDArray[np.float64]]:
        """See `Calls.value`."""
        return await self._read(self._backend.value(await self._handles(trajectories, self.charge), head))

    async def next_logprobs(
        self, trajectories: Sequence[Trajectory], text: str, tokens: Sequence[str]
    ) -> NDArray[np.float64]:
        """See `Calls.next_logprobs`."""
        handles = await self._handles(trajectories, self.charge)
        joined_text = join_surrogates(text)
        self._check(text_bound(self._backend, joined_text) * len(handles))
        logprobs = await self._read(self._backend.next_logprobs(handles, [joined_text] * len(handles), tokens))
        return clean_law(logprobs).reshape(len(handles), len(tokens))

    async def generate(self, prompts: Sequence[Prompt], *, max_tokens: int, sampling: Sampling) -> list[str | None]:
        """See `Calls.generate`."""
        replies = await self.replies(prompts, votes=1, max_tokens=max_tokens, sampling=sampling)
        return [reply for (reply,) in replies]

    async def replies(
        self, prompts: Sequence[Prompt], *, votes: int, max_tokens: int, sampling: Sampling
    ) -> list[tuple[str | None, ...]]:
        """See `Calls.replies`."""
        replies_by_prompt: list[tuple[str | None, ...]] = []
        for prompt, samples in zip(prompts, await self._sample(prompts, votes, max_tokens, sampling), strict=True):
            replies = tuple(None if sample.finish == "error" else sample.text for sample in samples)
            self.notes.judgements.append(
                Judgement(self._role, prompt_text(prompt_in_whole_characters(prompt)), replies)
            )
            marks = (metadata_of(self._backend).thoughts or THINK).continue_prompt(prompt)
            replies_by_prompt.append(tuple(None if reply is None else marks.response(reply) for reply in replies))
        return replies_by_prompt

    async def _sample(
        self, prompts: Sequence[Prompt], votes: int, max_tokens: int, sampling: Sampling, *, tops: bool = False
    ) -> list[list[Sample]]:
        """Return the samples of `votes` rows for each prompt.

        Raises:
            Exhausted: the time is over.
        """
        seconds = self.seconds_left()
        self._check_requests(len(prompts))
        prompts = [prompt_in_whole_characters(prompt) for prompt in prompts]
        handles = await self._open_prompts(prompts, votes * max_tokens)
        row_sets: list[RowSet] = []
        timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, _cancel, row_sets)
        samples: list[list[Sample]] = []  # [prompts][votes]
        try:
            for handle, prompt in zip(handles, prompts, strict=True):
                streams = [hash64("reply", self._stream, str(prompt), vote) for vote in range(votes)]
                rows = tuple(Row(stream, position=0, max_tokens=max_tokens) for stream in streams)
                # no prompt may be read again, because a second reading would exceed the bound
                request = SampleRequest(handle, rows, sampling, StopCondition(), rereads=False, tops=tops)
                self._count(requests=1)  # a request that the backend refuses counts too
                with self._blame:
                    row_sets.append(self._backend.sample(request))
            with self._blame:
                for row_set in row_sets:
                    samples.append([await row_set.row(vote) for vote in range(votes)])
        finally:
            if timer is not None:
                timer.cancel()
            try:
                await self._end(row_sets)
            finally:
                self._backend.release(handles)
        for prompt_samples in samples:
            if any(sample.finish == "cancelled" for sample in prompt_samples):
                raise Exhausted("seconds")
        return samples

    async def choices(self, prompts: Sequence[Prompt], tokens: Sequence[str]) -> NDArray[np.float64]:
        """See `Calls.choices`."""
        handles = await self._open_prompts([prompt_in_whole_characters(prompt) for prompt in prompts])
        try:
            logprobs = await self._read(self._backend.next_logprobs(handles, [""] * len(handles), tokens))
        finally:
            self._backend.release(handles)
        return clean_law(logprobs).reshape(len(handles), len(tokens))

    async def bounded_choices(
        self, prompts: Sequence[Prompt], tokens: Sequence[str]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """See `Calls.bounded_choices`."""
        if self._backend.caps.next_logprobs != "absent":
            logprobs = await self.choices(prompts, tokens)
            is_unknown = np.isnan(logprobs).any(axis=1)
            return logprobs, np.where(is_unknown, 1.0, 0.0)
        shown_logprobs: list[list[float]] = []  # by prompt: the log-probabilities of the tokens that are shown
        missing_mass: list[float] = []  # by prompt: the most probability that the other tokens may have
        for (sample,) in await self._sample(prompts, votes=1, max_tokens=1, sampling=Sampling(), tops=True):
            prompt_logprobs, prompt_missing = law_of_tops(sample.tops[0] if sample.tops else (), tokens)
            shown_logprobs.append(prompt_logprobs)
            missing_mass.append(prompt_missing)
        return clean_law(shown_logprobs).reshape(len(prompts), len(tokens)), np.array(missing_mass)

    def count(self, prompt: Prompt) -> int:
        """See `Calls.count`."""
        return count_tokens(self._backend, prompt)

    def note_unread(self, what: str, number: int, of: int) -> None:
        """See `Calls.note_unread`."""
        self.notes.unknown[what, "of"] += of
        self.notes.unknown[what, "number"] += number

    def leave_out(self, what: str, prompt: Prompt, over: int) -> None:
        """See `Calls.leave_out`."""
        self._leaves_out = True
        self.notes.judgements.append(Judgement(self._role, prompt_text(prompt), over=over))
        self.notes.unknown[what, "over"] = max(self.notes.unknown[what, "over"], over)

    def note_failures(self, error: str, number: int = 1) -> None:
        """See `Calls.note_failures`."""
        kind, _colon, cause = error.partition(": ")
        self.notes.note_failures(kind, cause, number)

    async def _open_prompts(self, prompts: Sequence[Prompt], written: int = 0) -> list[Any]:
        """Return the handles of prompts. After each prompt `written` tokens may follow.

        Raises:
            Exhausted: the time is over. BudgetExceeded: the bound does not cover these tokens.
        """
        seconds = self.seconds_left()
        if seconds is not None and seconds <= 0:
            raise Exhausted("seconds")
        self._check(sum(count_tokens(self._backend, prompt) + written for prompt in prompts))
        return await self._read(self._backend.open(prompts), opens=True)

    async def _end(self, row_sets: Sequence[RowSet]) -> None:
        """Cancel the rows that have not ended, and charge all rows."""
        try:
            await cancelled_and_done(row_sets)
        finally:
            self._charge_rows(row_sets)

    def _charge_rows(self, row_sets: Sequence[RowSet]) -> None:
        """Charge rows that are done, and release their states. A row without a sample is charged in full."""
        for row_set in row_sets:
            self._count(computed=row_set.prompt_tokens, reused=row_set.reused_tokens or 0)
            for row, sample in zip(row_set.request.rows, row_set.samples, strict=True):
                if sample is None:
                    self._count(computed=row.max_tokens, written=row.max_tokens, estimated=True)
                    continue
                self._count(
                    computed=sample.num_tokens,
                    written=sample.num_tokens,
                    seconds=sample.seconds,
                    estimated=sample.estimated,
                )
                if sample.error or sample.finish == "error":  # counted also where a retry of the backend succeeded
                    self.note_failures(sample.error or "error")
                    self.notes.repeats[sample.error.partition(": ")[0]] += sample.finish != "error"
                if sample.handle is not None:
                    self._backend.release([sample.handle])

    async def _read(self, call: Awaitable[Any], *, opens: bool = False) -> list[Any]:
        """Await a call that only reads, and return its values. The call is charged also if the search is cancelled."""
        replies: list[Reply[Any]] = []
        try:
            await read(self._backend, call, replies, opens=opens)
        finally:
            values = self.charge(replies)  # the replies are paid whether the call succeeds or not
        return values

    def _check(self, needed: int) -> None:
        if self.computed + needed > self._granted:
            raise BudgetExceeded(
                f"a verifier asks for {needed} tokens, but {self._granted - self.computed} are left of its bound"
            )

    def _check_requests(self, needed: int) -> None:
        if self._granted_requests is not None and self.requests + needed > self._granted_requests:
            raise BudgetExceeded(
                f"a verifier asks a model to reply to {needed} prompts, but {self._granted_requests - self.requests} "
                "requests are left of its bound",
                hint="the requests of its traits must be the most prompts of one verdict, for example "
                "Traits(requests=2); without them a score has one prompt",
            )

    def charge(self, replies: Sequence[Reply[Any]], *, estimated: bool = False) -> list[Any]:
        """See `Calls.charge`."""
        for reply in replies:
            self._count(
                computed=reply.computed - reply.prompt,
                prompt=reply.prompt,
                reused=reply.reused or 0,
                seconds=reply.seconds,
                estimated=estimated,
            )
        if self.computed > self._granted:
            raise BudgetExceeded(
                f"a verifier computed {self.computed} tokens, but states a bound of {self._granted}",
                hint="its bound(prefix_tokens, new_tokens) must cover what it reads and writes, prompts of its own "
                "included",
            )
        if self.prompt > self._granted_prompt:
            raise BudgetExceeded(
                f"a verifier's own model read {self.prompt} tokens of prompts, but states a bound of "
                f"{self._granted_prompt}",
                hint="its prompt_bound(prompt_tokens) must cover what its model reads when a prompt was opened",
            )
        return [reply.value for reply in replies]


def _cancel(row_sets: Sequence[RowSet]) -> None:
    for row_set in row_sets:
        row_set.cancel()
