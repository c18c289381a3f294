"""Reads values within a row by a path.

A path is `doc.answer`; `choices.0.text` reads an item of a list, and `choices.*.text` all items. A `+` joins the lists
of two paths: `warmup.*.text+final.*.text`. A field whose own name has a dot or a plus is read by that name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from tts.errors import unknown_name
from tts.experiments.datasets.rows import BadRow

ALL: Final = "*"  # a part of a path: every item of a list
_JOIN: Final = "+"
_DIGITS: Final = 9  # bound of the digits of an item's index


def value_at(row: Mapping[str, Any], path: str) -> Any:
    """Return the value at a path, which must exist.

    With `*` the value is a list. An item that lacks the rest of the path gives None.

    Args:
        row: The row.
        path: The path, or the name of a field as it is written.

    Raises:
        BadRow: there is no such value; the error says how far the path leads, and the nearest names.
    """
    if path in row or _JOIN not in path:
        return _descend(row, path, path)
    joined: list[Any] = []
    for part in path.split(_JOIN):
        value = _descend(row, part, part)
        if not isinstance(value, list):
            raise BadRow(
                f"{path!r} joins lists, but {part!r} has one value; name all items of a list by *, such as "
                "choices.*.text"
            )
        joined += cast("list[Any]", value)
    return joined


def has_path(row: Mapping[str, Any], path: str) -> bool:
    """Return whether a row has a value at a path."""
    try:
        value_at(row, path)
    except BadRow:
        return False
    return True


def roots_of(path: str) -> list[str]:
    """Return the possible names of a path's first field: the whole path, and the first part of each."""
    return [path, *(part.partition(".")[0] for part in path.split(_JOIN))]


def _descend(value: Any, rest: str, path: str) -> Any:
    if isinstance(value, Mapping):
        return _descend_mapping(cast("Mapping[str, Any]", value), rest, path)
    if isinstance(value, list):
        return _descend_list(cast("list[Any]", value), rest, path)
    raise BadRow(f"it has no field {path!r}: what {rest!r} would be of is one value")


def _descend_mapping(value: Mapping[str, Any], rest: str, path: str) -> Any:
    if rest in value:
        return value[rest]
    name, _, remainder = rest.partition(".")
    if remainder and name in value:
        return _descend(value[name], remainder, path)
    raise BadRow(
        f"it has no field {path!r}; {unknown_name('field', name if remainder else rest, map(str, value)).hint}"
    )


def _descend_list(value: Sequence[Any], rest: str, path: str) -> Any:
    name, _, remainder = rest.partition(".")
    if name == ALL:
        return [_item(item, remainder, path) for item in value]
    if not name.isdecimal():
        prefix = path.removesuffix(rest)
        fault = f"it has no field {path!r}: {prefix.rstrip('.')!r} is a list"
        raise BadRow(f"{fault}; name {prefix}0.{rest} for its first item, {prefix}*.{rest} for all")
    if len(name) > _DIGITS or int(name) >= len(value):
        raise BadRow(f"it has no field {path!r}: the list has {len(value)} items, counted from 0")
    item = value[int(name)]
    return _descend(item, remainder, path) if remainder else item


def _item(item: Any, rest: str, path: str) -> Any:
    """Return the value of an item at the rest of a path; None: the item has no such value."""
    if not rest:
        return item
    try:
        return _descend(item, rest, path)
    except BadRow:
        return None
