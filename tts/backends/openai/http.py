"""HTTP to a server of the OpenAI API: connections, timeouts, retries, and the events of a reply.

A call without a whole reply raises a `ServerError` with a kind. A call whose reply did not begin costs nothing and is
sent again. Examples are a missing connection, an error status, and a closed connection. A call that broke in the middle
of its reply is not sent again: the received part is charged.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import ssl
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

import httpx

from tts._common.characters import join_surrogates
from tts.backends.openai.errors import (
    HOW_KEY,
    Key,
    ServerError,
    call_error,
    decode_json,
    event_error,
    retry_after,
    status_error,
)
from tts.backends.openai.events import Events
from tts.backends.openai.pace import Gate, RateLimits, RequestMeter, Ticket
from tts.backends.openai.replicas import Replica, Replicas
from tts.backends.openai.reply import usage_in, usage_of
from tts.checks import check_int
from tts.errors import ConfigError, quote
from tts.randomness import uniform

_JSON = {"Content-Type": "application/json"}
_IDLE_S = 1.0  # a failure sooner than this means that the server had closed the idle connection before
# the authority in a url, even in a wrong one
_AUTHORITY = re.compile(r"(?:[a-z]*:)?/*([^/?#]*).*", re.IGNORECASE | re.DOTALL)
# a host with its port, or with its domain
_BARE = re.compile(r"[\w.-]+(:\d+)(/[\w./-]*)?|[\w-]+(\.[\w-]+)+(/[\w./-]*)?")
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
_FOR_EXAMPLE = "for example http://localhost:8000"
_HOW_QUERY = f"{_FOR_EXAMPLE}; give a query as the record's query: {{name: value}}"
_POOL = 8  # connections of one httpx client, few since its pool scans all of them several times for each request
_MOST = 1 << 26  # bytes of a whole reply
_MOST_SAID, _SAYING_S = 1 << 20, 10.0  # the most bytes and seconds for reading the content of an error
_LAST_S = 2.0  # seconds between the last event of a reply and its end

# Handles one event of a reply; True: no more events are wanted. Then the connection is closed, and the server stops.
Take = Callable[[Any], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Timeouts in seconds, the number of tries, and the requests in flight.

    Args:
        concurrency: Most requests in flight, at least 1; other rows wait. Refusals for load lower this number.
        rpm: Most requests in any minute; None: unlimited.
        tpm: Most tokens in any minute, prompts included; None: unlimited.
        tries: The most times that a refused call is sent, at least 1.
        connect_s: The most seconds for a connection; the probe takes 3.5 s at most.
        first_s: The most seconds until a reply's first event.
        gap_s: The most seconds between two events.
        call_s: The most seconds for a whole call.
        wait_s: The most seconds before the second try. They double with each try, and the wait is drawn from 0 up to
            them (full jitter).
        longest_wait_s: The most seconds before any try. A server that asks for more by Retry-After, or that could not
            be reached for so long, is not tried again.

    Raises:
        ConfigError: A value is not valid.
    """

    concurrency: int = 256
    rpm: int | None = None
    tpm: int | None = None
    tries: int = 6
    connect_s: float = 20.0  # a thousand connections that are made at once delay each other
    first_s: float = 300.0
    gap_s: float = 60.0
    call_s: float = 3600.0
    wait_s: float = 0.5
    longest_wait_s: float = 60.0

    def __post_init__(self) -> None:
        for name in ("concurrency", "tries"):
            check_int(name, getattr(self, name), 1, optional=False)
        for name in ("rpm", "tpm"):
            value: Any = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise ConfigError(f"{name} is {value!r}, but must be a whole number of at least 1, a minute")
        for name in ("connect_s", "first_s", "gap_s", "call_s", "wait_s", "longest_wait_s"):
            check_positive(name, getattr(self, name))

    def allow_retry(self, error: ServerError, num_failures: int) -> bool:
        """Whether a request that failed so many times may be sent again."""
        return error.again and error.after_s <= self.longest_wait_s and num_failures < self.tries

    def retry_wait_s(self, after_s: float, num_failures: int, draw: float = 1.0) -> float:
        """Return the seconds to wait before a request is sent again.

        Args:
            after_s: The seconds that the server asks for.
            num_failures: The number of tries that failed, at least 1.
            draw: A random number from 0 to 1, which keeps requests from being sent all at once.
        """
        return after_s + draw * min(self.longest_wait_s, self.wait_s * 2 ** (num_failures - 1))


