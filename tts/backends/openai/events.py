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
        self._parts: list[bytes] = []  # of a line that has not ended
        self._data: list[bytes] = []  # of an event that has not ended
        self._held = 0  # bytes of that event
        self._size = 0  # of both
        self._returned = False  # whether the last byte was CR, whose LF may follow
        self._first = True  # whether no line has ended yet

    def feed(self, some: bytes) -> list[bytes]:
        """Return the data of the events that end in these bytes.

        Raises:
            ServerError: an event is too long.
        """
        some = self._plain(some)
        self._size += len(some)
        ended: list[bytes] = []
        if b"\n" in some:
            *lines, rest = b"".join((*self._parts, some)).split(b"\n")
            if self._first:
                lines[0], self._first = lines[0].removeprefix(_BYTE_ORDER_MARK), False
            ended = self._events(lines)
            self._parts = [rest]
            self._size = self._held + len(rest)
        else:
            self._parts.append(some)
        if self._size > _MOST:
            raise ServerError("BadReply", "an event of its stream has no end")
        return ended

    def _plain(self, some: bytes) -> bytes:
        """Return bytes whose lines all end by LF."""
        if self._returned and some.startswith(b"\n"):
            some = some[1:]
        self._returned = some.endswith(b"\r")
        return some.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in some else some

    def _events(self, lines: list[bytes]) -> list[bytes]:
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
        """Return the data after the last empty line of a stream that has ended, if it is a whole event."""
        ended = self.feed(b"\n\n")
        return [*ended[:-1], *(one for one in ended[-1:] if _whole(one))]


def _whole(data: bytes) -> bool:
    """Whether data is an event of its own."""
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return data == b"[DONE]"
    return True
