"""A server whose every reply a test writes itself, byte for byte."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from typing import Any

from tests.backends.openai.making import QUICK, drawn, on
from tests.backends.openai.server import serving
from tts.backends.base import Sample
from tts.backends.openai.errors import Key
from tts.backends.openai.http import Timeouts

ONCE = dataclasses.replace(QUICK, tries=1)
MODELS = {"data": [{"id": "toy"}]}


@dataclasses.dataclass
class Asked:
    """A request: its method, path, headers and body."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


class Saying:
    """The server. `say` gives the bytes of a reply, its head included, in pieces; the connection is closed behind
    it.
    """

    def __init__(self, say: Callable[[Asked], Iterable[bytes] | AsyncIterator[bytes]]) -> None:
        self.say = say
        self.asked: list[Asked] = []

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, path, _ = head[0].split(" ")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
            content = await reader.readexactly(int(headers.get("content-length", 0)))
            self.asked.append(Asked(method, path, headers, json.loads(content) if content else None))
            pieces = self.say(self.asked[-1])
            if isinstance(pieces, AsyncIterator):
                async for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
            else:
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
        with suppress(OSError):
            writer.close()
            await writer.wait_closed()


def head(kind: str = "text/event-stream", status: int = 200, *more: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status} X", f"Content-Type: {kind}", "Connection: close", *more, "", ""]).encode()


def whole(told: Any, status: int = 200, *more: str) -> list[bytes]:
    """Return a reply of JSON, or of these bytes."""
    return [head("application/json", status, *more), told if isinstance(told, bytes) else json.dumps(told).encode()]


def delta(text: str | None, finish: Any = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}], **more}


def used(prompt: int, generated: int) -> dict[str, Any]:
    return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": generated}}


def event(told: Any) -> bytes:
    return b"data: " + (told if isinstance(told, bytes) else json.dumps(told).encode()) + b"\n\n"


async def dripping(*pieces: bytes, end: bytes = b" ", pause_s: float = 0.005) -> AsyncIterator[bytes]:
    """Give some bytes, and then others without end."""
    for piece in pieces:
        yield piece
    while True:
        yield end
        await asyncio.sleep(pause_s)


def row(
    *pieces: bytes,
    endless: Any = None,
    say: Callable[[Asked], Any] | None = None,
    key: Key | None = None,
    timeouts: Timeouts = ONCE,
    cap: int = 60,
    **found: Any,
) -> tuple[Sample, Saying]:
    """Return what is made of a chat's reply of these bytes, and the server.

    Args:
        pieces: The bytes.
        endless: What gives them instead.
        say: What gives those of each request instead.
        key: The key.
        timeouts: How often, and how long, the server is asked.
        cap: The most tokens of the row.
        found: Capabilities of the server.
    """
    server = Saying(say or (lambda _asked: pieces if endless is None else endless))

    async def draw(url: str) -> Sample:
        backend = on(url, timeouts, key=key, **{"mode": "chat", "seeds": False, "logprobs": False} | found)
        try:
            [sample] = await drawn(backend, 1, cap=cap)
            return sample
        finally:
            await backend.close()

    with serving(server) as url:
        return asyncio.run(draw(url)), server
