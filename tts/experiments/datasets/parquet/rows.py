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
from typing import Any, Final

from tts.errors import ConfigError, quote
from tts.experiments.datasets.parquet import LENGTH_BYTES
from tts.experiments.datasets.rows import BadRow, PlacedRow
from tts.experiments.datasets.unpacking import check_row, check_whole, cure, largest_row

_BATCH_ROWS: Final = 4  # rows that are unpacked at once
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
    """Yield the rows of a Parquet file.

    Raises:
        ConfigError: the file is no Parquet file, is damaged, or becomes too large.
        OSError: the file cannot be read.
    """
    import pyarrow
    from pyarrow import parquet

    row_number = total_bytes = 0
    try:
        # `pre_buffer` would keep all bytes that were read
        with parquet.ParquetFile(file, pre_buffer=False) as content:
            metadata = content.metadata
            check_whole(file, sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)))
            for batch in content.iter_batches(_BATCH_ROWS, use_threads=False):
                for i in range(batch.num_rows):
                    row_number += 1
                    row = _plain_row(batch, i)
                    row_bytes = _size_of(row)
                    total_bytes += row_bytes
                    check_row(f"{file.name}, row {row_number}", row_bytes)
                    check_whole(file, total_bytes)  # the footer may be wrong
                    yield f"row {row_number}", row
    except ConfigError:
        raise
    except MemoryError:
        raise ConfigError(f"{file.name} takes more memory than a file may take", hint=cure()) from None
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


def _size_of(value: Any) -> int:
    """Return the bytes of a plain value in memory, with those of the values in it."""
    parts: list[Any] = [*value, *value.values()] if isinstance(value, dict) else []
    if isinstance(value, list | tuple):
        parts = [*value]
    return sys.getsizeof(value) + sum(map(_size_of, parts))


def _limit_memory() -> None:
    """Limit the memory that this process may take from now on.

    A system without /proc has no such limit, only the bounds of the footer and of rows.
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
