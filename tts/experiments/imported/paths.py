"""Values within a row, by a path.

Paths are `doc.answer`, an item of a list as `choices.0.text`, and all items as `choices.*.text`. A `+` joins the lists
of two paths: `warmup.*.text+final.*.text`. A field whose own name has a dot or a plus is read by that name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from tts.errors import unknown_name
from tts.experiments.datasets.rows import BadRow

ALL: Final = "*"  # a part of a path: every item of a list
_JOIN: Final = "+"
_DIGITS: Final = 9  # of the place of an item


def value_at(row: Mapping[str, Any], path: str) -> Any:
    """Return the value at a path, which must be there.

    With `*` the value is a list. An item that lacks the rest of the path gives None.

    Args:
        row: The row.
        path: The path, or the name of a field as it is written.

    Raises:
        BadRow: there is no such value; the text says how far the path leads, and the nearest names.
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
    """Whether a row has a value at a path."""
    try:
        value_at(row, path)
    except BadRow:
        return False
    return True


def roots_of(path: str) -> list[str]:
    """Return the names that may be the field in which a path begins: the whole path, and its first parts."""
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
    first, _, after = rest.partition(".")
    if after and first in value:
        return _descend(value[first], after, path)
    raise BadRow(f"it has no field {path!r}; {unknown_name('field', first if after else rest, map(str, value)).hint}")


def _descend_list(value: Sequence[Any], rest: str, path: str) -> Any:
    first, _, after = rest.partition(".")
    if first == ALL:
        return [_item(one, after, path) for one in value]
    if not first.isdecimal():
        before = path.removesuffix(rest)
        told = f"it has no field {path!r}: {before.rstrip('.')!r} is a list"
        raise BadRow(f"{told}; name {before}0.{rest} for its first item, {before}*.{rest} for all")
    if len(first) > _DIGITS or int(first) >= len(value):
        raise BadRow(f"it has no field {path!r}: the list has {len(value)} items, counted from 0")
    one = value[int(first)]
    return _descend(one, after, path) if after else one


def _item(one: Any, after: str, path: str) -> Any:
    """Return what an item has at the rest of a path; None where it lacks it."""
    if not after:
        return one
    try:
        return _descend(one, after, path)
    except BadRow:
        return None
