"""Bounds on the memory of files that other people wrote.

One bound is on the size of a row, and another on the size of an unpacked file in proportion to the packed file.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final, Protocol

from tts.errors import ConfigError, quote

LARGEST_ROW: Final = "TTS_LARGEST_ROW"  # the variable that raises both bounds
_LARGEST_ROW_MIB: Final = 64.0
_ROWS_AT_ONCE: Final = 4  # number of rows of the largest size that any file may become
_MOST_RATIO: Final = 200  # bound of the ratio of unpacked to packed size; texts are packed to a twentieth at most
_PIECE: Final = 1 << 20  # bytes


class Readable(Protocol):
    """A stream that can be read in pieces."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes; b"" at the end."""
        ...


def largest_row() -> int:
    """Return the most bytes that a row may have, 64 MiB unless the environment states another bound.

    Raises:
        ConfigError: the variable is no positive number.
    """
    text = os.environ.get(LARGEST_ROW, "")
    try:
        mebibytes = float(text) if text else _LARGEST_ROW_MIB
    except ValueError:
        mebibytes = 0.0
    if not 0 < mebibytes < float("inf"):
        raise ConfigError(
            f"{LARGEST_ROW} is {quote(text)}, but must be MiB above 0",
            hint="leave it out, or set for example 256",
        )
    return int(mebibytes * (1 << 20))


def check_row(place: str, size: int) -> None:
    """Refuse a row that is too large.

    Raises:
        ConfigError: the row is too large.
    """
    max_size = largest_row()
    if size > max_size:
        raise ConfigError(
            f"{place}: it has more than {max_size >> 20:,} MiB, the most that one row may have", hint=cure()
        )


def check_whole(file: Path, size: int) -> None:
    """Refuse a packed file that becomes too large in proportion to its size.

    Raises:
        ConfigError: the unpacked file is too large.
    """
    packed_size = file.stat().st_size
    if size > max(_ROWS_AT_ONCE * largest_row(), _MOST_RATIO * packed_size):
        raise ConfigError(
            f"{file.name}: {packed_size:,} bytes become {size:,} bytes, more than {_MOST_RATIO} times as many",
            hint=cure(),
        )


def read_bounded(place: str, stream: Readable) -> bytes:
    """Return the content of a stream, of one row at most.

    Raises:
        ConfigError: the content is too large.
    """
    pieces: list[bytes] = []
    size = 0
    while piece := stream.read(_PIECE):
        size += len(piece)
        check_row(place, size)
        pieces.append(piece)
    return b"".join(pieces)


def pack(place: str, whole: bytes) -> bytes:
    """Return one row compressed by zlib, for `unpack`.

    Args:
        place: The name of the row in an error.
        whole: The bytes of the row.

    Raises:
        ConfigError: The row is too large to be read again.
    """
    check_row(place, len(whole))
    return zlib.compress(whole, 1)


def unpack(place: str, packed: bytes) -> bytes:
    """Return the row that was compressed by zlib.

    Args:
        place: The name of the row in an error.
        packed: The compressed bytes.

    Raises:
        ConfigError: The row is too large.
        zlib.error: The bytes are damaged.
    """
    stream = zlib.decompressobj()
    content = stream.decompress(packed, largest_row() + 1)
    check_row(place, len(content))
    if not stream.eof:
        raise zlib.error("it ends too early")
    return content


def bounded_lines(file: Path, lines: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file.

    Raises:
        ConfigError: a line is too large.
    """
    max_size = largest_row()
    for line_number, line in enumerate(iter(lambda: lines.readline(max_size + 1), b""), 1):
        if len(line) > max_size:
            check_row(f"{file.name}, line {line_number}", len(line))
        yield line


def cure() -> str:
    """Return how to read a file that was refused for its size."""
    return f"if you trust its source, raise the bound: {LARGEST_ROW}=256 in the environment (MiB)"
