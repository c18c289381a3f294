"""Rows of JSON files.

A file has JSON lines, an array of objects, or an object of which one member is the list of rows.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from tts.errors import ConfigError, unknown_name
from tts.experiments.datasets.files import json_lines_in
from tts.experiments.datasets.rows import BadRow, PlacedRow
from tts_addons.logs.json_stream import Element, json_elements
from tts_addons.logs.layouts import USUAL

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
            yield from (_placed_row(item) for item in json_elements(file, stream))
        else:
            yield from json_lines_in(file, stream)


def read_json_object(file: Path, rows: str | None = None) -> Iterator[PlacedRow]:
    """Yield the rows of an object, from a named member, its only list of objects, or all members.

    Where each member is a row, or a list of rows without an id, its name is the id of their problem.

    Args:
        file: The file with the object.
        rows: The name of the member with the rows; None: the only list of objects.

    Raises:
        ConfigError: the file is no whole JSON; or the object has no such list, or several, or other members.
    """
    lists: list[str | None] = [rows]
    if rows is None:
        firsts = (element for element in json_elements(file) if element.number == 1)
        lists = list(dict.fromkeys(first.name for first in firsts if isinstance(first.value, dict)))
    yield from _rows_of_member(file, lists[0]) if len(lists) == 1 else _rows_by_key(file, lists)


def first_character(stream: IO[bytes]) -> str:
    """Return the first character of an open file that is no space, without consuming it.

    A file that begins only with spaces gives "".
    """
    assert isinstance(stream, io.BufferedReader), "files are opened with a buffer"
    return stream.peek(_BEGINNING)[:_BEGINNING].removeprefix(_MARK).lstrip()[:1].decode("latin-1")


def _rows_of_member(file: Path, name: str | None) -> Iterator[PlacedRow]:
    """Yield the rows in a member of an object, or in an array.

    Raises:
        ConfigError: the object has no such member.
    """
    names = dict[str, None]()
    for element in json_elements(file):
        names[str(element.name)] = None
        if element.name == name:
            yield _placed_row(element)
    if str(name) not in names:
        raise unknown_name(f"member of {file.name}", str(name), names)


def _rows_by_key(file: Path, lists: Sequence[str | None]) -> Iterator[PlacedRow]:
    """Yield the rows of an object whose members are rows, or lists of rows, by the id of their problem.

    Raises:
        ConfigError: a member is no row, or lists have rows with ids and are named `lists`.
    """
    for element in json_elements(file):
        row = element.value
        if not isinstance(row, dict) or (element.number is not None and not _has_no_id(row)):
            listed_names = ", ".join(map(repr, lists))
            lists_in_words = f"{len(lists)} lists of objects: {listed_names}" if lists else "no list of objects"
            raise ConfigError(
                f"{file.name}: it has {lists_in_words}; it is no log of Inspect",
                hint="name the member with the rows: --rows NAME",
            )
        yield element.place, row if _IDS & row.keys() else {"problem": element.name, **row}


def _has_no_id(row: Mapping[str, Any]) -> bool:
    return not _IDS & row.keys() and bool(_OF_SAMPLES & row.keys())


def _placed_row(element: Element) -> PlacedRow:
    is_row = isinstance(element.value, Mapping)
    return element.place, element.value if is_row else BadRow("it is no JSON object")
