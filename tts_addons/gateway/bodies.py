"""Bodies of requests within the operator's limits.

Large bodies are read outside of the event loop. Those of one key have a bounded number of bytes under work, and keys
take turns. So one key leaves the others their time.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from starlette.requests import Request

from tts._core.threads import run_in_thread
from tts.errors import quote
from tts_addons.gateway.config import GatewayLimits
from tts_addons.gateway.failures import ApiError

T = TypeVar("T")
_WINDOWS = {"gzip": 31, "x-gzip": 31, "deflate": 15}  # the window sizes by which zlib knows each encoding
LARGE = 65_536  # bytes; the reading of larger bodies takes the loop's time
_SHARE = 8 << 20  # the most bytes of a key's large bodies under work
_UNPACKED = 64  # the bytes that are expected of each packed byte


class ByteShares:
    """The bytes of large bodies under work, which are bounded for each key; further bodies wait.

    Args:
        most: The most bytes of a key.
    """

    def __init__(self, most: int = _SHARE) -> None:
        self._most, self._held, self._freed = most, Counter[str](), asyncio.Event()

    async def hold(self, owner: str, size: int) -> Callable[[], None]:
        """Wait until a key has room for bytes, hold them, and return the function that frees them.

        Args:
            owner: The owner of the key.
            size: The bytes. More than a whole share are a whole share.
        """
        size = min(size, self._most)
        while self._held[owner] + size > self._most:
            await self._freed.wait()
        self._held[owner] += size
        return partial(self._free, owner, size)

    def _free(self, owner: str, size: int) -> None:
        self._held[owner] -= size
        self._held += Counter()  # drops keys without bytes
        self._freed.set()
        self._freed = asyncio.Event()


async def hold_bytes(request: Request, size: int) -> None:
    """Let a large request wait for the share of its key.

    The request holds the share until its reply is sent and its search is kept.
    """
    state = request.scope["state"]
    if size > LARGE and "free" not in state:
        gateway = request.app.state.gateway
        free = await gateway.shares.hold(request.state.client.owner, size)

        def free_when_kept() -> None:
            asyncio.ensure_future(gateway.wait_for_archive()).add_done_callback(lambda _: free())

        state["free"] = free_when_kept


async def hold_record(request: Request, number: str) -> None:
    """Let a request wait for the share of its key before a large response or trace is read."""
    size = request.app.state.gateway.archive.largest_size(request.state.client.owner, number)
    await hold_bytes(request, _UNPACKED * size)


async def read_in_turn(request: Request, read: Callable[[], T], *, slow: bool = False) -> T:
    """Return what a function reads of a request; keys take turns, and large requests are read in a thread.

    Args:
        request: The request.
        read: The function.
        slow: Whether the function takes long although the request is small.
    """
    gateway, is_large = request.app.state.gateway, "free" in request.scope["state"]
    if slow and not is_large:
        return await run_in_thread(read)
    async with gateway.lanes[is_large].place(request.state.client.owner):
        if is_large:
            return await run_in_thread(read)
        try:
            return read()
        finally:
            await asyncio.sleep(0)  # requests of others arrive, and have their turn


async def read_body(request: Request) -> bytes:
    """Return a request's body, decompressed if it is in gzip or deflate.

    Raises:
        ApiError: 413, the body is longer than the operator allows. 408: the body takes too long to come. 415: the
            encoding is not known. 400: the bytes are not in the encoding that the header names.
    """
    limits: GatewayLimits = request.app.state.gateway.config.limits
    most, seconds = limits.body_bytes, limits.body_seconds
    declared_length = request.headers.get("content-length", "")
    if declared_length.isdecimal():
        if int(declared_length) > most:
            raise _too_large(most)
        await hold_bytes(request, int(declared_length))
    parts, size, loop = list[bytes](), 0, asyncio.get_running_loop()
    try:
        async with asyncio.timeout(seconds) as limit:
            async for part in request.stream():
                parts.append(part)
                size += len(part)
                if size > most:
                    raise _too_large(most)
                if size > LARGE and "free" not in request.scope["state"]:  # the client has declared no length
                    limit.reschedule(None)
                    await hold_bytes(request, most)
                    limit.reschedule(loop.time() + seconds)
    except TimeoutError:
        raise ApiError(
            408, f"the body did not come within {seconds:g} seconds; send it at once", code="body_too_slow"
        ) from None
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    body = b"".join(parts)
    if encoding not in ("identity", ""):
        await hold_bytes(request, min(most, _UNPACKED * len(body)))
        body = await read_in_turn(request, partial(_decompress, body, encoding, most))
    return body


def _decompress(body: bytes, encoding: str, most: int) -> bytes:
    """Return a body, decoded.

    Raises:
        ApiError: 413, the decoded body has more than `most` bytes. 415: the encoding is not known. 400: the body is not
            in that encoding.
    """
    if encoding not in _WINDOWS:
        raise ApiError(
            415,
            f"the body's encoding is {quote(encoding)}, but must be gzip, deflate or identity",
            code="unsupported_media_type",
        )
    reader = zlib.decompressobj(_WINDOWS[encoding])
    try:
        text = reader.decompress(body, most + 1)
    except zlib.error:
        raise ApiError(
            400, f"the body is not in {encoding}, its content-encoding; send what the header names", code="invalid_body"
        ) from None
    if len(text) > most:
        raise _too_large(most)
    if not reader.eof or reader.unused_data:
        raise ApiError(
            400, f"the body in {encoding} has no end, or goes on behind it; send it whole", code="invalid_body"
        )
    return text


def _too_large(most: int) -> ApiError:
    return ApiError(
        413, f"the body has more than {most} bytes, which is this server's limit; send less", code="body_too_large"
    )
