"""One event loop in a thread of its own, so that the same call works in a script, in a notebook and inside other loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while a coroutine ran. `partial` is what it returned when it was cancelled; None: nothing."""

    def __init__(self, partial: Any) -> None:
        super().__init__()
        self.partial = partial


class LoopThread:
    """An event loop that starts on first use and runs until `stop`. Every backend lives in it, so none is shared by two loops."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine in the loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._started())

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, from any thread but the loop's own.

        Raises:
            Interrupted: a KeyboardInterrupt, after the coroutine was cancelled and has ended.
        """
        task: list[asyncio.Task[T]] = []

        async def tracked() -> T:
            task.append(asyncio.get_running_loop().create_task(coroutine))
            return await asyncio.shield(task[0])

        future = self.submit(tracked())
        try:
            return future.result()
        except KeyboardInterrupt:
            raise Interrupted(self.submit(_cancelled(task)).result()) from None

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="tts-loop", daemon=True).start()
            return self._loop

    def stop(self) -> None:
        """Stop the loop; the next use starts a new one."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)


async def _cancelled(tasks: list[asyncio.Task[Any]]) -> Any:
    """Cancel a task and return what it made of that; None where it only ended."""
    for task in tasks:
        task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            return None
    return None
