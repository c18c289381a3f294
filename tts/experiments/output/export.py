"""Exports results as rows of one Parquet or JSON lines file."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final, get_type_hints

from tts._common.files import replace_file, write_json_lines
from tts.errors import ConfigError, TTSError, require_extra
from tts.experiments.study.record import Cell, Result
from tts.trace.trace import plain_values
from tts.types import Usage

_GROUP: Final = 10_000  # rows that are written at once


def _plain_fields(kind: type[Any]) -> tuple[str, ...]:
    """Return the names of a record's fields, without fields that are records of their own."""
    names = [field.name for field in dataclasses.fields(kind)]
    return tuple(name for name in names if name not in ("cell", "usage", "drawn"))


_CELL_FIELDS: Final = _plain_fields(Cell)
_RESULT_FIELDS: Final = _plain_fields(Result)
_USAGE_FIELDS: Final = _plain_fields(Usage)
_COLUMNS: Final = (*_CELL_FIELDS, *_RESULT_FIELDS, *_USAGE_FIELDS, "drawn")


def export(results: Iterable[Result], path: str | Path) -> int:
    """Write results to a file. An existing file is replaced when all rows are written.

    Nested values (budget, verifiers, failures, warnings, drawn) are JSON text in Parquet. Unknown values are null.

    Args:
        results: The results, a row each.
        path: The file, which ends in .parquet or .jsonl.

    Returns:
        The number of rows.

    Raises:
        ConfigError: another ending.
        MissingDependency: Parquet without pyarrow.
        TTSError: the file cannot be written.
    """
    target = Path(path)
    write = _WRITERS.get(target.suffix.lower())
    if write is None:
        raise ConfigError(
            f"path is {str(path)!r}, but must end in {', '.join(_WRITERS)}", hint="for example results.parquet"
        )
    with replace_file(target) as part:
        return write(map(record, results), part)


def record(result: Result) -> dict[str, Any]:
    """Return a result as one flat object: the fields of its cell, of the result itself, and of its usage."""
    parts = ((result.cell, _CELL_FIELDS), (result, _RESULT_FIELDS), (result.usage, _USAGE_FIELDS), (result, ("drawn",)))
    return {name: plain_values(getattr(part, name)) for part, names in parts for name in names}


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with nested values as JSON. Characters that UTF-8 lacks are escaped in texts."""
    flat_row: dict[str, Any] = {}
    for name, value in row.items():
        flat_value = json.dumps(value) if isinstance(value, dict | list) else value
        if isinstance(flat_value, str):
            flat_value = flat_value.encode("utf-8", "backslashreplace").decode()
        flat_row[name] = flat_value
    return flat_row


def _write_parquet(rows: Iterator[dict[str, Any]], path: Path) -> int:
    """Write rows as Parquet, and return their number.

    Raises:
        MissingDependency: pyarrow is not installed.
        TTSError: a whole number is too large.
    """
    with require_extra("pyarrow", "experiments", "a Parquet file"):
        import pyarrow as pa
        from pyarrow import parquet
    hints = {**get_type_hints(Cell), **get_type_hints(Result), **get_type_hints(Usage)}
    hints["flops"] = float  # the FLOPs of a large model pass 64 bits
    plain_types = {int: pa.int64(), bool: pa.bool_(), float: pa.float64()}
    arrow_types: dict[Any, Any] = {**plain_types, **{kind | None: plain_types[kind] for kind in plain_types}}
    schema = pa.schema([(name, arrow_types.get(hints[name], pa.string())) for name in _COLUMNS])
    num_rows = 0
    try:
        with parquet.ParquetWriter(path, schema) as writer:
            while group := [flat(row) for row in islice(rows, _GROUP)]:
                for row in group:
                    row["flops"] = None if row["flops"] is None else float(row["flops"])
                writer.write_table(pa.Table.from_pylist(group, schema))
                num_rows += len(group)
        return num_rows
    except (OverflowError, pa.ArrowInvalid) as failure:
        raise TTSError(f"a Parquet file has whole numbers up to 2**63 ({failure})", hint="write .jsonl") from failure


_WRITERS: Final[dict[str, Callable[[Iterator[dict[str, Any]], Path], int]]] = {
    ".parquet": _write_parquet,
    ".jsonl": write_json_lines,
}
