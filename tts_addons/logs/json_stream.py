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
        self._text, self._name = text, name
        self._max_value_size = largest_row()
        self._buffer = ""
        self._position = 0  # index in the buffer of the next character that is not consumed
        self._is_ended = False  # whether the stream has no further text
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
                    item = self._value()
                    if number == 0 and isinstance(item, dict):
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

    def _elements(self, opening: str, closing: str) -> Iterator[None]:
        """Yield before each element of an object or list. The caller reads the element before the next step."""
        self._expect(opening)
        if self._next() != closing:
            yield
            while self._next() == ",":
                self._expect(",")
                yield
        self._expect(closing)

    def _expect(self, mark: str) -> None:
        """Consume a mark, which must be the next character that is no space."""
        character = self._next()
        if not character:
            raise ValueError("it ends too early")
        if character != mark:
            raise ValueError(f"{mark!r} was expected, but {character!r} found")
        self._position += 1

    def _next(self) -> str:
        """Return the next character that is no space, without consuming it; "" at the end."""
        while True:
            while self._position < len(self._buffer) and self._buffer[self._position] in _SPACE:
                self._position += 1
            if self._position < len(self._buffer):
                return self._buffer[self._position]
            if not self._more(_CHUNK):
                return ""

    def _value(self) -> Any:
        """Consume and return the next value.

        Text is read on in pieces of doubling size, until the buffer contains the value.
        """
        self._next()
        size = _CHUNK
        while True:
            try:
                value, end = self._decode(self._buffer, self._position)
            except ValueError:
                value_size = len(self._buffer) - self._position
                if value_size > self._max_value_size:
                    check_row(f"{self._name}, one value", value_size)
                if not self._more(size):
                    raise
            else:
                # a number at the end of the buffer may have more digits in the stream
                if end < len(self._buffer) or not self._more(size):
                    self._position = end
                    return value
            size *= 2

    def _more(self, size: int) -> bool:
        """Read a piece into the buffer, drop the consumed characters, and return whether the piece has text."""
        piece = "" if self._is_ended else self._text.read(size)
        self._is_ended = not piece
        self._buffer, self._position = self._buffer[self._position :] + piece, 0
        return bool(piece)
