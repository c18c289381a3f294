"""Calls of a backend that are awaited to their end, so that their cost can be booked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tts._common.blame import Blame
from tts.backends.base import Backend, Extension, Reply, RowSet
from tts.backends.metadata import metadata_of
from tts.budget.account import Exhausted
from tts.errors import EngineError


async def read(backend: Backend, call: Awaitable[Any], replies: list[Reply[Any]], *, opens: bool = False) -> Any:
    """Await a reading call of a backend, append its replies to `replies`, and return its result.

    Where the backend finishes its reads (`BackendMetadata.finishes_reads`), a cancelled caller first waits for the
    call's end. If the caller is cancelled or an item fails, the handles that the call made are released.

    Args:
        backend: The backend that reads.
        call: The awaitable that `open`, `extend`, `next_logprobs`, `hidden` or `value` returned.
        replies: The list that replies are appended to, even if the caller is cancelled. If an item fails, the replies
            of the other items are appended.
        opens: Whether the replies' values are handles, as those of `open` are.

    Raises:
        CancelledError: The caller was cancelled.
        BaseException: The failure of the call.
    """
    with Blame(f"the backend {backend.name!r}", EngineError, (Exhausted,)):
        return await _read(backend, call, replies, opens=opens)


async def _read(backend: Backend, call: Awaitable[Any], replies: list[Reply[Any]], *, opens: bool) -> Any:
    """Do what `read` does, except that errors do not name the backend."""
    if not metadata_of(backend).finishes_reads:
        return _append(await call, replies)
    num_earlier_replies = len(replies)
    task = asyncio.ensure_future(_result_or_failure(call))
    cancellation = await _wait_until_done(lambda: asyncio.wait([task]), task.done)
    result, failure = (None, asyncio.CancelledError()) if task.cancelled() else task.result()
    _append(getattr(failure, "replies", result), replies)  # the failure of an item holds the other items' replies
    error = cancellation or failure
    if error is None:
        return result
    handles: list[Any] = []
    for reply in replies[num_earlier_replies:]:
        if isinstance(reply.value, Extension):
            handles.append(reply.value.handle)
        elif opens:
            handles.append(reply.value)
    backend.release(handles)
    raise error


def _append(result: Any, replies: list[Reply[Any]]) -> Any:
    if isinstance(result, list | tuple):
        replies += [reply for reply in result if isinstance(reply, Reply)]
    return result


async def _result_or_failure(call: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    """Return a call's result and None, or None and its failure.

    The failure is not raised here, since a task that raises SystemExit ends the event loop.
    """
    try:
        return await call, None
    except BaseException as failure:  # noqa: BLE001 - raised again in the caller's task
        return None, failure


async def wait_for_change(rowsets: Sequence[RowSet]) -> None:
    """Wait until one more row of some row sets is resolved.

    Raises:
        Exception: The failure of a backend.
    """
    waits = [rows.change() for rows in rowsets if not rows.done]
    try:
        done_waits, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in done_waits:
            wait.result()  # raises the failure of a backend
    finally:
        for wait in waits:
            wait.cancel()


async def cancelled_and_done(rowsets: Sequence[RowSet]) -> None:
    """Cancel rows and return when all are resolved.

    A caller that is cancelled during the wait also waits to the end, since the rows' cost must be booked.
    """
    for rows in rowsets:
        rows.cancel()
    last_cancellation: asyncio.CancelledError | None = None
    for rows in rowsets:
        cancellation = await _wait_until_done(rows.drain, lambda rows=rows: rows.done)
        last_cancellation = cancellation or last_cancellation
    if last_cancellation is not None:
        raise last_cancellation


async def _wait_until_done(
    wait: Callable[[], Awaitable[Any]], done: Callable[[], bool]
) -> asyncio.CancelledError | None:
    """Wait until `done` returns True, even if the caller is cancelled.

    Returns:
        The last cancellation of the caller; None: the caller was not cancelled.
    """
    last_cancellation: asyncio.CancelledError | None = None
    while not done():
        try:
            await wait()
        except asyncio.CancelledError as cancellation:
            last_cancellation = cancellation
    return last_cancellation
