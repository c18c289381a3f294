"""HTTP by uvicorn and httptools, a parser in C, with bounds that both lack.

The bounds are on headers, and on the time of a client that stands still.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_HEAD = 65_536  # bytes of a request's line and headers
_FRAMES = 8  # bytes that frame a byte of a body, in chunks of one byte
_LEAST_RATE = 10_000.0  # bytes a second that a client must read of what waits for it


class BoundedHttp(HttpToolsProtocol):
    """Refuses a request whose line, headers or trailers do not end.

    The server keeps them in memory before any key is checked.

    Attributes:
        on_lost: What is called when the connection is over.
    """

    _read = _body = 0
    _waits_since: float | None = None
    # the time since which the client reads too little, and the bytes that waited for it then
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
        """Reset the counts.

        Bytes that arrived together with the beginning are not counted: they are as many as one read has.
        """
        self._read = self._body = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Wait no more: the request is under way, and its body has a time-out of its own."""
        self._waits_since = None
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Count bytes that the endpoint bounds."""
        self._body += len(body)
        super().on_body(body)

    def on_response_complete(self) -> None:
        """Wait for the next request, unless it has arrived already."""
        pipelined = bool(self.pipeline)
        super().on_response_complete()
        if not pipelined:
            self._waits_since = self.loop.time()

    def data_received(self, data: bytes) -> None:
        """Parse bytes, and refuse the request where too many lie outside of its body."""
        self._read += len(data)
        super().data_received(data)
        if self._read - self._body > _HEAD + _FRAMES * self._body and not self.transport.is_closing():
            self.send_400_response("The request's line, headers or trailers are too long.")

    def pause_writing(self) -> None:
        """Note that more waits for the client than it reads."""
        self._unread = self.loop.time(), self.transport.get_write_buffer_size()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Note that the client has read what waited; the time to wait for a request begins again."""
        self._unread = None
        if self._waits_since is not None:
            self._waits_since = self.loop.time()
        super().resume_writing()

    @property
    def idle_since(self) -> float | None:
        """The time since which the head of a request is awaited.

        None: a request is under way, or its reply is not written.
        """
        if self._waits_since is None or self._unread is not None or self.transport.get_write_buffer_size():
            return None
        return self._waits_since

    def is_overdue(self, head_seconds: float, read_seconds: float) -> bool:
        """Return whether the client neither sends the head of a request nor reads its reply in time.

        Args:
            head_seconds: The seconds in which a head must be complete.
            read_seconds: The seconds for which a client may read nothing; a long reply adds the seconds of a slow
                connection.
        """
        now = self.loop.time()
        if self._unread is not None:
            since, size = self._unread
            return now - since > read_seconds + size / _LEAST_RATE
        return self._waits_since is not None and now - self._waits_since > head_seconds

    def end(self) -> None:
        """Close the connection at once; what the client has not read is dropped."""
        self.transport.abort()
