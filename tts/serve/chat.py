"""`POST /v1/chat/completions`: a search in the form of a chat completion."""

from __future__ import annotations

import asyncio
import hashlib

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from tts.serve.chat_body import ChatBody, checked, parsed
from tts.serve.config import GatewayLimits
from tts.serve.failures import ApiError, JsonReply
from tts.serve.gateway import Gateway
from tts.serve.orders import order_of
from tts.serve.replies import completion
from tts.serve.server_events import leaving
from tts.serve.streams import ChatStream
from tts.solver import telemetry
from tts.threads import in_thread


async def chat_completions(request: Request) -> Response:
    """Reply to a chat request. A stream begins with its search, so that an early refusal still has its HTTP status."""
    gateway: Gateway = request.app.state.gateway
    raw = await read_body(request)
    body = checked(ChatBody, parsed(raw))
    key, retry = request.headers.get("idempotency-key"), _retry(request)
    has_schemas = bool(body.tools or body.response_format)  # which may take a second to check
    order = await in_thread(order_of, body, gateway) if has_schemas else order_of(body, gateway)
    digest = hashlib.sha256(raw).digest()
    with telemetry.continued(request.headers):
        search = gateway.begin(request.state.client, order, key=key, digest=digest, retry=retry)
    if body.stream:
        return ChatStream(gateway, search, usage=body.streams_usage)
    with gateway.attached(search, linger=key is not None or retry is not None):
        async with leaving(request.receive, search.wake) as gone:
            while not search.over and not gone.is_set():
                await search.signal.wait()
    if not search.over:
        raise ClientDisconnect
    return JsonReply(completion(search, search.result()), headers={"x-request-id": search.number})


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


def _retry(request: Request) -> int | None:
    """Return the number of earlier attempts, from the header of OpenAI's clients; None without that header."""
    told = request.headers.get("x-stainless-retry-count", "")
    return int(told) if told.isdecimal() and len(told) < 4 else None


ROUTES = (Route("/v1/chat/completions", chat_completions, methods=["POST"]),)
