"""The process that `tts.tasks.schemas.validation` asks.

It answers {"schema": …, "value": …, "steps": …} with {"valid": …, "steps": …}.

Run it with `python -m tts.tasks.schemas.schema_worker`. Schema and value are JSON texts; "valid" is null where the
steps were too few.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from typing import Any

from tts.tasks.schemas.metering import OutOfStepsError, StepMeter
from tts.tasks.schemas.validation import compile_schema
from tts.tasks.worker import serve


def prepare() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return the function that answers requests.

    jsonschema is imported here, outside the time limit of the first request.
    """
    importlib.import_module("jsonschema")
    return answer


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return whether a value is valid, and the steps of the validation."""
    meter = StepMeter(request["steps"])
    validator, _facts = compile_schema(request["schema"])
    try:
        is_valid = meter.validate(validator, request["value"], json.loads(request["value"]))
    except OutOfStepsError:
        is_valid = None
    return {"valid": is_valid, "steps": request["steps"] - meter.left}


if __name__ == "__main__":
    serve(prepare)
