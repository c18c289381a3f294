"""The progress of a search as events, and as an async iterator of them."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tts.backends.base import Draft
from tts.search.answers import votes_of
from tts.search.search import Search
from tts.thoughts import THINK, ThoughtMarks
from tts.trace.nodes import RecordedNodes
from tts.trace.trace import TraceNode
from tts.types import Problem, Solution

_LOOK_SECONDS = 0.1  # between two reports of rows under way


@dataclass(frozen=True, slots=True)
class Event:
    """Progress of one problem after each call.

    A problem that is solved alone also has events while rows are written.

    Args:
        problem: The problem as given, without its answer and metadata.
        calls: The number of calls so far.
        tokens: The tokens spent so far, as the limit `tokens` counts them. Tokens of rows under way are included, where
            the backend shows them.
        candidates: The number of candidates so far.
        answer: The most frequent answer so far; None where there is none.
        texts: The texts of the candidates since the event before, whole.
        solution: The solution in the last event of `stream`.
        nodes: A function that returns the nodes of the tree; it may be called only in the loop that calls `on_event`.
            None in the events of `stream`.
        writing: The text so far of the leading row, with the path that the row continues. The leading row is the first
            in draw order that is under way. "": there is none, or the backend does not show its text. The engine and
            servers that stream show it.
        marks: The marks of the thought that this text may begin with (`ThoughtMarks.split_settled_text`).
    """

    problem: Problem
    calls: int
    tokens: int
    candidates: int
    answer: str | None
    texts: tuple[str, ...] = ()
    solution: Solution | None = None
    nodes: Callable[[], Sequence[TraceNode]] | None = field(default=None, compare=False, repr=False)
    writing: str = ""
    marks: ThoughtMarks = field(default=THINK, compare=False, repr=False)


@dataclass(slots=True)
class Reporter:
    """Reports the progress of a search.

    Args:
        problem: The problem, with no more than a strategy may read.
        roles: The roles of the verifiers.
        on_event: A function that is called with each event.
    """

    problem: Problem
    roles: Sequence[str]
    on_event: Callable[[Event], None]
    _num_reported: int = 0  # candidates

    def report(self, search: Search) -> None:
        """Report a call that has ended, with the texts of new candidates."""
        texts = tuple(c.trajectory.full_text for c in search.candidates[self._num_reported :])
        self._num_reported = len(search.candidates)
        self._tell(search, Draft("", 0), texts)

    @asynccontextmanager
    async def report_drafts(self, search: Search) -> AsyncGenerator[None]:
        """Report the text and tokens of rows under way while the block runs, whenever they have changed."""

        async def look() -> None:
            last_draft = Draft("", 0)
            while True:
                await asyncio.sleep(_LOOK_SECONDS)
                draft = search.rows.draft()
                is_shown = bool(draft.text or draft.tokens)  # not every server shows its tokens
                if is_shown and draft != last_draft:
                    last_draft = draft
                    self._tell(search, draft)

        task = asyncio.create_task(look())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task

    def _tell(self, search: Search, draft: Draft, texts: tuple[str, ...] = ()) -> None:
        nodes = RecordedNodes(self.problem.text, search.tree, self.roles, search.candidates)
        self.on_event(
            Event(
                problem=self.problem,
                calls=len(search.account.ledger.entries),
                tokens=search.account.spending("tokens") + draft.tokens,
                candidates=len(search.candidates),
                answer=votes_of(search.candidates).answer,
                texts=texts,
                nodes=lambda: nodes[:],
                writing=draft.text,
                marks=draft.marks,
            )
        )


async def stream_events(
    problem: Problem,
    on_event: Callable[[Event], None] | None,
    solve: Callable[[Callable[[Event], None]], Coroutine[Any, Any, Solution]],
) -> AsyncGenerator[Event]:
    """Yield the events of a search as they come; the last event has the solution.

    If the caller closes the generator early, the search is cancelled.

    Args:
        problem: The problem.
        on_event: A function that is called with each event too; None: there is none.
        solve: A function that solves the problem in the library's loop, and calls the function that it is given with
            each event.

    Raises:
        TTSError: as `Solver.solve`.
    """
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[Event | None]()
    last_event = Event(problem.without_answer(), calls=0, tokens=0, candidates=0, answer=None)

    def tell(event: Event) -> None:
        if on_event is not None:
            on_event(event)
        with suppress(RuntimeError):  # the caller's loop is closed
            loop.call_soon_threadsafe(queue.put_nowait, dataclasses.replace(event, nodes=None))

    task = asyncio.ensure_future(solve(tell))
    task.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (event := await queue.get()) is not None:  # None: the run has ended
            last_event = event
            yield event
        yield dataclasses.replace(last_event, texts=(), solution=await task)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await task
