"""A parser of server-sent events, as far as APIs use that format."""

from __future__ import annotations

import json

from tts.backends.openai.errors import ServerError

_MOST = 1 << 24  # bytes of one event
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Events:
    """Parses a stream's bytes into the data of its events.

    Lines end by LF, CR or both. An event ends at an empty line, and its data may be several lines. A line that is valid
    JSON is an event of its own, since some servers send no empty lines.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # pieces of a line that has not ended
        self._data: list[bytes] = []  # lines of an event that has not ended
        self._held = 0  # bytes of `_data`
        self._size = 0  # bytes of `_parts` and `_data`
        self._returned = False  # whether the last byte was a CR, after which a LF may follow
        self._first = True  # whether no line has ended yet

    def feed(self, some: bytes) -> list[bytes]:
        """Add bytes of the stream, and return the data of the events that end in them.

        Raises:
            ServerError: An event is too long.
        """
        piece = self._plain(some)
        self._size += len(piece)
        ended: list[bytes] = []
        if b"\n" in piece:
            *lines, remainder = b"".join((*self._parts, piece)).split(b"\n")
            if self._first:
                lines[0], self._first = lines[0].removeprefix(_BYTE_ORDER_MARK), False
            ended = self._events(lines)
            self._parts = [remainder]
            self._size = self._held + len(remainder)
        else:
            self._parts.append(piece)
        if self._size > _MOST:
            raise ServerError("BadReply", "an event of its stream has no end")
        return ended

    def _plain(self, piece: bytes) -> bytes:
        """Return bytes with every line end replaced by LF."""
        if self._returned and piece.startswith(b"\n"):
            piece = piece[1:]
        self._returned = piece.endswith(b"\r")
        return piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in piece else piece

    def _events(self, lines: list[bytes]) -> list[bytes]:
        """Return the data of the events that end in some lines, and keep the data of the last, unfinished event."""
        ended: list[bytes] = []
        for line in lines:
            if line.startswith(b"data:"):
                if len(self._data) == 1 and _whole(self._data[0]):
                    ended.append(self._data.pop())
                    self._held = 0
                self._data.append(line[5:].strip())
                self._held += len(line)
            elif not line and self._data:
                ended.append(b"\n".join(self._data))
                self._data, self._held = [], 0
        return ended

    def rest(self) -> list[bytes]:
        """Return the data of the last event of an ended stream, if that event is whole."""
        ended = self.feed(b"\n\n")
        return [*ended[:-1], *(one for one in ended[-1:] if _whole(one))]


def _whole(data: bytes) -> bool:
    """Whether data is an event of its own."""
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return data == b"[DONE]"
    return True
