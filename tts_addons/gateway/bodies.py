"""Bodies of requests within the operator's limits.

Large bodies are read outside of the event loop. Those of one key have a bounded number of bytes under work, and keys
take turns. So one key leaves the others their time.
"""

from __future__ import annotations

import asyncio
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
    """Return a request's body.

    Raises:
        ApiError: 413, the body is longer than the operator allows. 408: the body takes too long to come. 415: the body
            is compressed.
    """
    limits: GatewayLimits = request.app.state.gateway.config.limits
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", ""):
        cause = f"the body's encoding is {quote(encoding)}, but must be identity; send it as it is"
        raise ApiError(415, cause, code="unsupported_media_type")
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
    return b"".join(parts)


def _too_large(most: int) -> ApiError:
    return ApiError(
        413, f"the body has more than {most} bytes, which is this server's limit; send less", code="body_too_large"
    )
