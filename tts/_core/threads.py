"""Plain functions in threads of their own.

They are the caller's functions, and those that a forked process must not run in its first thread.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")
_FORKED = threading.Event()  # set in a process that was forked from one that had this module

if sys.platform != "win32":
    os.register_at_fork(after_in_child=_FORKED.set)


def run_after_fork(fn: Callable[..., T], *args: Any, **named: Any) -> T:
    """Call a function that uses torch; in a forked process, in a new thread.

    The OpenMP runtime of torch keeps a team of threads for each thread that used it. In a forked process the team's
    threads are gone, and the thread that forked would wait for them for ever. A new thread gets a new team.
    """
    if not _FORKED.is_set():
        return fn(*args, **named)
    called: Future[T] = Future()  # the result of the call

    def call() -> None:
        try:
            called.set_result(fn(*args, **named))
        except BaseException as failure:  # noqa: BLE001 - raised again in the caller's thread
            called.set_exception(failure)

    threading.Thread(target=copy_context().run, args=(call,), name="tts-forked", daemon=True).start()
    return called.result()


class _Postponed(BaseException):
    """A function has to wait, so `call_or_postpone` calls it again in a thread.

    No guard of `Exception` catches it.
    """


_POSTPONES: ContextVar[bool] = ContextVar("postpones", default=False)


def postpone() -> None:
    """State that the running function is about to wait.

    The function is left under `call_or_postpone`, and called again in a thread.
    """
    if _POSTPONES.get():
        raise _Postponed


async def call_or_postpone(fn: Callable[..., T], *args: Any, wait: Callable[..., Awaitable[T]] | None = None) -> T:
    """Call a function here; if it has to wait (`postpone`), call it again in a thread.

    Args:
        fn: A function without effects.
        args: Its arguments.
        wait: A function that calls `fn` in a thread; None: `run_in_thread`.
    """
    token = _POSTPONES.set(True)
    try:
        return fn(*args)
    except _Postponed:
        pass
    finally:
        _POSTPONES.reset(token)
    return await (wait or run_in_thread)(fn, *args)


async def run_in_thread(fn: Callable[..., T], *args: Any) -> T:
    """Call a plain function in a thread of its own.

    The interpreter may end while the thread runs, and any number of such threads may run at once.
    """
    loop = asyncio.get_running_loop()
    called: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()  # the result, and a failure

    def finish(result: Any, failure: BaseException | None) -> None:
        if not called.done():
            called.set_result((result, failure))

    def call() -> None:
        result, raised = None, None
        try:
            result = fn(*args)
        except BaseException as failure:  # noqa: BLE001 - raised again where it is awaited
            raised = failure
        with suppress(RuntimeError):  # the loop has been closed: nobody waits
            loop.call_soon_threadsafe(finish, result, raised)

    threading.Thread(target=copy_context().run, args=(call,), name="tts-function", daemon=True).start()
    result, failure = await called
    if failure is not None:
        raise failure
    return result
