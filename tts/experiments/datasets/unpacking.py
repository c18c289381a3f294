"""Bounds on what files of others become in memory.

They are on one row, and on what a packed file holds in proportion to its size.
"""

from __future__ import annotations

import importlib
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final, Protocol

from tts.errors import ConfigError, quote

LARGEST_ROW: Final = "TTS_LARGEST_ROW"  # the variable that raises both bounds
_LARGEST_ROW_MIB: Final = 64.0
_ROWS_AT_ONCE: Final = 4  # of the largest size, which any file may become
_MOST_RATIO: Final = 200  # of what a file becomes to its size; texts are packed to a twentieth at most
_PIECE: Final = 1 << 20  # bytes


class Readable(Protocol):
    """What is read in pieces."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes; none at the end."""
        ...


def largest_row() -> int:
    """Return the most bytes that a row may have: 64 MiB, or what the environment states.

    Raises:
        ConfigError: the variable is no positive number.
    """
    given = os.environ.get(LARGEST_ROW, "")
    try:
        mebibytes = float(given) if given else _LARGEST_ROW_MIB
    except ValueError:
        mebibytes = 0.0
    if not 0 < mebibytes < float("inf"):
        raise ConfigError(
            f"{LARGEST_ROW} is {quote(given)}, but must be MiB above 0",
            hint="leave it out, or set for example 256",
        )
    return int(mebibytes * (1 << 20))


def check_row(place: str, size: int) -> None:
    """Refuse a row that is too large.

    Raises:
        ConfigError: it is.
    """
    if size > (most := largest_row()):
        raise ConfigError(f"{place}: it has more than {most >> 20:,} MiB, the most that one row may have", hint=_cure())


def check_page(place: str, size: int) -> None:
    """Refuse a page of several rows, which is unpacked at once, if it is too large.

    Raises:
        ConfigError: It is.
    """
    if size > (most := _ROWS_AT_ONCE * largest_row()):
        raise ConfigError(
            f"{place}: one of its pages has more than {most >> 20:,} MiB, the most that is unpacked at once",
            hint=_cure(),
        )


def check_whole(file: Path, size: int) -> None:
    """Refuse a packed file that becomes too large for its size.

    Raises:
        ConfigError: it does.
    """
    packed = file.stat().st_size
    if size > max(_ROWS_AT_ONCE * largest_row(), _MOST_RATIO * packed):
        raise ConfigError(
            f"{file.name}: {packed:,} bytes become {size:,} bytes, more than {_MOST_RATIO} times as many", hint=_cure()
        )


def read_bounded(place: str, stream: Readable) -> bytes:
    """Return what a stream has, as one row.

    Raises:
        ConfigError: it is too large.
    """
    parts, size = list[bytes](), 0
    while part := stream.read(_PIECE):
        size += len(part)
        check_row(place, size)
        parts.append(part)
    return b"".join(parts)


def pack(place: str, whole: bytes) -> bytes:
    """Compress one row by zlib; `unpack` gives it back.

    Args:
        place: What names it in an error.
        whole: The bytes of the row.

    Raises:
        ConfigError: It is too large to be read again.
    """
    check_row(place, len(whole))
    return zlib.compress(whole, 1)


def unpack(place: str, packed: bytes) -> bytes:
    """Return what was compressed by zlib, as one row.

    Args:
        place: What names it in an error.
        packed: The compressed bytes.

    Raises:
        ConfigError: It is too large.
        zlib.error: It is damaged.
    """
    stream = zlib.decompressobj()
    found = stream.decompress(packed, largest_row() + 1)
    check_row(place, len(found))
    if not stream.eof:
        raise zlib.error("it ends too early")
    return found


def bounded_lines(file: Path, lines: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file.

    Raises:
        ConfigError: one is too large.
    """
    most, number = largest_row(), 0
    while line := lines.readline(most + 1):
        number += 1
        if len(line) > most:
            check_row(f"{file.name}, line {number}", len(line))
        yield line


def unpacked_size(values: Any) -> int:
    """Return the bytes of an Arrow array once its dictionaries are written out."""
    import pyarrow as pa

    compute: Any = importlib.import_module("pyarrow.compute")
    kind = values.type
    if pa.types.is_dictionary(kind):
        if not pa.types.is_binary(kind.value_type) and not pa.types.is_string(kind.value_type):
            return len(values) * 16 + unpacked_size(values.dictionary)
        lengths = compute.take(compute.binary_length(values.dictionary), values.indices)
        return 4 * len(values) + (compute.sum(lengths.cast("int64")).as_py() or 0)
    if pa.types.is_map(kind):
        return unpacked_size(values.keys) + unpacked_size(values.items)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return 8 * len(values) + unpacked_size(values.flatten())
    if pa.types.is_struct(kind):
        return sum(map(unpacked_size, values.flatten()))
    return values.nbytes


def _cure() -> str:
    return f"if you trust its source, raise the bound: {LARGEST_ROW}=256 in the environment (MiB)"
