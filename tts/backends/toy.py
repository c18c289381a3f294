"""A finite language with a known law: sums worked out step by step by a model that slips.

Asked "3 + 4 - 2", it writes "3 + 4 = 7", "7 - 2 = 5", "A: 5". Each result is right with a known probability and otherwise
off by a known slip, which later steps carry on; so it errs step by step, as real models do, every answer's probability is
exact (`ToyLanguage.answer_law`), and the truth of each step is known to `value` for verifiers of any quality. It takes
microseconds a step and needs nothing installed: law tests, orchestration benchmarks and first examples stand on it.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tts.backends.base import Caps, Counters, Extension, Finish, Reply, Row, RowSet, Sample, SampleRequest, Sampling
from tts.backends.batching import BatchQueue
from tts.backends.sampling import filtered_law
from tts.backends.stops import StopScanner
from tts.budget import Rates
from tts.errors import CapabilityError, ConfigError
from tts.models.registry import ModelRecord
from tts.randomness import uniform
from tts.types import Prompt

_SUM = re.compile(r"-?\d+(?:\s*[+-]\s*\d+)+")
_PIECES = re.compile(r" \+ | - | = |\n|A: |\?|-?\d+|[^\S\n]+|[^\s\d]+")
_WORDS: Final = {"": 0, " + ": 1, " - ": 2, " = ": 3, "\n": 4, "A: ": 5, "?": 6}
_EOS: Final = 0
_RESULT = 4  # the place of the result in a step


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyLanguage:
    """The law of the toy model.

    Args:
        accuracy: probability in [0, 1] that a step's result is right.
        slips: (offset, share) of wrong results; shares sum to 1, offsets are distinct and not 0.
        mute: probability in [0, 1] that a solution ends without an answer.
    """

    accuracy: float = 0.8
    slips: tuple[tuple[int, float], ...] = ((1, 0.5), (-1, 0.3), (10, 0.2))
    mute: float = 0.0

    def __post_init__(self) -> None:
        offsets = [offset for offset, _ in self.slips]
        if not (0 <= self.accuracy <= 1 and 0 <= self.mute <= 1):
            raise ConfigError(f"accuracy and mute are {self.accuracy} and {self.mute}, but must be probabilities")
        if len(set(offsets)) < len(offsets) or 0 in offsets or not math.isclose(sum(share for _, share in self.slips), 1):
            raise ConfigError(f"slips are {self.slips}, but must be distinct offsets other than 0 with shares that sum to 1")

    def outcomes(self) -> tuple[tuple[int, float], ...]:
        """Return the law of one result: (offset from the right one, probability), the right one first."""
        return ((0, self.accuracy), *((offset, (1 - self.accuracy) * share) for offset, share in self.slips))

    def answer_law(self, problem: str) -> dict[str | None, float]:
        """Return the exact probability of each answer to a sum at temperature 1; None is no answer."""
        first, steps = read_sum(problem)
        law: dict[int, float] = {first: 1.0}
        for change in steps:
            after: dict[int, float] = {}
            for value, mass in law.items():
                for offset, share in self.outcomes():
                    after[value + change + offset] = after.get(value + change + offset, 0.0) + mass * share
            law = after
        answers: dict[str | None, float] = {str(value): mass * (1 - self.mute) for value, mass in law.items() if mass > 0}
        if self.mute > 0:
            answers[None] = self.mute
        return answers

    def simulate(self, problem: str, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw answers at temperature 1, vectorised: millions a second. No answer is NaN.

        Args:
            shape: of the result, for example (problems, samples).
        """
        first, steps = read_sum(problem)
        offsets, shares = zip(*self.outcomes(), strict=True)
        slips = rng.choice(offsets, p=shares, size=(len(steps), *shape)).sum(axis=0)
        answers = (first + sum(steps) + slips).astype(np.float64)
        answers[rng.random(shape) < self.mute] = np.nan
        return answers


def read_sum(text: str) -> tuple[int, tuple[int, ...]]:
    """Return the first term and the signed changes of the last sum in a text.

    Raises:
        ConfigError: there is no sum.
    """
    found = _SUM.findall(text)
    if not found:
        raise ConfigError(f"the problem is {text[:60]!r}, but the toy model only knows sums", hint="for example '3 + 4 - 2'")
    terms = re.findall(r"^-?\d+|[+-]\s*\d+", found[-1])
    return int(terms[0]), tuple(int(term.replace(" ", "")) for term in terms[1:])


