"""The client that probes a server, with one request after another.

Each request has a time limit, which holds even if name resolution or a connection hangs.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

import httpx

from tts._common.characters import join_surrogates
from tts.backends.openai.errors import (
    Key,
    ServerError,
    call_error,
    decode_json,
    event_error,
    retry_after,
    status_error,
    with_strings,
)
from tts.backends.openai.events import Events
from tts.backends.openai.http import checks, encode_body, event_of
from tts.backends.openai.pace import RateLimits
from tts.backends.openai.reply import ServerReply
from tts.errors import ConfigError, EngineError

T = TypeVar("T")
_LARGEST = 1 << 24  # bytes of a reply: lists of models have thousands of entries
_LARGEST_ERROR = 1 << 20
_MOST_EVENTS = 1000  # events of a stream of a few tokens
_MARGIN_S = 0.1  # seconds that the caller waits longer than the timeouts within its request


class ProbeEnded(Exception):
    """The time limit of a probe has passed."""


class ProbeClient:
    """Sends requests one after another, each in a thread of its own.

    A thread that hangs, for example in name resolution, is abandoned.

    Args:
        root: Base url of the API.
        key: The API key, sent with each request.
        timeout_s: The most seconds of a reply that no model writes. A model's replies may take thirty times as long.
        ends: The time, by `time.monotonic`, from which `ProbeEnded` is raised in place of any reply.

    Attributes:
        denied: The last reply of status 401 or 403.
        refusal: The last refusal; None: there was none.
        cached: Whether a reply reported cached tokens.
        limited: Whether a reply stated rate limits.
        requests: The number of requests that were sent.
        tokens: The tokens that replies reported, of prompts and texts.
    """

    def __init__(self, root: str, key: Key, timeout_s: float, ends: float = math.inf) -> None:
        self.root = root
        self.ends = ends
        self.key = key
        self.denied: ServerError | None = None
        self.refusal: ServerError | None = None
        self.cached = False
        self.requests = self.tokens = 0
        self.limited = False
        try:
            self._client = httpx.Client(
                headers={"Content-Type": "application/json", **key.headers}, params=key.query, verify=checks(root)
            )
        except ValueError as failure:
            raise ConfigError(
                f"a variable of the environment holds no valid proxy: {failure}", hint="see HTTP_PROXY and its like"
            ) from None
        self._quick_s = timeout_s
        self._slow_s = timeout_s * 30  # for replies that a model writes
        self._longest_s = 0.0  # the longest time of a whole reply of a model

    def call(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a request, and return the JSON of its reply.

        Args:
            path: The path below the root, or a whole url.
            body: The body of a POST request, whose reply a model writes; None: a GET request is sent.

        Raises:
            ServerError: There is no valid reply.
        """
        start = time.monotonic()
        status, content, after_s = self._fetch(path, body, self._quick_s if body is None else self._slow_s, _whole)
        if status != 200:
            raise status_error(status, content, after_s, self.key).hiding(self.key)
        if body is not None:
            self._longest_s = max(self._longest_s, time.monotonic() - start)
        try:
            value = with_strings(decode_json(content, self.key), join_surrogates)
        except RecursionError:
            raise ServerError("BadReply", "it is nested too deeply") from None
        error = event_error(value, after_s, self.key, began=False)
        if error is not None:
            raise error.hiding(self.key)
        return value

    def _fetch(
        self, path: str, body: Mapping[str, Any] | None, seconds: float, read: Callable[[httpx.Response, float], T]
    ) -> T:
        """Send a request, and return the result of `read` for the reply, within a time limit.

        Args:
            path: The path below the root, or a whole url.
            body: The body of a POST request; None: a GET request is sent.
            seconds: The most seconds of the request.
            read: Reads a reply, given the time by `time.monotonic` at which reading ends.

        Raises:
            ServerError: There is no reply in time, or it does not end.
            ProbeEnded: The time limit of the probe has passed.
        """
        seconds = min(seconds, self._remaining_seconds())
        self.requests += 1
        url = path if path.startswith("http") else self.root + path
        method, content = "GET", None
        if body is not None:
            method, content = "POST", encode_body(body)
        end = time.monotonic() + seconds
        result = Future[T]()
        stage = ["answers"]  # the stage that the request has reached: "connects", "answers", then "ends"

        def trace(event: str, info: Mapping[str, Any]) -> None:
            """Note the stage of a connection that is made."""
            del info
            if event.startswith("connection.connect_tcp."):
                stage[0] = "connects" if event.endswith("started") else "answers"

        def send() -> None:
            """Send the request, and set the result of `read`, or the failure."""
            try:
                extensions = {"trace": trace}
                with self._client.stream(method, url, content=content, timeout=seconds, extensions=extensions) as reply:
                    stage[0] = "ends"
                    self.limited = self.limited or RateLimits.of(reply.headers) is not None
                    result.set_result(read(reply, end))
            except BaseException as failure:  # noqa: BLE001 - raised in the thread that waits for the result
                result.set_exception(failure)

        threading.Thread(target=send, name="tts-probe", daemon=True).start()
        try:
            return result.result(seconds + _MARGIN_S)
        except (TimeoutError, httpx.TimeoutException) as failure:
            self._remaining_seconds()  # raises `ProbeEnded` if the probe's time limit has passed
            if stage[0] == "connects" or isinstance(failure, httpx.ConnectTimeout):
                raise ServerError("ConnectionFailed", f"no connection within {seconds:.1f} s", again=True) from None
            if stage[0] == "ends":
                raise ServerError("BadReply", "a reply that does not end") from None
            raise ServerError("TimedOut", "it does not answer") from None
        except (ServerError, httpx.TransportError, httpx.DecodingError, httpx.InvalidURL, UnicodeError) as failure:
            raise call_error(failure, self.key, began=False) from None

    def _remaining_seconds(self) -> float:
        """Return the seconds that are left until the probe's time limit.

        Raises:
            ProbeEnded: The time limit has passed.
        """
        remaining = self.ends - time.monotonic()
        if remaining <= 0:
            raise ProbeEnded
        return remaining

    def request_json(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a request, again while the server is busy, and return the JSON of its reply.

        Args:
            path: The path below the root, or a whole url.
            body: The body of a POST request; None: a GET request is sent.

        Returns:
            The JSON; None: the request is refused.

        Raises:
            EngineError: The server does not answer, from which nothing can be concluded.
        """
        error = ServerError("TimedOut", "")
        for wait_s in (0.5, 2.0, 8.0, 0.0):
            try:
                return self.call(path, body)
            except ServerError as failure:
                error = failure
            if error.kind not in ("RateLimited", "Unavailable"):
                break
            if wait_s:
                stated_wait_s = min(error.after_s, 20.0)
                time.sleep(min(max(wait_s, stated_wait_s), self._remaining_seconds()))
        if error.status in (401, 403):
            self.denied = error
        self.refusal = error
        is_busy = error.kind in ("RateLimited", "Unavailable")
        if (error.status and not is_busy) or error.kind == "BadReply":
            return None
        raise self._probe_error(f"{error.kind}: {error.cause}", error)

    def _probe_error(self, why: str, error: ServerError | None = None) -> EngineError:
        """Return the error of a probe that failed, with the kind and the wait of the server's error, if any."""
        kind, retry_s = ("", 0.0) if error is None else (error.kind, error.after_s)
        return EngineError(
            f"{self.root} failed while it was probed: {why}",
            hint="try again when it is idle",
            kind=kind,
            retry_s=retry_s,
        )

    def text(self, url: str) -> str:
        """Return the text at a url; "" where there is none."""
        try:
            _status, content, _after_s = self._fetch(url, None, self._quick_s, _whole)
        except ServerError:
            return ""
        return content.decode(errors="replace")

    def generate(self, path: str, body: Mapping[str, Any], count: int = 1) -> ServerReply | None:
        """Return a whole reply of a model; None where the reply is not valid.

        Args:
            path: The path below the root.
            body: The body of the request.
            count: The number of rows that the reply must have.
        """
        value = self.request_json(path, body)
        reply = ServerReply(count)
        try:
            reply.take(value if isinstance(value, dict) else {})
        except ServerError:
            return None
        self._count(reply)
        is_valid = all(reply.error(index) is None for index in range(count))
        return reply if is_valid else None

    def grows(self, path: str, body: Mapping[str, Any]) -> tuple[bool, bool]:
        """Return whether a reply arrives in several pieces, and whether it ends with a report of its tokens."""
        reply = ServerReply(1)
        last_heard_s = [time.monotonic()]  # the time of the last piece

        def read(response: httpx.Response, end: float) -> bool:
            """Read a stream into `reply`, and return whether the reply has ended."""
            if response.status_code != 200 or "text/event-stream" not in response.headers.get("content-type", ""):
                return False
            events = Events()
            for piece in response.iter_bytes():
                last_heard_s[0] = time.monotonic()
                self._take(reply, events.feed(piece), end)
            self._take(reply, events.rest(), end)
            return reply.ended

        body = {**body, "stream": True, "stream_options": {"include_usage": True}}
        seconds = min(self._slow_s, 2.5 * self._quick_s + 4 * self._longest_s)
        try:
            has_ended = self._fetch(path, body, seconds, read)
        except ServerError as error:
            is_silent = error.kind == "TimedOut" or time.monotonic() - last_heard_s[0] > seconds / 2
            if error.kind in ("TimedOut", "BadReply") and is_silent:
                raise self._probe_error("it ended no stream") from None
            return False, False
        self._count(reply)
        has_pieces = has_ended and reply.events > 2
        has_report = has_ended and reply.usage is not None
        return has_pieces, has_report

    def _count(self, reply: ServerReply) -> None:
        if reply.usage is not None:
            self.tokens += reply.usage.prompt + reply.usage.generated
            self.cached = self.cached or reply.usage.cached is not None

    def _take(self, reply: ServerReply, events: list[bytes], end: float) -> None:
        """Add events to a reply.

        Args:
            reply: The reply.
            events: The data of the events.
            end: The time, by `time.monotonic`, at which reading ends.

        Raises:
            ServerError: An event is not valid, or the stream is too long.
        """
        for data in events:
            if data and data != b"[DONE]":
                reply.take(event_of(data, 0.0, self.key, began=False))
        if time.monotonic() > end or reply.events > _MOST_EVENTS:
            raise ServerError("BadReply", "a stream that does not end")

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def _whole(reply: httpx.Response, end: float) -> tuple[int, bytes, float]:
    """Return a reply's status, its content, and the seconds of its Retry-After header.

    The content of an error is read as far as it arrives in time.

    Args:
        reply: The reply.
        end: The time, by `time.monotonic`, at which reading ends.

    Raises:
        ServerError: The reply is too long, or does not end.
    """
    content = bytearray()
    is_error = reply.status_code != 200
    most_bytes = _LARGEST_ERROR if is_error else _LARGEST
    for piece in reply.iter_bytes():
        content += piece
        if len(content) > most_bytes or time.monotonic() > end:
            if is_error:
                break
            raise ServerError("BadReply", "a reply that does not end")
    return reply.status_code, bytes(content), retry_after(reply.headers)
