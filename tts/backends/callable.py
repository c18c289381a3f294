"""Any function as a model: `backend=my_function` in `solve`. It writes text; everything else is done around it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tts.backends.base import Caps, Counters, Extension, Finish, Reply, Row, RowSet, Sample, SampleRequest
from tts.backends.stops import StopScanner
from tts.budget import Rates
from tts.errors import CapabilityError
from tts.types import Message, Prompt


@dataclass(frozen=True, slots=True)
class Ask:
    """What the function is asked: continue `text` behind the prompt.

    Args:
        prompt: text or messages. text: what the solution says so far. max_tokens: the most it may generate.
        temperature: of the law. stop: texts at which it may end early (they belong to its reply). seed: 63 bits, a row's own.
    """

    prompt: Prompt
    text: str
    max_tokens: int
    temperature: float
    stop: tuple[str, ...]
    seed: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What the function may return instead of bare text.

    Args:
        text: the continuation. tokens: generated; None: not known, so the row is charged its full grant.
        finished: whether the model ended by itself; False: it met `max_tokens`.
    """

    text: str
    tokens: int | None = None
    finished: bool = True


WriteFunction = Callable[[Ask], "str | Answer | Awaitable[str | Answer]"]


@dataclass(frozen=True, slots=True, eq=False)
class _Handle:
    prompt: Prompt
    text: str
    carry: str


class CallableBackend:
    """A model that is a function of an `Ask`; rows run at once, plain functions in threads.

    Results are reproducible as far as the function obeys the seed, which nobody can promise for it: solutions say so. A row
    whose function raises has failed; the others have not. Prompts are counted in words, for want of a tokenizer.
    """

    name = "callable"
    caps = Caps(steps="emulated", extend="emulated", fork="native", stop_predicate=True)
    context = None
    rates = Rates()
    kv_bytes_per_token = None
    identity = "callable"

    def __init__(self, fn: WriteFunction, *, concurrency: int = 16) -> None:
        self._fn = fn
        self._concurrency = concurrency
        self._gate: asyncio.Semaphore | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.counters = Counters()

    def count(self, prompt: Prompt) -> int:
        """Return the number of words."""
        turns = (Message("user", prompt),) if isinstance(prompt, str) else prompt
        return max(1, sum(len(turn.content.split()) for turn in turns))

    async def open(self, prompts: Sequence[Prompt]) -> list[Reply[Any]]:
        """Remember prompts; nothing is computed until a row is asked for."""
        return [Reply(_Handle(prompt, "", ""), 0, None) for prompt in prompts]

    def sample(self, request: SampleRequest) -> RowSet:
        """Ask the function once a row."""
        rows = RowSet(request)
        rows.reused_tokens = None
        for index, row in enumerate(request.rows):
            task = asyncio.get_running_loop().create_task(self._row(rows, index, row))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return rows

    async def _row(self, rows: RowSet, index: int, row: Row) -> None:
        self._gate = self._gate or asyncio.Semaphore(self._concurrency)
        async with self._gate:
            if rows.cancelled:
                rows.resolve(index, Sample("", (), (), "cancelled", None, 0))
                return
            rows.prompt_tokens += self.count(rows.request.handle.prompt)
            self.counters.prompt_tokens += self.count(rows.request.handle.prompt)
            try:
                answer = await self._asked(rows.request, row)
                sample = self._sample(rows.request, row, answer)
            except Exception as failure:  # noqa: BLE001 - a stranger's function: its failure is the row's
                sample = Sample("", (), (), "error", None, row.max_tokens, estimated=True, error=type(failure).__name__)
        if rows.cancelled and sample.finish != "error":
            sample = Sample("", (), (), "cancelled", None, sample.num_tokens, sample.estimated)
        self.counters.generated_tokens += sample.num_tokens
        rows.resolve(index, sample)

    async def _asked(self, request: SampleRequest, row: Row) -> Answer:
        stop = request.stop.step if request.stop.at_step else ()
        handle = request.handle
        asked = Ask(handle.prompt, handle.text + handle.carry, row.max_tokens, request.sampling.temperature, stop, row.stream >> 1)
        if inspect.iscoroutinefunction(self._fn):
            said = await self._fn(asked)
        else:
            said = await asyncio.to_thread(self._fn, asked)
            if inspect.isawaitable(said):
                said = await said
        return said if isinstance(said, Answer) else Answer(str(said))

    def _sample(self, request: SampleRequest, row: Row, answer: Answer) -> Sample:
        scanner = StopScanner(request.stop, request.text, request.handle.carry)
        ended = bool(scanner.ended) or scanner.feed(answer.text)
        finish: Finish = (scanner.ended or "stop") if ended else "eos" if answer.finished else "length"
        tokens = row.max_tokens if answer.tokens is None else answer.tokens
        # what was written behind a boundary is dropped, not carried: the next ask continues from the boundary
        handle = _Handle(request.handle.prompt, request.handle.text + scanner.text, "")
        return Sample(scanner.text, (), (), finish, handle, tokens, estimated=answer.tokens is None)

    async def extend(self, handles: Sequence[Any], texts: Sequence[str]) -> list[Reply[Extension]]:
        """Append text, which the next ask will show."""
        return [
            Reply(Extension(_Handle(handle.prompt, handle.text + handle.carry + text, ""), ()), 0, None)
            for handle, text in zip(handles, texts, strict=True)
        ]

    async def score(self, handles: Sequence[Any], texts: Sequence[str]) -> list[Reply[NDArray[np.float64]]]:
        """Refuse."""
        del handles, texts
        raise self._absent("score")

    async def next_logprobs(self, handles: Sequence[Any], texts: Sequence[str], tokens: Sequence[str]) -> list[Reply[NDArray[np.float64]]]:
        """Refuse."""
        del handles, texts, tokens
        raise self._absent("next_logprobs")

    async def value(self, handles: Sequence[Any], head: str) -> list[Reply[NDArray[np.float64]]]:
        """Refuse."""
        del handles, head
        raise self._absent("value")

    async def hidden(self, handles: Sequence[Any]) -> list[Reply[NDArray[np.float32]]]:
        """Refuse."""
        del handles
        raise self._absent("hidden")

    def _absent(self, capability: str) -> CapabilityError:
        return CapabilityError(f"a function as a model has no capability {capability!r}", hint="use a backend such as transformers")

    def fork(self, handle: Any, count: int) -> list[Any]:
        """Return the handle: it is a value."""
        return [handle] * count

    def release(self, handles: Sequence[Any]) -> None:
        """Do nothing: handles are values."""

    async def close(self) -> None:
        """Cancel what is under way."""
        for task in self._tasks:
            task.cancel()