def check_positive(name: str, value: Any) -> None:
    """Raise ConfigError where an option is no number of seconds above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value > 0):
        raise ConfigError(f"{name} is {value!r}, but must be seconds above 0")


def roots(url: str) -> tuple[str, ...]:
    """Return the possible base urls of the API: the url with /v1 after it, and the url itself.

    White space around the url is removed.

    Raises:
        ConfigError: The text is not a server's url, or holds a secret.
    """
    url = url.strip()
    try:
        parts = urlsplit(url)
        has_host = parts.scheme in ("http", "https") and bool(httpx.URL(url).host) and parts.port != 0
        is_valid = has_host and not re.search(r"[\s?#]", url)
    except (ValueError, httpx.InvalidURL):
        is_valid = False
    if "@" in _AUTHORITY.sub(r"\1", url):
        raise ConfigError(
            "the url holds a user's name or password, which would be written to results", hint=f"for a key: {HOW_KEY}"
        )
    if not is_valid:
        hint = _HOW_QUERY if "=" in url else _FOR_EXAMPLE
        if _BARE.fullmatch(url):
            hint = f"did you mean http://{url}?"
        shown_url = quote(re.sub("([?#]).+", r"\1…", url))  # a query or fragment may hold a key
        raise ConfigError(
            f"url is {shown_url}, but must be http:// or https:// with a host, and neither query nor fragment",
            hint=hint,
        )
    plain_url = _plain_url(url)
    return (plain_url,) if plain_url.endswith("/v1") else (f"{plain_url}/v1", plain_url)


def _plain_url(url: str) -> str:
    """Return the normal form of a valid url.

    Scheme and host are in lower case. The default port and redundant slashes are left out.
    """
    parts = urlsplit(url)
    scheme, host = parts.scheme.lower(), parts.netloc.lower()
    host = host.removesuffix(_DEFAULT_PORTS[scheme]).removesuffix(":")
    return f"{scheme}://{host}{re.sub('/{2,}', '/', parts.path).rstrip('/')}"


def checks(root: str) -> ssl.SSLContext | bool:
    """Return the context that checks a server's certificate, or False for http.

    An http server has no certificate, and reading the certificate authorities takes longer than a call.

    Raises:
        ConfigError: The certificate authorities cannot be read.
    """
    if urlsplit(root).scheme != "https":
        return False
    try:
        return httpx.create_ssl_context()
    except OSError as failure:  # ssl.SSLError, of a file without a certificate, is an OSError too
        file = os.environ.get("SSL_CERT_FILE", "")
        raise ConfigError(
            f"SSL_CERT_FILE is {file!r}, but must be a file of certificates: {failure.strerror or failure}"
        ) from None


def encode_body(body: Mapping[str, Any]) -> bytes:
    """Return a request's body. Lone surrogates, which cannot be encoded, are joined or replaced."""
    return join_surrogates(json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)).encode()


def event_of(data: bytes, after_s: float, key: Key, *, began: bool) -> dict[str, Any]:
    """Return an event of a reply, or a whole reply, from its JSON.

    Args:
        data: The JSON.
        after_s: Seconds that the reply's header asks to wait.
        key: The key, which is hidden.
        began: Whether anything of the reply came before the event.

    Raises:
        ServerError: The event is not valid, or is an error.
    """
    event = decode_json(data, key)
    error = event_error(event, after_s, key, began=began)
    if error is not None:
        raise error
    if not isinstance(event, dict):
        raise ServerError("BadReply", f"{quote(event)} where an object must be")
    return event


