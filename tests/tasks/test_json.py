from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import tts.tasks
from tts.errors import ConfigError, MissingDependency
from tts.tasks.json import JsonTask
from tts.tasks.schemas.validation import compile_schema
from tts.types import Message, Problem

SCHEMA = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
}
needs_schema = pytest.mark.skipif(find_spec("jsonschema") is None, reason="jsonschema (extra json) is not installed")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('{"a": 1}', '{"a": 1}'),
        (" [1, 2]\n", "[1, 2]"),
        ("true", "true"),
        ('So:\n```json\n{"a": 1}\n```\nThat is {"b": 2}.', '{"a": 1}'),
        ('First {"a": 1}, then {"a": {"b": [2]}} it is', '{"a": {"b": [2]}}'),
        ('Answer: "yes"', '"yes"'),
        ('{"a": 1', None),
        ("{'a': 1}", None),
        ('{"a": NaN}', None),
        ("It is 4.", None),
        ("", None),
        ("[" * 5000, None),
        ("{" * 5000, None),
    ],
)
def test_extract(text: str, answer: str | None) -> None:
    assert JsonTask().extract(text) == answer


def test_answers_are_equal_as_values() -> None:
    task = JsonTask()
    assert task.equivalent('{"a": 1, "b": [1.0, "x"]}', '{ "b":[1,"x"],"a":1e0 }')
    assert not task.equivalent('{"a": "x"}', '{"a": "X"}')
    assert not task.equivalent("[1, 2]", "[2, 1]")
    assert not task.equivalent("1", '"1"')
    assert not task.equivalent("true", "1")


@needs_schema
def test_what_does_not_fit_the_schema_is_no_answer() -> None:
    task = JsonTask(schema=SCHEMA)
    assert task.extract('{"name": "Ada", "age": 36}') == '{"name": "Ada", "age": 36}'
    assert task.extract('{"name": 3}') is None
    assert task.extract('{"age": 36}') is None
    assert task.extract('{"name": "Ada"} and not {"name": 3}') == '{"name": "Ada"}'


