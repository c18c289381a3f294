"""Values of JSON in one form, by which equal values are compared."""

from __future__ import annotations

import json
from typing import Any


def comparable(value: Any) -> str:
    """Return a text that equal values of JSON have in common; 1 equals 1.0, and does not equal true."""
    return json.dumps(normal(value), sort_keys=True)


def normal(value: Any) -> Any:
    """Return a value in which equal numbers have one form: whole ones are of type int."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [normal(item) for item in value]
    return {name: normal(member) for name, member in value.items()} if isinstance(value, dict) else value
