"""A parser of server-sent events, as far as APIs use that format."""

from __future__ import annotations

import json
import re

from tts.backends.openai.errors import ServerError

_MOST = 1 << 24  # bytes of one event
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\n|\r(?=.)", re.DOTALL)  # after a CR at the end of a piece, a LF may follow


class Events:
    """Parses a stream's bytes into the data of its events.

    Lines end by LF, CR or both. An event ends at an empty line, and its data may be several lines. A line that is valid
    JSON is an event of its own, since some servers send no empty lines.
    """

    def __init__(self) -> None:
        self._line = bytearray()  # a line that has not ended
        self._data: list[bytes] = []  # lines of an event that has not ended
        self._size = 0  # bytes of these lines
        self._is_first_line = True  # whether no line has ended yet

    def feed(self, piece: bytes) -> list[bytes]:
        """Add bytes of the stream, and return the data of the events that end in them.

        Args:
            piece: The bytes.

        Raises:
            ServerError: An event is too long.
        """
        events: list[bytes] = []
        may_end_line = b"\n" in piece or b"\r" in piece or self._line.endswith(b"\r")
        self._line += piece
        if may_end_line:
            *lines, remainder = _LINE_END.split(bytes(self._line))
            if lines and self._is_first_line:
                lines[0] = lines[0].removeprefix(_BYTE_ORDER_MARK)
                self._is_first_line = False
            for line in lines:
                events += self._events(line)
            self._line = bytearray(remainder)
        if len(self._line) + self._size > _MOST:
            raise ServerError("BadReply", "an event of its stream has no end")
        return events

    def _events(self, line: bytes) -> list[bytes]:
        """Return the data of the event that a line ends, if any, and keep the data of an unfinished event."""
        events: list[bytes] = []
        if line.startswith(b"data:"):
            if len(self._data) == 1 and _whole(self._data[0]):
                events.append(self._data.pop())
                self._size = 0
            self._data.append(line.removeprefix(b"data:").strip())
            self._size += len(line)
        elif not line and self._data:
            events.append(b"\n".join(self._data))
            self._data, self._size = [], 0
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
