"""Problems from a JSON lines, CSV or Parquet file, by the ending of its name."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tts.errors import ConfigError, missing_extra
from tts.experiments.datasets import DataSet
from tts.experiments.datasets.programs import read_row
from tts.experiments.datasets.rows import BadRow, Fields, PlacedRow, collect
from tts.experiments.datasets.unpacking import bounded_lines, check_row, check_whole, largest_row, unpacked_size
from tts.types import Problem

_ROWS: Final = 256  # of Parquet, held at once
_VALUE: Final = 8  # bytes that a value of Parquet has in memory, at least


def load(
    *,
    path: str = "",
    limit: int | None = None,
    seed: int | None = None,
    task: str | None = None,
    fields: Mapping[str, str] | None = None,
) -> list[Problem]:
    """Return the problems of a file; fields without a meaning here become their metadata.

    The answer of rows of LiveCodeBench and APPS is their tests (`tts.experiments.datasets.programs`).

    Args:
        path: of the file: .jsonl (an object a line), .csv (with a header) or .parquet; texts are UTF-8.
        limit: the most problems; None: all. seed: draws their order, and so which of them a limit takes; None: the file's order.
        task: of every problem; None: the study's, else the model's.
        fields: names of fields, where they are others than usual: {"problem": …, "answer": …, "id": …}. Usual are `problem`, `question`,
            `prompt`, `input`; `answer`, `target`, `solution`; `id`: of several that a row has, the first is taken. The problem may be a
            list of chat messages; answers and ids may be missing; without an id, the problem's hash is used.

    Raises:
        ConfigError: there is no such file, it cannot be read at all, no row is a problem, or two have one id.
        MissingDependency: the file is Parquet, and pyarrow is not installed.

    Warns:
        RowsLeftOut: rows are no problems, or have the problem of an earlier row; each is named by its line.
    """
    if not path:
        raise ConfigError("path is not given, but the data set 'file' needs one", hint="set path: to a .jsonl, .csv or .parquet file")
    file = Path(path).expanduser()
    if file.suffix not in _READERS:
        raise ConfigError(f"path is {str(path)!r}, but must end in {', '.join(_READERS)}")
    meant = Fields(fields, task)
    try:
        problems = collect(
            _READERS[file.suffix](file), lambda row: read_row(row, meant), where=file.name, name=file.stem, limit=limit, seed=seed
        )
    except OSError as failure:
        raise ConfigError(f"the file {str(path)!r} cannot be read: {failure.strerror or failure}") from failure
    meant.check_met(file.name)
    return problems


def read_json_lines(file: Path) -> Iterator[PlacedRow]:
    """Yield the objects of a file of JSON lines; blank lines are passed over."""
    with file.open("rb") as lines:
        for number, line in enumerate(bounded_lines(file, lines), 1):
            if line.strip():
                yield f"line {number}", _json_object(line)


def _json_object(line: bytes) -> dict[str, object] | BadRow:
    try:
        text = line.decode("utf-8-sig")
        row = json.loads(text)
    except UnicodeDecodeError:
        return BadRow("it is no UTF-8")
    except (ValueError, RecursionError) as failure:
        is_cut = not line.endswith(b"\n") and isinstance(failure, json.JSONDecodeError) and _ends_early(failure)
        cut = ", and the file ends in the middle of this line" if is_cut else ""
        return BadRow(f"it is no JSON{cut}: {failure}")
    return row if isinstance(row, dict) else BadRow("it is no JSON object")


def _ends_early(failure: json.JSONDecodeError) -> bool:
    """Return whether more text could have made JSON of it: a value is missing at its end, or is begun there."""
    rest = failure.doc[failure.pos :].rstrip()
    return failure.msg.startswith("Unterminated") or any(word.startswith(rest) for word in ("true", "false", "null", "-0"))


def read_csv(file: Path) -> Iterator[PlacedRow]:
    """Yield the rows of a CSV file with a header; all values are texts."""
    # A byte that is no UTF-8 spoils its own row only: it becomes half a surrogate pair, which no text may have.
    with file.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as text:
        csv.field_size_limit(max(csv.field_size_limit(), largest_row()))  # of the process; a solution may pass its default
        reader = csv.reader(text, strict=True)
        header = next(reader, [])
        if len(set(header)) < len(header):
            raise ConfigError(f"the header of {file.name} is {','.join(header)}, but no column may come twice")
        while True:
            place = f"line {reader.line_num + 1}"
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as failure:
                if "field limit" in str(failure):  # what follows is the rest of a cell, and no row
                    check_row(f"{file.name}, {place}", largest_row() + 1)
                yield place, BadRow(f"it is no CSV: {failure}")
                continue
            if len(cells) == len(header):
                yield place, dict(zip(header, cells, strict=True))
            elif cells:
                yield place, BadRow(f"its values are {len(cells)}, but the header has {len(header)} columns")


def read_parquet(file: Path) -> Iterator[PlacedRow]:
    """Yield the rows of a Parquet file.

    Raises:
        MissingDependency: pyarrow is not installed. ConfigError: it is no Parquet file.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as absent:
        raise missing_extra("pyarrow", "experiments", "reading a Parquet file") from absent
    number = 0
    try:
        with parquet.ParquetFile(file) as whole:
            metadata, repeated = whole.metadata, _repeated(whole.schema)
        for at in range(metadata.num_row_groups):
            rows = _rows_at_once(file, metadata.row_group(at))
            # without `pre_buffer`, or it would hold all that it has read; equal texts of lists are held once, or one row could be any size
            with parquet.ParquetFile(file, pre_buffer=False, read_dictionary=repeated) as group:
                for batch in group.iter_batches(rows, row_groups=[at]):
                    small = sum(map(unpacked_size, batch.columns)) <= largest_row()
                    for i in range(batch.num_rows):
                        number += 1
                        if not small:
                            check_row(f"{file.name}, row {number}", sum(unpacked_size(column.slice(i, 1)) for column in batch.columns))
                        yield (
                            f"row {number}",
                            {name: column[i].as_py() for name, column in zip(batch.schema.names, batch.columns, strict=True)},
                        )
    except (pyarrow.ArrowException, UnicodeDecodeError) as failure:
        raise ConfigError(f"{file.name} is no Parquet file that can be read: {str(failure).splitlines()[0]}") from failure


def _repeated(schema: Any) -> list[str]:
    """Return the paths of texts within lists."""
    columns = [schema.column(i) for i in range(len(schema.names))]
    return [one.path for one in columns if one.max_repetition_level and one.physical_type == "BYTE_ARRAY"]


def _rows_at_once(file: Path, group: Any) -> int:
    """Return how many rows of a group are held at once: each of their texts may be as long as all different ones together.

    Raises:
        ConfigError: the group is too large for the size of the file.
    """
    columns = [group.column(i) for i in range(group.num_columns)]
    check_whole(file, sum(max(_VALUE * one.num_values, one.total_uncompressed_size) for one in columns))
    texts = sum(one.total_uncompressed_size for one in columns if one.physical_type.endswith("BYTE_ARRAY"))
    return max(1, min(_ROWS, largest_row() // max(1, texts)))


_READERS: dict[str, Callable[[Path], Iterator[PlacedRow]]] = {".jsonl": read_json_lines, ".csv": read_csv, ".parquet": read_parquet}

DATASET = DataSet(load=load, source="a file of yours: JSON lines, CSV or Parquet", licence="the file's own")
