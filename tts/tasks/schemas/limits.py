"""Limits on schemas from clients, checked before anything is spent.

A schema beyond them costs no more than a look at it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tts.errors import ConfigError
from tts.tasks.schemas.validation import Schema

MAX_CHARACTERS = 100_000
MAX_DEPTH = 64
MAX_SUBSCHEMAS = 2_000  # objects as written, and subschemas with references written out
MAX_REFERENCES = 500


class SchemaLimits:
    """Limits that the schemas of one request share."""

    def __init__(self) -> None:
        self._characters = self._objects = self._references = self._subschemas = 0

    def schema(self, given: Mapping[str, Any]) -> Schema:
        """Return a schema that is within the limits, together with the earlier schemas of the request.

        Raises:
            ConfigError: The schema exceeds the limits, has a pattern that cannot be matched in linear time, or is not
                valid.
            MissingDependency: jsonschema is not installed.
        """
        depth, objects = _depth_and_objects(given)
        _check("more than {} levels", depth, MAX_DEPTH, "name its parts under $defs")
        self._objects += objects
        _check("{} objects and lists in all", self._objects, MAX_SUBSCHEMAS)
        self._characters += len(json.dumps(given))
        _check("{} characters in all", self._characters, MAX_CHARACTERS)
        schema = Schema(given)
        self._references += schema.facts.references
        _check("{} references in all", self._references, MAX_REFERENCES)
        self._subschemas += schema.facts.expansion
        _check(
            "{} subschemas in all, with references written out",
            self._subschemas,
            MAX_SUBSCHEMAS,
            "let each part be referred to once",
        )
        if schema.facts.leads_back:
            raise ConfigError(
                "schema has a reference that leads back to itself on the same value",
                hint="refer to it from within properties",
            )
        if schema.facts.refusal is not None:
            raise schema.facts.refusal
        place = _contradiction(given, "schema")
        if place is not None:
            raise ConfigError(f"{place} contradicts itself: no value is valid", hint="correct its type, enum or const")
        return schema


_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: isinstance(value, int | float) and not isinstance(value, bool) and value % 1 == 0,
}


def _contradiction(schema: Any, place: str) -> str | None:
    """Return the place of a required part that no value fits, by its type, enum or const; None where none is found.

    Args:
        schema: A schema, or a part that every answer must have.
        place: The place of the schema, such as "schema.properties.name".
    """
    if schema is False:
        return place
    if not isinstance(schema, Mapping):
        return None
    types: Any = schema.get("type", [*_TYPES])
    types = [types] if isinstance(types, str) else types
    values: Any = [schema["const"]] if "const" in schema else schema.get("enum")
    type_checks = [_TYPES[kind] for kind in types if kind in _TYPES]
    if isinstance(values, list) and not any(is_of_type(value) for is_of_type in type_checks for value in values):
        return place
    properties: Any = schema.get("properties")
    if types != ["object"] or not isinstance(properties, Mapping):
        return None
    for name in schema.get("required", ()):
        if name not in properties:
            continue
        property_place = _contradiction(properties[name], f"{place}.properties.{name[:80]}")
        if property_place is not None:
            return property_place
    return None


def _check(rule: str, number: int, limit: int, hint: str = "state less of it") -> None:
    if number > limit:
        raise ConfigError(f"schema has {rule.format(number)}, but at most {limit} are allowed", hint=hint)


def _depth_and_objects(schema: Any) -> tuple[int, int]:
    """Return the depth to which objects and lists are nested, and their number.

    The count ends as soon as one of the two exceeds its limit.
    """
    depth = 0
    num_objects = 0
    level: list[Any] = [schema]  # the objects and lists at one depth
    while level and depth <= MAX_DEPTH and num_objects <= MAX_SUBSCHEMAS:
        depth += 1
        num_objects += len(level)
        children: list[Any] = []
        for container in level:
            children += container.values() if isinstance(container, dict) else container
        level = [child for child in children if isinstance(child, dict | list)]
    return depth, num_objects
