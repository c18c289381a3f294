"""Any function as a model: `backend=my_function` in `solve`.

The function generates text. The backend stops, counts and continues it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np

from tts._common.characters import join_surrogates
from tts._core.threads import run_in_thread
from tts.backends.base import (
    Backend,
    Caps,
    Counters,
    Extension,
    Finish,
    Reply,
    Row,
    RowSet,
    Sample,
    SampleRequest,
    TaskRows,
)
from tts.backends.batching import TurnQueue, closed_error
from tts.backends.metadata import BackendMetadata
from tts.backends.text.stops import StopScanner, ends_of
from tts.checks import check_int
from tts.errors import ConfigError, EngineError, quote
from tts.thoughts import ThoughtMarks
from tts.types import Prompt

_THREAD_CHARACTERS = 4_000  # texts of more characters are searched for stop texts in a thread
_HOW_THOUGHTS = "FunctionBackend(write, thoughts=tts.thoughts.ThoughtMarks()) states the marks of a model that thinks"


@dataclass(frozen=True, slots=True)
class Ask:
    """The argument of the function: continue `text` after the prompt.

    Args:
        prompt: Text or messages.
        text: The solution so far.
        max_tokens: Most tokens to generate.
        temperature: The temperature of the distribution.
        stop: Texts at which the function may end early; its reply includes the text.
        seed: A number of 63 bits, another one for each row.

    Example:
        >>> import tts
        >>> def model(ask):
        ...     return f"The answer is {7 if ask.temperature == 0 else ask.seed}."
        >>> tts.solve(
        ...     "What is 3 + 4?", tts.Budget(samples=1), backend=model, task="math", strategy="single(temperature=0)"
        ... ).answer
        '7'
    """

    prompt: Prompt
    text: str
    max_tokens: int
    temperature: float
    stop: tuple[str, ...]
    seed: int


@dataclass(frozen=True, slots=True)
class Answer:
    """A result that the function may return instead of plain text.

    Args:
        text: The continuation; lone surrogates are replaced.
        tokens: The number of tokens generated, from 0 to `max_tokens`; None: not known. An unknown number is estimated
            and charged as the UTF-8 bytes of the text, plus one. A function that generates hidden tokens, such as
            reasoning, must report them.
        finished: Whether the model ended by itself. False: it reached `max_tokens`, and the function may be called
            again to continue the text. Plain text, and an answer that is finished, are never continued.

    Example:
        >>> import tts
        >>> model = lambda ask: tts.Answer("The answer is 7.", tokens=5)
        >>> tts.solve(
        ...     "What is 3 + 4?", 100, backend=model, task="math", strategy="best_of_n(n=3)"
        ... ).usage.generated_tokens
        15
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


class _FunctionRows(TaskRows):
    """Rows that end as soon as they are cancelled; later results of the function are dropped.

    `asked` has the rows for which the function was called. `tasks` has the tasks that await an asynchronous function.
    """

    __slots__ = ("asked",)

    def __init__(self, request: SampleRequest, counters: Counters) -> None:
        super().__init__(request, counters)
        self.reused_tokens = None
        self.asked: set[int] = set()

    def unseen_cost(self, row: Row) -> int:
        """Return the estimated tokens of a row that ended without a report; see `SampleRequest.unseen_cost`."""
        reported = (sample.num_tokens for sample in self.samples if sample is not None and not sample.estimated)
        return self.request.unseen_cost(row.max_tokens, max(reported, default=0))

    def cancel(self) -> None:
        """Cancel all rows at once.

        The cost of a row whose call had begun is estimated. Other rows cost nothing.
        """
        super().cancel()
        for index, row in enumerate(self.request.rows):
            was_asked = index in self.asked
            cost = self.unseen_cost(row) if was_asked else 0
            self.settle(index, Sample.empty("cancelled", cost, estimated=was_asked))


