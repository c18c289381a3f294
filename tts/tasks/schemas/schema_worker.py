"""The process that `tts.tasks.schemas.validation` asks.

It answers {"schema": …, "value": …}, two JSON texts, with {"valid": …}.

Run it with `python -m tts.tasks.schemas.schema_worker`.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from typing import Any

from tts.tasks.schemas.validation import compile_schema, is_valid
from tts.tasks.worker import serve


def prepare() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return the function that answers requests.

    jsonschema is imported here, outside the time limit of the first request.
    """
    importlib.import_module("jsonschema")
    return answer


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return whether a value is valid."""
    return {"valid": is_valid(compile_schema(request["schema"]), json.loads(request["value"]))}


if __name__ == "__main__":
    serve(prepare)
