"""The one queue in front of a backend: whatever all problems ask for in the meantime is one batch.

Jobs that are submitted while the event loop is busy, or while a batch is being computed, are computed together next.
What a job gives never depends on which others it shares a batch with: that is the backend's promise, and a law under test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol


class Execute(Protocol):
    """Computes a batch. It calls `deliver(fn, *args)` for everything that must happen in the event loop's thread."""

    def __call__(self, jobs: list[Any], deliver: Callable[..., None]) -> None:
        """Compute `jobs` to their end."""
        ...


class BatchQueue:
    """Collects jobs of one event loop and executes them in batches, one batch at a time.

    Args:
        execute: computes a batch; it delivers each result itself and never raises for one job's fault.
        on_failure: called in the loop with the jobs of a batch and the exception that `execute` raised.
        threaded: whether batches run in a worker thread (for models) or in the loop itself (for what takes microseconds).
    """

    def __init__(self, execute: Execute, on_failure: Callable[[list[Any], Exception], None], *, threaded: bool) -> None:
        self._execute = execute
        self._on_failure = on_failure
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tts-backend") if threaded else None
        self._pending: list[Any] = []
        self._busy = False

    def submit(self, job: Any) -> None:
        """Add a job; call from the event loop's thread."""
        self._pending.append(job)
        if not self._busy:
            self._busy = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        jobs, self._pending = self._pending, []
        loop = asyncio.get_running_loop()
        if self._pool is None:
            try:
                self._execute(jobs, _call)
            except Exception as failure:  # noqa: BLE001 - whatever broke the batch is handed to its jobs
                self._on_failure(jobs, failure)
            self._after()
            return

        def deliver(fn: Callable[..., None], *args: Any) -> None:
            loop.call_soon_threadsafe(fn, *args)

        future = loop.run_in_executor(self._pool, self._execute, jobs, deliver)
        future.add_done_callback(lambda done: self._finished(jobs, done))

    def _finished(self, jobs: list[Any], done: asyncio.Future[None]) -> None:
        failure = None if done.cancelled() else done.exception()
        if isinstance(failure, Exception):
            self._on_failure(jobs, failure)
        self._after()

    def _after(self) -> None:
        if self._pending:
            asyncio.get_running_loop().call_soon(self._flush)
        else:
            self._busy = False

    def close(self) -> None:
        """Stop the worker thread, after the batch in flight."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


def _call(fn: Callable[..., None], *args: Any) -> None:
    fn(*args)
