"""The process that reads a Parquet file, and what it holds in memory.

See `tts.experiments.datasets.parquet`.
"""

from __future__ import annotations

import datetime
import decimal
import os
import pickle
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from tts.display import one_line
from tts.errors import ConfigError, quote
from tts.experiments.datasets.parquet import LENGTH_BYTES
from tts.experiments.datasets.parquet.pages import BY_PREFIXES, pages_of
from tts.experiments.datasets.rows import BadRow, PlacedRow
from tts.experiments.datasets.unpacking import check_page, check_row, check_whole, largest_row, unpacked_size

_ROWS: Final = 256  # held at once
_VALUE: Final = 8  # bytes that a value has in memory, at least
_FAULTS: Final = (ValueError, TypeError, KeyError, IndexError, OverflowError)  # that damaged values raise
_ROOM_BYTES: Final = 512 << 20  # for pyarrow itself
# of the largest size: pages as they are packed and unpacked, their values, and these in Python
_ROWS_OF_ROOM: Final = 16
_PLAIN: Final = (
    str,
    int,
    float,
    bool,
    bytes,
    decimal.Decimal,
    datetime.datetime,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    type(None),
)


def rows_of(file: Path) -> Iterator[PlacedRow]:
    """Yield the rows of a Parquet file, in memory that its size and the largest row bound.

    Raises:
        ConfigError: the file is no Parquet file, is damaged, or becomes too large.
        OSError: the file cannot be read.
    """
    import pyarrow
    from pyarrow import parquet

    number = 0
    try:
        with parquet.ParquetFile(file) as content:
            metadata, schema = content.metadata, content.schema
        repeated_columns, sizes = _repeat(schema), _texts_by_group(file, metadata, schema)
        for group_number, texts in enumerate(sizes):
            # each text may be as long as all different texts together
            rows = max(1, min(_ROWS, largest_row() // max(1, texts)))
            # `pre_buffer` would hold everything that was read; `read_dictionary` holds equal texts of lists once, since
            # one row could otherwise have any size
            with parquet.ParquetFile(
                file, metadata=metadata, pre_buffer=False, read_dictionary=repeated_columns
            ) as group:
                for batch in group.iter_batches(rows, row_groups=[group_number], use_threads=False):
                    all_fit = sum(map(unpacked_size, batch.columns)) <= largest_row()
                    for i in range(batch.num_rows):
                        number += 1
                        if not all_fit:
                            check_row(
                                f"{file.name}, row {number}",
                                sum(unpacked_size(column.slice(i, 1)) for column in batch.columns),
                            )
                        yield f"row {number}", _plain_row(batch, i)
    except ConfigError:
        raise
    except (pyarrow.ArrowException, OSError, *_FAULTS) as failure:
        if isinstance(failure, OSError) and failure.errno is not None:  # an error of the system, not of pyarrow
            raise
        raise ConfigError(f"{file.name} is no Parquet file that can be read: {quote(str(failure))}") from failure


def _plain_row(batch: Any, i: int) -> dict[str, object] | BadRow:
    """Return a row of a batch as plain values."""
    try:
        return {name: _plain(column[i].as_py()) for name, column in zip(batch.schema.names, batch.columns, strict=True)}
    except _FAULTS as failure:  # no UTF-8, or a date that Python does not have
        return BadRow(f"it has a value that cannot be read: {quote(str(failure))}")


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_plain(item) for item in value)
    return value if type(value) in _PLAIN and getattr(value, "tzinfo", None) is None else str(value)


def _repeat(schema: Any) -> list[str]:
    """Return the paths of texts within lists."""
    columns = [schema.column(i) for i in range(len(schema.names))]
    return [column.path for column in columns if column.max_repetition_level and column.physical_type == "BYTE_ARRAY"]


def _texts_by_group(file: Path, metadata: Any, schema: Any) -> list[int]:
    """Return the bytes of all different texts of each row group after unpacking.

    Raises:
        ConfigError: the file or one of its pages is too large, or damaged.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    if any(group.num_columns != len(schema.names) for group in groups):
        raise _damage(file.name, "its row groups have other columns than its schema")
    chunks = [[(group.column(i), schema.column(i)) for i in range(group.num_columns)] for group in groups]
    # columns that share pages could become larger than their file
    if sum(chunk.total_compressed_size for group_chunks in chunks for chunk, _ in group_chunks) > file.stat().st_size:
        raise _damage(file.name, "its columns have more bytes than the file")
    total, texts = 0, list[int]()
    with file.open("rb") as content:
        for group_chunks in chunks:
            texts.append(0)
            for chunk, kind in group_chunks:
                size, values = _unpack(
                    f"{file.name}, column {one_line(kind.path)}", content, chunk, in_lists=kind.max_repetition_level > 0
                )
                total += max(max(_VALUE, kind.length) * values, size)
                texts[-1] += size * chunk.physical_type.endswith("BYTE_ARRAY")
    check_whole(file, total)
    return texts


def _unpack(place: str, content: IO[bytes], column: Any, *, in_lists: bool) -> tuple[int, int]:
    """Return the bytes and values of a column's pages by their own headers, since footers may be wrong.

    Raises:
        ConfigError: a page is too large, or damaged.
    """
    size, values, pages = 0, 0, pages_of(content, column)
    while True:
        try:
            page = next(pages)
        except StopIteration:
            return size, values
        except ValueError as failure:
            raise _damage(place, str(failure)) from failure
        size, values = size + page.size, values + page.values
        # in a list, which is a part of one row, each text may repeat the beginning of the text before
        check_page(place, page.size * page.values if page.encoding == BY_PREFIXES and in_lists else page.size)


def _damage(place: str, why: str) -> ConfigError:
    return ConfigError(f"{place}: it is damaged: {why}", hint="write it anew")


def _limit_memory() -> None:
    """Limit the memory that this process may take from now on.

    Systems without /proc only have the bounds of pages and rows.
    """
    with suppress(ImportError, OSError, ValueError):
        import resource

        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        limit, (_, hard) = used + _ROOM_BYTES + _ROWS_OF_ROOM * largest_row(), resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def main(file: Path) -> None:
    """Write the rows of a file to standard output, each as its length and a pickle, then the outcome."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # output of other code must not reach the pipe

    def send(*message: Any) -> None:
        body = pickle.dumps(message)
        out.write(len(body).to_bytes(LENGTH_BYTES, "little") + body)

    try:
        _limit_memory()
        for place, row in rows_of(file):
            send(*(("bad", place, str(row)) if isinstance(row, BadRow) else ("row", place, row)))
        send("end")
    except ConfigError as refusal:
        send("refused", refusal.cause, refusal.hint or "")
    except OSError as failure:
        send("unreadable", failure.errno, failure.strerror)
    out.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
