"""Reads one large JSON array item by item, or an object member by member, in the memory of one item."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, Any, Final

from tts.experiments.datasets.unpacking import check_row, largest_row

_CHUNK: Final = 1 << 20  # characters
_SPACE: Final = " \t\n\r"


class JsonStream:
    """A text stream with one JSON object or array.

    Args:
        text: The stream, at its beginning.
        name: The name of its file, for messages.
    """

    def __init__(self, text: IO[str], name: str) -> None:
        self._text, self._name, self._most = text, name, largest_row()
        self._buffer, self._at, self._ended = "", 0, False
        self._decode = json.JSONDecoder().raw_decode

    def items(self) -> Iterator[Any]:
        """Yield the items of an array.

        Raises:
            ValueError: the text is no JSON array, or ends too early.
        """
        for _ in self._elements("[", "]"):
            yield self._value()

    def lists_of_objects(self) -> Iterator[str]:
        """Yield the name of each member that is a list whose first item is an object.

        Raises:
            ValueError: it is no JSON object, or ends too early.
        """
        for _ in self._elements("{", "}"):
            name = self._value()
            self._expect(":")
            if self._next() == "[":
                for number, _ in enumerate(self._elements("[", "]")):
                    if isinstance(self._value(), dict) and number == 0:
                        yield name
            else:
                self._value()

    def members(self, items_of: str) -> Iterator[tuple[str, Any]]:
        """Yield the name and value of each member.

        The list named `items_of` is not yielded whole: each item is yielded as a member with this name.

        Raises:
            ValueError: it is no JSON object, or ends too early.
        """
        for _ in self._elements("{", "}"):
            name = self._value()
            self._expect(":")
            if name == items_of and self._next() == "[":
                for _ in self._elements("[", "]"):
                    yield name, self._value()
            else:
                yield name, self._value()

    def _elements(self, first: str, last: str) -> Iterator[None]:
        """Yield before each element of an object or list; the caller reads the element."""
        self._expect(first)
        if self._next() != last:
            yield
            while self._next() == ",":
                self._expect(",")
                yield
        self._expect(last)

    def _expect(self, mark: str) -> None:
        if (found := self._next()) != mark:
            raise ValueError(f"{mark!r} was expected, but {found!r} found" if found else "it ends too early")
        self._at += 1

    def _next(self) -> str:
        """Return the next character that is no space, without consuming it; "" at the end."""
        while True:
            while self._at < len(self._buffer) and self._buffer[self._at] in _SPACE:
                self._at += 1
            if self._at < len(self._buffer):
                return self._buffer[self._at]
            if not self._more(_CHUNK):
                return ""

    def _value(self) -> Any:
        """Consume and return the next value. The buffer grows by doubling pieces until it has the value."""
        self._next()
        size = _CHUNK
        while True:
            try:
                value, end = self._decode(self._buffer, self._at)
            except ValueError:
                if len(self._buffer) - self._at > self._most:
                    check_row(f"{self._name}, one value", len(self._buffer) - self._at)
                if not self._more(size):
                    raise
            else:
                if end < len(self._buffer) or not self._more(size):  # a number may go on
                    self._at = end
                    return value
            size *= 2

    def _more(self, size: int) -> bool:
        """Read on, and drop the consumed characters; False at the end."""
        piece = "" if self._ended else self._text.read(size)
        self._ended = not piece
        self._buffer, self._at = self._buffer[self._at :] + piece, 0
        return bool(piece)
