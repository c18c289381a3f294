"""Reads the columns of a store as values.

A damaged row is reported in one line that names its table, the row and the cure. Another person may have written the
store: any column may have any value, and a small value may unpack to gigabytes.
"""

from __future__ import annotations

import json
import types
import typing
import zlib
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import fields
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar, cast

from tts.errors import ConfigError, TTSError, quote
from tts.experiments.datasets.unpacking import unpack
from tts.trace.trace import Trace

_FAULTS: Final = (
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    IndexError,
    OverflowError,
    RecursionError,
    zlib.error,
)
_INT_BOUND: Final = 1 << 63  # all counts of a store are below this number
_UNBOUNDED: Final = frozenset({"seed", "flops"})  # fields that may be larger
_T = TypeVar("_T")


def damage_error(table: str, row: object, why: str) -> ConfigError:
    """Return the error for a row that no store wrote.

    Args:
        table: The table of the row.
        row: The name of the row in its table.
        why: The reason why the row is damaged.
    """
    return ConfigError(
        f"the row {quote(row)} of the table {table} of the store is damaged: {why}",
        hint="list what is damaged with tts runs --check, and put back a copy of the file",
    )


@contextmanager
def reading(table: str, row: object) -> Generator[None]:
    """Turn the errors that a damaged row raises within a block into an error of one line.

    Args:
        table: The table of the row.
        row: The name of the row in its table.

    Raises:
        ConfigError: The row is damaged, or too large.
    """
    try:
        yield
    except TTSError:
        raise
    except _FAULTS as failure:
        raise damage_error(table, row, f"{type(failure).__name__}: {quote(str(failure))}") from failure


def value_in(body: Any, kind: type[_T]) -> _T:
    """Return the value of a JSON text.

    Args:
        body: The text.
        kind: The type that the value must have, `dict` or `list`.

    Raises:
        TypeError: The value has another type.
        ValueError, RecursionError: The text is no JSON.
    """
    if not isinstance(body, str):
        raise TypeError(f"it is {quote(body)}, but must be a text")
    value = json.loads(body)
    if not isinstance(value, kind):
        raise TypeError(f"it is {quote(value)}, but must be a {kind.__name__}")
    return value


def packed_value(place: str, body: Any, kind: type[_T]) -> _T:
    """Return the value of a compressed JSON text, which is at most as large as one row may be.

    Args:
        place: The name of the text in an error.
        body: The compressed text.
        kind: The type that the value must have, `dict` or `list`.

    Raises:
        ConfigError: The text is too large.
        TypeError, ValueError, RecursionError, zlib.error: The text is damaged.
    """
    if not isinstance(body, bytes):
        raise TypeError(f"it is {quote(body)}, but must be bytes")
    return value_in(unpack(place, body).decode("utf-8"), kind)


def source_in(row: object, body: Any) -> dict[str, Any]:
    """Return the texts of samples: prompt, reference, tests, task, and the text of each sample or None.

    Samples that a study drew also have `thoughts`. If the result does not have the samples, `drawn` has them as plain
    values.

    Args:
        row: The name of the row in the table `sources`.
        body: The body of the row.

    Raises:
        ConfigError: The row is damaged, or too large.
    """
    with reading("sources", row):
        return packed_value(f"the row {row} of the table sources", body, dict)


def search_in(row: object, body: Any) -> Trace:
    """Return a recorded search.

    Args:
        row: The name of the row in the table `traces`.
        body: The trace of the row.

    Raises:
        ConfigError: The row is damaged.
    """
    with reading("traces", row):
        text = body.decode("utf-8")
        try:
            return Trace.from_json(text)
        except ConfigError as failure:
            raise damage_error("traces", row, failure.cause) from failure


def whole_record(record: _T) -> _T:
    """Return a record unchanged, after a check that its fields have the types that its class states.

    Args:
        record: A dataclass of `tts.experiments.study.record`, or a `Usage`.

    Raises:
        TypeError: A field has another type.
        ValueError: A number is too large.
    """
    for name, kind in _kinds(type(record)):
        _check(name, getattr(record, name), kind)
    return record


class _Kind(NamedTuple):
    """The types that a value may have, and the kind of its elements; None: it has no elements."""

    types: frozenset[type]
    elements: _Kind | None


@cache
def _kinds(record: type) -> tuple[tuple[str, _Kind], ...]:
    """Return the names and kinds of a record's fields, without fields that are records of their own."""
    hints = typing.get_type_hints(record)
    names = [field.name for field in fields(record) if field.name not in ("cell", "usage", "drawn")]
    return tuple((name, _kind(hints[name])) for name in names)


def _kind(hint: Any) -> _Kind:
    """Return the kind of a type hint: a plain type, a `Mapping`, a tuple, or a union of these."""
    allowed_types = set[type]()
    elements: _Kind | None = None
    members = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    for member in members:
        origin, arguments = typing.get_origin(member) or member, typing.get_args(member)
        if origin is Mapping:
            allowed_types.add(dict)
            elements = _kind(arguments[1])  # the type of the mapping's values
        elif origin is tuple:
            allowed_types.add(tuple)
            elements = _kind(arguments[0])
        elif origin is float:
            allowed_types.update((float, int))
        else:
            allowed_types.add(origin)
    return _Kind(frozenset(allowed_types), elements)


def _check(name: str, value: Any, kind: _Kind) -> None:
    """Refuse a value, or an element of a value, that has another type, or is a number out of range."""
    if type(value) not in kind.types:
        raise TypeError(f"{name} is {quote(value)}")
    if type(value) is int and name not in _UNBOUNDED and not -_INT_BOUND <= value < _INT_BOUND:
        raise ValueError(f"{name} is {quote(value)}")
    if kind.elements is not None and value:
        elements = value.values() if isinstance(value, dict) else value
        for element in cast("Iterable[Any]", elements):
            _check(name, element, kind.elements)
