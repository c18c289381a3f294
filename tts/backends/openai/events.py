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
        self._data_size = 0  # bytes of `_data`
        self._size = 0  # bytes of `_parts` and `_data`
        self._ends_with_cr = False  # whether the last byte was a CR, after which a LF may follow
        self._is_first_line = True  # whether no line has ended yet

    def feed(self, some: bytes) -> list[bytes]:
        """Add bytes of the stream, and return the data of the events that end in them.

        Args:
            some: The bytes.

        Raises:
            ServerError: An event is too long.
        """
        piece = self._plain(some)
        self._size += len(piece)
        events: list[bytes] = []
        if b"\n" in piece:
            *lines, remainder = b"".join((*self._parts, piece)).split(b"\n")
            if self._is_first_line:
                lines[0] = lines[0].removeprefix(_BYTE_ORDER_MARK)
                self._is_first_line = False
            events = self._events(lines)
            self._parts = [remainder]
            self._size = self._data_size + len(remainder)
        else:
            self._parts.append(piece)
        if self._size > _MOST:
            raise ServerError("BadReply", "an event of its stream has no end")
        return events

    def _plain(self, piece: bytes) -> bytes:
        """Return bytes with every line end replaced by LF."""
        if self._ends_with_cr and piece.startswith(b"\n"):
            piece = piece[1:]
        self._ends_with_cr = piece.endswith(b"\r")
        return piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in piece else piece

    def _events(self, lines: list[bytes]) -> list[bytes]:
        """Return the data of the events that end in some lines, and keep the data of the last, unfinished event."""
        events: list[bytes] = []
        for line in lines:
            if line.startswith(b"data:"):
                if len(self._data) == 1 and _whole(self._data[0]):
                    events.append(self._data.pop())
                    self._data_size = 0
                self._data.append(line.removeprefix(b"data:").strip())
                self._data_size += len(line)
            elif not line and self._data:
                events.append(b"\n".join(self._data))
                self._data, self._data_size = [], 0
        return events

    def rest(self) -> list[bytes]:
        """Return the data of the last event of an ended stream, if that event is whole."""
        events = self.feed(b"\n\n")
        if events and not _whole(events[-1]):
            events.pop()
        return events


def _whole(data: bytes) -> bool:
    """Whether data is an event of its own."""
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return data == b"[DONE]"
    return True
