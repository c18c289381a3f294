"""HTTP to a server that speaks the OpenAI API: connections, time-outs, tries, the key, and the events of a reply.

A call that gives no whole reply is a `Fault` with a kind. One that the server refused before it wrote anything (no connection, an
error status, a connection closed before the reply began) cost nothing and is tried again; one that broke in the middle is not,
for what was received of it has been paid.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import ssl
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import httpx

from tts.errors import ConfigError, shown
from tts.randomness import uniform

KEY_VARIABLE, KEY_FILE_VARIABLE = "TTS_API_KEY", "TTS_API_KEY_FILE"
HOW_KEY = f"put it into the environment variable {KEY_VARIABLE}, or into a file that {KEY_FILE_VARIABLE} names"
_POOL = 8  # connections of one httpx client: its pool looks at every one of them several times for each request
_LONGEST_LINE = 1 << 26
_LAST_S = 2.0  # between the last event of a reply and its end
_BUSY = {408: "TimedOut", 425: "Unavailable", 429: "RateLimited", 503: "Unavailable"}  # other statuses from 500 on: "ServerError"

# Takes one event of a reply; True: nothing more is wanted, and the connection is closed, which stops the server.
Take = Callable[[Any], bool]


class Fault(Exception):
    """A call without a whole reply.

    Args:
        kind: one word, counted in solutions. cause: one line. again: whether it cost nothing and may be tried again.
        after_s: seconds that the server asked to wait first. status: of the reply, or 0.
    """

    def __init__(self, kind: str, cause: str, *, again: bool = False, after_s: float = 0.0, status: int = 0) -> None:
        super().__init__(f"{kind}: {cause}")
        self.kind = kind
        self.cause = cause
        self.again = again
        self.after_s = after_s
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How much is asked at once, and how long it is waited for.

    Args:
        concurrency: requests in flight, at least 1; other rows wait here. tries: of a call that the server refuses, at least 1.
        connect_s: for a connection; the first look waits 4 s for one at most. first_s: until a reply's first event.
        gap_s: between two events. call_s: for a whole call.
        wait_s: before the first try again, at most; doubled each time, and drawn from 0 on (full jitter). longest_wait_s: the most
            of it; a server that asks for more (Retry-After) is not waited for.

    Raises:
        ConfigError: a value is not valid.
    """

    concurrency: int = 256
    tries: int = 6
    connect_s: float = 20.0  # a thousand connections that are made at once keep each other waiting
    first_s: float = 300.0
    gap_s: float = 60.0
    call_s: float = 3600.0
    wait_s: float = 0.5
    longest_wait_s: float = 60.0

    def __post_init__(self) -> None:
        for name in ("concurrency", "tries"):
            value: Any = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ConfigError(f"{name} is {value!r}, but must be a whole number of at least 1")
        for name in ("connect_s", "first_s", "gap_s", "call_s", "wait_s", "longest_wait_s"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value > 0):
                raise ConfigError(f"{name} is {value!r}, but must be seconds above 0")


class Key:
    """A secret that no text of ours shows.

    Args:
        value: the key; "": none. source: where it is from, for people.
    """

    def __init__(self, value: str = "", source: str = "") -> None:
        self._value = value
        self.source = source

    @classmethod
    def find(cls, variable: str = "", file: str = "") -> Key:
        """Return the key that a file or an environment variable holds; without either, that of `TTS_API_KEY` or its file; or none.

        Raises:
            ConfigError: what was named holds none, the file cannot be read, or the key cannot be sent.
        """
        file = file or ("" if variable or os.environ.get(KEY_VARIABLE) else os.environ.get(KEY_FILE_VARIABLE, ""))
        if file:
            source = f"the file {file}"
            try:
                value = Path(file).expanduser().read_text(encoding="utf-8").strip()
            except (OSError, ValueError) as failure:
                why = failure.strerror if isinstance(failure, OSError) else "it is no text"
                raise ConfigError(f"the file of the key is {file!r}, but it cannot be read: {why}", hint=HOW_KEY) from None
        else:
            source = f"the variable {variable or KEY_VARIABLE}"
            value = os.environ.get(variable or KEY_VARIABLE, "").strip()
        if not value and (file or variable):
            raise ConfigError(f"{source} was named for the key, but holds none", hint=HOW_KEY)
        if not (value.isascii() and all(character.isprintable() and character != " " for character in value)):
            raise ConfigError(f"the key in {source} has characters that no key has (spaces, line ends, or others than ASCII)", hint=HOW_KEY)
        return cls(value, source) if value else cls()

    @property
    def headers(self) -> dict[str, str]:
        """What sends it."""
        return {"Authorization": f"Bearer {self._value}"} if self._value else {}

    def hidden(self, text: str) -> str:
        """Return a text without the key, should a server repeat it."""
        return text.replace(self._value, "***") if self._value else text

    def __bool__(self) -> bool:
        return bool(self._value)

    def __repr__(self) -> str:
        return f"Key(from {self.source})" if self._value else "Key()"


