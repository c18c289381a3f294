"""The queues in front of a backend: the jobs of all problems are computed in batches, or in turns.

Jobs that are submitted while the event loop is busy are one batch. A batch that runs in a thread may take jobs that are
submitted while it runs (`take`), so that no job waits for another's end. A job's result never depends on other jobs of
its batch; tests check this for every backend.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

from tts.errors import EngineError

# A function that computes the jobs of a batch to their end: (queue, jobs, deliver). It may `take` more jobs from the
# queue. It calls `deliver(fn, *args)` to call a function in the event loop's thread.
Execute = Callable[["BatchQueue", list[Any], Callable[..., None]], None]
T = TypeVar("T")
_SEARCH: ContextVar[object] = ContextVar("search", default=None)


@contextmanager
def search_turns() -> Generator[None]:
    """Let all that the block asks of a backend share the turns of one search."""
    token = _SEARCH.set(object())
    try:
        yield
    finally:
        _SEARCH.reset(token)


class TurnQueue(Generic[T]):
    """A queue whose searches take turns: the next item is of the search that was served longest ago.

    So a search with many rows keeps no other waiting. The items of a search keep their order.
    """

    def __init__(self) -> None:
        self._lines: dict[object, deque[T]] = {}  # the search that was served longest ago comes first

    def add(self, request: object, items: Sequence[T]) -> None:
        """Add items to the running search's line.

        Args:
            request: What stands for the search where none runs.
            items: The items.
        """
        if items:
            self._lines.setdefault(_SEARCH.get() or request, deque()).extend(items)

    def take(self) -> T:
        """Remove and return the next item."""
        search, line = next(iter(self._lines.items()))
        del self._lines[search]
        item = line.popleft()
        if line:
            self._lines[search] = line
        return item

    def clear(self) -> list[T]:
        """Remove and return all items."""
        items = [item for line in self._lines.values() for item in line]
        self._lines.clear()
        return items

    def __bool__(self) -> bool:
        return bool(self._lines)


class BatchQueue:
    """Collects jobs of one event loop and executes them in batches, one batch at a time.

    Args:
        execute: Computes a batch. It delivers each result itself, and never raises for the error of one job.
        on_failure: Called in the loop with jobs and the exception of `execute` or `close`.
        threaded: Whether batches run in a worker thread, as for models; else in the loop itself, for batches of
            microseconds.
    """

    def __init__(self, execute: Execute, on_failure: Callable[[list[Any], Exception], None], *, threaded: bool) -> None:
        self._execute = execute
        self._on_failure = on_failure
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tts-backend") if threaded else None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()  # guards the fields below, since a batch takes jobs in its own thread
        self._pending: list[Any] = []
        self._running: list[Any] = []
        self._busy = False
        self._closed = False

    def submit(self, job: Any) -> None:
        """Add a job. The method is called in the event loop's thread.

        Raises:
            EngineError: The queue was closed.
        """
        with self._lock:
            if self._closed:
                raise closed_error()
            self._pending.append(job)
            if self._busy:
                return
            self._busy = True
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._flush)

    def take(self, done: Callable[[Any], bool]) -> list[Any]:
        """Return the jobs submitted since the batch began, which join the calling batch.

        Args:
            done: Returns whether a job no longer needs the batch; such jobs are dropped.

        Raises:
            EngineError: The queue or its event loop was closed.
        """
        with self._lock:
            if self._closed or (self._loop is not None and self._loop.is_closed()):
                raise closed_error()
            jobs, self._pending = self._pending, []
            self._running = [job for job in self._running if not done(job)] + jobs
            return jobs

    def _flush(self) -> None:
        """Start a batch of all pending jobs."""
        with self._lock:
            jobs, self._pending = self._pending, []
            self._running = jobs
            self._busy = bool(jobs) and not self._closed
        if not self._busy:
            return
        if self._pool is None:
            self._work(jobs, _call)
            self._start_next()
            return
        loop = asyncio.get_running_loop()

        def deliver(fn: Callable[..., None], *args: Any) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(fn, *args)

        future = loop.run_in_executor(self._pool, self._work, list(jobs), deliver)
        future.add_done_callback(lambda _: self._start_next())

    def _work(self, jobs: list[Any], deliver: Callable[..., None]) -> None:
        """Execute a batch, forget its jobs, and deliver the failure of the batch, if it failed.

        The jobs are forgotten in the thread of the batch, since the event loop may have ended.
        """
        failure: Exception | None = None
        try:
            self._execute(self, jobs, deliver)
        except Exception as error:  # noqa: BLE001 - handed to the jobs of the batch
            failure = error
        except BaseException as error:  # noqa: BLE001 - even sys.exit(), after which the jobs would wait for ever
            failure = EngineError(f"the backend's worker was ended by {type(error).__name__}")
        with self._lock:
            running_jobs, self._running = self._running, []
        if failure is not None:
            deliver(self._on_failure, running_jobs, failure)

    def _start_next(self) -> None:
        """Start the next batch, if there is one."""
        with self._lock:
            self._busy = bool(self._pending)
            if not self._busy:
                return
        asyncio.get_running_loop().call_soon(self._flush)

    def close(self) -> None:
        """Fail every job that is pending or under way, and stop the worker thread.

        The method is called in the event loop's thread. Later results of the batch under way are ignored. Jobs of a
        closed event loop are dropped.
        """
        with self._lock:
            self._closed = True
            jobs = [*self._running, *self._pending]
            self._running, self._pending = [], []
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        if self._loop is not None and not self._loop.is_closed():
            self._on_failure(jobs, closed_error())


class LoopQueue:
    """A threaded `BatchQueue` for the running event loop.

    Each loop has its own queue, and the batch of an ended loop is not awaited.

    Args:
        execute: See `BatchQueue`.
        on_failure: See `BatchQueue`.
    """

    def __init__(self, execute: Execute, on_failure: Callable[..., None]) -> None:
        self._execute = execute
        self._on_failure = on_failure
        self._queue: BatchQueue | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process_id = os.getpid()
        self.closed = False

    def submit(self, job: Any) -> None:
        """Add a job. The method is called in the thread of a running event loop.

        Raises:
            EngineError: The queue was closed, or was made in the process that this process was forked from.
        """
        if self.closed:
            raise closed_error()
        if os.getpid() != self._process_id:
            raise EngineError(
                f"the backend was made in process {self._process_id}, but is used in process {os.getpid()}, which was "
                "forked from it and has "
                "none of its threads",
                hint="make the backend in the forked process, name the model instead, or start processes by "
                "multiprocessing's 'spawn'",
            )
        loop = asyncio.get_running_loop()
        if self._queue is None or loop is not self._loop:
            if self._queue is not None:
                self._queue.close()
            self._queue, self._loop = BatchQueue(self._execute, self._on_failure, threaded=True), loop
        self._queue.submit(job)

    def close(self) -> None:
        """Fail every job, now and from now on."""
        self.closed = True
        if self._queue is not None:
            self._queue.close()


def closed_error() -> EngineError:
    """Return the error of calls to a closed backend, and of calls under way when the backend closes."""
    return EngineError("the backend was closed", hint="make a new one, or close it when everything has ended")


def _call(fn: Callable[..., None], *args: Any) -> None:
    fn(*args)
