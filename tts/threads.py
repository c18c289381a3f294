"""Plain functions of the caller's, in threads of their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeVar

T = TypeVar("T")


async def in_thread(fn: Callable[..., T], *args: Any) -> T:
    """Call a plain function in a thread of its own, which neither keeps the interpreter from ending nor others from starting."""
    loop = asyncio.get_running_loop()
    called: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def finish(said: Any, failure: BaseException | None) -> None:
        if not called.done():
            called.set_result((said, failure))

    def call() -> None:
        said, failed = None, None
        try:
            said = fn(*args)
        except BaseException as failure:  # noqa: BLE001 - raised again where it is awaited
            failed = failure
        with suppress(RuntimeError):  # the loop has been closed: nobody waits
            loop.call_soon_threadsafe(finish, said, failed)

    threading.Thread(target=copy_context().run, args=(call,), name="tts-function", daemon=True).start()
    said, failure = await called
    if failure is not None:
        raise failure
    return said
