"""Validation by schemas with a bound on its cost.

A cheap value is validated here, any other in a process that is killed at its time limit.

Idea: every keyword pays steps (`tts.tasks.schemas.metering`), and patterns are automata. So what a validation may take
    is known as it runs: about twenty milliseconds for `QUICK_STEPS`. What needs more, or has keywords without a meter,
    goes to a worker (`tts.tasks.worker`), with more steps and a hard limit. Verdicts depend on steps, not on the
    machine.
"""

from __future__ import annotations

import importlib
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from tts._core.threads import postpone
from tts.errors import ConfigError, MissingDependency, quote
from tts.tasks.bounded_cache import BoundedCache
from tts.tasks.schemas.metering import OutOfStepsError, StepMeter, metering_class
from tts.tasks.schemas.patterns import compile_pattern
from tts.tasks.schemas.walk import OWN_PART, SchemaGraph, schema_graph
from tts.tasks.worker import WorkerDiedError, WorkerPool, python_command

QUICK_STEPS = 20_000  # in this process, for one text of a model
MAX_STEPS = 1_000_000  # in a worker, for one text of a model
TIME_LIMIT_S = 10.0  # in a worker; a guard, since MAX_STEPS usually end a validation earlier
_UNMETERED = {"unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef"}


class ValidationLimitError(Exception):
    """A validation was ended because it took too many steps, or too long."""


class Allowance:
    """The steps and seconds that the validations of one text of a model may take together."""

    def __init__(self) -> None:
        self.meter = StepMeter(QUICK_STEPS)
        self.steps = MAX_STEPS
        self.seconds = TIME_LIMIT_S


class Schema:
    """A JSON schema with a bound on what validation takes.

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
            raise ConfigError("schema is nested too deeply to be read", hint="name its parts under $defs") from None
        except (TypeError, ValueError) as failure:
            raise ConfigError(f"schema is {quote(schema)}, but must be JSON: {failure}") from None
        self.schema: dict[str, Any] = json.loads(self.text)
        self._validator, self.facts = compile_schema(self.text)
        self._verdicts: BoundedCache[str, bool | str] = BoundedCache(1_024)  # those of workers, by text

    def is_valid(self, value: Any, allowance: Allowance | None = None) -> bool:
        """Whether a value is valid.

        Args:
            value: A value of JSON.
            allowance: The steps and seconds that are left for this text of a model; None: those of a new text.

        Raises:
            ValidationLimitError: The validation took too many steps, or too long.
        """
        allowance = allowance or Allowance()
        text = json.dumps(value)
        if self.facts.is_metered:
            try:
                return allowance.meter.validate(self._validator, text, value)
            except OutOfStepsError:
                allowance.meter = StepMeter(0)
        verdict = self._verdicts.get(text)
        if verdict is None:
            postpone()
            had_all_steps = allowance.steps == MAX_STEPS
            verdict = self._ask(text, allowance)
            if had_all_steps or not isinstance(verdict, str):  # with all steps a failure is final
                self._verdicts.put(text, verdict)
        if isinstance(verdict, str):
            raise ValidationLimitError(verdict)
        return verdict

    def _ask(self, text: str, allowance: Allowance) -> bool | str:
        """Return the verdict of a worker, or the reason that there is no verdict."""
        if allowance.steps <= 0 or allowance.seconds <= 0:
            return _limit()
        try:
            with _workers().worker() as worker:
                request = {"schema": self.text, "value": text, "steps": allowance.steps}
                start_s = time.monotonic()
                try:
                    reply = worker.ask(request, allowance.seconds)
                finally:
                    allowance.seconds -= time.monotonic() - start_s
        except TimeoutError:
            return _limit()
        except WorkerDiedError as failure:
            return f"the process that validates ended: {failure}"
        allowance.steps -= int(reply["steps"])
        return _limit() if reply["valid"] is None else bool(reply["valid"])


def _limit() -> str:
    return f"validation by the schema took more than {MAX_STEPS:,} steps or {TIME_LIMIT_S:g} seconds"


@lru_cache(maxsize=1)
def _workers() -> WorkerPool:
    return WorkerPool(python_command("tts.tasks.schemas.schema_worker"))


@dataclass(frozen=True)
class SchemaFacts:
    """What is known of a schema before it is used.

    Attributes:
        references: The number of its references.
        expansion: The number of its subschemas with every reference written out.
        leads_back: Whether it has a reference that leads back to itself on the same value.
        refusal: Why one of its patterns cannot be matched in linear time; None: all can.
        is_metered: Whether all its keywords pay steps for what they read.
    """

    references: int
    expansion: int
    leads_back: bool
    refusal: ConfigError | None
    is_metered: bool


@lru_cache(maxsize=128)
def compile_schema(text: str) -> tuple[Any, SchemaFacts]:
    """Return the validator of a schema, for `StepMeter.validate`, and the facts of the schema.

    Args:
        text: The schema as JSON text.

    Raises:
        ConfigError: The schema is not valid, or refers to parts elsewhere.
        MissingDependency: jsonschema is not installed.
    """
    if find_spec("jsonschema") is None:
        raise MissingDependency(
            "a schema of the task 'json' needs the optional dependency jsonschema",
            hint="pip install 'test-time-search[json]'",
        )
    schema = json.loads(text)
    jsonschema, referencing = importlib.import_module("jsonschema"), importlib.import_module("referencing")
    validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    specifications = importlib.import_module("referencing.jsonschema")
    specification = specifications.specification_with(validator.META_SCHEMA["$schema"])
    try:
        validator.check_schema(schema)
        resolver = referencing.Registry().resolver_with_root(specification.create_resource(schema))
        facts = _facts(schema_graph(schema, specification, resolver))
    except jsonschema.SchemaError as failure:
        raise ConfigError(f"schema is no valid JSON schema: {failure.message}", hint="see json-schema.org") from None
    except RecursionError:
        raise ConfigError("schema is nested too deeply to be read", hint="name its parts under $defs") from None
    except referencing.exceptions.Unresolvable as failure:
        raise ConfigError(f"schema refers to {quote(failure.ref)}, but has no such part", hint=OWN_PART) from None
    return metering_class(validator)(schema, registry=referencing.Registry()), facts


def _facts(graph: SchemaGraph) -> SchemaFacts:
    """Return the facts of a schema; refuse a pattern that is no regular expression."""
    refusal: ConfigError | None = None
    for pattern in graph.patterns():
        try:
            compile_pattern(pattern)
        except ConfigError as failure:
            _check_expression(pattern)
            refusal = refusal or failure
    is_metered = refusal is None and not any(_UNMETERED & part.keys() for part in graph.parts.values())
    return SchemaFacts(graph.references, graph.expansion(), graph.leads_back(), refusal, is_metered)


def _check_expression(pattern: str) -> None:
    try:
        re.compile(pattern)
    except (re.error, OverflowError) as failure:
        raise ConfigError(f"pattern {quote(pattern)} of the schema is no regular expression: {failure}") from None
