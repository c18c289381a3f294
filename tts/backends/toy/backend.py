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
from typing import Any

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

# for each outcome: its cumulative probability, the outcome, its log-probability, and that under the sampling
_Edges = tuple[tuple[float, int | str, float, float], ...]


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
        self._edges: dict[tuple[Sampling, int | str], _Edges] = {}
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
        first_term, steps = read_sum(
            "".join(self._tokens(prompt)) if isinstance(prompt, TokenizedText) else prompt_text(prompt)
        )
        truth = tuple(accumulate(steps, initial=first_term))[1:]
        handle = ToyHandle(steps, truth, first_term, 0, 0, True, (), length, 0, first=first_term)  # noqa: FBT003
        if self.language.thoughts:
            handle.thought = "open" if THINK.continue_prompt(prompt).opened else "ahead"
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
            reused = (request.handle.prompt_tokens + request.handle.num_tokens) * len(request.rows)
            rows.reused_tokens = reused
            self.counters.reused_tokens += reused
            for index, row in enumerate(request.rows):
                deliver(rows.resolve, index, self._write(request, row) if not rows.cancelled else _CANCELLED)

    def _fail(self, jobs: list[RowSet], failure: Exception) -> None:
        for rows in jobs:
            rows.fail(failure)

    def _write(self, request: SampleRequest, row: Row) -> Sample:
        """Write a row token by token, or by whole lines where no row can end within them."""
        handle = request.handle.child()
        scanner = StopScanner(request.stop, request.text, request.handle.carry)
        tokens: list[str] = []
        logprobs: list[float] = []
        drawn_logprobs: dict[int, float] = {}  # log-probabilities under the sampling, by the index of a random token
        by_line = request.stop.step in ((), ("\n",))  # whether a boundary can only be at the end of a line
        finish: Finish = scanner.ended or "length"
        while not scanner.ended and len(tokens) < row.max_tokens:
            by_whole_line = by_line and handle.place == 0 and handle.thought != "ahead"
            if by_whole_line and handle.step < len(handle.steps) and row.max_tokens - len(tokens) > RESULT + 1:
                u = uniform(row.stream, row.position + len(tokens) + RESULT, row.word)
                token, logprob, drawn_logprobs[len(tokens) + RESULT] = self._draw(handle, request.sampling, u)
                piece = handle.write_line(token)
                logprobs += (0.0, 0.0, 0.0, 0.0, logprob, 0.0)
                tokens += piece
                scanner.feed("".join(piece))
                continue
            answers = handle.step == len(handle.steps) and not handle.thought and not self.language.mute
            if by_whole_line and answers and row.max_tokens - len(tokens) >= 3:
                piece = handle.write_answer()
                logprobs += (0.0, 0.0, 0.0)
                tokens += piece
                scanner.feed("".join(piece))
                finish = "eos"
                break
            token = handle.certain_token()
            logprob = 0.0
            if token is None and answers:
                token = "A: "  # a single outcome needs no draw
            elif token is None:
                index = len(tokens)
                token, logprob, drawn_logprobs[index] = self._draw(
                    handle, request.sampling, uniform(row.stream, row.position + index, row.word)
                )
            logprobs.append(logprob)
            tokens.append(token)
            handle.write(token)
            if not token:
                finish = "eos"
                break
            scanner.feed(token)
        handle.carry = scanner.carry
        self.counters.generated_tokens += len(tokens)
        by_sampling = (
            tuple(drawn_logprobs.get(index, 0.0) for index in range(len(tokens))) if request.sampling_logprobs else ()
        )
        return Sample(
            scanner.text,
            tuple(map(token_id, tokens)),
            tuple(logprobs),
            scanner.ended or finish,
            handle,
            len(tokens),
            sampling_logprobs=by_sampling,
        )

    def _draw(self, handle: ToyHandle, sampling: Sampling, u: float) -> tuple[str, float, float]:
        """Draw a random token; return the token, its log-probability, and its log-probability under the sampling."""
        place = "thought" if handle.thought else "answer"
        key = (sampling, handle.round if handle.step < len(handle.steps) else place)
        if (edges := self._edges.get(key)) is None:
            edges = self._edges[key] = self._filter(self._outcomes(handle), sampling)
        _, outcome, logprob, by_sampling = next(one for one in edges if u < one[0])
        if isinstance(outcome, str):
            return outcome, logprob, by_sampling
        # the outcome is an offset from the right result
        return str(handle.value + handle.steps[handle.step] + outcome), logprob, by_sampling

    def _outcomes(self, handle: ToyHandle) -> tuple[tuple[int | str, float], ...]:
        """Return the outcomes at a random place, offsets of a result or words, with their probabilities."""
        language = self.language
        if handle.step < len(handle.steps):
            return language.outcomes(handle.round)
        if handle.thought:
            return ((CLOSE, 1 - language.again), (WAIT, language.again))
        return (("A: ", 1 - language.mute), ("?", language.mute))

    def _filter(self, outcomes: Sequence[tuple[int | str, float]], sampling: Sampling) -> _Edges:
        """Return possible outcomes with cumulative probabilities under a sampling, and log-probabilities."""
        possible = [(value, p) for value, p in outcomes if p > 0]
        law = filtered_distribution(np.log([p for _, p in possible]), sampling)
        edges = np.cumsum(law)
        edges[-1] = 2.0  # rounding must not leave a gap below 1
        sampling_logprobs = [math.log(q) if q > 0 else -math.inf for q in law.tolist()]
        return tuple(
            (edge, value, math.log(p), by)
            for edge, (value, p), by in zip(edges.tolist(), possible, sampling_logprobs, strict=True)
        )

    async def extend(self, handles: Sequence[Any], texts: Sequence[str]) -> list[Reply[Extension]]:
        """Append text. Tokens of the language move the state; other words do not."""

        def make_extension(child: ToyHandle, tokens: list[str]) -> Extension:
            child.write_all(tokens)
            return Extension(child, tuple(map(token_id, tokens)))

        return self._with_text(handles, texts, make_extension)

    async def score(self, handles: Sequence[Any], texts: Sequence[str]) -> list[Reply[NDArray[np.float64]]]:
        """Return exact log-probabilities; -inf for text that the language cannot write."""

        def scores(scratch: ToyHandle, tokens: list[str]) -> NDArray[np.float64]:
            logprobs: list[float] = []
            for token in tokens:
                logprobs.append(self._logprob(scratch, token))
                scratch.write(token)
            return np.array(logprobs)

        return self._with_text(handles, texts, scores)

    async def next_logprobs(
        self, handles: Sequence[Any], texts: Sequence[str], tokens: Sequence[str]
    ) -> list[Reply[NDArray[np.float64]]]:
        """Return the exact log-probability of each token after handle and text."""

        def read_next(scratch: ToyHandle, text_tokens: list[str]) -> NDArray[np.float64]:
            scratch.write_all(text_tokens)
            return np.array([self._logprob(scratch, token) for token in tokens])

        return self._with_text(handles, texts, read_next)

    def _with_text(
        self, handles: Sequence[Any], texts: Sequence[str], value: Callable[[ToyHandle, list[str]], Any]
    ) -> list[Reply[Any]]:
        """Return the replies with `value(copy, tokens)`, for a copy of each handle and the tokens of its text."""
        pairs = [(handle, tokens_of(text)) for handle, text in zip(handles, texts, strict=True)]
        return [self._reply(value(handle.child(), tokens), len(tokens), handle) for handle, tokens in pairs]

    async def prompt_logprobs(self, prompts: Sequence[Prompt], top: int = 0) -> list[Reply[PromptLogprobs]]:
        """Return exact log-probabilities after the first sum of each prompt and its newlines.

        The language gives the earlier tokens no probabilities, and their log-probabilities are NaN.

        Raises:
            ConfigError: A prompt has no sum, or a token that the language lacks.
        """
        prompt_tokens = [self._tokens(prompt) for prompt in prompts]
        replies: list[Reply[PromptLogprobs]] = []
        for tokens, num_given in [(tokens, given_tokens(tokens)) for tokens in prompt_tokens]:
            handle = self._begin_path("".join(tokens[:num_given]), num_given)
            logprobs, tops = [math.nan] * num_given, list[tuple[Top, ...]]([()] * num_given)
            for token in tokens[num_given:]:
                logprobs.append(self._logprob(handle, token))
                tops.append(self._likely(handle)[:top])
                handle.write(token)
            self.counters.prompt_tokens += len(tokens)
            ids = tuple(map(token_id, tokens))
            likely = (tuple(tops), self._likely(handle)[:top]) if top else ((), ())
            replies.append(Reply(PromptLogprobs(ids, tuple(tokens), np.array(logprobs), *likely), len(tokens)))
        return replies

    def _tokens(self, prompt: Prompt) -> list[str]:
        return (
            list(map(token_text, prompt.ids))
            if isinstance(prompt, TokenizedText) and not prompt
            else tokens_of(prompt_text(prompt))
        )

    def _likely(self, handle: ToyHandle) -> tuple[Top, ...]:
        """Return the possible next tokens with log-probabilities, best first and the lowest id among equals."""
        expected = handle.certain_token()
        if expected is not None:
            return (Top(expected, 0.0, not expected),)
        base = handle.value + handle.steps[handle.step] if handle.step < len(handle.steps) else 0
        tops = [
            Top(str(base + one) if isinstance(one, int) else one, math.log(p))
            for one, p in self._outcomes(handle)
            if p > 0
        ]
        return tuple(sorted(tops, key=lambda one: (-one.logprob, token_id(one.text))))

    def _logprob(self, handle: ToyHandle, token: str) -> float:
        """Return the exact log-probability of a token at a place."""
        expected = handle.certain_token()
        if expected is not None:
            return 0.0 if token == expected else -math.inf
        outcomes = self._outcomes(handle)
        if isinstance(outcomes[0][0], int):
            offset = int(token) - handle.value - handle.steps[handle.step] if is_number(token) else None
            probabilities: dict[Any, float] = dict(outcomes)
            return _log(probabilities.get(offset, 0.0))
        return _log({str(word): p for word, p in outcomes}.get(token, 0.0))

    async def value(self, handles: Sequence[Any], head: str) -> list[Reply[NDArray[np.float64]]]:
        """Return, by head "truth", 1.0 for each line up to which all results are right, else 0.0.

        Tokens up to the last ancestor that was valued are reused, and only the others are computed.
        """
        if head != "truth":
            raise CapabilityError(f"head is {head!r}, but the toy model has only 'truth'")
        replies: list[Reply[NDArray[np.float64]]] = []
        for handle in handles:
            lines = (*handle.lines, handle.right) if handle.open_line else handle.lines
            node, num_reused = handle, 0
            while node is not None and num_reused == 0:
                num_reused = node.num_tokens if node.valued else 0
                node = node.parent
            handle.valued = True
            replies.append(
                self._reply(np.array(lines, dtype=np.float64), handle.num_tokens - num_reused, handle, num_reused)
            )
        return replies

    def _reply(self, value: Any, computed: int, handle: ToyHandle, reused: int | None = None) -> Reply[Any]:
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


_CANCELLED = Sample("", (), (), "cancelled", None, 0)
