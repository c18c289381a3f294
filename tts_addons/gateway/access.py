"""Checks of each request before its endpoint runs.

The checks concern the host of a request, the web page that it comes from, its content type and its key. Every web page
that a user opens can reach a server on the same machine. Three kinds of requests are therefore refused first. They have
a foreign `Host` (DNS rebinding), a foreign `Origin`, or a body that is not declared as JSON (a form can be posted
anywhere).
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tts._core.logs import get_logger
from tts.checks import read_text
from tts.errors import ConfigError, quote, unknown_name
from tts_addons.gateway.failures import ApiError, api_error
from tts_addons.gateway.wire.errors import error_reply, is_messages

LOG = get_logger("tts.serve")
ACCESS_LOG = get_logger("tts.serve.access")  # a line a request, at INFO
LOCAL = ("localhost", "127.0.0.1", "[::1]")
OPEN_PATHS = ("/", "/health", "/ready")  # without a key: the page holds no data
EVERY_ADDRESS = ("0.0.0.0", "::")  # addresses that listen at all of a machine's
_LONGEST_PATH = 200  # characters of a path in the access log


@dataclass(frozen=True, slots=True)
class Client:
    """The client that sends a request.

    Args:
        name: The name for limits and metrics.
        owner: The name under which the client's searches are kept. The key cannot be computed from this name.
        operator: Whether the client sees the counts of all clients.
    """

    name: str
    owner: str
    operator: bool = False


class Keys:
    """The keys of clients, kept as digests and compared in constant time.

    Args:
        named: The keys by the client's name. If empty, every client is allowed, and is identified by the key that it
            sends, if any.
        operators: The names of those who see the counts of all clients.

    Raises:
        ConfigError: an operator has no key.
    """

    def __init__(self, named: Mapping[str, str], operators: Sequence[str] = ()) -> None:
        self._digests = [(name, _digest(key)) for name, key in named.items()]
        self._operators = frozenset(operators)
        for name in operators:
            if not named:
                raise ConfigError(
                    f"operators has {quote(name)}, but there are no keys",
                    hint="name a file of keys, or leave operators out",
                )
            if name not in named:
                raise unknown_name("name of operators", name, named)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the clients."""
        return tuple(name for name, _ in self._digests)

    def client(self, authorization: str | None) -> Client | None:
        """Return the client whose key is in an `Authorization` header; None: the key is of no client.

        Where there are no keys, everyone is a client; one who sends a key is told apart by it.
        """
        scheme, _, key = (authorization or "").strip().partition(" ")
        sent_digest = _digest(key.strip()) if scheme.lower() == "bearer" else b""
        if not self._digests:
            return Client("anyone", sent_digest.hex() or "anyone")
        client = None
        for name, digest in self._digests:  # all are compared, so that the time does not depend on the match
            if hmac.compare_digest(digest, sent_digest):
                client = Client(name, digest.hex(), name in self._operators)
        return client


def _digest(key: str) -> bytes:
    return hashlib.sha256(b"tts key:" + key.encode()).digest()


def read_keys(path: str | None, operators: Sequence[str] = (), *, again: bool = False) -> Keys:
    """Return the keys of a file: "NAME KEY" a line; empty lines and comments (#) are ignored.

    Args:
        path: The file; None: there are no keys.
        operators: The names of the clients who see the counts of all clients.
        again: Whether the file was read before. Then an operator whose key is gone is no mistake.

    Raises:
        ConfigError: the file cannot be read, has no key, or a line or name is not valid. The message has no key.
    """
    if path is None:
        return Keys({}, operators)
    lines = read_text("the file of keys", path, 'write "NAME KEY" a line').splitlines()
    key_of: dict[str, str] = {}  # by name
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2 or words[0] in key_of or words[1] in key_of.values() or len(words[1]) < 8:
            raise ConfigError(
                f"line {number} of the keys {path!r} is not valid: write a new name and a new key of at least 8 "
                "characters",
                hint="make a key: python -c 'import secrets; print(secrets.token_urlsafe())'",
            )
        name, key = words
        key_of[name] = key
    if not key_of:
        raise ConfigError(f"the file of keys {path!r} has no key", hint='write "NAME KEY" a line, or leave keys out')
    if again:
        operators = [name for name in operators if name in key_of]
    return Keys(key_of, operators)


