"""One event loop in a thread of its own.

The same call then works in a script, in a notebook and inside other loops.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from tts.errors import ConfigError, EngineError

T = TypeVar("T")


_EXIT_S = 5  # seconds for the loop's thread at exit


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while a coroutine ran.

    `partial` is what the coroutine returned when it was cancelled; None: nothing.
    """

    def __init__(self, partial: Any) -> None:
        super().__init__()
        self.partial = partial


class Workers(ThreadPoolExecutor):
    """The loop's default executor: it runs what the caller's functions give to `asyncio.to_thread`.

    The library itself uses `run_in_thread`.

    As many functions work at once as in any pool. A function that waits for the loop makes room meanwhile. Without
    that, functions that call `tts.solve` would fill the pool, and wait for functions that find no thread.
    """

    def __init__(self) -> None:
        super().__init__(max_workers=1 << 16, thread_name_prefix="tts-worker")  # started as needed, idle ones first
        self._free_places = threading.Semaphore(min(32, (os.cpu_count() or 1) + 4))
        self._thread_state = threading.local()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """See `ThreadPoolExecutor.submit`."""
        return super().submit(self._work, fn, *args, **kwargs)

    def _work(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        with self._free_places:
            self._thread_state.is_worker = True
            return fn(*args, **kwargs)

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Let another function work while the block waits, if the caller is a thread of this pool."""
        is_worker = hasattr(self._thread_state, "is_worker")
        if is_worker:
            self._free_places.release()
        try:
            yield
        finally:
            if is_worker:
                self._free_places.acquire()


class LoopThread:
    """An event loop that starts on first use and runs until the process ends.

    Every backend lives in this loop, so no two loops share a backend.

    An exception that leaves the loop, such as a `sys.exit` in a function of the caller's, ends the calls under way with
    an EngineError. Later calls are served as before. A forked child, which has no threads but its own, starts a loop of
    its own.
    """

    def __init__(self) -> None:
        self._parents: list[Any] = []  # state of the parent process: a loop that is closed here would be broken there
        self._reset()
        atexit.register(self._end_thread)
        if sys.platform != "win32":
            os.register_at_fork(after_in_child=self._reset_after_fork)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._workers = Workers()
        self._thread: threading.Thread | None = None
        self._is_over = False
        self._calls: dict[Future[Any], asyncio.Task[Any]] = {}  # calls under way; only the loop's thread uses them

    def _reset_after_fork(self) -> None:
        self._parents.append((self._loop, self._workers, self._calls))
        self._reset()

    def _end_thread(self) -> None:
        """End the loop's thread before the interpreter ends.

        If the interpreter killed the thread within a model's code, the process would crash.
        """
        if self._loop is not None and self._thread is not None and self._thread.is_alive():
            self._is_over = True
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=_EXIT_S)

    def refuse_inside(self) -> None:
        """Refuse to wait for the loop in its own thread, because that wait would never end.

        Raises:
            ConfigError: the caller is in the loop's thread.
        """
        if threading.current_thread() is self._thread:
            raise ConfigError(
                "solve, solve_many and close wait for the library's event loop, but were called in its own thread",
                hint="make the function that calls them async, and await tts.asolve(…), or "
                "asyncio.to_thread(tts.close)",
            )

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, from any thread but the loop's own.

        Raises:
            ConfigError: the caller is in the loop's thread (`refuse_inside`).
            EngineError: an exception left the loop while the coroutine ran.
            Interrupted: Ctrl-C was pressed; the coroutine was cancelled and has ended. A second Ctrl-C does not wait
                for its end.
        """
        try:
            self.refuse_inside()
        except ConfigError:
            coroutine.close()
            raise
        future, lock = _future_with_lock()
        try:
            self._submit(coroutine, future)
            with self._workers.waiting():
                _wait_until_free(lock)
            return future.result()
        except KeyboardInterrupt:
            self._cancel(future)
            _wait_until_free(lock)
            try:
                partial = future.result()
            except (Exception, asyncio.CancelledError):  # noqa: BLE001 - a cancelled coroutine may end in any way
                partial = None
            if future.cancelled():  # the coroutine has never begun
                coroutine.close()
            raise Interrupted(partial) from None

    async def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """`run`, awaited in any event loop; cancelled, it cancels the coroutine."""
        future: Future[T] = Future()
        self._submit(coroutine, future)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self._cancel(future)
            raise

    def _submit(self, coroutine: Coroutine[Any, Any, T], future: Future[T]) -> None:
        loop = self._running()
        loop.call_soon_threadsafe(self._start_task, loop, coroutine, future)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._thread is None or not self._thread.is_alive():
                self._loop = asyncio.new_event_loop()
                self._loop.set_default_executor(self._workers)
                self._thread = threading.Thread(target=self._serve, args=(self._loop,), name="tts-loop", daemon=True)
                self._thread.start()
            return self._loop

    # From here on in the loop's thread, but for `_cancel` -------------------------------------------------------------

    def _start_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], future: Future[Any]
    ) -> None:
        if not future.set_running_or_notify_cancel():  # the caller has cancelled the call
            coroutine.close()
            return
        task = self._calls[future] = loop.create_task(coroutine)
        task.add_done_callback(lambda ended_task: self._end(future, ended_task))

    def _end(self, future: Future[Any], task: asyncio.Task[Any]) -> None:
        failure = asyncio.CancelledError() if task.cancelled() else task.exception()
        if self._calls.pop(future, None) is None:  # `_fail_calls` has ended the call
            return
        if failure is None:
            future.set_result(task.result())
        else:
            future.set_exception(failure)

    def _cancel(self, future: Future[Any]) -> None:
        def cancel() -> None:
            task = self._calls.get(future)
            if task is not None:
                task.cancel()
            else:  # the call has ended, or Ctrl-C kept it from beginning
                future.cancel()

        self._running().call_soon_threadsafe(cancel)

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        last_escape: BaseException | None = None
        while not self._is_over:
            try:
                loop.run_forever()
            except BaseException as escaped:  # noqa: BLE001 - if the thread ended, no later call would ever return
                # the same exception leaves the loop again for every task that awaited the failed one
                if escaped is not last_escape:
                    self._fail_calls(escaped)
                last_escape = escaped

    def _fail_calls(self, escaped: BaseException) -> None:
        """End every call under way with an error, since any of them may be unable to go on.

        A call whose task has ended is left out: it raises its own exception.
        """
        for future, task in list(self._calls.items()):
            if task.done():
                continue
            del self._calls[future]
            error = EngineError(
                f"{escaped!r} left the library's event loop and ended all that ran in it",
                hint="a function that the library calls must raise an Exception, and never call sys.exit",
            )
            error.__cause__ = escaped
            future.set_exception(error)
            task.cancel()


def _future_with_lock() -> tuple[Future[Any], threading.Lock]:
    """Return a future, and a lock that is held until the future has ended.

    Ctrl-C may strike while a thread waits. Within `Future.result` it could leave the future's own lock taken, and the
    loop's thread could then never end the future. So a caller waits for this lock instead.
    """
    future: Future[Any] = Future()
    lock = threading.Lock()
    lock.acquire()
    future.add_done_callback(lambda _: lock.release())
    return future, lock


def _wait_until_free(lock: threading.Lock) -> None:
    """Wait for a lock in short turns.

    A Ctrl-C that comes just before a turn begins is seen only when the turn is over.
    """
    while not lock.acquire(timeout=0.2):
        pass
    lock.release()
