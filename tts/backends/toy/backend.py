"""The toy model as a backend, for tests of laws, benchmarks of orchestration, and first examples.

A step takes microseconds, there are no dependencies, and every probability is known exactly. The language is that of
`tts.backends.toy.language`. `ToyBackend.value` knows whether each step is right, so verifiers of any quality can be
made.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tts.backends.base import Backend, Caps, Extension, Finish, Reply, Row, RowSet, Sample, SampleRequest, Sampling
from tts.backends.batching import BatchQueue
from tts.backends.metadata import BackendMetadata, ValueHeadMetadata
from tts.backends.prompt_logprobs import PromptLogprobs, Top
from tts.backends.sampling import filtered_distribution
from tts.backends.text.stops import StopScanner
from tts.backends.text.tokenized_text import TokenizedText
from tts.backends.toy.language import (
    CLOSE,
    OPEN,
    RESULT,
    WAIT,
    ToyHandle,
    ToyLanguage,
    ToyTokenizer,
    given_tokens,
    is_number,
    read_sum,
    token_id,
    token_text,
    tokens_of,
)
from tts.budget.budget import Rates
from tts.errors import CapabilityError, ConfigError
from tts.models.registry import ModelRecord, rates, refuse_url
from tts.randomness import uniform
from tts.thoughts import THINK, ThoughtMarks
from tts.types import Prompt, prompt_text


class _Outcome(NamedTuple):
    """An outcome of a random place, with the probability under the sampling of all outcomes up to this one."""

    value: int | str  # an offset of a result, or a word
    cumulative: float
    logprob: float
    sampling_logprob: float


_FREE = Rates()


class ToyBackend(Backend):
    """The toy model as a backend, with every capability but hidden states.

    Its log-probabilities are exact, and it has no context limit.

    Args:
        language: The distribution of the texts; None: the default language.
        prices: The dollars that tokens cost; each token also costs two FLOPs.
    """

    name = "toy"
    caps = Caps(
        steps="native",
        extend="native",
        fork="native",
        score="native",
        next_logprobs="native",
        value="native",
        prompt_logprobs="native",
        logprobs=True,
        sampling_logprobs=True,
        token_ids=True,
        streams=True,
        stop_predicate=True,
        usage=True,
    )
    rates = Rates(flops=2)
    metadata = BackendMetadata(
        value_heads=MappingProxyType({"truth": ValueHeadMetadata(("\n",), rates, own_model=True)}),
        tokenizer=ToyTokenizer(),
        text_of=lambda text, ids: "".join(tokens_of(text)[: len(ids)]),
        capability_hint={"thoughts": "the model toy-thinking has thoughts"}.get,
    )
    kv_bytes_per_token = 1

    def __init__(self, language: ToyLanguage | None = None, prices: Rates = _FREE) -> None:
        self.language = language or ToyLanguage()
        if prices != _FREE:
            self.rates = dataclasses.replace(prices, flops=type(self).rates.flops)
            heads = {
                name: dataclasses.replace(head, rates=self.rates)
                for name, head in (self.metadata.value_heads or {}).items()
            }
            self.metadata = dataclasses.replace(self.metadata, value_heads=MappingProxyType(heads))
        self.identity = f"toy {self.language}"
        self._queue = BatchQueue(self._execute, self._fail, threaded=False)
        self._kept_outcomes: dict[tuple[Sampling, int | str], tuple[_Outcome, ...]] = {}
        if self.language.thoughts:
            self.caps = dataclasses.replace(type(self).caps, thoughts=True)
            self.metadata = dataclasses.replace(self.metadata, thoughts=ThoughtMarks(OPEN, CLOSE))

    @classmethod
    def from_record(cls, record: ModelRecord, *, thoughts: int = 0) -> ToyBackend:
        """Return the toy model of the default language.

        Args:
            record: The record of the model.
            thoughts: Whether the model thinks, 0 or 1.

        Raises:
            ConfigError: The record has a url, weights, or marks of thoughts.
        """
        refuse_url(record)
        if record.thought is not None:
            raise ConfigError(
                f"thought of model {record.name!r} is {record.thought!r}, but the backend 'toy' has marks of its own",
                hint="leave it out; the model toy-thinking has thoughts",
            )
        if record.source != "none":
            raise ConfigError(
                f"the backend is 'toy', which runs its own language only, but the model is {record.name!r}",
                hint="leave the backend out: the model's record names one",
            )
        return cls(ToyLanguage(thoughts=bool(thoughts)), rates(record))

    async def open(self, prompts: Sequence[Prompt]) -> list[Reply[Any]]:
        """Return handles at the beginning of the sums in prompts."""
        replies: list[Reply[Any]] = []
        for prompt in prompts:
            length = self.count(prompt)
            self.counters.prompt_tokens += length
            replies.append(Reply(self._begin_path(prompt, length), length))
        return replies

    def _begin_path(self, prompt: Prompt, length: int) -> ToyHandle:
        """Return the handle at the beginning of the sum in a prompt of `length` tokens."""
        text = "".join(self._tokens(prompt)) if isinstance(prompt, TokenizedText) else prompt_text(prompt)
        first_term, changes = read_sum(text)
        running_values = tuple(accumulate(changes, initial=first_term))
        handle = ToyHandle(
            steps=changes,
            truth=running_values[1:],
            value=first_term,
            step=0,
            place=0,
            right=True,
            lines=(),
            prompt_tokens=length,
            num_tokens=0,
            first=first_term,
        )
        if self.language.thoughts:
            is_open = THINK.continue_prompt(prompt).opened
            handle.thought = "open" if is_open else "ahead"
        return handle

    def sample(self, request: SampleRequest) -> RowSet:
        """Queue the rows of one request."""
        rows = RowSet(request)
        self._queue.submit(rows)
        return rows

    def _execute(self, _: BatchQueue, jobs: list[RowSet], deliver: Any) -> None:
        """Write all rows of some requests, and deliver their samples."""
        for rows in jobs:
            request = rows.request
            path_tokens = request.handle.prompt_tokens + request.handle.num_tokens
            reused_tokens = path_tokens * len(request.rows)
            rows.reused_tokens = reused_tokens
            self.counters.reused_tokens += reused_tokens
            for index, row in enumerate(request.rows):
                sample = _CANCELLED if rows.cancelled else self._write(request, row)
                deliver(rows.resolve, index, sample)

    def _fail(self, jobs: list[RowSet], failure: Exception) -> None:
        for rows in jobs:
            rows.fail(failure)

    def _write(self, request: SampleRequest, row: Row) -> Sample:
        """Write a row token by token, or a line at a time where the row cannot end within the line."""
        handle = request.handle.child()
        scanner = StopScanner(request.stop, request.text, request.handle.carry)
        tokens: list[str] = []
        logprobs: list[float] = []
        drawn_logprobs: dict[int, float] = {}  # log-probabilities under the sampling, by the index of a random token
        stops_at_lines = request.stop.step in ((), ("\n",))  # whether a boundary can only be at the end of a line
        finish: Finish = scanner.ended or "length"
        while not scanner.ended and len(tokens) < row.max_tokens:
            tokens_left = row.max_tokens - len(tokens)
            writes_line = stops_at_lines and handle.place == 0 and handle.thought != "ahead"
            if writes_line and handle.step < len(handle.steps) and tokens_left > RESULT + 1:
                index = len(tokens) + RESULT
                u = uniform(row.stream, row.position + index, row.word)
                token, logprob, drawn_logprobs[index] = self._draw(handle, request.sampling, u)
                line = handle.write_line(token)
                logprobs += (0.0, 0.0, 0.0, 0.0, logprob, 0.0)
                tokens += line
                scanner.feed("".join(line))
                continue
            answers = handle.step == len(handle.steps) and not handle.thought and not self.language.mute
            if writes_line and answers and tokens_left >= 3:
                line = handle.write_answer()
                logprobs += (0.0, 0.0, 0.0)
                tokens += line
                scanner.feed("".join(line))
                finish = "eos"
                break
            token = handle.certain_token()
            logprob = 0.0
            if token is None and answers:
                token = "A: "  # a single outcome needs no draw
            elif token is None:
                index = len(tokens)
                u = uniform(row.stream, row.position + index, row.word)
                token, logprob, drawn_logprobs[index] = self._draw(handle, request.sampling, u)
            logprobs.append(logprob)
            tokens.append(token)
            handle.write(token)
            if not token:
                finish = "eos"
                break
            scanner.feed(token)
        handle.carry = scanner.carry
        self.counters.generated_tokens += len(tokens)
        known_logprobs = (drawn_logprobs.get(index, 0.0) for index in range(len(tokens)))
        sampling_logprobs = tuple(known_logprobs) if request.sampling_logprobs else ()
        return Sample(
            text=scanner.text,
            token_ids=tuple(map(token_id, tokens)),
            logprobs=tuple(logprobs),
            finish=scanner.ended or finish,
            handle=handle,
            num_tokens=len(tokens),
            sampling_logprobs=sampling_logprobs,
        )

    def _draw(self, handle: ToyHandle, sampling: Sampling, u: float) -> tuple[str, float, float]:
        """Draw a random token; return the token, its log-probability, and its log-probability under the sampling."""
        if handle.step < len(handle.steps):
            key = (sampling, handle.round)
        else:
            key = (sampling, "thought" if handle.thought else "answer")
        outcomes = self._kept_outcomes.get(key)
        if outcomes is None:
            outcomes = self._kept_outcomes[key] = self._filter(self._outcomes(handle), sampling)
        outcome = next(outcome for outcome in outcomes if u < outcome.cumulative)
        if isinstance(outcome.value, str):
            token = outcome.value
        else:  # an offset from the right result
            token = str(handle.value + handle.steps[handle.step] + outcome.value)
        return token, outcome.logprob, outcome.sampling_logprob

    def _outcomes(self, handle: ToyHandle) -> tuple[tuple[int | str, float], ...]:
        """Return the outcomes at a random place, offsets of a result or words, with their probabilities."""
        language = self.language
        if handle.step < len(handle.steps):
            return language.outcomes(handle.round)
        if handle.thought:
            return ((CLOSE, 1 - language.again), (WAIT, language.again))
        return (("A: ", 1 - language.mute), ("?", language.mute))

    def _filter(self, outcomes: Sequence[tuple[int | str, float]], sampling: Sampling) -> tuple[_Outcome, ...]:
        """Return the outcomes of positive probability, with their probabilities under a sampling."""
        possible_outcomes = [(value, p) for value, p in outcomes if p > 0]
        logprobs = np.log([p for _, p in possible_outcomes])
        sampling_probabilities = filtered_distribution(logprobs, sampling)
        cumulative = np.cumsum(sampling_probabilities)
        cumulative[-1] = 2.0  # rounding must not leave a gap below 1
        rows = zip(possible_outcomes, cumulative.tolist(), sampling_probabilities.tolist(), strict=True)
        return tuple(_Outcome(value, edge, math.log(p), _log(sampling_p)) for (value, p), edge, sampling_p in rows)

    async def extend(self, handles: Sequence[Any], texts: Sequence[str]) -> list[Reply[Extension]]:
        """Append texts. Tokens of the language move a path's state; other words do not."""

        def make_extension(child: ToyHandle, tokens: list[str]) -> Extension:
            child.write_all(tokens)
            return Extension(child, tuple(map(token_id, tokens)))

        return self._with_text(handles, texts, make_extension)

    async def score(self, handles: Sequence[Any], texts: Sequence[str]) -> list[Reply[NDArray[np.float64]]]:
        """Return exact log-probabilities of texts; -inf for tokens that the language cannot write there."""

        def score_tokens(scratch: ToyHandle, tokens: list[str]) -> NDArray[np.float64]:
            logprobs: list[float] = []
            for token in tokens:
                logprobs.append(self._logprob(scratch, token))
                scratch.write(token)
            return np.array(logprobs)

        return self._with_text(handles, texts, score_tokens)

    async def next_logprobs(
        self, handles: Sequence[Any], texts: Sequence[str], tokens: Sequence[str]
    ) -> list[Reply[NDArray[np.float64]]]:
        """Return, for each handle and its text, the exact log-probabilities of `tokens` as the next token."""

        def read_next(scratch: ToyHandle, text_tokens: list[str]) -> NDArray[np.float64]:
            scratch.write_all(text_tokens)
            return np.array([self._logprob(scratch, token) for token in tokens])

        return self._with_text(handles, texts, read_next)

    def _with_text(
        self, handles: Sequence[Any], texts: Sequence[str], value: Callable[[ToyHandle, list[str]], Any]
    ) -> list[Reply[Any]]:
        """Return the replies with `value(copy, tokens)`, for a copy of each handle and the tokens of its text."""
        replies: list[Reply[Any]] = []
        for handle, text in zip(handles, texts, strict=True):
            tokens = tokens_of(text)
            result = value(handle.child(), tokens)
            replies.append(self._reply(result, len(tokens), handle))
        return replies

    async def prompt_logprobs(self, prompts: Sequence[Prompt], top: int = 0) -> list[Reply[PromptLogprobs]]:
        """Return exact log-probabilities after the first sum of each prompt and its newlines.

        The language gives the earlier tokens no probabilities, and their log-probabilities are NaN.

        Raises:
            ConfigError: A prompt has no sum, or a token that the language lacks.
        """
        prompt_tokens = [self._tokens(prompt) for prompt in prompts]
        replies: list[Reply[PromptLogprobs]] = []
        given_counts = [given_tokens(tokens) for tokens in prompt_tokens]  # a bad prompt raises before any is read
        for tokens, num_given in zip(prompt_tokens, given_counts, strict=True):
            handle = self._begin_path("".join(tokens[:num_given]), num_given)
            logprobs = [math.nan] * num_given
            tops: list[tuple[Top, ...]] = [()] * num_given
            for token in tokens[num_given:]:
                logprobs.append(self._logprob(handle, token))
                tops.append(self._likely(handle)[:top])
                handle.write(token)
            self.counters.prompt_tokens += len(tokens)
            prompt_logprobs = PromptLogprobs(
                token_ids=tuple(map(token_id, tokens)),
                texts=tuple(tokens),
                logprobs=np.array(logprobs),
                tops=tuple(tops) if top else (),
                behind=self._likely(handle)[:top],
            )
            replies.append(Reply(prompt_logprobs, len(tokens)))
        return replies

    def _tokens(self, prompt: Prompt) -> list[str]:
        return (
            list(map(token_text, prompt.ids))
            if isinstance(prompt, TokenizedText) and not prompt
            else tokens_of(prompt_text(prompt))
        )

    def _likely(self, handle: ToyHandle) -> tuple[Top, ...]:
        """Return the possible next tokens with log-probabilities, best first and the lowest id among equals."""
        certain_token = handle.certain_token()
        if certain_token is not None:
            return (Top(certain_token, 0.0, ends=not certain_token),)
        tops: list[Top] = []
        for outcome, p in self._outcomes(handle):
            # an integer outcome is an offset from the right result
            token = outcome if isinstance(outcome, str) else str(handle.value + handle.steps[handle.step] + outcome)
            if p > 0:
                tops.append(Top(token, math.log(p)))
        return tuple(sorted(tops, key=lambda top: (-top.logprob, token_id(top.text))))

    def _logprob(self, handle: ToyHandle, token: str) -> float:
        """Return the exact log-probability of a token at a place."""
        certain_token = handle.certain_token()
        if certain_token is not None:
            return 0.0 if token == certain_token else -math.inf
        outcome: int | str | None = token
        if handle.step < len(handle.steps):  # outcomes are offsets from the right result
            offset = int(token) - handle.value - handle.steps[handle.step] if is_number(token) else None
            outcome = offset  # None: the token is no result
        probabilities: dict[Any, float] = dict(self._outcomes(handle))
        return _log(probabilities.get(outcome, 0.0))

    async def value(self, handles: Sequence[Any], head: str) -> list[Reply[NDArray[np.float64]]]:
        """Return a number for each line of a path: 1.0 if all results up to the line are right, else 0.0.

        The head is "truth". A call is charged for the tokens after the nearest ancestor with values, and reuses the
        tokens before.
        """
        if head != "truth":
            raise CapabilityError(f"head is {head!r}, but the toy model has only 'truth'")
        replies: list[Reply[NDArray[np.float64]]] = []
        for handle in handles:
            lines = (*handle.lines, handle.right) if handle.open_line else handle.lines
            ancestor, reused = handle, 0
            while ancestor is not None and reused == 0:
                reused = ancestor.num_tokens if ancestor.valued else 0
                ancestor = ancestor.parent
            handle.valued = True
            values = np.array(lines, dtype=np.float64)
            replies.append(self._reply(values, handle.num_tokens - reused, handle, reused))
        return replies

    def _reply(self, value: Any, computed: int, handle: ToyHandle, reused: int | None = None) -> Reply[Any]:
        """Count the tokens of an answer, and return the reply; reused None: all tokens of the handle."""
        reused = handle.prompt_tokens + handle.num_tokens if reused is None else reused
        self.counters.prompt_tokens += computed
        self.counters.reused_tokens += reused
        return Reply(value, computed, reused)

    def fork(self, handle: Any, count: int) -> list[Any]:
        """Return handles at the same place."""
        return [handle.child() for _ in range(count)]

    def release(self, handles: Sequence[Any]) -> None:
        """Mark handles as released, so that tests can count the live ones."""
        for handle in handles:
            handle.released = True

    async def close(self) -> None:
        """Stop the queue."""
        self._queue.close()


def _log(p: float) -> float:
    return math.log(p) if p > 0 else -math.inf


_CANCELLED = Sample.empty("cancelled")