@dataclass(slots=True, eq=False)
class ToyHandle:
    """A place in the language: which result is next, and what has been written so far."""

    steps: tuple[int, ...]
    truth: tuple[int, ...]  # the right value after each step
    value: int  # what the text says the running value is
    step: int  # steps done
    place: int  # tokens written of the current step
    right: bool  # whether every result so far was right
    lines: tuple[bool, ...]  # `right` at the end of each line
    prompt_tokens: int
    num_tokens: int  # after the prompt
    carry: str = ""
    parent: ToyHandle | None = None
    valued: bool = False
    released: bool = False

    def child(self) -> ToyHandle:
        """Return a copy to write on."""
        return ToyHandle(
            self.steps, self.truth, self.value, self.step, self.place, self.right, self.lines,
            self.prompt_tokens, self.num_tokens, "", self,
        )  # fmt: skip

    def expected(self) -> str | None:
        """Return the token that comes next with certainty; None where the law decides."""
        if self.step == len(self.steps):
            return (None, str(self.value), "")[min(self.place, 2)]
        if self.place == 0:
            return str(self.value)
        if self.place == _RESULT:
            return None
        change = self.steps[self.step]
        return (" - " if change < 0 else " + ", str(abs(change)), " = ", None, "\n")[self.place - 1]

    def write_line(self, result: str) -> tuple[str, ...]:
        """Write a whole step whose result is given, from its beginning; return its tokens."""
        change = self.steps[self.step]
        line = (str(self.value), " - " if change < 0 else " + ", str(abs(change)), " = ", result, "\n")
        self.value = int(result)
        self.right = self.right and self.value == self.truth[self.step]
        self.lines += (self.right,)
        self.step += 1
        self.num_tokens += len(line)
        return line

    def write(self, token: str) -> None:
        """Move past a token: one that the language has here, or foreign text, which moves nothing."""
        self.num_tokens += 1
        expected = self.expected()
        if expected is None:
            self._decide(token)
        elif token == expected and token:
            self.place += 1
            if token == "\n":
                self.step, self.place = self.step + 1, 0
                self.lines += (self.right,)

    def _decide(self, token: str) -> None:
        if self.step == len(self.steps):
            self.place = 1 if token == "A: " else 2
        elif token.lstrip("-").isdigit():
            self.value = int(token)
            self.right = self.right and self.value == self.truth[self.step]
            self.place += 1


