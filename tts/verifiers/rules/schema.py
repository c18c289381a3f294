"""The rule of JSON: the schema that its prompt has."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from tts.errors import ConfigError
from tts.tasks.schemas.validation import Schema

_FENCED = re.compile(r"```(?:json)?[^\S\n]*+\n(.*?)```", re.DOTALL)
_SCHEMA_NAME = re.compile(r"json[\s-]?schema", re.IGNORECASE)


def rule(text: str) -> Callable[[str], bool] | None:
    """Return a function that accepts JSON that is valid by the schema in a prompt.

    The function raises ValidationLimitError where it takes too long. None: the prompt has no valid schema, or several.
    """
    if not _SCHEMA_NAME.search(text):
        return None
    found = [value for value in map(_read, _FENCED.findall(text)) if isinstance(value, dict)]
    if len(found) != 1:
        return None
    try:
        schema = Schema(found[0])
    except ConfigError:
        return None

    def accepts(answer: str) -> bool:
        blocks = _FENCED.findall(answer)
        value = _read(blocks[-1] if blocks else answer)
        return value is not _UNREADABLE and schema.is_valid(value)

    return accepts


_UNREADABLE = object()  # in place of a value


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _UNREADABLE