@needs_schema
def test_the_prompt_shows_the_schema_and_the_name_tells_schemas_apart(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(json.dumps(SCHEMA))
    task = tts.tasks.get(f"json(schema={str(tmp_path / 's.json')!r})")
    [message] = task.prompt(Problem("Who?"))
    assert isinstance(message, Message)
    assert '"required": ["name"]' in message.content
    assert task.name != "json"
    assert tts.tasks.get(task.name).name == task.name


@needs_schema
@pytest.mark.parametrize(
    ("schema", "cause"),
    [
        (3, "but must be a mapping, JSON text or the path of a file"),
        ("no/such/file.json", "cannot be read"),
        ("{", "must be JSON"),
        ({"type": "objekt"}, "no valid JSON schema"),
        ({"properties": {"a": {"$ref": "#/$defs/b"}}}, r"refers to '/\$defs/b', but has no such part"),
        ({"properties": {"a": {"$ref": "http://localhost:1/x.json"}}}, "only its own parts are read"),
    ],
)
def test_a_wrong_schema_is_refused(schema: Any, cause: str) -> None:
    with pytest.raises(ConfigError, match=cause):
        JsonTask(schema=schema)


@needs_schema
@pytest.mark.parametrize(
    ("draft", "name"),
    [
        ("https://json-schema.org/draft/2020-12/schema", "$id"),
        ("https://json-schema.org/draft/2020-12/schema", "$ref"),
        ("http://json-schema.org/draft-04/schema#", "id"),
    ],
)
def test_a_property_may_have_the_name_of_a_keyword(draft: str, name: str) -> None:
    task = JsonTask(schema={"$schema": draft, "properties": {name: {"type": "integer"}}})
    assert task.extract(f'{{"{name}": 3}}') is not None
    assert task.extract(f'{{"{name}": "x"}}') is None


@needs_schema
def test_a_file_that_is_no_schema_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text("[1]")
    with pytest.raises(ConfigError, match=r"schema.*\[1\],.*for example"):
        JsonTask(schema=str(tmp_path / "s.json"))


REASONED = {
    "type": "object",
    "properties": {
        "reason": {"type": "string"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "answer": {"type": "integer"},
        "unit": {"enum": ["m", "s"]},
        "parts": {"type": "array", "items": {"properties": {"why": {"type": "string"}, "size": {"type": "number"}}}},
    },
}


def reply(reason: str, answer: int = 7, unit: str = "m", size: float = 1) -> str:
    parts = [{"why": reason, "size": size}]
    return json.dumps({"reason": reason, "note": reason, "answer": answer, "unit": unit, "parts": parts})


@needs_schema
def test_free_texts_beside_other_members_do_not_vote() -> None:
    task = JsonTask(schema=REASONED)
    assert task.key(reply("a")) == task.key(reply("b", size=1.0))
    for other in (reply("a", answer=8), reply("a", unit="s"), reply("a", size=2)):
        assert task.key(other) != task.key(reply("a"))
    assert not task.equivalent(reply("a"), reply("b"))  # whole values are right or wrong
    texts = JsonTask(schema={"properties": {"name": {"type": "string"}, "town": {"type": "string"}}})
    assert texts.key('{"name": "Ada", "town": "Oslo"}') != texts.key('{"name": "Bob", "town": "Oslo"}')
    assert JsonTask().key('{"a": "x", "b": 1}') != JsonTask().key('{"a": "y", "b": 1}')


STEP = {"type": "object", "properties": {"why": {"type": "string"}, "how": {"$ref": "#/$defs/How"}}}


@needs_schema
@pytest.mark.parametrize(
    "steps",
    [
        {"type": "array", "items": {"type": "string"}},
        {"type": "array", "items": {"$ref": "#/$defs/Step"}},
        {"$ref": "#/$defs/Step"},
        {"allOf": [{"$ref": "#/$defs/Step"}], "default": None},
    ],
    ids=["texts", "references", "reference", "all of"],
)
def test_a_list_or_an_object_of_free_texts_alone_does_not_vote(steps: Any) -> None:
    """Such as the steps of a derivation, as libraries write them from classes."""
    members = {"steps": steps, "answer": {"type": "integer"}}
    task = JsonTask(
        schema={"type": "object", "properties": members, "$defs": {"Step": STEP, "How": {"type": "string"}}}
    )
    one, other = ({"why": text, "how": text} for text in ("add", "count"))
    values = [[one["why"]], [other["why"]]] if "string" in str(steps) else [one, other]
    keys = [task.key(json.dumps({"steps": value, "answer": 7})) for value in values]
    assert keys[0] == keys[1] == task.key('{"answer": 7}')
    assert task.key('{"answer": 8}') != keys[0]


@needs_schema
def test_parts_that_contain_each_other_vote_where_one_has_more_than_texts() -> None:
    link = {"properties": {"why": {"type": "string"}, "next": {"$ref": "#/$defs/Size"}}}
    size = {"properties": {"link": {"$ref": "#/$defs/Link"}, "size": {"type": "number"}}}
    members = {"link": {"$ref": "#/$defs/Link"}, "answer": {"type": "integer"}}
    for first in (["link", "size"], ["size", "link"]):  # in whichever order they are looked at
        ordered = {"properties": {name: size["properties"][name] for name in first}}
        task = JsonTask(schema={"properties": members, "$defs": {"Link": link, "Size": ordered}})
        keys = [task.key(json.dumps({"link": {"why": "a", "next": {"size": n}}, "answer": 1})) for n in (1, 2)]
        assert keys[0] != keys[1]
        beside = [task.key(json.dumps({"link": {"why": why, "next": {"size": 1}}, "answer": 1})) for why in "ab"]
        assert beside[0] == beside[1]


@needs_schema
def test_references_that_multiply_take_no_time() -> None:
    """Sixty parts, each of which has the next twice: without memory these are 2^60 parts."""
    parts = {f"p{i}": {"properties": {key: {"$ref": f"#/$defs/p{i + 1}"} for key in "ab"}} for i in range(60)}
    schema = {"properties": {"a": {"$ref": "#/$defs/p0"}, "n": {}}, "$defs": parts | {"p60": {"type": "string"}}}
    assert JsonTask(schema=schema).key('{"a": {"a": {"b": {}}}, "n": 1}') == JsonTask().key('{"n": 1}')


@needs_schema
@pytest.mark.parametrize("schema", [None, REASONED])
def test_the_members_that_vote_may_be_named(schema: Any) -> None:
    task = tts.tasks.get(JsonTask(schema=schema, vote=["answer"]).name)
    assert isinstance(task, JsonTask)
    assert task.vote == ("answer",)
    assert task.key(reply("a")) == task.key(reply("b", unit="s"))
    assert task.equivalent(reply("a"), '{"answer": 7}')
    assert not task.equivalent(reply("a"), reply("a", answer=8))
    assert task.key('{"reason": "a"}') != task.key('{"reason": "b"}')  # which have none of them


@needs_schema
@pytest.mark.parametrize("vote", ["answer", (), (3,), ("anwser",)])
def test_what_names_no_member_cannot_vote(vote: Any) -> None:
    with pytest.raises(ConfigError, match="vote"):
        JsonTask(schema=REASONED, vote=vote)


@needs_schema
@pytest.mark.parametrize(
    ("vote", "units", "is_told"),
    [(None, "msk", True), (("answer",), "msk", False), (None, "ms", False), (None, "msmk", True), (None, "mms", False)],
)
def test_votes_of_which_most_differ_are_told(vote: Any, units: str, is_told: bool) -> None:
    drawn = list(units)

    def write(ask: tts.Ask) -> str:
        return json.dumps({"answer": 7, "unit": drawn.pop()})

    task = JsonTask(schema={"properties": {"answer": {}, "unit": {"enum": ["m", "s", "k"]}}}, vote=vote)
    budget = tts.Budget(samples=len(units))
    solution = tts.solve("How far?", budget, backend=write, task=task, strategy=f"best_of_n(n={len(units)}) | majority")
    assert any("vote=" in line for line in solution.warnings) == is_told


def test_without_jsonschema_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tts.tasks.schemas.validation.find_spec", lambda name: None)
    compile_schema.cache_clear()
    with pytest.raises(
        MissingDependency,
        match=r"jsonschema.*\(hint:.*'test-time-search\[json\]'",
    ):
        JsonTask(schema={})


@needs_schema
def test_candidates_that_do_not_parse_never_win() -> None:
    texts = ['{"name": 3}', '{"name": 3}', '{"name": 3}', '{"name":"Ada"}', '{ "name": "Ada" }', "Ada"]

    def write(ask: tts.Ask) -> tts.Answer:
        return tts.Answer(texts[written.pop(0)], tokens=4)

    written = list(range(len(texts)))
    solution = tts.solve(
        "Who?", tts.Budget(samples=6), backend=write, task=JsonTask(schema=SCHEMA), strategy="best_of_n(n=6) | majority"
    )
    assert solution.answer == '{"name":"Ada"}'
    assert solution.confidence == pytest.approx(2 / 6)
