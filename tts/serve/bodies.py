"""Bodies of requests as bytes, within the operator's limits."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from tts.serve.config import GatewayLimits
from tts.serve.failures import ApiError


async def read_body(request: Request) -> bytes:
    """Return a request's body.

    Raises:
        ApiError: 413, it is longer than the operator allows; what is beyond is not read. 408: it takes too long to come.
    """
    limits: GatewayLimits = request.app.state.gateway.config.limits
    most, seconds = limits.body_bytes, limits.body_seconds
    told = request.headers.get("content-length", "")
    if told.isdecimal() and int(told) > most:
        raise _too_large(most)
    parts, size = list[bytes](), 0
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                parts.append(part)
                if (size := size + len(part)) > most:
                    raise _too_large(most)
    except TimeoutError:
        raise ApiError(408, f"the body did not come within {seconds:g} seconds; send it at once", code="body_too_slow") from None
    return b"".join(parts)


def _too_large(most: int) -> ApiError:
    return ApiError(413, f"the body has more than {most} bytes, which is this server's limit; send less", code="body_too_large")
