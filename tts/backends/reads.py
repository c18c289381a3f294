"""Calls of a backend that are awaited to their end, so that their cost can be booked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tts.backends.base import Backend, Extension, Reply, RowSet
from tts.backends.metadata import metadata_of
from tts.blame import Blame
from tts.budget.account import Exhausted
from tts.errors import EngineError


async def read(backend: Backend, call: Awaitable[Any], replies: list[Reply[Any]], *, opens: bool = False) -> Any:
    """Await a reading call of a backend, append its replies to `replies`, and return its result.

    Where the backend finishes its reads (`BackendMetadata.finishes_reads`), a cancelled caller first waits for the
    call's end. If the caller is cancelled or an item fails, the handles that the call made are released.

    Args:
        backend: The backend that reads.
        call: The call of `open`, `extend`, `next_logprobs`, `hidden` or `value`.
        replies: The list to append replies to, even if the caller is cancelled; if an item fails, the replies of the
            other items.
        opens: Whether the values are handles, as those of `open`.

    Raises:
        CancelledError: The caller was cancelled.
        BaseException: the failure of the call.
    """
    with Blame(f"the backend {backend.name!r}", EngineError, (Exhausted,)):
        return await _read(backend, call, replies, opens=opens)


async def _read(backend: Backend, call: Awaitable[Any], replies: list[Reply[Any]], *, opens: bool) -> Any:
    if not metadata_of(backend).finishes_reads:
        return _append(await call, replies)
    num_before = len(replies)
    task = asyncio.ensure_future(_result_or_failure(call))
    interrupted = await _wait_until_done(lambda: asyncio.wait([task]), task.done)
    result, failure = (None, asyncio.CancelledError()) if task.cancelled() else task.result()
    _append(getattr(failure, "replies", result), replies)
    if end := interrupted or failure:
        values = [reply.value for reply in replies[num_before:]]
        backend.release(
            [
                value.handle if isinstance(value, Extension) else value
                for value in values
                if opens or isinstance(value, Extension)
            ]
        )
        raise end
    return result


def _append(result: Any, replies: list[Reply[Any]]) -> Any:
    if isinstance(result, list | tuple):
        replies += [reply for reply in result if isinstance(reply, Reply)]
    return result


async def _result_or_failure(call: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    """Return a call's result and failure, since a task that raised SystemExit would end the event loop."""
    try:
        return await call, None
    except BaseException as failure:  # noqa: BLE001 - raised again in the caller's task
        return None, failure


async def wait_for_change(rowsets: Sequence[RowSet]) -> None:
    """Wait until another row of any of some row sets is resolved.

    Raises:
        Exception: The failure of a backend.
    """
    waits = [asyncio.ensure_future(rows.change()) for rows in rowsets if not rows.done]
    try:
        for wait in (await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED))[0]:
            wait.result()
    finally:
        for wait in waits:
            wait.cancel()


async def cancelled_and_done(rowsets: Sequence[RowSet]) -> None:
    """Cancel rows and return when all are resolved.

    A caller that is cancelled meanwhile waits too, since the rows' cost must be booked.
    """
    for rows in rowsets:
        rows.cancel()
    interruptions = [await _wait_until_done(rows.drain, lambda rows=rows: rows.done) for rows in rowsets]
    if interrupted := next(filter(None, reversed(interruptions)), None):
        raise interrupted


async def _wait_until_done(
    wait: Callable[[], Awaitable[Any]], done: Callable[[], bool]
) -> asyncio.CancelledError | None:
    """Wait until `done` returns True, even if the caller is cancelled; return the last cancellation."""
    interrupted: asyncio.CancelledError | None = None
    while not done():
        try:
            await wait()
        except asyncio.CancelledError as again:
            interrupted = again
    return interrupted
