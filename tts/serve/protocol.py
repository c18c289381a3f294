"""HTTP by uvicorn and httptools, a parser in C, with a bound on headers, which that parser lacks."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_HEAD = 65_536  # bytes of a request's line and headers
_FRAMES = 8  # bytes that frame a byte of a body, in chunks of one byte


class BoundedHttp(HttpToolsProtocol):
    """Refuses a request whose line, headers or trailers do not end: they are kept in memory before any key is checked."""

    _read = _body = 0

    def on_message_begin(self) -> None:
        """Reset the counts. Bytes that arrived together with the beginning are not counted: they are as many as one read has."""
        self._read = self._body = 0
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        """Count bytes that the endpoint bounds."""
        self._body += len(body)
        super().on_body(body)

    def data_received(self, data: bytes) -> None:
        """Parse bytes, and refuse the request where too many lie outside of its body."""
        self._read += len(data)
        super().data_received(data)
        if self._read - self._body > _HEAD + _FRAMES * self._body and not self.transport.is_closing():
            self.send_400_response("The request's line, headers or trailers are too long.")
