"""Asks a server that is looked at one thing after another, and waits for no reply without an end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import httpx

from tts.backends.openai_http import Fault, Key, broken, checks, fault_of
from tts.backends.openai_reply import Reply
from tts.errors import EngineError, shown

_LARGEST = 1 << 24  # bytes of a reply: lists of models have thousands of entries


class Asker:
    """Asks a server one thing after another, in the thread of the caller.

    Args:
        root: where the API begins. patience_s: for a reply that is not written by a model; others have thirty times as long.

    Attributes:
        denied: the last refusal for want of a key, or of a better one.
    """

    def __init__(self, root: str, key: Key, patience_s: float) -> None:
        self.root = root
        self.key = key
        self.denied: Fault | None = None
        self._client = httpx.Client(headers=key.headers, timeout=patience_s, verify=checks(root))
        self._quick, self._slow = patience_s, patience_s * 30

    def call(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the JSON of a reply.

        Raises:
            Fault: there is none.
        """
        url, patience_s = path if path.startswith("http") else self.root + path, self._quick if body is None else self._slow
        method, end = "GET" if body is None else "POST", time.monotonic() + patience_s
        try:
            with self._client.stream(method, url, json=body and dict(body), timeout=patience_s) as streamed:
                reply = _whole(streamed, end)
        except httpx.TimeoutException as failure:
            if isinstance(failure, httpx.ConnectTimeout):
                raise broken(failure, self.key, began=False) from None
            raise Fault("TimedOut", "it does not answer") from None
        except httpx.TransportError as failure:
            raise broken(failure, self.key, began=False) from None
        except httpx.DecodingError as failure:
            raise Fault("BadReply", f"its encoding is broken: {failure}") from None
        if reply.status_code != 200:
            raise fault_of(reply, self.key)
        try:
            return reply.json()
        except ValueError:
            raise Fault("BadReply", f"what is no JSON: {self.key.hidden(shown(reply.text[:60]))}") from None

    def found(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the JSON of a reply, or None where the server refuses what it is asked.

        Raises:
            EngineError: it does not answer at all, from which nothing can be concluded.
        """
        fault = Fault("TimedOut", "")
        for wait_s in (0.5, 2.0, 8.0, 0.0):
            try:
                return self.call(path, body)
            except Fault as found:
                fault = found
            if fault.kind not in ("RateLimited", "Unavailable"):
                break
            time.sleep(max(wait_s, min(fault.after_s, 20.0)) if wait_s else 0.0)
        if fault.status in (401, 403):
            self.denied = fault
        if (fault.status and fault.kind not in ("RateLimited", "Unavailable")) or fault.kind == "BadReply":
            return None
        raise EngineError(f"{self.root} failed while it was looked at: {fault.kind}: {fault.cause}", hint="try again when it is idle")

    def text(self, url: str) -> str:
        """Return the text of a page; "" where there is none."""
        try:
            return self._client.get(url).text
        except httpx.HTTPError:
            return ""

    def written(self, path: str, body: Mapping[str, Any], count: int = 1) -> Reply | None:
        """Return a whole reply of a model; None where it is none."""
        told = self.found(path, body)
        reply = Reply(count)
        try:
            reply.take(told if isinstance(told, dict) else {})
        except Fault:
            return None
        return reply if all(reply.fault(i) is None for i in range(count)) else None

    def grows(self, path: str, body: Mapping[str, Any]) -> tuple[bool, bool]:
        """Return whether a reply arrives in more than one piece, and whether it ends with a report of its tokens."""
        reply, times = Reply(1), set[int]()
        body = {**body, "stream": True, "stream_options": {"include_usage": True}}
        try:
            with self._client.stream("POST", self.root + path, json=body, timeout=self._slow) as answer:
                if answer.status_code != 200 or "text/event-stream" not in answer.headers.get("content-type", ""):
                    return False, False
                for line in answer.iter_lines():
                    data = line.removeprefix("data:").strip()
                    if line.startswith("data:") and data != "[DONE]":
                        reply.take(httpx.Response(200, text=data).json())
                        times.add(reply.events)
        except httpx.TimeoutException:
            raise EngineError(f"{self.root} failed while it was looked at: it ended no stream", hint="try again when it is idle") from None
        except (httpx.RequestError, ValueError, Fault):
            return False, False
        return len(times) > 2 and reply.ended, reply.usage is not None

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def _whole(reply: httpx.Response, end: float) -> httpx.Response:
    """Return a reply that has been read, with its status and what it asks to wait.

    Raises:
        Fault: it goes on and on.
    """
    content = b""
    for part in reply.iter_bytes():
        content += part
        if len(content) > _LARGEST or time.monotonic() > end:
            raise Fault("BadReply", "a reply that does not end")
    return httpx.Response(reply.status_code, headers={"retry-after": reply.headers.get("retry-after", "")}, content=content)