class HttpClient:
    """Calls a server within one event loop.

    Args:
        root: Base url of the API.
        key: The API key, sent with each request.
        timeouts: The timeouts of requests.
        cautious: Whether to begin with few calls in flight.
        others: Base urls of further servers of the same model, to which calls go while this one fails.

    Attributes:
        gate: Limits the calls at once; the caller acquires it.
        limited: Whether a reply has stated rate limits.
        errors: The errors of every try, by kind. Errors that a later try made good are included.
        estimates: The number of charges by an estimate, by the cause.
        cache_writes: The tokens that servers reported as written to a cache.
        longest: The tokens of the longest row that was reported.
        ignores_thought_field: Whether a thought was far longer than its request allowed.
        is_book: Whether replies come from a book, where the refusal of a request says nothing of the others.
        own_temperature: The refusal of a server that takes its own temperature alone; "": there was none.
    """

    def __init__(
        self, root: str, key: Key, timeouts: Timeouts, *, cautious: bool = False, others: Sequence[str] = ()
    ) -> None:
        self.root = root
        self.replicas = Replicas((root, *others), timeouts.longest_wait_s)
        self.estimates: Counter[str] = Counter()
        self.cache_writes = 0
        self.longest = 0
        self.limited = self.ignores_thought_field = False
        self.own_temperature = ""
        self.is_book = False
        self.key = key
        self.timeouts = timeouts
        self.errors: Counter[str] = Counter()
        self.gate = Gate(timeouts.concurrency, cautious=cautious)
        self._meter = RequestMeter(timeouts.rpm, timeouts.tpm)
        self._ssl_context: ssl.SSLContext | bool = False
        self._down_since_s: float | None = None  # the time of the first failed connection in a row, by the loop's clock

    async def post(
        self, path: str, body: Mapping[str, Any] | None, take: Take, stream: int, position: int, tokens: int = 0
    ) -> str:
        """Send a request, and pass the events of its reply to `take` until this returns True.

        Args:
            path: The path below the root, or a whole url.
            body: The body of a POST request, sent as JSON; None: a GET request is sent.
            take: Called with each event; True ends the reading.
            stream: The stream of the random waits, which keep rows from being sent again all at once.
            position: The position of the random waits in the stream.
            tokens: The tokens that the call is expected to take, prompt included.

        Returns:
            The error of the last try that was refused, as "kind: cause"; "" if no try was refused.

        Raises:
            ServerError: There is no whole reply after all tries.
        """
        timeouts, clock = self.timeouts, asyncio.get_running_loop().time
        last_error, num_failures = "", 0
        while True:
            ticket = await self._meter.turn(tokens)
            cuts = self.gate.cuts
            replica = self.replicas.choose(clock())
            try:
                await self._send_once(replica, path, body, take, ticket)
                self._down_since_s = None
                self.replicas.note_success(replica)
                self.gate.grow()
                return last_error
            except ServerError as error:
                self.errors[error.kind] += 1
                if error.kind in ("RateLimited", "Unavailable"):
                    self.gate.cut(cuts)
                last_error = f"{error.kind}: {error.cause}"
                num_failures += 1
                has_other_server = self.replicas.note_failure(replica, error, clock())
                if has_other_server and num_failures < max(timeouts.tries, len(self.replicas.all)):
                    continue  # the other server takes the call at once
                self._down_since_s = (self._down_since_s or clock()) if error.kind == "ConnectionFailed" else None
                is_down = self._down_since_s is not None and clock() - self._down_since_s > timeouts.longest_wait_s
                if is_down or not timeouts.allow_retry(error, num_failures):
                    raise
                word = 1 << 16 | (num_failures - 1)  # sets the draw apart from the draws of the row's tokens
                wait_s = timeouts.retry_wait_s(error.after_s, num_failures, uniform(stream, position, word))
            await asyncio.sleep(wait_s)

    async def request_json(
        self, path: str, body: Mapping[str, Any] | None = None, position: int = 0, tokens: int = 0
    ) -> Any:
        """Send a request as `post` does, and return the first event of its reply; None: the reply is empty."""
        events: list[Any] = []

        def take_first(event: Any) -> bool:
            events.append(event)
            return True  # no later event is wanted

        await self.post(path, body, take_first, stream=0, position=position, tokens=tokens)
        return events[0] if events else None

    async def request_text(self, url: str) -> str:
        """Return the text at a url of the first server, as far as it arrives in time; "": there is none."""
        replica = self.replicas.all[0]
        client = replica.clients[self._least_busy(replica)]
        with suppress(TimeoutError, httpx.HTTPError):
            async with asyncio.timeout(self.timeouts.connect_s), client.stream("GET", url) as reply:
                return (await _content_in_time(reply)).decode(errors="replace")
        return ""

    async def _send_once(
        self, replica: Replica, path: str, body: Mapping[str, Any] | None, take: Take, ticket: Ticket
    ) -> None:
        """Send a request to one server once, and pass the events of its reply to `take`.

        Raises:
            ServerError: There is no whole reply.
        """
        timeouts, clock = self.timeouts, asyncio.get_running_loop().time
        is_outside = path.startswith("http")  # an endpoint outside the API, given by a whole url of the first server
        url = replica.root + path
        if is_outside:
            url = replica.site + path.removeprefix(self.root.removesuffix("/v1"))
        has_begun = False
        is_written_whole = not is_outside and body is not None and not body.get("stream")
        client = self._least_busy(replica)
        start = clock()
        deadline = start + timeouts.call_s
        replica.busy[client] += 1
        try:
            method, sent = ("GET", None) if body is None else ("POST", encode_body(body))
            async with (
                asyncio.timeout(min(timeouts.first_s, timeouts.call_s)) as alarm,
                replica.clients[client].stream(method, url, content=sent, headers=_JSON) as reply,
            ):
                self._keep_limits(reply.headers)
                if reply.status_code != 200:
                    raise status_error(
                        reply.status_code, await _content_in_time(reply), retry_after(reply.headers), self.key
                    )
                has_begun = True
                await self._read(reply, _counting(take, ticket), alarm, deadline)
        except TimeoutError:
            if clock() >= deadline:
                raise ServerError("TooSlow", f"no end within {timeouts.call_s:g} s") from None
            raise ServerError("TimedOut", "no word in time") from None
        except (ServerError, httpx.TransportError, httpx.DecodingError, httpx.InvalidURL, UnicodeError) as failure:
            # a reply that is not streamed is generated before it begins
            may_have_begun = is_written_whole and clock() - start > _IDLE_S
            raise call_error(failure, self.key, began=not is_outside and (has_begun or may_have_begun)) from None
        finally:
            replica.busy[client] -= 1

    async def _read(self, reply: httpx.Response, take: Take, alarm: asyncio.Timeout, deadline: float) -> None:
        """Pass the events of a reply to `take`, or the whole reply if the server does not stream.

        Args:
            reply: The reply.
            take: Called with each event; True ends the reading.
            alarm: The timeout of the call, which is set anew after each piece of a stream.
            deadline: The time of the event loop's clock at which the whole call times out.
        """
        clock, after_s = asyncio.get_running_loop().time, retry_after(reply.headers)
        if "text/event-stream" not in reply.headers.get("content-type", "").lower():
            content = bytearray()
            await _receive(reply, content, _MOST)
            take(event_of(bytes(content), after_s, self.key, began=False))  # the server does not stream
            return
        events, has_begun, is_done = Events(), False, False
        async with aclosing(_pieces(reply)) as pieces:
            async for piece in pieces:
                for data in events.feed(piece) if piece else events.rest():
                    if is_done or data == b"[DONE]":  # read to the end, so that the connection can be used again
                        is_done = True
                    elif data:
                        event = event_of(data, after_s, self.key, began=has_begun)
                        has_begun = has_begun or bool(event.get("choices"))
                        if take(event):
                            return
                longest_gap_s = _LAST_S if is_done else self.timeouts.gap_s
                alarm.reschedule(min(deadline, clock() + longest_gap_s))

    def _keep_limits(self, headers: Mapping[str, str]) -> None:
        """Keep to the rate limits that a reply states."""
        limits = RateLimits.of(headers)
        if limits is None:
            return
        self.limited = True
        if limits.requests is not None:
            self.gate.allow(limits.requests)
        if limits.reset_s:
            wait_s = min(limits.reset_s, self.timeouts.longest_wait_s)
            self._meter.close_until(asyncio.get_running_loop().time() + wait_s)

    def _least_busy(self, replica: Replica) -> int:
        """Return the index of a server's client with the fewest calls. If all are busy, a client is added.

        Raises:
            ConfigError: The environment has no valid proxy or certificate authorities.
        """
        clients, busy = replica.clients, replica.busy
        if not clients or (min(busy) >= _POOL and len(clients) * _POOL < self.timeouts.concurrency):
            limits = httpx.Limits(max_connections=_POOL, max_keepalive_connections=_POOL)
            timeout = httpx.Timeout(None, connect=self.timeouts.connect_s)
            self._ssl_context = self._ssl_context or checks(replica.root)  # authorities are read once
            try:
                client = httpx.AsyncClient(
                    headers=self.key.headers,
                    params=self.key.query,
                    limits=limits,
                    timeout=timeout,
                    verify=self._ssl_context,
                )
            except ValueError as failure:
                raise ConfigError(
                    f"a variable of the environment holds no valid proxy: {failure}", hint="see HTTP_PROXY and its like"
                ) from None
            clients.append(client)
            busy.append(0)
        return min(range(len(busy)), key=lambda index: busy[index])

    async def close(self) -> None:
        """Close every connection."""
        for replica in self.replicas.all:
            clients = replica.clients
            replica.clients, replica.busy = [], []
            for client in clients:
                await client.aclose()


