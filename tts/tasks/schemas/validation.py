"""Validation by jsonschema with a bound on its time.

A cheap value is validated here, any other in a process that is killed at its time limit.

Idea: what a validation takes is not known before it runs. Patterns may backtrack for ever, and references multiply. So
    every keyword looks at the clock. What takes more than `QUICK_S`, or has keywords that may take longer by
    themselves, goes to a worker (`tts.tasks.worker`) with a hard limit. The verdict is the same in both places.
"""

from __future__ import annotations

import importlib
import json
import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from tts._core.threads import postpone
from tts.errors import ConfigError, missing_extra, quote
from tts.tasks.worker import WorkerDiedError, WorkerPool, python_command

QUICK_S = 0.02  # of the processor in this process, for one text of a model
TIME_LIMIT_S = 2.0  # in a worker, for one text of a model
_PROBE_S = 0.2  # of the processor, for a schema
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
# Keywords that alone may take long, or that lead to a validator which does not look at the clock.
_SLOW = re.compile(
    r'"(?:pattern|patternProperties|uniqueItems|unevaluated(?:Items|Properties)|\$(?:dynamicRef|recursiveRef|schema))":'
)
_DEADLINE: ContextVar[float | None] = ContextVar("deadline", default=None)


class ValidationLimitError(Exception):
    """A validation was ended because it took too long."""


class _NotQuickError(Exception):
    """A validation has passed its deadline in this process."""


class Allowance:
    """The seconds that the validations of one text of a model may take together."""

    def __init__(self) -> None:
        self.quick_s = QUICK_S
        self.worker_s = TIME_LIMIT_S


