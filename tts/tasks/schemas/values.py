"""Values of JSON in one form, by which equal values are compared."""

from __future__ import annotations

from typing import Any


def normal(value: Any) -> Any:
    """Return a value in which equal numbers have one form: whole ones are of type int."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [normal(item) for item in value]
    return {name: normal(member) for name, member in value.items()} if isinstance(value, dict) else value
