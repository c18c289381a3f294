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

    Before a subclass calls `write`, it may still refuse the request with an HTTP status.

    Args:
        number: The number of the request, for the header `x-request-id`; "": there is no such header.
        usage: Whether the last chunk has the usage.
    """

    def __init__(self, number: str = "", *, usage: bool = False) -> None:
        self._usage = usage
        request_header = {"x-request-id": number} if number else {}
        super().__init__(media_type="text/event-stream", headers={**request_header, "x-accel-buffering": "no"})
        del self.headers["content-length"]

    def chunk(self, heading: Mapping[str, Any], choice: Mapping[str, Any], **more: Any) -> bytes:
        """Return a chunk with one choice, as the API has it; `more`: its further members."""
        usage = {"usage": None} if self._usage else {}
        return event({**heading, "choices": [choice], **usage, **more})

    def ending(self, heading: Mapping[str, Any], usage: Mapping[str, Any]) -> bytes:
        """Return the end of a stream: the usage, if the request asks for it, and `[DONE]`."""
        usage_chunk = event({**heading, "choices": [], "usage": usage}) if self._usage else b""
        return usage_chunk + DONE

    async def write(self, send: Send, parts: AsyncGenerator[bytes], gone: asyncio.Event) -> None:
        """Send the headers, the parts as they come, and the end, unless the client leaves.

        Args:
            send: The function that sends a message of the reply.
            parts: The encoded events.
            gone: An event that is set when the client leaves.
        """
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
    """Yield an event that is set when the client leaves.

    The request's body must have been read before.

    Args:
        receive: The function that receives the request's messages.
        then: A function that is called when the client has left.
    """
    gone = asyncio.Event()

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()
        then()

    watcher = asyncio.create_task(watch())
    try:
        yield gone
    finally:
        watcher.cancel()
