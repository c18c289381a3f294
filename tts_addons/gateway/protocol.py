"""HTTP by uvicorn and httptools, a parser in C, with bounds that both lack.

The bounds are on headers, and on the time of a client that stands still.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_HEAD = 65_536  # the most bytes of a request's line and headers
_FRAMES = 8  # the most bytes of framing for each byte of a body, as in chunks of one byte
_LEAST_RATE = 10_000.0  # the bytes of a reply that a client must read each second


class BoundedHttp(HttpToolsProtocol):
    """A connection that refuses a request whose line, headers or trailers are too long.

    The server keeps them in memory before any key is checked.

    Attributes:
        on_lost: A function that is called when the connection is over.
    """

    _request_bytes = _body_bytes = 0
    _waits_since: float | None = None  # when the wait for a request began; None: a request is under way
    # when the client began to read too little, and the bytes that it had not read then
    _unread: tuple[float, int] | None = None
    on_lost: Callable[[], None] = staticmethod(lambda: None)

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._waits_since = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end."""
        super().connection_lost(exc)
        self.on_lost()

    def on_message_begin(self) -> None:
        """Reset the counts of bytes.

        Bytes that arrived together with the first are not counted: one read of the socket bounds them.
        """
        self._request_bytes = self._body_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """End the wait for a request; its body has a time-out of its own."""
        self._waits_since = None
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Count bytes of the body, which the endpoint bounds."""
        self._body_bytes += len(body)
        super().on_body(body)

    def on_response_complete(self) -> None:
        """Wait for the next request, unless it has arrived already."""
        has_next_request = bool(self.pipeline)
        super().on_response_complete()
        if not has_next_request:
            self._waits_since = self.loop.time()

    def data_received(self, data: bytes) -> None:
        """Parse bytes, and refuse the request where too many lie outside of its body."""
        self._request_bytes += len(data)
        super().data_received(data)
        other_bytes = self._request_bytes - self._body_bytes
        if other_bytes > _HEAD + _FRAMES * self._body_bytes and not self.transport.is_closing():
            self.send_400_response("The request's line, headers or trailers are too long.")

    def pause_writing(self) -> None:
        """Note when the client began to read too slowly, and how many bytes it has not read."""
        self._unread = self.loop.time(), self.transport.get_write_buffer_size()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Note that the client reads again, and restart the wait for a request."""
        self._unread = None
        if self._waits_since is not None:
            self._waits_since = self.loop.time()
        super().resume_writing()

    @property
    def idle_since(self) -> float | None:
        """The time since which the server waits for a request.

        None: a request is under way, or the client has not read the whole reply.
        """
        if self._waits_since is None or self._unread is not None or self.transport.get_write_buffer_size():
            return None
        return self._waits_since

    def is_overdue(self, head_seconds: float, read_seconds: float) -> bool:
        """Return whether the client is too slow to read a reply, or else to send a request's headers.

        Args:
            head_seconds: The seconds in which the headers must be complete.
            read_seconds: The seconds for which a client may read nothing. Unread bytes add the seconds that they take
                at `_LEAST_RATE`.
        """
        now = self.loop.time()
        if self._unread is not None:
            unread_since, unread_bytes = self._unread
            return now - unread_since > read_seconds + unread_bytes / _LEAST_RATE
        return self._waits_since is not None and now - self._waits_since > head_seconds

    def end(self) -> None:
        """Close the connection at once; what the client has not read is dropped."""
        self.transport.abort()
