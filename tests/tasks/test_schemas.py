"""Schemas have a bound: what a client may state, and how long a validation may take."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("jsonschema", reason="jsonschema (extra json) is not installed")

import jsonschema

import tts
from tts.errors import ConfigError
from tts.tasks.json import JsonTask
from tts.tasks.schemas import validation
from tts.tasks.schemas.limits import SchemaLimits
from tts.tasks.schemas.validation import Allowance, Schema, ValidationLimitError

FAN = {
    "$defs": {
        **{f"a{i}": {"anyOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(40)},
        "a40": {"type": "string"},
    },
    "$ref": "#/$defs/a0",
}
BACKTRACKING = {"pattern": "^(a+)+$"}
OTHER_DRAFT = {"items": {"$schema": "http://json-schema.org/draft-07/schema#", **BACKTRACKING}}


@pytest.mark.parametrize(
    ("schema", "rule"),
    [
        ({"properties": {f"p{i}": {"minLength": 1} for i in range(5_000)}}, "objects and lists in all.*2000"),
        ({"enum": ["x" * 100_001]}, "characters in all.*100000"),
        (json.loads('{"not":' * 100 + "{}" + "}" * 100), "levels, but at most 64"),
        ({"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"allOf": [{"$ref": "#"}]}}}, "leads back to itself"),
        ({"pattern": "("}, "no valid JSON schema"),
        ({"pattern": "(){4294967295}"}, "no regular expression"),
        ({"$ref": "http://localhost:1/x.json"}, "only its own parts are read"),
        ({"items": {"$ref": "https://json-schema.org/draft/2020-12/schema"}}, "only its own parts are read"),
    ],
)
def test_a_clients_schema_beyond_the_limits_is_refused(schema: Any, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule) as caught:
        SchemaLimits().schema(schema)
    assert "\n" not in str(caught.value)


def test_the_schemas_of_a_request_share_the_limits() -> None:
    limits = SchemaLimits()
    half: dict[str, Any] = {"properties": {f"p{i}": {} for i in range(1_500)}}
    limits.schema(half)
    with pytest.raises(ConfigError, match="objects and lists in all"):
        limits.schema(half)


def test_a_schema_may_lead_back_to_itself_from_within() -> None:
    tree = SchemaLimits().schema({"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}})
    assert tree.is_valid({"left": {"right": {}}})
    assert not tree.is_valid({"left": {"right": 3}})


VALUES: list[Any] = [
    None, True, 1, 2.5, "a", "ab1", [], [1, 1.0], [1, True], [{"a": 1}, {"a": 1.0}], {}, {"a": 1}, {"x1": "y", "a": []},
]  # fmt: skip
SCHEMAS: list[dict[str, Any]] = [
    {"pattern": "^[a-z]+$"}, {"pattern": "(?=a)a(?!b)"}, {"uniqueItems": True}, {"multipleOf": 0.5},
    {"additionalProperties": False, "properties": {"a": {}}}, {"patternProperties": {r"\d": {"minimum": 2}}},
    {"unevaluatedProperties": False, "properties": {"a": {}}}, {"anyOf": [{"type": "string"}, {"required": ["a"]}]},
]  # fmt: skip


@pytest.mark.parametrize("schema", SCHEMAS, ids="-".join)
def test_verdicts_are_those_of_jsonschema(schema: dict[str, Any]) -> None:
    for value in VALUES:
        assert Schema(schema).is_valid(value) == jsonschema.Draft202012Validator(schema).is_valid(value), value


def test_a_cheap_value_needs_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise AssertionError

    monkeypatch.setattr(validation, "_workers", refuse)
    monkeypatch.setattr(validation, "QUICK_S", 10.0)
    parts = {"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"type": "integer"}}}
    schema = Schema({"$schema": "https://json-schema.org/draft/2020-12/schema", "additionalProperties": False, **parts})
    assert schema.is_valid({"a": 3})
    assert not schema.is_valid({"a": "x"})


@pytest.mark.parametrize(
    ("schema", "value"), [(FAN, 1), (BACKTRACKING, "a" * 36 + "!"), (OTHER_DRAFT, ["a" * 36 + "!"])]
)
def test_a_validation_without_end_is_ended_in_a_process_of_its_own(
    schema: Any, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "TIME_LIMIT_S", 0.5)
    allowance = Allowance()
    for _ in range(2):  # the second time, nothing is left of the allowance
        with pytest.raises(ValidationLimitError, match=r"validation.*schema"):
            Schema(schema).is_valid(value, allowance)


@pytest.mark.slow
def test_a_candidate_whose_validation_is_ended_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "TIME_LIMIT_S", 0.5)
    texts = ["1", '"yes"', '"yes"']
    solution = tts.solve(
        "q",
        tts.Budget(samples=3),
        backend=lambda ask: tts.Answer(texts.pop(), tokens=4),
        task=JsonTask(schema=FAN),
        strategy="best_of_n(n=3) | majority",
    )
    assert (solution.answer, solution.error) == ('"yes"', None)
    assert sorted(candidate.answer is None for candidate in solution.candidates) == [False, False, True]
    (warning,) = [line for line in solution.warnings if "the task 'json' failed in extract" in line]
    assert "that candidate has no answer" in warning
