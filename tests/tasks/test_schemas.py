"""Schemas have a bound: what a client may state, and what a validation may take."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

pytest.importorskip("jsonschema", reason="jsonschema (extra json) is not installed")

import jsonschema

import tts
from tts import randomness
from tts.errors import ConfigError
from tts.tasks.json import JsonTask
from tts.tasks.schemas import validation
from tts.tasks.schemas.limits import SchemaLimits
from tts.tasks.schemas.metering import OutOfStepsError, StepMeter
from tts.tasks.schemas.patterns import Pattern
from tts.tasks.schemas.validation import Schema, ValidationLimitError, compile_schema

FAN = {
    "$defs": {
        **{f"a{i}": {"anyOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(40)},
        "a40": {"type": "string"},
    },
    "$ref": "#/$defs/a0",
}
_ATOMS = (
    "a",
    "b",
    ".",
    "[ab]",
    "[^a]",
    r"\d",
    r"\w",
    r"\s",
    r"[a-c\d]",
    "^",
    "$",
    r"\b",
    r"\B",
    r"\A",
    r"\Z",
    r"\.",
    "é",
    r"[^\w]",
)
_REPEATS = ("*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "*?", "+?", "??")


def some_pattern(rng: Any, depth: int) -> str:
    kind = rng.random()
    if depth == 0 or kind < 0.3:
        return str(rng.choice(_ATOMS))
    first, second = some_pattern(rng, depth - 1), some_pattern(rng, depth - 1)
    if kind < 0.55:
        return first + second
    return f"(?:{first}|{second})" if kind < 0.75 else f"({first}){rng.choice(_REPEATS)}"


def check_patterns(number: int) -> None:
    rng = randomness.generator(number, 0, "patterns")
    for _ in range(number):
        pattern = some_pattern(rng, 4)
        try:
            expected = re.compile(pattern)
        except re.error:  # such as two repetitions in a row
            continue
        own = Pattern(pattern)
        for _ in range(8):
            text = "".join(str(rng.choice(list("ab1 .\né_"))) for _ in range(rng.integers(8)))
            assert own.search(text) == bool(expected.search(text)), (pattern, text)


def test_patterns_match_as_those_of_re() -> None:
    check_patterns(300)


@pytest.mark.slow
def test_many_patterns_match_as_those_of_re() -> None:
    check_patterns(30_000)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("^(a+)+$", "a" * 30_000 + "!"),
        ("^(a|a)*$", "a" * 30_000 + "!"),
        ("(a?){30}a{30}$", "a" * 29 + "!"),
        (r"^(\s*\S*)*$x", " a" * 9_000),
    ],
)
def test_a_pattern_takes_steps_in_proportion_to_the_text(pattern: str, text: str) -> None:
    meter = StepMeter(10 * len(text) + 2_000)
    assert not Pattern(pattern).search(text, meter.spend)
    assert meter.left >= 0


@pytest.mark.parametrize("pattern", ["(?=a)b", "(?<!a)b", r"(a)\1", "(?i)a", "(?i:a)", "(a)?(?(1)b|c)", "(?>a)", "a*+"])
def test_a_pattern_that_needs_backtracking_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="pattern") as caught:
        Pattern(pattern)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "pattern", ["((a{1000}){1000})", "(){4294967290}", "(?:){4000000000}", "(" * 900 + ")" * 900, "a" * 2001, "("]
)
def test_a_pattern_of_no_bounded_size_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="pattern"):
        Pattern(pattern)


@pytest.mark.parametrize(
    ("schema", "rule"),
    [
        (FAN, "subschemas in all, with references written out, but at most 2000"),
        (
            {"properties": {f"p{i}": {"minLength": 1} for i in range(5_000)}},
            "objects and lists in all, but at most 2000",
        ),
        ({"enum": ["x" * 100_001]}, "characters in all, but at most 100000"),
        (json.loads('{"not":' * 100 + "{}" + "}" * 100), "levels, but at most 64"),
        ({"$defs": {"a": {}}, "allOf": [{"$ref": "#/$defs/a"}] * 501}, "501 references in all, but at most 500"),
        (
            {"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"allOf": [{"$ref": "#"}]}}},
            "leads back to itself on the same value",
        ),
        (
            {"properties": {"a": {"pattern": "(?=a)b"}}},
            "has a lookahead or lookbehind, which cannot be matched in linear time",
        ),
        ({"patternProperties": {r"(a)\1": {}}}, "has a reference to a group"),
        ({"pattern": "("}, "no valid JSON schema|is no regular expression"),
        ({"$ref": "http://localhost:1/x.json"}, "only its own parts are read"),
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
    None, True, 1, 1.0, 0, 2.5, "", "a", "ab1", [], [1, 1.0], [1, True], [{"a": 1}, {"a": 1.0}], [[0], [False]], {},
    {"a": 1}, {"a": "x", "b": 2}, {"x1": 3}, {"x1": "y", "a": []},
]  # fmt: skip
SCHEMAS: list[dict[str, Any]] = [
    {"pattern": "^[a-z]+$"}, {"uniqueItems": True}, {"additionalProperties": False, "properties": {"a": {}}},
    {"additionalProperties": {"type": "integer"}, "patternProperties": {"^x": {"type": "string"}}},
    {"patternProperties": {r"\d": {"minimum": 2}}},
    {"additionalProperties": False, "patternProperties": {"^[ax]": True}}, {"multipleOf": 0.5}, {"multipleOf": 3},
    {"const": 1}, {"enum": [1, "a", {"a": 1}]}, {"anyOf": [{"type": "string"}, {"required": ["a"]}]},
    {"not": {"type": "number"}}, {"unevaluatedProperties": False, "properties": {"a": {}}}, {"contains": {"const": 1}},
    {"oneOf": [{"type": "integer"}, {"minimum": 1}]},
]  # fmt: skip


@pytest.mark.parametrize("schema", SCHEMAS, ids="-".join)
def test_verdicts_are_those_of_jsonschema(schema: dict[str, Any]) -> None:
    validator, _ = compile_schema(json.dumps(schema))
    for value in VALUES:
        expected = jsonschema.Draft202012Validator(schema).is_valid(value)
        assert StepMeter(100_000).validate(validator, json.dumps(value), value) == expected, value


def test_a_validation_ends_when_its_steps_are_spent() -> None:
    validator, _ = compile_schema(json.dumps(FAN))
    with pytest.raises(OutOfStepsError):
        StepMeter(5_000).validate(validator, "1", 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schema", "value"), [(FAN, 1), ({"pattern": "^(a+)+(?=$)"}, "a" * 36 + "!")], ids=["steps", "time"]
)
def test_a_validation_without_end_is_ended_in_a_process_of_its_own(
    schema: Any, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "MAX_STEPS", 30_000)
    monkeypatch.setattr(validation, "TIME_LIMIT_S", 0.5)
    with pytest.raises(ValidationLimitError, match=r"validation.*schema"):
        Schema(schema).is_valid(value)


@pytest.mark.slow
def test_a_candidate_whose_validation_is_ended_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "MAX_STEPS", 30_000)
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