class Schema:
    """A JSON schema with a bound on the time of a validation.

    Args:
        schema: The schema.

    Raises:
        ConfigError: The schema is not valid, or refers to parts elsewhere.
        MissingDependency: jsonschema is not installed.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        try:
            self.text = json.dumps(schema)
        except RecursionError:
            raise _too_deep() from None
        except (TypeError, ValueError) as failure:
            raise ConfigError(f"schema is {quote(schema)}, but must be JSON: {failure}") from None
        self.schema: dict[str, Any] = json.loads(self.text)
        self._validator = compile_schema(self.text)
        keywords = {keyword: value for keyword, value in self.schema.items() if keyword != "$schema"}
        self._is_quick = _SLOW.search(json.dumps(keywords)) is None
        if self._is_quick:
            self._probe()

    def _probe(self) -> None:
        """Refuse a schema that applies itself to the same value without end, which shows on any value."""
        try:
            with _deadline(time.thread_time() + _PROBE_S):
                self._validator.is_valid(None)
        except RecursionError:
            raise ConfigError(
                "schema has a reference that leads back to itself on the same value",
                hint="refer to it from within properties",
            ) from None
        except _NotQuickError:
            pass

    def is_valid(self, value: Any, allowance: Allowance | None = None) -> bool:
        """Whether a value is valid.

        Args:
            value: A value of JSON.
            allowance: The seconds that are left for this text of a model; None: those of a new text.

        Raises:
            ValidationLimitError: The validation took too long.
        """
        allowance = allowance or Allowance()
        start_s = time.thread_time()  # of this thread alone, so that a busy machine changes no verdict
        if self._is_quick:
            try:
                return is_valid(self._validator, value, start_s + allowance.quick_s)
            except _NotQuickError:
                pass
            finally:
                allowance.quick_s -= time.thread_time() - start_s
        postpone()
        return self._ask(json.dumps(value), allowance)

    def _ask(self, text: str, allowance: Allowance) -> bool:
        """Return the verdict of a worker."""
        if allowance.worker_s <= 0:
            raise _late()
        with _workers().worker() as worker:
            start_s = time.monotonic()
            try:
                return worker.ask({"schema": self.text, "value": text}, allowance.worker_s)["valid"]
            except TimeoutError:
                raise _late() from None
            except WorkerDiedError as failure:
                raise ValidationLimitError(f"the process that validates ended: {failure}") from failure
            finally:
                allowance.worker_s -= time.monotonic() - start_s


def _late() -> ValidationLimitError:
    return ValidationLimitError(f"validation by the schema took more than {TIME_LIMIT_S:g} seconds")


def _too_deep() -> ConfigError:
    return ConfigError("schema is nested too deeply to be read", hint="name its parts under $defs")


def is_valid(validator: Any, value: Any, deadline_s: float | None = None) -> bool:
    """Whether a value is valid.

    Args:
        validator: A validator from `compile_schema`.
        value: The value of JSON.
        deadline_s: The processor time of this thread after which the validation ends; None: it has no end.

    Raises:
        _NotQuickError: The deadline has passed.
    """
    try:
        with _deadline(deadline_s):
            return bool(validator.is_valid(value))
    except (ArithmeticError, RecursionError):  # 1e999, or a value that is nested too deeply
        return False


@contextmanager
def _deadline(deadline_s: float | None) -> Generator[None]:
    token = _DEADLINE.set(deadline_s)
    try:
        yield
    finally:
        _DEADLINE.reset(token)


@lru_cache(maxsize=1)
def _workers() -> WorkerPool:
    return WorkerPool(python_command("tts.tasks.schemas.schema_worker"))


@lru_cache(maxsize=128)
def compile_schema(text: str) -> Any:
    """Return the validator of a schema, for `is_valid`.

    Args:
        text: The schema as JSON text.

    Raises:
        ConfigError: The schema is not valid, or refers to parts elsewhere.
        MissingDependency: jsonschema is not installed.
    """
    if find_spec("jsonschema") is None:
        raise missing_extra("jsonschema", "json", "a JSON schema")
    schema = json.loads(text)
    jsonschema, referencing = importlib.import_module("jsonschema"), importlib.import_module("referencing")
    plain_class = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    specifications = importlib.import_module("referencing.jsonschema")
    specification = specifications.specification_with(plain_class.META_SCHEMA["$schema"])
    registry = referencing.Registry()  # it retrieves nothing
    try:
        plain_class.check_schema(schema)
        resource = specification.create_resource(schema)
        _check_references(resource, registry.resolver_with_root(resource), specification)
    except jsonschema.SchemaError as failure:
        raise ConfigError(f"schema is no valid JSON schema: {failure.message}", hint="see json-schema.org") from None
    except OverflowError as failure:
        raise ConfigError(f"schema has a pattern that is no regular expression: {failure}") from None
    except RecursionError:
        raise _too_deep() from None
    except referencing.exceptions.Unresolvable as failure:
        raise ConfigError(
            f"schema refers to {quote(failure.ref)}, but has no such part, and only its own parts are read",
            hint='write {"$ref": "#/$defs/…"}',
        ) from None
    return _timed_class(plain_class)(schema, registry=registry)


@lru_cache(maxsize=16)
def _timed_class(plain_class: Any) -> Any:
    """Return a class of jsonschema whose keywords look at the clock."""
    checks = {keyword: _look_at_clock(check) for keyword, check in plain_class.VALIDATORS.items()}
    return importlib.import_module("jsonschema").validators.extend(plain_class, validators=checks)


def _check_references(root: Any, resolver: Any, specification: Any) -> None:
    """Look up the references of all subschemas. Validation alone would look up only those that it reaches.

    Args:
        root: The schema, as a resource of the package referencing.
        resolver: The resolver of references at its root.
        specification: The specification of its resources.

    Raises:
        referencing.exceptions.Unresolvable: A reference has no target in the schema.
    """
    visited = set[int]()
    unvisited = [(root, resolver)]
    while unvisited:
        resource, resolver = unvisited.pop()
        part = resource.contents
        if not isinstance(part, dict) or id(part) in visited:
            continue
        visited.add(id(part))
        for keyword in _REFERENCES:
            if isinstance(part.get(keyword), str):
                target = resolver.lookup(part[keyword])
                unvisited.append((specification.create_resource(target.contents), target.resolver))
        unvisited += [(inner, resolver.in_subresource(inner)) for inner in resource.subresources()]


def _look_at_clock(check: Callable[..., Iterable[Any] | None]) -> Callable[..., Iterator[Any]]:
    """Return the check of a keyword that first looks whether the deadline has passed."""

    def timed_check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        deadline_s = _DEADLINE.get()
        if deadline_s is not None and time.thread_time() > deadline_s:
            raise _NotQuickError
        yield from check(validator, value, instance, schema) or ()

    return timed_check
