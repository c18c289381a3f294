"""The process that reads a Parquet file in bounded memory.

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

from tts._core.display import one_line
from tts.errors import ConfigError, quote
from tts.experiments.datasets.parquet import LENGTH_BYTES
from tts.experiments.datasets.parquet.pages import BY_PREFIXES, pages_of
from tts.experiments.datasets.rows import BadRow, PlacedRow
from tts.experiments.datasets.unpacking import check_page, check_row, check_whole, largest_row, unpacked_size

_MOST_BATCH_ROWS: Final = 256  # bound of the rows that are in memory at once
_VALUE: Final = 8  # bytes that a value has in memory, at least
_FAULTS: Final = (ValueError, TypeError, KeyError, IndexError, OverflowError)  # errors that damaged values raise
_PYARROW_BYTES: Final = 512 << 20  # memory for pyarrow itself
# memory for data, in rows of the largest size: pages packed and unpacked, their values, and the values in Python
_DATA_ROWS: Final = 16
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

    row_number = 0
    try:
        with parquet.ParquetFile(file) as content:
            metadata, schema = content.metadata, content.schema
        text_lists = _paths_of_text_lists(schema)
        for group_number, text_bytes in enumerate(_text_bytes_by_group(file, metadata, schema)):
            # each text may be as long as all different texts of its group together
            batch_rows = max(1, min(_MOST_BATCH_ROWS, largest_row() // max(1, text_bytes)))
            # `pre_buffer` would keep all bytes that were read; `read_dictionary` keeps equal texts of lists once, since
            # one row could otherwise have any size
            with parquet.ParquetFile(file, metadata=metadata, pre_buffer=False, read_dictionary=text_lists) as group:
                for batch in group.iter_batches(batch_rows, row_groups=[group_number], use_threads=False):
                    may_have_large_row = sum(map(unpacked_size, batch.columns)) > largest_row()
                    for i in range(batch.num_rows):
                        row_number += 1
                        if may_have_large_row:
                            row_size = sum(unpacked_size(column.slice(i, 1)) for column in batch.columns)
                            check_row(f"{file.name}, row {row_number}", row_size)
                        yield f"row {row_number}", _plain_row(batch, i)
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
    except _FAULTS as failure:  # such as a text that is no UTF-8, or a date that Python does not have
        return BadRow(f"it has a value that cannot be read: {quote(str(failure))}")


def _plain(value: Any) -> Any:
    """Return a value with texts in place of other types than Python's own, at any depth."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_plain(item) for item in value)
    has_time_zone = getattr(value, "tzinfo", None) is not None
    return value if type(value) in _PLAIN and not has_time_zone else str(value)


def _paths_of_text_lists(schema: Any) -> list[str]:
    """Return the paths of texts within lists."""
    columns = [schema.column(i) for i in range(len(schema.names))]
    return [column.path for column in columns if column.max_repetition_level and column.physical_type == "BYTE_ARRAY"]


def _text_bytes_by_group(file: Path, metadata: Any, schema: Any) -> list[int]:
    """Return the bytes of all different texts of each row group after unpacking.

    Raises:
        ConfigError: the file or one of its pages is too large, or damaged.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    num_columns = len(schema.names)
    if any(group.num_columns != num_columns for group in groups):
        raise _damage(file.name, "its row groups have other columns than its schema")
    packed_bytes = sum(group.column(i).total_compressed_size for group in groups for i in range(num_columns))
    # columns that share pages could become larger than their file
    if packed_bytes > file.stat().st_size:
        raise _damage(file.name, "its columns have more bytes than the file")
    total_bytes = 0
    text_bytes_by_group: list[int] = []
    with file.open("rb") as content:
        for group in groups:
            text_bytes = 0
            for i in range(num_columns):
                column, column_schema = group.column(i), schema.column(i)
                place = f"{file.name}, column {one_line(column_schema.path)}"
                is_in_list = column_schema.max_repetition_level > 0
                page_bytes, num_values = _unpacked_pages(place, content, column, in_lists=is_in_list)
                total_bytes += max(max(_VALUE, column_schema.length) * num_values, page_bytes)
                if column.physical_type.endswith("BYTE_ARRAY"):
                    text_bytes += page_bytes
            text_bytes_by_group.append(text_bytes)
    check_whole(file, total_bytes)
    return text_bytes_by_group


def _unpacked_pages(place: str, content: IO[bytes], column: Any, *, in_lists: bool) -> tuple[int, int]:
    """Return the bytes of a column's unpacked pages, and the number of their values.

    Both are read from the headers of the pages, since the footer of the file may be wrong.

    Args:
        place: The file and the column, for messages.
        content: The open file.
        column: The metadata of the column.
        in_lists: Whether values are items of lists.

    Raises:
        ConfigError: a page is too large, or damaged.
    """
    total_bytes, num_values = 0, 0
    pages = pages_of(content, column)
    while True:
        try:
            page = next(pages)
        except StopIteration:
            return total_bytes, num_values
        except ValueError as failure:
            raise _damage(place, str(failure)) from failure
        total_bytes += page.size
        num_values += page.values
        decoded_bytes = page.size
        if page.encoding == BY_PREFIXES and in_lists:
            # all values may be of one row, and each text may repeat the whole text before it
            decoded_bytes *= page.values
        check_page(place, decoded_bytes)


def _damage(place: str, reason: str) -> ConfigError:
    return ConfigError(f"{place}: it is damaged: {reason}", hint="write it anew")


def _limit_memory() -> None:
    """Limit the memory that this process may take from now on.

    A system without /proc has no such limit, only the bounds of pages and rows.
    """
    with suppress(ImportError, OSError, ValueError):
        import resource

        num_pages, *_ = Path("/proc/self/statm").read_text().split()
        used_bytes = int(num_pages) * resource.getpagesize()
        limit = used_bytes + _PYARROW_BYTES + _DATA_ROWS * largest_row()
        _, hard_limit = resource.getrlimit(resource.RLIMIT_AS)
        if hard_limit != resource.RLIM_INFINITY:
            limit = min(limit, hard_limit)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard_limit))


def main(file: Path) -> None:
    """Write the rows of a file to standard output, each as its length and a pickle, then the outcome."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # output of other code must not reach the pipe

    def send(*message: Any) -> None:
        body = pickle.dumps(message)
        output.write(len(body).to_bytes(LENGTH_BYTES, "little") + body)

    try:
        _limit_memory()
        for place, row in rows_of(file):
            if isinstance(row, BadRow):
                send("bad", place, str(row))
            else:
                send("row", place, row)
        send("end")
    except ConfigError as refusal:
        send("refused", refusal.cause, refusal.hint or "")
    except OSError as failure:
        send("unreadable", failure.errno, failure.strerror)
    output.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