def roots(url: str) -> tuple[str, ...]:
    """Return where the API may begin: the url with /v1 behind it, and the url as it is.

    Raises:
        ConfigError: it is no url of a server, or holds a secret.
    """
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        parts, valid = urlsplit(""), False
    if parts.username is not None or parts.password is not None:
        raise ConfigError("the url holds a user's name or password, which would stand in results", hint=f"for a key: {HOW_KEY}")
    if not valid or parts.query or parts.fragment:
        raise ConfigError(
            f"url is {shown(url)}, but must be http:// or https:// with a host, and neither query nor fragment",
            hint="for example http://localhost:8000",
        )
    bare = url.rstrip("/")
    return (bare,) if bare.endswith("/v1") else (f"{bare}/v1", bare)


def checks(root: str) -> ssl.SSLContext | bool:
    """Return what certificates are checked by; False for http, which has none: to read the authorities takes longer than a call."""
    return httpx.create_ssl_context() if urlsplit(root).scheme == "https" else False


def fault_of(reply: httpx.Response, key: Key) -> Fault:
    """Return the fault of a reply with another status than 200; its body has been read."""
    status = reply.status_code
    kind = _BUSY.get(status) or ("ServerError" if status >= 500 else "Refused")
    cause = f"status {status}: {said(reply.text, key)}"
    return Fault(kind, cause, again=kind != "Refused", after_s=_after(reply.headers.get("retry-after", "")), status=status)


def said(body: str, key: Key) -> str:
    """Return what a server's error reply says, in one line without the key."""
    try:
        told: Any = json.loads(body)
    except ValueError:
        told = body
    for name in ("error", "message", "detail"):
        if isinstance(told, Mapping) and told.get(name):
            told = told[name]
    text = told if isinstance(told, str) else json.dumps(told)
    return key.hidden(" ".join(text.split()))[:300] or "nothing"


