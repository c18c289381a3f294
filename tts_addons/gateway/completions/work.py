"""Completions of a model without a search: texts after prompts, and log-probabilities.

They run in the library's loop.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from tts.backends.base import Backend, Reply, Row, Sample, SampleRequest, Sampling, StopCondition
from tts.backends.batching import search_turns
from tts.backends.capabilities import prompt_logprobs
from tts.backends.metadata import metadata_of
from tts.backends.prompt_logprobs import PromptLogprobs
from tts.backends.reads import cancelled_and_done, read
from tts.backends.text.tokenized_text import TokenizedText
from tts.errors import CapabilityError, EngineError
from tts.randomness import child_stream, hash64

Told = Callable[[int, str], None]
PIECE = 16  # the tokens of one piece of a stream


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionOrder:
    """A checked request to a model.

    Args:
        prompts: The prompts, at least one.
        choices: The number of choices for each prompt.
        max_tokens: The most tokens of each choice, or 0.
        sampling: The sampling of the choices.
        seed: The seed of the draws.
        stops: Texts that end a choice, and are no part of it.
        echo: Whether the prompts are repeated.
        top: The number of most likely tokens for each place; None: no log-probabilities are given.
    """

    prompts: tuple[str, ...]
    choices: int
    max_tokens: int
    sampling: Sampling
    seed: int
    stops: tuple[str, ...] = ()
    echo: bool = False
    top: int | None = None

    @property
    def only_reads(self) -> bool:
        """Whether the log-probabilities of the prompts suffice, and no row is written.

        It is so where no token is asked for, or only the most likely next token.
        """
        is_most_likely_token = self.max_tokens == 1 and self.sampling.temperature == 0 and not self.stops
        return self.top is not None and (self.max_tokens == 0 or is_most_likely_token)


@dataclass(slots=True)
class CompletionCost:
    """The tokens of a completion so far.

    Args:
        prompt: The tokens of the prompts.
        computed: The input tokens that were computed.
        reused: The input tokens that were reused from a cache.
        read: The input tokens whose log-probabilities were read.
        generated: The tokens that were drawn.
        requests: The requests to the backend that write.
    """

    prompt: int = 0
    computed: int = 0
    reused: int = 0
    read: int = 0
    generated: int = 0
    requests: int = 0

    def add(self, replies: Sequence[Reply[Any]]) -> int:
        """Count the input tokens of replies, and return their number."""
        computed = sum(reply.computed for reply in replies)
        reused = sum(reply.reused or 0 for reply in replies)
        self.computed += computed
        self.reused += reused
        return computed + reused


@dataclass(frozen=True, slots=True)
class Written:
    """One choice.

    Args:
        prompt: The index of its prompt.
        text: The text, without its stop text.
        finish: The reason for its end.
        ids: The tokens that were drawn.
        found: The log-probabilities of the prompt and of `ids`; None: they are not asked for.
        from_token: The first token that the reply shows.
    """

    prompt: int
    text: str
    finish: Literal["stop", "length"]
    ids: tuple[int, ...] = ()
    found: PromptLogprobs | None = None
    from_token: int = 0


async def complete(
    backend: Backend, order: CompletionOrder, cost: CompletionCost, told: Told | None = None
) -> list[Written]:
    """Return the choices of all prompts, in order.

    Args:
        backend: The backend that writes.
        order: The order.
        cost: The cost, which is counted up even if the completion fails or is cancelled.
        told: A function that is called with a choice's place and its new text, as the model writes.

    Raises:
        CapabilityError: the backend gives no log-probabilities. ConfigError: a prompt is not valid. PromptTooLong: a
            prompt is too long.
        EngineError: the model failed.
    """
    if order.top is None:
        return await _write(backend, order, cost, told)
    if order.only_reads:
        return await _read(backend, order, cost)
    tokenizer = metadata_of(backend).tokenizer
    if tokenizer is None:
        raise CapabilityError(
            "logprobs of more than the prompt and one token need the model's tokenizer, which the backend "
            f"{backend.name!r} lacks",
            hint="ask for max_tokens of 0, or of 1 at temperature 0",
        )
    choices = await _write(backend, order, cost, None)
    prompt_ids = [
        prompt.ids if isinstance(prompt, TokenizedText) else tokenizer.prompt(prompt) for prompt in order.prompts
    ]
    paths = [TokenizedText.of((*prompt_ids[choice.prompt], *choice.ids)) for choice in choices]
    replies = await _logprobs(backend, paths, order.top, cost)
    return [
        dataclasses.replace(choice, found=reply.value, from_token=0 if order.echo else len(prompt_ids[choice.prompt]))
        for choice, reply in zip(choices, replies, strict=True)
    ]


async def _logprobs(
    backend: Backend, prompts: Sequence[str], top: int, cost: CompletionCost
) -> list[Reply[PromptLogprobs]]:
    """Read the log-probabilities of prompts; their cost is counted also on cancellation."""
    replies: list[Reply[PromptLogprobs]] = []
    try:
        await read(backend, prompt_logprobs(backend, prompts, top), replies)
    finally:
        computed_before = cost.computed
        cost.add(replies)
        cost.read += cost.computed - computed_before
    return replies


async def _read(backend: Backend, order: CompletionOrder, cost: CompletionCost) -> list[Written]:
    """Return the choices of an order that only reads, from one reading of all prompts.

    The text of a choice is the most likely token after its prompt, if a token is asked for.
    """
    assert order.top is not None
    replies = await _logprobs(backend, order.prompts, max(order.top, order.max_tokens), cost)
    cost.prompt = sum(len(reply.value.texts) for reply in replies)
    choices: list[Written] = []
    for place, reply in enumerate(replies):
        logprobs = reply.value
        num_prompt_tokens = len(logprobs.texts)
        text, is_end = "", False
        if order.max_tokens:
            if not logprobs.behind:
                raise EngineError(
                    f"the backend {backend.name!r} does not give the probabilities of the token after a prompt"
                )
            text, logprob, is_end = logprobs.behind[0]
            cost.generated += order.choices
            prompt_tops = logprobs.tops or ((),) * num_prompt_tokens
            tops = (*prompt_tops, logprobs.behind)
            logprobs = PromptLogprobs((), (*logprobs.texts, text), np.append(logprobs.logprobs, logprob), tops)
        choice = Written(
            prompt=place,
            text="" if is_end else text,
            finish="stop" if is_end else "length",
            found=logprobs,
            from_token=0 if order.echo else num_prompt_tokens,
        )
        choices += [choice] * order.choices
    return choices


async def _write(backend: Backend, order: CompletionOrder, cost: CompletionCost, told: Told | None) -> list[Written]:
    """Return the choices of all prompts without log-probabilities, each written by the model."""
    if not order.max_tokens:
        cost.prompt += sum(map(backend.count, order.prompts))
        return [Written(place, "", "length") for place in range(len(order.prompts)) for _ in range(order.choices)]
    replies: list[Reply[Any]] = []
    try:
        await read(backend, backend.open(order.prompts), replies, opens=True)
    finally:
        input_tokens = cost.add(replies)
    handles = [reply.value for reply in replies]
    rows = [_ChoiceRow(backend, order, cost, told, place) for place in range(len(handles) * order.choices)]
    with search_turns():
        tasks = [asyncio.ensure_future(row.write(handles[row.place // order.choices])) for row in rows]
    try:
        choices = await asyncio.gather(*tasks)
        first_rows = rows[:: order.choices]  # the first row of each prompt
        # a server does not read a prompt in `open`, but with each row
        cost.prompt = input_tokens or sum(row.read for row in first_rows)
        return choices
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        backend.release(handles)


@dataclass(slots=True)
class _ChoiceRow:
    """One choice under way.

    `place` is its place among all choices, `shown` the number of characters that were passed on, and `read` the input
    tokens of its first call.
    """

    backend: Backend
    order: CompletionOrder
    cost: CompletionCost
    told: Told | None
    place: int
    text: str = ""
    shown: int = 0
    read: int = 0
    ids: list[int] = field(default_factory=list[int])

    async def write(self, handle: Any) -> Written:
        """Write the choice in one call, or in pieces for a stream.

        Pieces are possible where the backend can continue a path.
        """
        order, backend = self.order, self.backend
        prompt_place, number = divmod(self.place, order.choices)
        prompt = order.prompts[prompt_place]
        prompt_key = ("ids", *prompt.ids) if isinstance(prompt, TokenizedText) else ("text", prompt)
        stream = child_stream(hash64("completion", order.seed, *prompt_key), 0, number)
        writes_pieces = (
            self.told is not None
            and backend.caps.steps != "absent"
            and backend.caps.token_ids
            and metadata_of(backend).resumes()
        )
        num_tokens, handles = 0, list[Any]()
        try:
            while True:
                tokens_left = order.max_tokens - num_tokens
                piece_tokens = min(tokens_left, PIECE) if writes_pieces else tokens_left
                sample = await self._draw_row(handle, Row(stream, num_tokens, piece_tokens))
                num_tokens += sample.num_tokens
                handle = sample.handle
                if handle is not None:
                    handles.append(handle)
                self.text += sample.text
                self.ids += sample.token_ids
                has_ended = sample.finish != "length" or num_tokens >= order.max_tokens or not writes_pieces
                self._tell(last=has_ended)
                if has_ended:
                    is_cut = sample.finish == "length" and self._stop() is None
                    finish: Literal["stop", "length"] = "length" if is_cut else "stop"
                    return Written(prompt_place, self._cut(), finish, tuple(self.ids))
        finally:
            backend.release(handles)

    async def _draw_row(self, handle: Any, row: Row) -> Sample:
        """Return the sample of one row, and count its cost.

        Raises:
            EngineError: the model failed.
        """
        stop = StopCondition(self.order.stops, at_step=bool(self.order.stops))
        self.cost.requests += 1
        rows = self.backend.sample(SampleRequest(handle, (row,), self.order.sampling, stop, self.text))
        try:
            sample = await rows.row(0)
        finally:
            try:
                await cancelled_and_done([rows])
            finally:
                self.cost.computed += rows.prompt_tokens
                self.cost.reused += rows.reused_tokens or 0
                self.cost.generated += sum(drawn.num_tokens for drawn in rows.samples if drawn is not None)
        if sample.finish == "error":
            kind = (sample.error or "").partition(": ")[0]
            raise EngineError(f"the model failed: {sample.error}", kind=kind, retry_s=sample.retry_s)
        self.read = self.read or rows.prompt_tokens + (rows.reused_tokens or 0)
        return sample

    def _stop(self) -> int | None:
        """Return where the first stop text begins; None: the text has no stop text."""
        begins = [self.text.find(stop) for stop in self.order.stops if stop in self.text]
        return min(begins, default=None)

    def _cut(self) -> str:
        return self.text[: self._stop()]

    def _tell(self, *, last: bool) -> None:
        """Pass on new text, except an end that may be the beginning of a stop text."""
        if self.told is None:
            return
        text = self._cut()
        if not last:
            longest_begun = max(map(len, self.order.stops), default=1) - 1
            num_unsettled_chars = _begun_stop(text, self.order.stops, longest_begun)
            text = text[: len(text) - num_unsettled_chars]
        if len(text) > self.shown:
            self.told(self.place, text[self.shown :])
            self.shown = len(text)


def _begun_stop(text: str, stops: Sequence[str], longest: int) -> int:
    """Return the length of the longest end of a text that is the beginning of a stop text.

    Args:
        text: The text.
        stops: The stop texts.
        longest: The greatest length to try.
    """
    for size in range(min(longest, len(text)), 0, -1):
        if any(stop.startswith(text[-size:]) for stop in stops):
            return size
    return 0
