"""Reads one large JSON array or object element by element, in the memory of one element."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from tts.errors import ConfigError
from tts.experiments.datasets.unpacking import check_row, largest_row

_CHUNK: Final = 1 << 20  # characters
_SPACE: Final = " \t\n\r"


class Element(NamedTuple):
    """An item of an array, a member of an object, or an item of a member that is a list.

    Args:
        name: The name of the member; None: the item of an array.
        number: The number of the item, from 1; None: the member is no list.
        value: The value.
    """

    name: str | None
    number: int | None
    value: Any

    @property
    def place(self) -> str:
        """The place of the element in its file, for messages."""
        if self.number is None:
            return str(self.name)
        return f"{'item' if self.name is None else self.name} {self.number}"


def json_elements(file: Path, stream: IO[bytes] | None = None) -> Iterator[Element]:
    """Yield the elements of the array or object in a file.

    Args:
        file: The file.
        stream: The open file, at its beginning, which is closed at the end; None: the file is opened.

    Raises:
        ConfigError: the text is neither an array nor an object, or incomplete, or an element is too large.
    """
    place = "its beginning"
    with io.TextIOWrapper(stream or file.open("rb"), encoding="utf-8-sig") as text:
        try:
            for element in _JsonStream(text, file.name).elements():
                place = element.place
                yield element
        except (ValueError, RecursionError) as failure:
            if isinstance(failure, ConfigError):
                raise
            raise ConfigError(f"{file.name}: it is no whole JSON: {failure} (after {place})") from failure


class _JsonStream:
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

    def elements(self) -> Iterator[Element]:
        """Yield the elements of the array or object.

        Raises:
            ValueError: the text is neither, or ends too early.
        """
        if self._next() == "[":
            yield from self._items(None)
            return
        for _ in self._parts("{", "}"):
            name = self._value()
            self._expect(":")
            if self._next() == "[":
                yield from self._items(name)
            else:
                yield Element(name, None, self._value())

    def _items(self, name: str | None) -> Iterator[Element]:
        """Yield the items of the array that comes next, which is the value of a member, or the whole."""
        for number, _ in enumerate(self._parts("[", "]"), 1):
            yield Element(name, number, self._value())

    def _parts(self, opening: str, closing: str) -> Iterator[None]:
        """Yield before each part of an object or array. The caller reads the part before the next step."""
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
