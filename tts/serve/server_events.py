"""Replies of server-sent events: their form, and how they are written while the client listens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, Final

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Send

PING: Final = b": ping\n\n"
DONE: Final = b"data: [DONE]\n\n"


class EventsReply(Response):
    """A reply of server-sent events.

    Until it calls `write`, a subclass may still refuse with an HTTP status.

    Args:
        number: The number of the request, for its header; "": none.
        usage: Whether the last chunk has the usage.
    """

    def __init__(self, number: str = "", *, usage: bool = False) -> None:
        self._usage = usage
        named = {"x-request-id": number} if number else {}
        super().__init__(media_type="text/event-stream", headers={**named, "x-accel-buffering": "no"})
        del self.headers["content-length"]

    def chunk(self, heading: Mapping[str, Any], choice: Mapping[str, Any], **more: Any) -> bytes:
        """Return a chunk with one choice, as the API has it; `more`: its further members."""
        usage = {"usage": None} if self._usage else {}
        return event({**heading, "choices": [choice], **usage, **more})

    def ending(self, heading: Mapping[str, Any], usage: Mapping[str, Any]) -> bytes:
        """Return the end of a stream: the usage, if it is asked for, and `[DONE]`."""
        return (event({**heading, "choices": [], "usage": usage}) if self._usage else b"") + DONE

    async def write(self, send: Send, parts: AsyncGenerator[bytes], gone: asyncio.Event) -> None:
        """Send the head, the parts as they come, and the end, unless the client has left."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        with suppress(ClientDisconnect):  # the client has left
            async with aclosing(parts) as chunks:
                async for chunk in chunks:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
        if not gone.is_set():
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def event(value: Any) -> bytes:
    """Return a value as the event of a stream."""
    return b"data: " + json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n\n"


def named_event(name: str, value: Any) -> bytes:
    """Return a value as the event of a stream, under a name."""
    return f"event: {name}\n".encode() + event(value)


@asynccontextmanager
async def leaving(receive: Receive, then: Callable[[], None] = lambda: None) -> AsyncGenerator[asyncio.Event]:
    """Yield an event that is set, and call `then`, when the client leaves.

    The body must have been read before.
    """
    gone = asyncio.Event()

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()
        then()

    task = asyncio.create_task(watch())
    try:
        yield gone
    finally:
        task.cancel()