def _counting(take: Take, ticket: Ticket) -> Take:
    """Return a function that writes the tokens which a reply reports into a ticket, and then calls `take`."""

    def take_event(event: Any) -> bool:
        usage = usage_of(usage_in(event))
        if usage is not None:
            ticket.tokens = usage.prompt + usage.generated
        return take(event)

    return take_event


async def _pieces(reply: httpx.Response) -> AsyncGenerator[bytes]:
    """Yield the pieces of a reply, and b"" at its end."""
    async with aclosing(cast("AsyncGenerator[bytes]", reply.aiter_bytes())) as pieces:
        async for piece in pieces:
            if piece:
                yield piece
    yield b""


async def _receive(reply: httpx.Response, content: bytearray, most: int) -> None:
    """Add the content of a reply to `content`.

    Raises:
        ServerError: The content has more than `most` bytes.
    """
    async with aclosing(_pieces(reply)) as pieces:
        async for piece in pieces:
            content += piece
            if len(content) > most:
                raise ServerError("BadReply", "a reply that does not end")


async def _content_in_time(reply: httpx.Response) -> bytes:
    """Return the content of a reply, as far as it arrives within a few seconds."""
    content = bytearray()
    with suppress(TimeoutError, httpx.TransportError, httpx.DecodingError, ServerError):
        async with asyncio.timeout(_SAYING_S):
            await _receive(reply, content, _MOST_SAID)
    return bytes(content)
