"""A search as an async iterator of its events, in the caller's own event loop."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from typing import Any

from tts.solver.live import Event
from tts.solver.model_cache import LOOP
from tts.solver.run import ProblemRun
from tts.types import Solution


async def stream_events(
    run: ProblemRun, solve: Callable[[ProblemRun], Coroutine[Any, Any, Solution]]
) -> AsyncGenerator[Event]:
    """Yield the events of a run as they come; the last event has the solution.

    If the caller closes the generator early, the search is cancelled.

    Args:
        run: The run of a problem.
        solve: A function that solves the run, in the library's loop.

    Raises:
        TTSError: as `Solver.solve`.
    """
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[Event | None]()
    last_event = Event(run.problem.without_answer(), calls=0, tokens=0, candidates=0, answer=None)

    def tell(event: Event) -> None:
        if run.on_event is not None:
            run.on_event(event)
        with suppress(RuntimeError):  # the caller's loop is closed
            loop.call_soon_threadsafe(queue.put_nowait, dataclasses.replace(event, nodes=None))

    task = asyncio.ensure_future(LOOP.wait(solve(dataclasses.replace(run, on_event=tell))))
    task.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while True:
            event = await queue.get()
            if event is None:  # the run has ended
                break
            last_event = event
            yield event
        yield dataclasses.replace(last_event, texts=(), solution=await task)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await task