class ToyBackend:
    """The toy model as a backend: every capability but hidden states, exact log-probabilities, no context limit.

    Args:
        language: the law.
    """

    name = "toy"
    caps = Caps(
        steps="native", extend="native", fork="native", score="native", next_logprobs="native", value="native",
        logprobs=True, token_ids=True, streams=True, stop_predicate=True, usage=True,
    )  # fmt: skip
    context = None
    rates = Rates(flops=2)
    kv_bytes_per_token = 1

    def __init__(self, language: ToyLanguage | None = None) -> None:
        self.language = language or ToyLanguage()
        self.identity = f"toy {self.language}"
        self.counters = Counters()
        self._queue = BatchQueue(self._execute, self._fail, threaded=False)
        self._laws: dict[Sampling, tuple[tuple[tuple[float, int], ...], tuple[tuple[float, str], ...]]] = {}
        self._log_offset = {offset: math.log(p) for offset, p in self.language.outcomes() if p > 0}
        self._log_answer = {t: math.log(p) for t, p in (("A: ", 1 - self.language.mute), ("?", self.language.mute)) if p > 0}

    @classmethod
    def from_record(cls, record: ModelRecord) -> ToyBackend:
        """Return the toy model of the default law."""
        del record
        return cls()

    def count(self, prompt: Prompt) -> int:
        """Return the number of words."""
        return max(1, len(_text(prompt).split()))

    async def open(self, prompts: Sequence[Prompt]) -> list[Reply[Any]]:
        """Read sums."""
        replies: list[Reply[Any]] = []
        for prompt in prompts:
            first, steps = read_sum(_text(prompt))
            truth = tuple(first + sum(steps[: i + 1]) for i in range(len(steps)))
            length = self.count(prompt)
            self.counters.prompt_tokens += length
            replies.append(Reply(ToyHandle(steps, truth, first, 0, 0, True, (), length, 0), length))  # noqa: FBT003
        return replies

    def sample(self, request: SampleRequest) -> RowSet:
        """Queue the rows of one request."""
        rows = RowSet(request)
        self._queue.submit(rows)
        return rows

    def _execute(self, jobs: list[RowSet], deliver: Any) -> None:
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
        by_line = request.stop.step in ((), ("\n",))  # then a boundary can only be at the end of a line
        finish: Finish = scanner.ended or "length"
        while not scanner.ended and len(tokens) < row.max_tokens:
            if by_line and handle.place == 0 and handle.step < len(handle.steps) and row.max_tokens - len(tokens) > _RESULT + 1:
                u = uniform(row.stream, row.position + len(tokens) + _RESULT, row.word)
                token, logprob = self._draw(handle, request.sampling, u)
                piece = handle.write_line(token)
                logprobs += (0.0, 0.0, 0.0, 0.0, logprob, 0.0)
                tokens += piece
                scanner.feed("".join(piece))
                continue
            token = handle.expected()
            logprob = 0.0
            if token is None:
                token, logprob = self._draw(handle, request.sampling, uniform(row.stream, row.position + len(tokens), row.word))
            logprobs.append(logprob)
            tokens.append(token)
            handle.write(token)
            if not token:
                finish = "eos"
                break
            scanner.feed(token)
        handle.carry = scanner.carry
        self.counters.generated_tokens += len(tokens)
        return Sample(
            scanner.text, tuple(map(_token_id, tokens)), tuple(logprobs), scanner.ended or finish, handle, len(tokens)
        )

    def _draw(self, handle: ToyHandle, sampling: Sampling, u: float) -> tuple[str, float]:
        law = self._laws.get(sampling)
        if law is None:
            law = self._laws[sampling] = self._filtered(sampling)
        if handle.step == len(handle.steps):
            token = next(token for edge, token in law[1] if u < edge)
            return token, self._log_answer[token]
        offset = next(offset for edge, offset in law[0] if u < edge)
        return str(handle.value + handle.steps[handle.step] + offset), self._log_offset[offset]

    def _filtered(self, sampling: Sampling) -> Any:
        """Return the cumulative laws of a result and of the answer's first token under a sampling."""
        laws: list[Any] = []
        answer = (("A: ", 1 - self.language.mute), ("?", self.language.mute))
        for outcomes in (self.language.outcomes(), answer):
            kept = [(value, p) for value, p in outcomes if p > 0]
            edges = np.cumsum(filtered_law(np.log([p for _, p in kept]), sampling))
            edges[-1] = 2.0  # rounding must not leave a gap below 1
            laws.append(tuple(zip(edges.tolist(), (value for value, _ in kept), strict=True)))
        return tuple(laws)

    async def extend(self, handles: Sequence[Any], texts: Sequence[str]) -> list[Reply[Extension]]:
        """Append text: the language's own tokens move the state, foreign words do not."""
        replies: list[Reply[Extension]] = []
        for handle, text in zip(handles, texts, strict=True):
            child = handle.child()
            tokens = _PIECES.findall(text)
            for token in tokens:
                child.write(token)
            replies.append(self._reply(Extension(child, tuple(map(_token_id, tokens))), len(tokens), handle))
        return replies

    async def score(self, handles: Sequence[Any], texts: Sequence[str]) -> list[Reply[NDArray[np.float64]]]:
        """Return exact log-probabilities; -inf for text that the language cannot write."""
        replies: list[Reply[NDArray[np.float64]]] = []
        for handle, text in zip(handles, texts, strict=True):
            scratch, tokens = handle.child(), _PIECES.findall(text)
            logprobs: list[float] = []
            for token in tokens:
                logprobs.append(self._logprob(scratch, token))
                scratch.write(token)
            replies.append(self._reply(np.array(logprobs), len(tokens), handle))
        return replies

    async def next_logprobs(
        self, handles: Sequence[Any], texts: Sequence[str], tokens: Sequence[str]
    ) -> list[Reply[NDArray[np.float64]]]:
        """Return the exact log-probability of each token behind handle and text."""
        replies: list[Reply[NDArray[np.float64]]] = []
        for handle, text in zip(handles, texts, strict=True):
            scratch, written = handle.child(), _PIECES.findall(text)
            for token in written:
                scratch.write(token)
            replies.append(self._reply(np.array([self._logprob(scratch, token) for token in tokens]), len(written), handle))
        return replies

    def _logprob(self, handle: ToyHandle, token: str) -> float:
        expected = handle.expected()
        if expected is not None:
            return 0.0 if token == expected else -math.inf
        if handle.step == len(handle.steps):
            return self._log_answer.get(token, -math.inf)
        if not token.lstrip("-").isdigit():
            return -math.inf
        return self._log_offset.get(int(token) - handle.value - handle.steps[handle.step], -math.inf)

    async def value(self, handles: Sequence[Any], head: str) -> list[Reply[NDArray[np.float64]]]:
        """Return, by head "truth", 1.0 for each line whose results up to there are all right, else 0.0.

        Only tokens behind the last valued ancestor are computed.
        """
        if head != "truth":
            raise CapabilityError(f"head is {head!r}, but the toy model has only 'truth'")
        replies: list[Reply[NDArray[np.float64]]] = []
        for handle in handles:
            lines = handle.lines if handle.place == 0 and handle.lines else (*handle.lines, handle.right)
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

    async def hidden(self, handles: Sequence[Any]) -> list[Reply[NDArray[np.float32]]]:
        """Refuse: a finite language has no hidden states."""
        raise CapabilityError("the toy model has no hidden states", hint="backends that have them: transformers")

    def fork(self, handle: Any, count: int) -> list[Any]:
        """Return copies of a place."""
        return [handle.child() for _ in range(count)]

    def release(self, handles: Sequence[Any]) -> None:
        """Mark handles as given up, so that tests can count the live ones."""
        for handle in handles:
            handle.released = True

    async def close(self) -> None:
        """Stop the queue."""
        self._queue.close()


_CANCELLED = Sample("", (), (), "cancelled", None, 0)


def _text(prompt: Prompt) -> str:
    return prompt if isinstance(prompt, str) else "\n\n".join(message.content for message in prompt)


@lru_cache(maxsize=4096)
def _token_id(token: str) -> int:
    """Return the id of a token: words, then numbers from 1000 on (zigzag), then foreign text by checksum."""
    if (known := _WORDS.get(token)) is not None:
        return known
    if token.lstrip("-").isdigit():
        number = int(token)
        return 1000 + (2 * number if number >= 0 else -2 * number - 1)
    return -1 - zlib.crc32(token.encode("utf-8"))
