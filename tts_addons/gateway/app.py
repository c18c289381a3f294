"""The ASGI application of a gateway."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from tts_addons.gateway import asking, catalog, metrics, observe, page, tokenizers
from tts_addons.gateway.access import LOCAL, Access
from tts_addons.gateway.completions import endpoint
from tts_addons.gateway.config import GatewayConfig
from tts_addons.gateway.failures import ApiError
from tts_addons.gateway.gateway import Gateway
from tts_addons.gateway.spending import statements
from tts_addons.gateway.wire.errors import error_reply

# each module of endpoints has its own `ROUTES`
ROUTES: tuple[Route, ...] = (
    *catalog.ROUTES,
    *asking.ROUTES,
    *endpoint.ROUTES,
    *tokenizers.ROUTES,
    *observe.ROUTES,
    *metrics.ROUTES,
    *statements.ROUTES,
    *page.ROUTES,
)
_EXPOSED = (  # headers that pages of other origins may read
    "x-request-id", "request-id", "retry-after", "retry-after-ms", "x-should-retry", "x-tts-tokens", "x-tts-usd",
    "x-tts-seconds", "x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens",
)  # fmt: skip


def create_app(
    config: GatewayConfig,
    *,
    hosts: Sequence[str] = (),
    gateway: Gateway | None = None,
    routes: Sequence[Route] = ROUTES,
) -> Starlette:
    """Return the application. Its models are loaded when it starts, and freed when it ends.

    Args:
        config: The configuration of the gateway.
        hosts: Further names of this server, beside `config.hosts` and the local names of this machine.
        gateway: The gateway, made from the same configuration; None: a new one.
        routes: The endpoints.

    Raises:
        ConfigError: a model is unknown, or the keys cannot be read.
    """
    app_gateway = Gateway(config) if gateway is None else gateway

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        try:
            await app_gateway.open()
            yield
        finally:
            await app_gateway.close()

    names = (*LOCAL, *hosts, *config.hosts)
    access = Middleware(
        Access, count=app_gateway.metrics.reply, keys=lambda: app_gateway.keys, hosts=names, origins=config.origins
    )
    pages = Middleware(
        CORSMiddleware,
        allow_origins=[origin.lower() for origin in config.origins],
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["*"],  # none of them has the key of another client
        expose_headers=_EXPOSED,
    )
    app = Starlette(
        routes=routes,
        middleware=[pages, access],
        lifespan=lifespan,
        exception_handlers={HTTPException: _http_error, ApiError: _api_error, ClientDisconnect: _disconnect_response},
    )
    app.state.gateway = app_gateway
    return app


async def _api_error(request: Request, failure: Exception) -> Response:
    assert isinstance(failure, ApiError)
    return error_reply(failure, request.url.path, request.state.number)


async def _http_error(request: Request, failure: Exception) -> Response:
    """Reply to a request that no endpoint takes, in the form of the other errors."""
    assert isinstance(failure, HTTPException)
    causes = {404: "there is no such endpoint", 405: f"this endpoint does not take {request.method}"}
    cause = causes.get(failure.status_code, failure.detail)
    error = ApiError(failure.status_code, f"{request.url.path[:200]}: {cause}", code="unknown_url")
    return error_reply(error, request.url.path, request.state.number)


async def _disconnect_response(_: Request, __: Exception) -> Response:
    return Response(status_code=499)
