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
    """Return what answers; jsonschema is imported before, outside the limit of the first question."""
    importlib.import_module("jsonschema")
    return answer


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return whether a value is valid, and the steps that this took."""
    meter = StepMeter(request["steps"])
    validator, _ = compile_schema(request["schema"])
    try:
        valid = meter.validate(validator, request["value"], json.loads(request["value"]))
    except OutOfStepsError:
        valid = None
    return {"valid": valid, "steps": request["steps"] - meter.left}


if __name__ == "__main__":
    serve(prepare)