def broken(failure: httpx.TransportError, key: Key, *, began: bool) -> Fault:
    """Return the fault of a connection; `began`: whether the reply had begun."""
    cause = key.hidden(" ".join(str(failure).split())) or type(failure).__name__
    reason: BaseException | None = failure
    while reason is not None:
        if isinstance(reason, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in str(reason):
            return Fault("CertificateError", cause)
        reason = reason.__cause__ or reason.__context__
    if isinstance(failure, httpx.ConnectError | httpx.ConnectTimeout):
        return Fault("ConnectionFailed", cause, again=True)
    return Fault("ConnectionLost", cause, again=not began)


def _after(header: str) -> float:
    """Return the seconds that a Retry-After header asks for, at least 0: a number, or a date."""
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(header).timestamp() - time.time()
        except (ValueError, TypeError):
            return 0.0
    return max(0.0, seconds) if math.isfinite(seconds) else 0.0


class Http:
    """Calls a server within one event loop.

    Args:
        root: where the API begins. key: that is sent. patience: how long it is waited.

    Attributes:
        gate: a place for each call that may be made at once; its caller takes one first. in_flight: calls under way.
        faults: of every try, by kind, those that were made good by another try included.
    """

    def __init__(self, root: str, key: Key, patience: Patience) -> None:
        self.root = root
        self.key = key
        self.patience = patience
        self.faults: Counter[str] = Counter()
        self.in_flight = 0
        self.gate = asyncio.Semaphore(patience.concurrency)
        self._checks: ssl.SSLContext | bool = False
        self._clients: list[httpx.AsyncClient] = []
        self._busy: list[int] = []

    async def post(self, path: str, body: Mapping[str, Any], take: Take, stream: int, position: int) -> str:
        """Send a request and hand on the events of its reply, until `take` wants no more or the reply is over.

        Returns: what went wrong before, at the last try that was refused, as "kind: cause"; "" if nothing did.

        Args:
            path: below the root, or a whole url.
            stream, position: the address of the draws of waits, so that rows do not come back all at once.

        Raises:
            Fault: there is no whole reply, after all tries that may be made.
        """
        patience, refused = self.patience, ""
        self.in_flight += 1
        try:
            for tried in range(patience.tries):
                try:
                    await self._once(path, body, take)
                    return refused
                except Fault as fault:
                    self.faults[fault.kind] += 1
                    refused = f"{fault.kind}: {fault.cause}"
                    if not fault.again or tried + 1 == patience.tries or fault.after_s > patience.longest_wait_s:
                        raise
                    longest = min(patience.longest_wait_s, patience.wait_s * 2**tried)
                    wait = fault.after_s + longest * uniform(stream, position, 1 << 16 | tried)
                await asyncio.sleep(wait)
            raise AssertionError("the last try returns or raises")
        finally:
            self.in_flight -= 1

    async def _once(self, path: str, body: Mapping[str, Any], take: Take) -> None:
        patience, began, which = self.patience, False, self._least_busy()
        url = path if path.startswith("http") else self.root + path
        end = asyncio.get_running_loop().time() + patience.call_s
        self._busy[which] += 1
        try:
            async with (
                asyncio.timeout(min(patience.first_s, patience.call_s)) as alarm,
                self._clients[which].stream("POST", url, json=body) as reply,
            ):
                if reply.status_code != 200:
                    await reply.aread()
                    raise fault_of(reply, self.key)
                began = True
                await self._read(reply, take, alarm, end)
        except TimeoutError:
            slow = asyncio.get_running_loop().time() >= end
            raise Fault("TooSlow" if slow else "TimedOut", f"no end within {patience.call_s:g} s" if slow else "no word in time") from None
        except httpx.TransportError as failure:
            raise broken(failure, self.key, began=began) from None
        except httpx.DecodingError as failure:
            raise Fault("BadReply", f"its encoding is broken: {failure}") from None
        finally:
            self._busy[which] -= 1

    async def _read(self, reply: httpx.Response, take: Take, alarm: asyncio.Timeout, end: float) -> None:
        clock = asyncio.get_running_loop().time
        if "text/event-stream" not in reply.headers.get("content-type", ""):
            take(self._parsed(await reply.aread()))  # a server that does not stream
            return
        rest, done = b"", False
        async with aclosing(cast("AsyncGenerator[bytes]", reply.aiter_bytes())) as pieces:
            async for some in pieces:
                *lines, rest = (rest + some).split(b"\n")
                if len(rest) > _LONGEST_LINE:
                    raise Fault("BadReply", "a line of its stream has no end")
                for line in lines:
                    data = line[5:].strip() if line.startswith(b"data:") and not done else b""
                    if data == b"[DONE]":  # read to the end all the same: then the connection serves again
                        done = True
                    elif data and take(self._parsed(data)):
                        return
                alarm.reschedule(min(end, clock() + (_LAST_S if done else self.patience.gap_s)))

    def _parsed(self, data: bytes) -> Any:
        try:
            event: Any = json.loads(data)
        except ValueError:
            raise Fault("BadReply", f"what is no JSON: {self.key.hidden(shown(data.decode(errors='replace')[:60]))}") from None
        if not isinstance(event, dict):
            raise Fault("BadReply", f"{shown(event)} where an object must be")
        if event.get("error"):
            raise Fault("ServerError", said(json.dumps(event), self.key))
        return event

    def _least_busy(self) -> int:
        """Return the client with the fewest calls; there are as many as the calls at once need."""
        if not self._clients or (min(self._busy) >= _POOL and len(self._clients) * _POOL < self.patience.concurrency):
            self._checks = self._checks or checks(self.root)
            limits = httpx.Limits(max_connections=_POOL, max_keepalive_connections=_POOL)
            timeout = httpx.Timeout(None, connect=self.patience.connect_s)
            self._clients.append(httpx.AsyncClient(headers=self.key.headers, limits=limits, timeout=timeout, verify=self._checks))
            self._busy.append(0)
        return min(range(len(self._busy)), key=self._busy.__getitem__)

    async def close(self) -> None:
        """Close every connection."""
        clients, self._clients, self._busy = self._clients, [], []
        for client in clients:
            await client.aclose()
