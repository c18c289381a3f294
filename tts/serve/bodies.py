"""Bodies of requests as bytes, within the operator's limits."""

from __future__ import annotations

import asyncio
import zlib

from starlette.requests import Request

from tts.errors import quote
from tts.serve.config import GatewayLimits
from tts.serve.failures import ApiError

_WINDOWS = {"gzip": 31, "x-gzip": 31, "deflate": 15}  # the window sizes by which zlib knows each encoding


async def read_body(request: Request) -> bytes:
    """Return a request's body, decompressed if it is in gzip or deflate.

    Raises:
        ApiError: 413, the body is longer than the operator allows. 408: the body takes too long to come. 415: the
            encoding is not known. 400: the bytes are not in the encoding that the header names.
    """
    limits: GatewayLimits = request.app.state.gateway.config.limits
    most, seconds = limits.body_bytes, limits.body_seconds
    declared_length = request.headers.get("content-length", "")
    if declared_length.isdecimal() and int(declared_length) > most:
        raise _too_large(most)
    parts, size = list[bytes](), 0
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                parts.append(part)
                size += len(part)
                if size > most:
                    raise _too_large(most)
    except TimeoutError:
        raise ApiError(
            408, f"the body did not come within {seconds:g} seconds; send it at once", code="body_too_slow"
        ) from None
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    return _decompress(b"".join(parts), encoding, most)


def _decompress(body: bytes, encoding: str, most: int) -> bytes:
    """Return a body, decoded.

    Raises:
        ApiError: 413, the decoded body has more than `most` bytes. 415: the encoding is not known. 400: the body is not
            in that encoding.
    """
    if encoding in ("identity", ""):
        return body
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
