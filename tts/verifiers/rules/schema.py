"""The rule of JSON: the schema that its prompt has.

Schemas with keywords that are not known here have no rule.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from tts.tasks.schemas.values import comparable

_FENCED = re.compile(r"```(?:json)?[^\S\n]*+\n(.*?)```", re.DOTALL)
_SCHEMA_NAME = re.compile(r"json[\s-]?schema", re.IGNORECASE)
# keywords without effect on what is valid
_NOTES = {"$schema", "$id", "title", "description", "default", "examples", "$comment"}
_UNTYPED_KEYWORDS = {"type", "const", "additionalProperties", "items"}  # keywords whose value is of several types
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
    if not _SCHEMA_NAME.search(text):
        return None
    schemas = [schema for schema in map(_read, _FENCED.findall(text)) if schema is not None]
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
    """Whether every keyword of a schema is known, and has a value of its type."""
    if isinstance(schema, bool):
        return True
    if not isinstance(schema, dict) or set(schema) - _UNTYPED_KEYWORDS - _VALUES.keys() - _NOTES:
        return False
    if not all(_TYPES[kind](schema[key]) for key, kind in _VALUES.items() if key in schema):
        return False
    if not all(isinstance(name, str) for name in schema.get("required", [])):
        return False
    types = schema.get("type", [])
    types = types if isinstance(types, list) else [types]
    if not all(isinstance(kind, str) and kind in _TYPES for kind in types):
        return False
    subschemas = [*schema.get("properties", {}).values()]
    subschemas += [schema[key] for key in ("items", "additionalProperties") if key in schema]
    return all(map(_is_known, subschemas))


def _is_valid(value: Any, schema: Any) -> bool:
    """Whether a value is valid by a schema whose keywords are known."""
    if isinstance(schema, bool):
        return schema
    types = schema.get("type", list(_TYPES))
    types = types if isinstance(types, list) else [types]
    if not any(_TYPES[kind](value) for kind in types):
        return False
    if not any(_same(value, choice) for choice in schema.get("enum", [value])):
        return False
    if "const" in schema and not _same(value, schema["const"]):
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
    additional = schema.get("additionalProperties", True)
    if not set(schema.get("required", ())) <= set(value):
        return False
    return all(_is_valid(member, properties.get(name, additional)) for name, member in value.items())


def _same(a: Any, b: Any) -> bool:
    """Whether two values are equal as JSON has it: true is not 1."""
    return comparable(a) == comparable(b)
