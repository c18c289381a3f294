"""Reads values within a row by a path.

A path is `doc.answer`; `choices.0.text` reads an item of a list, `turns.-1.text` the last one, and `choices.*.text` all
items. A `+` joins the lists of two paths: `warmup.*.text+final.*.text`. A field whose own name has a dot or a plus is
read by that name.
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

    With `*` the value is a list, in which an item without a value at the further path gives None.

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
    """Return the possible names of a path's first field: the path, and the first part of each joined path."""
    return [path, *(part.partition(".")[0] for part in path.split(_JOIN))]


# In the functions below, `path` is the whole path for messages, and `remaining_path` its part that is not yet followed.


def _descend(value: Any, remaining_path: str, path: str) -> Any:
    if isinstance(value, Mapping):
        return _descend_mapping(cast("Mapping[str, Any]", value), remaining_path, path)
    if isinstance(value, list):
        return _descend_list(cast("list[Any]", value), remaining_path, path)
    raise BadRow(f"it has no field {path!r}: what {remaining_path!r} would be of is one value")


def _descend_mapping(value: Mapping[str, Any], remaining_path: str, path: str) -> Any:
    """Return the value at the remaining path, which is a name, or a name and a further path."""
    if remaining_path in value:
        return value[remaining_path]
    name, _, further_path = remaining_path.partition(".")
    if further_path and name in value:
        return _descend(value[name], further_path, path)
    missing_name = name if further_path else remaining_path
    raise BadRow(f"it has no field {path!r}; {unknown_name('field', missing_name, map(str, value)).hint}")


def _descend_list(value: Sequence[Any], remaining_path: str, path: str) -> Any:
    """Return the value at the remaining path, which begins with the index of an item, or with `*` for all items."""
    index, _, further_path = remaining_path.partition(".")
    if index == ALL:
        return [_item(item, further_path, path) for item in value]
    if not index.removeprefix("-").isdecimal():
        prefix = path.removesuffix(remaining_path)
        fault = f"it has no field {path!r}: {prefix.rstrip('.')!r} is a list"
        raise BadRow(f"{fault}; name {prefix}0.{remaining_path} for its first item, {prefix}*.{remaining_path} for all")
    if len(index) > _DIGITS or not -len(value) <= int(index) < len(value):
        raise BadRow(f"it has no field {path!r}: the list has {len(value)} items, counted from 0; the last one is -1")
    item = value[int(index)]
    return _descend(item, further_path, path) if further_path else item


def _item(item: Any, further_path: str, path: str) -> Any:
    """Return the value of an item at a further path; None: the item has no such value."""
    if not further_path:
        return item
    try:
        return _descend(item, further_path, path)
    except BadRow:
        return None