class FunctionBackend(Backend):
    """A model that is a function of an `Ask`. Rows run concurrently, synchronous functions in threads.

    Results are reproducible only as far as the function obeys the seed, so solutions are marked as not reproducible. A
    row whose function raises, or reports an impossible number of tokens, fails, and its cost is estimated. Other rows
    are not affected. Prompts are counted in words, since there is no tokenizer, and every row reads its prompt and path
    again.

    A cancelled row ends at once at an estimated cost, and an asynchronous function is cancelled with the row. A thread
    cannot be cancelled: it continues and counts toward `concurrency`, and its result is dropped.

    Args:
        concurrency: Most calls of the function at once, at least 1; other rows wait.
        thoughts: The marks of thoughts in the function's text; None: not known.

    Raises:
        ConfigError: `concurrency` is below 1, or `thoughts` is something else.
    """

    name = "callable"
    caps = Caps(steps="emulated", extend="emulated", fork="emulated", stop_predicate=True)
    identity = "callable"

    def __init__(self, fn: WriteFunction, *, concurrency: int = 16, thoughts: ThoughtMarks | None = None) -> None:
        check_int("concurrency", concurrency, 1, optional=False)
        marks: Any = thoughts
        if not isinstance(marks, ThoughtMarks | None):
            raise ConfigError(
                f"thoughts is {quote(marks)}, but must be marks",
                hint="such as tts.thoughts.ThoughtMarks('<think>', '</think>')",
            )
        self._fn = fn
        self._concurrency = concurrency
        self._waiting = TurnQueue[tuple[_FunctionRows, int]]()
        self._tasks: dict[asyncio.Task[None], _FunctionRows] = {}
        self._closed = False
        self._continues = True
        self.caps = dataclasses.replace(type(self).caps, thoughts=thoughts is not None)
        self.metadata = BackendMetadata(
            resumes=lambda: self._continues, thoughts=thoughts, capability_hint={"thoughts": _HOW_THOUGHTS}.get
        )

    async def open(self, prompts: Sequence[Prompt]) -> list[Reply[Any]]:
        """Return handles; nothing is computed until a row is requested."""
        return [Reply(_Handle(prompt, "", ""), 0, None) for prompt in prompts]

    def sample(self, request: SampleRequest) -> RowSet:
        """Call the function once for each row.

        Raises:
            EngineError: The backend was closed.
        """
        if self._closed:
            raise closed_error()
        rows = _FunctionRows(request, self.counters)
        self._waiting.add(rows, [(rows, index) for index in range(len(request.rows))])
        self._start()
        return rows

    def _start(self) -> None:
        """Start waiting rows, the searches in turn, while there is room."""
        while self._waiting and len(self._tasks) < self._concurrency:
            rows, index = self._waiting.take()
            if rows.waits(index):
                task = asyncio.get_running_loop().create_task(self._row(rows, index), context=rows.context)
                self._tasks[task] = rows
                task.add_done_callback(partial(self._end_task, rows, index))

    def _end_task(self, rows: _FunctionRows, index: int, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        rows.end_task(index, task)
        self._start()

    async def _row(self, rows: _FunctionRows, index: int) -> None:
        """Write a row by the function, unless the row was resolved before."""
        if not rows.waits(index):
            return
        row, handle = rows.request.rows[index], rows.request.handle
        rows.asked.add(index)
        num_read = self.count(handle.prompt) + len(handle.text.split())
        rows.prompt_tokens += num_read
        self.counters.prompt_tokens += num_read
        try:
            reply = await self._ask_function(rows, index)
            if isinstance(reply, str):  # plain text is never continued
                self._continues = False
            answer = _check(reply, row.max_tokens)
            if len(answer.text) > _THREAD_CHARACTERS:
                sample = await run_in_thread(self._sample, rows.request, row, answer)
            else:
                sample = self._sample(rows.request, row, answer)
        except BaseException as failure:  # noqa: BLE001 - a caller's function: even sys.exit() fails only the row
            if isinstance(failure, EngineError):
                kind, cause = failure.kind, failure.cause
            else:
                kind, cause = type(failure).__name__, str(failure)
            error = f"{kind}: {cause}".removesuffix(": ")  # the cause may be empty
            sample = Sample.empty("error", rows.unseen_cost(row), estimated=True, error=error)
        rows.settle(index, sample)

    async def _ask_function(self, rows: _FunctionRows, index: int) -> Any:
        """Call the function for a row, and return its reply, awaited if it is awaitable."""
        request, row = rows.request, rows.request.rows[index]
        ask = Ask(
            prompt=request.handle.prompt,
            text=request.handle.text + request.handle.carry,
            max_tokens=row.max_tokens,
            temperature=request.sampling.temperature,
            stop=ends_of(request.stop),
            seed=row.stream >> 1,  # the 64 bits of a stream make a seed of 63 bits
        )
        reply = self._fn(ask) if inspect.iscoroutinefunction(self._fn) else await run_in_thread(self._fn, ask)
        if not inspect.isawaitable(reply):
            return reply
        if inspect.iscoroutine(reply) and not rows.waits(index):
            reply.close()  # the row was cancelled while a thread made this coroutine
            return ""
        rows.tasks.add(cast("asyncio.Task[None]", asyncio.current_task()))
        return await reply

    def _sample(self, request: SampleRequest, row: Row, answer: Answer) -> Sample:
        """Return the sample of the function's answer, cut at the step boundary where the row ends."""
        scanner = StopScanner(request.stop, request.text, request.handle.carry)
        # the text carried over from the last call may end the row before the answer is read
        ends_at_boundary = bool(scanner.ended) or scanner.feed(answer.text)
        finish: Finish = "eos" if answer.finished else "length"
        if ends_at_boundary:
            finish = scanner.ended or "stop"
        num_tokens = answer.tokens
        if num_tokens is None:  # estimated; see `Answer`
            num_tokens = min(row.max_tokens, len(answer.text.encode()) + 1)
        return Sample(
            text=scanner.text,
            token_ids=(),
            logprobs=(),
            finish=finish,
            # the text after a boundary is dropped, since the next call continues from the boundary
            handle=_Handle(request.handle.prompt, request.handle.text + scanner.text, carry=""),
            num_tokens=int(num_tokens),
            estimated=answer.tokens is None,
        )

    async def extend(self, handles: Sequence[Any], texts: Sequence[str]) -> list[Reply[Extension]]:
        """Append text, which the next call of the function gets."""
        return [
            Reply(Extension(_Handle(handle.prompt, handle.text + handle.carry + text, ""), ()), 0, None)
            for handle, text in zip(handles, texts, strict=True)
        ]

    async def close(self) -> None:
        """Fail every waiting or running row with an EngineError, and cancel asynchronous functions."""
        self._closed = True
        waiting_rows = {rows for rows, _index in self._waiting.clear()}
        for rows in {*self._tasks.values(), *waiting_rows}:
            rows.fail(closed_error())


def _check(result: Any, max_tokens: int) -> Answer:
    """Return the function's result as an answer.

    Raises:
        EngineError: The result is not valid, or reports an impossible number of tokens.
    """
    candidate: Any = Answer(result) if isinstance(result, str) else result
    text: Any = candidate.text if isinstance(candidate, Answer) else None
    if not isinstance(candidate, Answer) or not isinstance(text, str):
        raise EngineError(
            f"the function returned {type(result).__name__}, but must return text, or an Answer with text",
            kind="BadReply",
        )
    answer = dataclasses.replace(candidate, text=join_surrogates(text))
    num_tokens: Any = answer.tokens
    is_whole = isinstance(num_tokens, int | np.integer) and not isinstance(num_tokens, bool)
    if num_tokens is not None and not (is_whole and 0 <= num_tokens <= max_tokens):
        raise EngineError(
            f"Answer.tokens is {num_tokens!r}, but must be a whole number from 0 to max_tokens, {max_tokens}",
            kind="BadReply",
        )
    return answer
