"""The toy model as a backend.

It takes microseconds a step, has no dependencies, and every probability is known exactly. It serves law tests,
orchestration benchmarks and first examples. Its language is `tts.backends.toy.language`; `value` knows whether each
step is right, for verifiers of any quality.
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

# cumulative probability, outcome, its log-probability, and that drawn by
_Edges = tuple[tuple[float, int | str, float, float], ...]


_FREE = Rates()


class ToyBackend(Backend):
    """The toy model as a backend, with every capability but hidden states.

    Its log-probabilities are exact, and it has no context limit.

    Args:
        language: The distribution of its texts.
        prices: The dollars that its tokens cost, beside two FLOPs each.
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
        """Return the toy model of the default language; `thoughts`: whether it thinks, 0 or 1.

        Raises:
            ConfigError: the record has a url, weights, or marks of thoughts.
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
        """Parse sums."""
        replies: list[Reply[Any]] = []
        for prompt in prompts:
            length = self.count(prompt)
            self.counters.prompt_tokens += length
            replies.append(Reply(self._begin_path(prompt, length), length))
        return replies

    def _begin_path(self, prompt: Prompt, length: int) -> ToyHandle:
        first, steps = read_sum(
            "".join(self._tokens(prompt)) if isinstance(prompt, TokenizedText) else prompt_text(prompt)
        )
        truth = tuple(accumulate(steps, initial=first))[1:]
        handle = ToyHandle(steps, truth, first, 0, 0, True, (), length, 0, first=first)  # noqa: FBT003
        if self.language.thoughts:
            handle.thought = "open" if THINK.continue_prompt(prompt).opened else "ahead"
        return handle

    def sample(self, request: SampleRequest) -> RowSet:
        """Queue the rows of one request."""
        rows = RowSet(request)
        self._queue.submit(rows)
        return rows

    def _execute(self, _: BatchQueue, jobs: list[RowSet], deliver: Any) -> None:
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
        handle = request.handle.child()
        scanner = StopScanner(request.stop, request.text, request.handle.carry)
        tokens: list[str] = []
        logprobs: list[float] = []
        drawn: dict[int, float] = {}  # log-probabilities under the sampling, of tokens that have several
        by_line = request.stop.step in ((), ("\n",))  # then a boundary can only be at the end of a line
        finish: Finish = scanner.ended or "length"
        while not scanner.ended and len(tokens) < row.max_tokens:
            whole = by_line and handle.place == 0 and handle.thought != "ahead"
            if whole and handle.step < len(handle.steps) and row.max_tokens - len(tokens) > RESULT + 1:
                u = uniform(row.stream, row.position + len(tokens) + RESULT, row.word)
                token, logprob, drawn[len(tokens) + RESULT] = self._draw(handle, request.sampling, u)
                piece = handle.write_line(token)
                logprobs += (0.0, 0.0, 0.0, 0.0, logprob, 0.0)
                tokens += piece
                scanner.feed("".join(piece))
                continue
            answers = handle.step == len(handle.steps) and not handle.thought and not self.language.mute
            if whole and answers and row.max_tokens - len(tokens) >= 3:
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
                at = len(tokens)
                token, logprob, drawn[at] = self._draw(
                    handle, request.sampling, uniform(row.stream, row.position + at, row.word)
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
        by_sampling = tuple(drawn.get(at, 0.0) for at in range(len(tokens))) if request.sampling_logprobs else ()
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
        """Draw a token where several are possible; return it, its log-probability, and the one under the sampling."""
        key = (sampling, handle.round if handle.step < len(handle.steps) else "thought" if handle.thought else "answer")
        if (edges := self._edges.get(key)) is None:
            edges = self._edges[key] = self._filter(self._outcomes(handle), sampling)
        _, outcome, logprob, by_sampling = next(one for one in edges if u < one[0])
        if isinstance(outcome, str):
            return outcome, logprob, by_sampling
        # an offset from the right result
        return str(handle.value + handle.steps[handle.step] + outcome), logprob, by_sampling

    def _outcomes(self, handle: ToyHandle) -> tuple[tuple[int | str, float], ...]:
        """Return what may stand at a place that is random, with probabilities: an offset of a result, or a word."""
        language = self.language
        if handle.step < len(handle.steps):
            return language.outcomes(handle.round)
        if handle.thought:
            return ((CLOSE, 1 - language.again), (WAIT, language.again))
        return (("A: ", 1 - language.mute), ("?", language.mute))

    def _filter(self, outcomes: Sequence[tuple[int | str, float]], sampling: Sampling) -> _Edges:
        """Return outcomes with their cumulative probabilities under a sampling, and their log-probabilities."""
        kept = [(value, p) for value, p in outcomes if p > 0]
        law = filtered_distribution(np.log([p for _, p in kept]), sampling)
        edges = np.cumsum(law)
        edges[-1] = 2.0  # rounding must not leave a gap below 1
        drawn = [math.log(q) if q > 0 else -math.inf for q in law.tolist()]
        return tuple(
            (edge, value, math.log(p), by) for edge, (value, p), by in zip(edges.tolist(), kept, drawn, strict=True)
        )

    async def extend(self, handles: Sequence[Any], texts: Sequence[str]) -> list[Reply[Extension]]:
        """Append text. Tokens of the language move the state, other words do not."""

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

        def read_next(scratch: ToyHandle, written: list[str]) -> NDArray[np.float64]:
            scratch.write_all(written)
            return np.array([self._logprob(scratch, token) for token in tokens])

        return self._with_text(handles, texts, read_next)

    def _with_text(
        self, handles: Sequence[Any], texts: Sequence[str], value: Callable[[ToyHandle, list[str]], Any]
    ) -> list[Reply[Any]]:
        """Return what `value` returns for a copy of each handle and the tokens of its text."""
        pairs = [(handle, tokens_of(text)) for handle, text in zip(handles, texts, strict=True)]
        return [self._reply(value(handle.child(), tokens), len(tokens), handle) for handle, tokens in pairs]

    async def prompt_logprobs(self, prompts: Sequence[Prompt], top: int = 0) -> list[Reply[PromptLogprobs]]:
        """Return exact log-probabilities after the first sum of each prompt and its newlines.

        The language has no law of the tokens before.

        Raises:
            ConfigError: a prompt has no sum, or a token that the language lacks.
        """
        asked = [self._tokens(prompt) for prompt in prompts]
        replies: list[Reply[PromptLogprobs]] = []
        for tokens, given in [(tokens, given_tokens(tokens)) for tokens in asked]:
            handle = self._begin_path("".join(tokens[:given]), given)
            logprobs, tops = [math.nan] * given, list[tuple[Top, ...]]([()] * given)
            for token in tokens[given:]:
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
        """Return what may come next, with log-probabilities, best first and the lowest id among equals."""
        expected = handle.certain_token()
        if expected is not None:
            return (Top(expected, 0.0, not expected),)
        base = handle.value + handle.steps[handle.step] if handle.step < len(handle.steps) else 0
        found = [
            Top(str(base + one) if isinstance(one, int) else one, math.log(p))
            for one, p in self._outcomes(handle)
            if p > 0
        ]
        return tuple(sorted(found, key=lambda one: (-one.logprob, token_id(one.text))))

    def _logprob(self, handle: ToyHandle, token: str) -> float:
        expected = handle.certain_token()
        if expected is not None:
            return 0.0 if token == expected else -math.inf
        outcomes = self._outcomes(handle)
        if isinstance(outcomes[0][0], int):
            offset = int(token) - handle.value - handle.steps[handle.step] if is_number(token) else None
            found: dict[Any, float] = dict(outcomes)
            return _log(found.get(offset, 0.0))
        return _log({str(word): p for word, p in outcomes}.get(token, 0.0))

    async def value(self, handles: Sequence[Any], head: str) -> list[Reply[NDArray[np.float64]]]:
        """Return, by head "truth", 1.0 for each line whose results up to there are all right, else 0.0.

        Only tokens after the last valued ancestor are computed.
        """
        if head != "truth":
            raise CapabilityError(f"head is {head!r}, but the toy model has only 'truth'")
        replies: list[Reply[NDArray[np.float64]]] = []
        for handle in handles:
            lines = (*handle.lines, handle.right) if handle.open_line else handle.lines
            node, known = handle, 0
            while node is not None and known == 0:
                known = node.num_tokens if node.valued else 0
                node = node.parent
            handle.valued = True
            replies.append(self._reply(np.array(lines, dtype=np.float64), handle.num_tokens - known, handle, known))
        return replies

    def _reply(self, value: Any, computed: int, handle: ToyHandle, reused: int | None = None) -> Reply[Any]:
        reused = handle.prompt_tokens + handle.num_tokens if reused is None else reused
        self.counters.prompt_tokens += computed
        self.counters.reused_tokens += reused
        return Reply(value, computed, reused)

    def fork(self, handle: Any, count: int) -> list[Any]:
        """Return copies of a place."""
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
