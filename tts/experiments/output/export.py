"""Exports results as rows of one Parquet, CSV or JSON lines file."""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final, get_type_hints

from tts.errors import ConfigError, TTSError, missing_extra
from tts.experiments.output.tables import inert
from tts.experiments.study.record import Cell, Result
from tts.files import replace_file, write_json_lines
from tts.trace.trace import plain_values
from tts.types import Usage

_GROUP: Final = 10_000  # rows that are written at once
_CELL, _OWN, _USAGE = (
    tuple(name for name in (f.name for f in dataclasses.fields(kind)) if name not in ("cell", "usage", "drawn"))
    for kind in (Cell, Result, Usage)
)
_COLUMNS: Final = (*_CELL, *_OWN, *_USAGE, "drawn")


def export(results: Iterable[Result], path: str | Path) -> int:
    """Write results to a file. An existing file is replaced when all rows are written.

    Nested values (budget, verifiers, failures, warnings, drawn) are JSON text in CSV and Parquet. Unknown values are
    empty or null. In CSV, texts that a spreadsheet would run as formulas have an apostrophe before them.

    Args:
        results: The results, a row each.
        path: The file, which ends in .parquet, .csv or .jsonl.

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
    pairs = [(result.cell, _CELL), (result, _OWN), (result.usage, _USAGE)]
    row = {name: plain_values(getattr(part, name)) for part, names in pairs for name in names}
    return {**row, "drawn": plain_values(result.drawn)}


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with nested values as JSON. Characters that UTF-8 lacks are escaped in texts."""
    texts = {name: json.dumps(value) if isinstance(value, dict | list) else value for name, value in row.items()}
    return {
        name: value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
        for name, value in texts.items()
    }


def _write_csv(rows: Iterator[dict[str, Any]], path: Path) -> int:
    count = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, _COLUMNS)
        writer.writeheader()
        for count, row in enumerate(rows, 1):  # noqa: B007 - the count is the result
            writer.writerow({name: inert(value) for name, value in _flat(row).items()})
    return count


def _write_parquet(rows: Iterator[dict[str, Any]], path: Path) -> int:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as missing:
        raise missing_extra("pyarrow", "experiments", "a Parquet file") from missing
    hints = {name: hint for kind in (Cell, Result, Usage) for name, hint in get_type_hints(kind).items()}
    hints["flops"] = float  # the FLOPs of a large model pass 64 bits
    kinds = [(int, pa.int64()), (bool, pa.bool_()), (float, pa.float64())]
    schema = pa.schema(
        [
            (name, next((arrow_type for kind, arrow_type in kinds if hints[name] in (kind, kind | None)), pa.string()))
            for name in _COLUMNS
        ]
    )
    count = 0
    try:
        with parquet.ParquetWriter(path, schema) as writer:
            while group := [_flat(row) for row in islice(rows, _GROUP)]:
                for row in group:
                    row["flops"] = None if row["flops"] is None else float(row["flops"])
                writer.write_table(pa.Table.from_pylist(group, schema))
                count += len(group)
    except (OverflowError, pa.ArrowInvalid) as failure:
        raise TTSError(
            f"a Parquet file has whole numbers up to 2**63 ({failure})", hint="write .jsonl or .csv"
        ) from failure
    return count


_WRITERS: Final[dict[str, Callable[[Iterator[dict[str, Any]], Path], int]]] = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".jsonl": write_json_lines,
}
