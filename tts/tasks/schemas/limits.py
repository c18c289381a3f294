"""Limits on schemas from clients, checked before anything is spent.

A schema beyond them costs no more than a look at it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from tts.errors import ConfigError
from tts.tasks.schemas.validation import Schema

MAX_CHARACTERS = 100_000
MAX_DEPTH = 64
MAX_OBJECTS = 2_000  # objects and lists


class SchemaLimits:
    """Limits that the schemas of one request share."""

    def __init__(self) -> None:
        self._characters = self._objects = 0

    def schema(self, given: Mapping[str, Any]) -> Schema:
        """Return a schema that is within the limits, together with the earlier schemas of the request.

        Raises:
            ConfigError: The schema exceeds the limits, is not valid, or accepts no value.
            MissingDependency: jsonschema is not installed.
        """
        sizes = [len(level) for level in _levels(given)]
        _check("more than {} levels", len(sizes), MAX_DEPTH, "name its parts under $defs")
        self._objects += sum(sizes)
        _check("{} objects and lists in all", self._objects, MAX_OBJECTS)
        self._characters += len(json.dumps(given))
        _check("{} characters in all", self._characters, MAX_CHARACTERS)
        schema = Schema(given)
        _check_contradictions(schema.schema)
        return schema


def _check_contradictions(schema: dict[str, Any]) -> None:
    """Refuse a schema that requires a part which no value fits, by its type, enum or const.

    Raises:
        ConfigError: The schema requires such a part.
    """
    parts: list[tuple[str, Any]] = [("schema", schema)]
    for place, part in parts:  # which gets longer
        if part is False or (isinstance(part, dict) and not _has_value(part)):
            raise ConfigError(f"{place} contradicts itself: no value is valid", hint="correct its type, enum or const")
        properties: Any = part.get("properties") if isinstance(part, dict) and part.get("type") == "object" else None
        if isinstance(properties, dict):
            required = [name for name in part.get("required", ()) if name in properties]
            parts += [(f"{place}.properties.{name[:80]}", properties[name]) for name in required]


def _has_value(part: dict[str, Any]) -> bool:
    """Whether one of the values that a part lists is of its type; True where it lists no values."""
    values: Any = [part["const"]] if "const" in part else part.get("enum")
    typed = Schema({"type": part["type"]} if "type" in part else {})
    return not isinstance(values, list) or any(map(typed.is_valid, values))


def _levels(value: Any) -> Iterator[list[Any]]:
    """Yield the objects and lists at each depth of a value of JSON, the outermost first."""
    level = [value]
    while level:
        yield level
        children = (one.values() if isinstance(one, dict) else one for one in level)
        level = [child for child in chain.from_iterable(children) if isinstance(child, dict | list)]


def _check(rule: str, number: int, limit: int, hint: str = "state less of it") -> None:
    if number > limit:
        raise ConfigError(f"schema has {rule.format(number)}, but at most {limit} are allowed", hint=hint)