class Access:
    """Middleware that refuses requests without access, and sets `request.state.client` for the endpoints.

    Args:
        keys: A function that returns the keys of the moment.
        hosts: The names, without port, that requests may address; "*": any.
        origins: The origins of web pages that may call, beside the server's own.
        count: A function that is called with the status of each reply.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        keys: Callable[[], Keys],
        hosts: Sequence[str],
        origins: Sequence[str],
        count: Callable[[int], None],
    ) -> None:
        self._app, self._keys, self._count = app, keys, count
        self._hosts = {host.lower() for host in hosts}
        self._origins = {origin.lower() for origin in origins}
        self._by_address = not self._hosts.isdisjoint(EVERY_ADDRESS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or reply with an error."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, has_begun, begun_s = Headers(scope=scope), False, time.monotonic()
        number = scope.setdefault("state", {})["number"] = f"req_{secrets.token_urlsafe(18)}"

        async def send_message(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                self._count(message["status"])
                reply_headers = MutableHeaders(scope=message)
                reply_headers.setdefault("x-content-type-options", "nosniff")
                reply_headers.setdefault("cache-control", "no-store")
                reply_headers.setdefault("x-request-id", number)
                scope["state"]["replied"] = message["status"], reply_headers["x-request-id"]
                if is_messages(scope["path"]):
                    reply_headers["request-id"] = reply_headers["x-request-id"]
            await send(message)

        try:
            self._check(scope, headers)
            await self._app(scope, receive, send_message)
        except Exception as failure:
            error = api_error(failure)
            if error.code == "internal_error":
                LOG.exception("the request %s failed", number)
            if has_begun:
                raise
            await error_reply(error, scope["path"], number)(scope, receive, send_message)
        finally:
            scope["state"].pop("free", _no_share)()
            if ACCESS_LOG.isEnabledFor(logging.INFO):
                _write_access(scope, time.monotonic() - begun_s)

    def _is_own_host(self, host: str) -> bool:
        """Return whether a request may address this host.

        Where the server listens at every address, any address is accepted. It is no risk: a page of another site could
        reach this server only by a name that the site resolves to this machine, never by an address.
        """
        return host in self._hosts or (self._by_address and _is_address(host.strip("[]")))

    def _check(self, scope: Scope, headers: Headers) -> None:
        """Refuse a request by its host, origin, type or key, and note its client.

        Raises:
            ApiError: 401, 403 or 415.
        """
        host, origin = headers.get("host", "").lower(), headers.get("origin")
        if "*" not in self._hosts and not self._is_own_host(_without_port(host)):
            raise ApiError(
                403,
                f"the request addresses the host {quote(host)}, but this server has other names; its operator adds "
                "them under hosts",
                kind="permission_error",
                code="foreign_host",
            )
        own_origin = f"{scope.get('scheme', 'http')}://{host}"
        if origin is not None and origin.lower() not in {own_origin, *self._origins}:
            raise ApiError(
                403,
                f"the request comes from the web page {quote(origin)}, which may not call this server; operators add "
                "it under origins",
                kind="permission_error",
                code="foreign_origin",
            )
        if scope["method"] in ("POST", "PUT", "PATCH"):
            content_type, _, _parameters = headers.get("content-type", "").partition(";")
            content_type = content_type.strip().lower()
            if content_type != "application/json":
                raise ApiError(
                    415,
                    f"the body is {quote(content_type) if content_type else 'of no type'}, but must be "
                    "application/json",
                    code="unsupported_media_type",
                )
        api_key = headers.get("x-api-key")  # Anthropic's clients send the key here
        authorization = headers.get("authorization") if api_key is None else f"Bearer {api_key}"
        client = self._keys().client(authorization)
        if client is None and scope["path"] not in OPEN_PATHS:
            raise ApiError(
                401,
                "the key is missing or unknown; send it as Authorization: Bearer KEY, or as x-api-key",
                kind="authentication_error",
                code="invalid_api_key",
            )
        scope.setdefault("state", {})["client"] = client


def _no_share() -> None:
    """Free nothing: the request was small."""


def _write_access(scope: Scope, seconds: float) -> None:
    """Log a request: address, name of the key, method and path, status, seconds, number.

    Keys, queries and bodies are not written.

    Args:
        scope: The scope of the request, after its reply.
        seconds: The seconds from its headers to the end of its reply.
    """
    state = scope["state"]
    client = state.get("client")
    status, number = state.get("replied", (499, state["number"]))  # 499: the client left before a reply
    address, *_port = scope.get("client") or ("-",)
    name = "-" if client is None else client.name
    ACCESS_LOG.info(
        '%s %s "%s %s" %d %.3f s %s',
        address,
        name,
        scope["method"],
        scope["path"][:_LONGEST_PATH],
        status,
        seconds,
        number,
    )


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
