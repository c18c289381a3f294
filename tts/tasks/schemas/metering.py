"""Validation by jsonschema with a meter.

Every keyword pays steps for what it reads, and patterns are matched in linear time.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

from tts.errors import ConfigError
from tts.tasks.schemas.patterns import Pattern, compile_pattern

_CHARACTERS_PER_STEP = 64
_ERROR_CHARACTERS_PER_STEP = 128  # jsonschema writes the instance into the message of an error


class OutOfStepsError(Exception):
    """A validation needs more steps than it has."""


class StepMeter:
    """Steps that a validation may take; a step takes about two microseconds.

    Args:
        steps: The number of steps.
    """

    def __init__(self, steps: int) -> None:
        self.left = steps
        self._error_steps = 0  # for the message of an error about the whole value

    def spend(self, steps: int) -> None:
        """Take steps from the steps that are left.

        Raises:
            OutOfStepsError: Fewer steps are left.
        """
        self.left -= steps
        if self.left < 0:
            raise OutOfStepsError

    def validate(self, validator: Any, text: str, value: Any) -> bool:
        """Whether a value is valid, by a validation that takes its steps from this meter.

        Args:
            validator: A validator of a class from `metering_class`.
            text: The JSON text of the value.
            value: The value.

        Raises:
            OutOfStepsError: The validation needs more steps than are left.
        """
        self._error_steps = len(text) // _ERROR_CHARACTERS_PER_STEP
        reset_token = _METER.set(self)
        try:
            return bool(validator.is_valid(value))
        except (ArithmeticError, RecursionError):  # 1e999, or a schema that leads back to itself
            return False
        finally:
            _METER.reset(reset_token)

    def spend_on_error(self, instance: Any) -> None:
        """Take the steps for the message of an error."""
        self.spend(self._error_steps if isinstance(instance, list | dict) else _size(instance))


_METER: ContextVar[StepMeter] = ContextVar("meter")


@lru_cache(maxsize=16)
def metering_class(validator: Any) -> Any:
    """Return a class of jsonschema whose keywords pay steps to the meter of `StepMeter.validate`.

    Args:
        validator: A validator class of jsonschema.
    """
    checks = dict(validator.VALIDATORS)
    for keyword, linear_check in _LINEAR.items():
        if keyword in checks:
            checks[keyword] = linear_check
    metered_checks = {keyword: _meter(check) for keyword, check in checks.items()}
    return importlib.import_module("jsonschema").validators.extend(validator, validators=metered_checks)


def _meter(check: Callable[..., Iterable[Any] | None]) -> Callable[..., Iterator[Any]]:
    """Return the check of a keyword with payment to the meter: for what it reads, and for each error that it makes."""

    def metered_check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        meter = _METER.get()
        meter.spend(1 + _size(value) + _size(instance))
        for error in check(validator, value, instance, schema) or ():
            is_new = not isinstance(error.validator, str)  # errors of inner keywords have the keyword's name
            if is_new:
                meter.spend_on_error(instance)
            yield error

    return metered_check


def _size(value: Any) -> int:
    """Return the steps that a keyword takes to read a value, without the values in it."""
    if isinstance(value, str):
        return len(value) // _CHARACTERS_PER_STEP
    return len(value) if isinstance(value, list | dict) else 0


def _error(message: str) -> Any:
    return importlib.import_module("jsonschema").ValidationError(message)


def _matches(pattern: str, text: str) -> bool:
    return _pattern(pattern).search(text, _METER.get().spend)


def _pattern(text: str) -> Pattern | Any:
    """Return the automaton of a pattern, or where it has none, the pattern of `re`."""
    try:
        return compile_pattern(text)
    except ConfigError:
        return _Backtracking(text)


class _Backtracking:
    """A pattern that only `re` can match, in a process that can be killed."""

    def __init__(self, text: str) -> None:
        self._pattern = importlib.import_module("re").compile(text)

    def search(self, text: str, spend: Callable[[int], None]) -> bool:
        del spend
        return self._pattern.search(text) is not None


def _check_pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Any]:
    del schema
    if validator.is_type(instance, "string") and not _matches(pattern, instance):
        yield _error("it does not match the pattern")


def _check_pattern_properties(validator: Any, patterns: Mapping[str, Any], instance: Any, schema: Any) -> Iterator[Any]:
    del schema
    if validator.is_type(instance, "object"):
        for pattern, subschema in patterns.items():
            for name, value in instance.items():
                if _matches(pattern, name):
                    yield from validator.descend(value, subschema, path=name, schema_path=pattern)


def _check_additional_properties(
    validator: Any, additional: Any, instance: Any, schema: Mapping[str, Any]
) -> Iterator[Any]:
    if not validator.is_type(instance, "object"):
        return
    patterns, properties = schema.get("patternProperties", {}), schema.get("properties", {})
    unlisted_names = [name for name in instance if name not in properties]
    additional_names = [name for name in unlisted_names if not any(_matches(pattern, name) for pattern in patterns)]
    if validator.is_type(additional, "object"):
        for name in additional_names:
            yield from validator.descend(instance[name], additional, path=name)
    elif not additional and additional_names:
        yield _error("it has additional properties")


def _check_unique_items(validator: Any, unique: Any, instance: Any, schema: Any) -> Iterator[Any]:
    del schema
    if unique and validator.is_type(instance, "array"):
        _METER.get().spend_on_error(instance)  # every value is written once
        if len({comparable(item) for item in instance}) < len(instance):
            yield _error("it has equal items")


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


_LINEAR: dict[str, Callable[..., Iterator[Any]]] = {
    "pattern": _check_pattern,
    "patternProperties": _check_pattern_properties,
    "additionalProperties": _check_additional_properties,
    "uniqueItems": _check_unique_items,
}
