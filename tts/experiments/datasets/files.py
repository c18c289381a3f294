"""Reads problems from a JSON lines, CSV or Parquet file, by the ending of its name."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO

from tts.errors import ConfigError
from tts.experiments.datasets import DataSet
from tts.experiments.datasets.parquet import read_parquet
from tts.experiments.datasets.rows import BadRow, Fields, PlacedRow, collect, read_row
from tts.experiments.datasets.unpacking import bounded_lines, check_row, largest_row
from tts.types import Problem


def load(
    *,
    path: str = "",
    limit: int | None = None,
    seed: int | None = None,
    task: str | None = None,
    fields: Mapping[str, str] | None = None,
) -> list[Problem]:
    """Return the problems of a file. Fields without a meaning here become metadata of the problem.

    The answer of rows of LiveCodeBench and APPS is their tests (`tts_addons.code.tested_rows`).

    Args:
        path: The path of the file: .jsonl (an object a line), .csv (with a header) or .parquet; texts are UTF-8.
        limit: The most problems; None: all.
        seed: The seed of a random order, of which a limit takes the first problems; None: the file's order.
        task: The task of every problem; None: the study's, else the model's.
        fields: The names of fields with unusual names: {"problem": …, "answer": …, "id": …}. Usual names are `problem`,
            `question`, `prompt`, `input`; `answer`, `target`, `solution`; `id`. The first usual name of a row is taken.
            The problem may be a list of chat messages. Answers and ids may be missing; without an id, the problem's
            hash is used.

    Raises:
        ConfigError: there is no such file, the file cannot be read, no row is a problem, or two have one id.
        MissingDependency: the file is Parquet, and pyarrow is not installed.

    Warns:
        RowsLeftOut: rows are no problems, or repeat an earlier row's problem. The text names each row by its line.
    """
    if not path:
        raise ConfigError(
            "path is not given, but the data set 'file' needs one", hint="set path: to a .jsonl, .csv or .parquet file"
        )
    file = Path(path).expanduser()
    if file.suffix not in _READERS:
        raise ConfigError(f"path is {str(path)!r}, but must end in {', '.join(_READERS)}")
    field_meanings = Fields(fields, task)
    try:
        problems = collect(
            _READERS[file.suffix](file),
            lambda row: read_row(row, field_meanings),
            where=file.name,
            name=file.stem,
            limit=limit,
            seed=seed,
        )
    except OSError as failure:
        raise ConfigError(
            f"the file {str(path)!r} cannot be read: {failure.strerror or failure}",
            hint=f"paths are taken from the folder of the process, {Path.cwd()}",
        ) from failure
    field_meanings.check_met(file.name)
    return problems


def read_json_lines(file: Path) -> Iterator[PlacedRow]:
    """Yield the objects of a file of JSON lines. Blank lines are skipped."""
    with file.open("rb") as lines:
        yield from json_lines_in(file, lines)


def json_lines_in(file: Path, lines: IO[bytes]) -> Iterator[PlacedRow]:
    """Yield the objects of an open file of JSON lines."""
    for number, line in enumerate(bounded_lines(file, lines), 1):
        if line.strip():
            yield f"line {number}", _json_object(line)


def _json_object(line: bytes) -> dict[str, object] | BadRow:
    """Return the object of a line, or the reason why the line has none."""
    try:
        text = line.decode("utf-8-sig")
        row = json.loads(text)
    except UnicodeDecodeError:
        return BadRow("it is no UTF-8")
    except (ValueError, RecursionError) as failure:
        is_cut = not line.endswith(b"\n") and isinstance(failure, json.JSONDecodeError) and _ends_early(failure)
        remark = ", and the file ends in the middle of this line" if is_cut else ""
        return BadRow(f"it is no JSON{remark}: {failure}")
    return row if isinstance(row, dict) else BadRow("it is no JSON object")


def _ends_early(failure: json.JSONDecodeError) -> bool:
    """Return whether a line is cut JSON: a value is missing at its end, or begins there."""
    if failure.msg.startswith("Unterminated"):
        return True
    unread_text = failure.doc[failure.pos :].rstrip()
    return any(word.startswith(unread_text) for word in ("true", "false", "null", "-0"))


def read_csv(file: Path) -> Iterator[PlacedRow]:
    """Yield the rows of a CSV file with a header; all values are texts."""
    # a byte that is no UTF-8 becomes half a surrogate pair, so that only its own row is refused
    with file.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as text:
        # worked solutions may exceed the default limit, which is a setting of the whole process
        csv.field_size_limit(max(csv.field_size_limit(), largest_row()))
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
                if "field limit" in str(failure):
                    # the reader would go on in the middle of a cell, so the whole file is refused
                    check_row(f"{file.name}, {place}", largest_row() + 1)
                yield place, BadRow(f"it is no CSV: {failure}")
                continue
            if len(cells) == len(header):
                yield place, dict(zip(header, cells, strict=True))
            elif cells:
                yield place, BadRow(f"its values are {len(cells)}, but the header has {len(header)} columns")


_READERS: dict[str, Callable[[Path], Iterator[PlacedRow]]] = {
    ".jsonl": read_json_lines,
    ".csv": read_csv,
    ".parquet": read_parquet,
}

DATASET = DataSet(load=load, source="a file of yours: JSON lines, CSV or Parquet", licence="the file's own")
