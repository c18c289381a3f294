"""Replies of server-sent events: their form, and how they are written while the client listens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Mapping
from contextlib import aclosing, suppress
from typing import Any, Final, TypeVar

from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

T = TypeVar("T")
PING: Final = b": ping\n\n"
DONE: Final = b"data: [DONE]\n\n"


class EventsReply(StreamingResponse):
    """A reply of server-sent events, whose source is closed when the client leaves.

    Args:
        events: The encoded events as they come.
        number: The number of the request, for the header `x-request-id`; "": there is no such header.
    """

    def __init__(self, events: AsyncGenerator[bytes], number: str = "") -> None:
        request_header = {"x-request-id": number} if number else {}
        headers = {**request_header, "x-accel-buffering": "no"}
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write the events."""
        del scope
        with suppress(ClientDisconnect):
            async with aclosing(self._events):
                await wait_for_work(receive, self.stream_response(send))


def chunk(heading: Mapping[str, Any], choice: Mapping[str, Any], *, usage: bool, **more: Any) -> bytes:
    """Return a chunk of OpenAI's streams with one choice.

    Args:
        heading: The members with which every chunk begins.
        choice: The choice.
        usage: Whether the last chunk of the stream has the usage.
        more: Further members.
    """
    no_usage = {"usage": None} if usage else {}
    return event({**heading, "choices": [choice], **no_usage, **more})


def ending(heading: Mapping[str, Any], usage: Mapping[str, Any] | None) -> bytes:
    """Return the end of such a stream: the usage, unless it is None, and `[DONE]`."""
    return (b"" if usage is None else event({**heading, "choices": [], "usage": usage})) + DONE


def event(value: Any) -> bytes:
    """Return a value as the event of a stream."""
    return b"data: " + json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n\n"


def named_event(name: str, value: Any) -> bytes:
    """Return a value as the event of a stream, under a name."""
    return f"event: {name}\n".encode() + event(value)


async def wait_for_work(receive: Receive, work: Awaitable[T]) -> T:
    """Await work, and return its result.

    If the client leaves first, the work is cancelled and awaited to its end. The request's body must have been read
    before.

    Args:
        receive: The function that receives the request's messages.
        work: The work.

    Raises:
        ClientDisconnect: the client has left.
    """

    async def leave() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    work_task, leave_task = asyncio.ensure_future(work), asyncio.create_task(leave())
    try:
        await asyncio.wait((work_task, leave_task), return_when=asyncio.FIRST_COMPLETED)
        if not work_task.done():
            raise ClientDisconnect
        return work_task.result()
    finally:
        leave_task.cancel()
        if not work_task.done():
            work_task.cancel()
            await asyncio.gather(work_task, return_exceptions=True)
