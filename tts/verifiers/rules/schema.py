"""The rule of JSON: the schema that its prompt has.

Schemas with keywords that are not known here have no rule.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from tts.tasks.schemas.metering import comparable

_FENCED = re.compile(r"```(?:json)?[^\S\n]*+\n(.*?)```", re.DOTALL)
_MEANT = re.compile(r"json[\s-]?schema", re.IGNORECASE)
# keywords without effect on what is valid
_NOTES = {"$schema", "$id", "title", "description", "default", "examples", "$comment"}
_ANY = {"type", "const", "additionalProperties", "items"}  # keywords whose value is of several types
_VALUES = {  # the other keywords that are known, with the type of their value
    "enum": "array", "required": "array", "properties": "object", "uniqueItems": "boolean", "minItems": "integer",
    "maxItems": "integer", "minLength": "integer", "maxLength": "integer", "minimum": "number", "maximum": "number",
    "exclusiveMinimum": "number", "exclusiveMaximum": "number",
}  # fmt: skip
_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: (
        (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value.is_integer())
    ),
}
_LIMITS: dict[str, Callable[[Any, Any], bool]] = {
    "minimum": lambda value, limit: value >= limit,
    "maximum": lambda value, limit: value <= limit,
    "exclusiveMinimum": lambda value, limit: value > limit,
    "exclusiveMaximum": lambda value, limit: value < limit,
}


def rule(text: str) -> Callable[[str], bool] | None:
    """Return a function that accepts JSON that is valid by the schema in a prompt.

    None: the prompt has no schema, or a schema with unknown keywords.
    """
    if not _MEANT.search(text):
        return None
    schemas = [read for block in _FENCED.findall(text) if (read := _read(block)) is not None]
    try:
        if len(schemas) != 1 or not _is_known(schemas[0]):
            return None
    except RecursionError:  # a schema that is nested so deeply has no rule
        return None

    def accepts(answer: str) -> bool:
        blocks = _FENCED.findall(answer)
        try:
            value = json.loads(blocks[-1] if blocks else answer)
        except (ValueError, RecursionError):
            return False
        return _is_valid(value, schemas[0])

    return accepts


def _read(block: str) -> dict[str, Any] | None:
    try:
        value = json.loads(block)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _is_known(schema: Any) -> bool:
    """Whether every keyword of a schema is known, and means what it should."""
    if isinstance(schema, bool):
        return True
    if not isinstance(schema, dict) or set(schema) - _ANY - _VALUES.keys() - _NOTES:
        return False
    if not all(_TYPES[kind](schema[key]) for key, kind in _VALUES.items() if key in schema):
        return False
    types = schema.get("type", [])
    if not all(isinstance(one, str) for one in schema.get("required", [])):
        return False
    if not all(isinstance(one, str) and one in _TYPES for one in (types if isinstance(types, list) else [types])):
        return False
    inner = [schema[key] for key in ("items", "additionalProperties") if key in schema]
    return all(map(_is_known, [*schema.get("properties", {}).values(), *inner]))


def _is_valid(value: Any, schema: Any) -> bool:
    if isinstance(schema, bool):
        return schema
    types = schema.get("type", list(_TYPES))
    if not any(_TYPES[one](value) for one in (types if isinstance(types, list) else [types])):
        return False
    if not any(_same(value, one) for one in schema.get("enum", [value])) or (
        "const" in schema and not _same(value, schema["const"])
    ):
        return False
    if _TYPES["number"](value):
        return all(holds(value, schema[key]) for key, holds in _LIMITS.items() if key in schema)
    if isinstance(value, str):
        return schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
    if isinstance(value, list):
        return _is_valid_list(value, schema)
    return not isinstance(value, dict) or _is_valid_object(value, schema)


def _is_valid_list(value: list[Any], schema: dict[str, Any]) -> bool:
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        return False
    if schema.get("uniqueItems", False) and len(set(map(comparable, value))) < len(value):
        return False
    return all(_is_valid(item, schema.get("items", True)) for item in value)


def _is_valid_object(value: dict[str, Any], schema: dict[str, Any]) -> bool:
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    return set(schema.get("required", ())) <= set(value) and all(
        _is_valid(one, properties.get(key, others)) for key, one in value.items()
    )


def _same(a: Any, b: Any) -> bool:
    """Whether two values are equal as JSON has it: true is not 1."""
    return comparable(a) == comparable(b)
