"""Rows of JSON files.

A file has JSON lines, an array of objects, or an object of which one member is the list of rows.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final

from tts.errors import ConfigError, unknown_name
from tts.experiments.datasets.files import json_lines_in
from tts.experiments.datasets.rows import BadRow, PlacedRow
from tts_addons.logs.fields import USUAL
from tts_addons.logs.json_stream import JsonStream

_BEGINNING: Final = 4096  # bytes in which the first character is sought
_IDS: Final = {*USUAL["problem"], *USUAL["prompt"]}
_OF_SAMPLES: Final = {*USUAL["text"], *USUAL["answer"], *USUAL["correct"]}
_MARK: Final = b"\xef\xbb\xbf"  # the mark that may stand before UTF-8


def read_json_rows(file: Path) -> Iterator[PlacedRow]:
    """Yield the rows of a JSON file, each with its place.

    JSON lines and arrays are told apart by the first character.

    Args:
        file: The file; a pipe is read once.

    Raises:
        ConfigError: an array is incomplete or no JSON.
    """
    with file.open("rb") as stream:
        if first_character(stream) == "[":
            yield from _items(file, stream)
        else:
            yield from json_lines_in(file, stream)


def read_json_object(file: Path, rows: str | None = None) -> Iterator[PlacedRow]:
    """Yield the rows of an object, from a named member, its only list of objects, or all members.

    Where each member is a row, or a list of rows without an id, its name is the id of their problem.

    Args:
        file: The file with the object.
        rows: The name of the member with the rows; None: the only list of objects.

    Raises:
        ConfigError: the object has no such list, or several, or other members.
    """
    lists = _lists(file) if rows is None else [rows]
    yield from _rows_of_member(file, lists[0]) if len(lists) == 1 else _rows_by_key(file, lists)


def first_character(stream: IO[bytes]) -> str:
    """Return the first character of an open file that is no space, without consuming it.

    A file that begins only with spaces gives "".
    """
    assert isinstance(stream, io.BufferedReader), "files are opened with a buffer"
    return stream.peek(_BEGINNING)[:_BEGINNING].removeprefix(_MARK).lstrip()[:1].decode("latin-1")


def _items(file: Path, stream: IO[bytes]) -> Iterator[PlacedRow]:
    """Yield the items of an array, each with its number from 1.

    Raises:
        ConfigError: the array is incomplete or no JSON.
    """
    number = 0
    text = io.TextIOWrapper(stream, encoding="utf-8-sig")
    try:
        for item in JsonStream(text, file.name).items():
            number += 1
            yield f"item {number}", _object(item)
    except (ValueError, RecursionError) as failure:
        raise _no_whole_json(file, "array", f"item {number}", failure) from failure
    finally:
        text.detach()  # so that the stream stays open, which the caller closes


def _rows_of_member(file: Path, name: str) -> Iterator[PlacedRow]:
    """Yield the items of the list in a member of an object, each with its number from 1.

    Raises:
        ConfigError: the object is incomplete or no JSON, or has no such member.
    """
    number = 0
    names = dict[str, None]()
    try:
        with file.open(encoding="utf-8-sig") as text:
            for member, value in JsonStream(text, file.name).members(name):
                names[member] = None
                if member == name:
                    number += 1
                    yield f"{name} {number}", _object(value)
    except (ValueError, RecursionError) as failure:
        raise _no_whole_json(file, "object", f"{name} {number}", failure) from failure
    if name not in names:
        raise unknown_name(f"member of {file.name}", name, names)


def _lists(file: Path) -> list[str]:
    """Return the names of the lists of objects in an object.

    Raises:
        ConfigError: the object is incomplete or no JSON.
    """
    try:
        with file.open(encoding="utf-8-sig") as text:
            return list(dict.fromkeys(JsonStream(text, file.name).lists_of_objects()))
    except (ValueError, RecursionError) as failure:
        raise _no_whole_json(file, "object", "its beginning", failure) from failure


def _rows_by_key(file: Path, lists: list[str]) -> Iterator[PlacedRow]:
    """Yield the rows of an object whose members are rows, or lists of rows, by the id of their problem.

    Raises:
        ConfigError: a member is no row, or lists have rows with ids and are named `lists`.
    """
    with file.open(encoding="utf-8-sig") as text:
        for key, value in JsonStream(text, file.name).members(""):
            rows = value if isinstance(value, list) else [value]
            is_row = [isinstance(row, dict) and (rows is not value or _has_no_id(row)) for row in rows]
            if not all(is_row):
                listed_names = ", ".join(map(repr, lists))
                lists_in_words = f"{len(lists)} lists of objects: {listed_names}" if lists else "no list of objects"
                raise ConfigError(
                    f"{file.name}: it has {lists_in_words}; it is no log of Inspect",
                    hint="name the member with the rows: --rows NAME",
                )
            for number, row in enumerate(rows, 1):
                yield f"{key} {number}", row if _IDS & row.keys() else {"problem": key, **row}


def _has_no_id(row: Mapping[str, Any]) -> bool:
    return not _IDS & row.keys() and bool(_OF_SAMPLES & row.keys())


def _object(value: Any) -> Mapping[str, Any] | BadRow:
    return value if isinstance(value, Mapping) else BadRow("it is no JSON object")


def _no_whole_json(file: Path, kind: str, place: str, failure: Exception) -> ConfigError:
    """Return the error of a file whose JSON cannot be read.

    Args:
        file: The file.
        kind: The kind of value, "array" or "object".
        place: The last place that was read.
        failure: The failure of the reader.
    """
    if isinstance(failure, ConfigError):
        return failure
    return ConfigError(f"{file.name}: it is no whole JSON {kind}: {failure} (after {place})")
