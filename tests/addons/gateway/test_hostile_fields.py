"""No field, header or address of a request imports, opens or runs anything, whatever it says and however it is
spelled.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from tests.addons.gateway.asking import QUESTION, formed, said
from tests.addons.gateway.test_scope import ATTACKS, spellings
from tests.support import audit

pytest.importorskip("jsonschema")

NAMES = ["os:system", "canary:sing", "toy:os:system", "toy(error=0.2)", "ensemble(members=('os:system',))"]
NAMES += ["reward(record='/etc/passwd')"]
PATHS = r"../../../../etc/passwd /etc/passwd ..\..\secrets %2e%2e%2fetc%2fpasswd ~/.ssh/id_rsa @/etc/passwd C:\x"
URLS = "file:///etc/passwd http://127.0.0.1:9/schema.json ftp://127.0.0.1:9/x data:application/json,{} //127.0.0.1:9/x"
CODES = (
    "'; DROP TABLE searches; --", "' OR '1'='1", "{{ ''.__class__.__mro__ }}", "{% include '/etc/passwd' %}", "${HOME}",
    "$(id > made)", "__import__('os').system('id > made')", "{problem.__class__}", "%(x)s",
    "!!python/object/apply:os.system ['id']", "=cmd|'/c calc'!A0",
)  # fmt: skip
VALUES = (*NAMES, *PATHS.split(), "nul\x00l", *URLS.split(), *CODES, *ATTACKS)
FUNCTION = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}


def tool(**changes: Any) -> dict[str, Any]:
    return {"tools": [{"type": "function", "function": {**FUNCTION, **changes}}]}


FIELDS: dict[str, Callable[[str], dict[str, Any]]] = {
    "model": lambda v: {"model": v},
    "preset": lambda v: {"model": f"toy:{v}"},
    "strategy": lambda v: {"tts": {"strategy": v}},
    "embedder of a strategy": lambda v: {"tts": {"strategy": f"best_of_n | medoid(embedder={v!r})"}},
    "verifier": lambda v: {"tts": {"verifier": v}},
    "unit of a budget": lambda v: {"tts": {"budget": {v: 3}}},
    "budget": lambda v: {"tts": {"budget": v}},
    "unknown option": lambda v: {"tts": {v: v}},
    "unknown field": lambda v: {v: v},
    "name of a tool": lambda v: tool(name=v),
    "description of a tool": lambda v: tool(description=v),
    "reference of a tool": lambda v: tool(parameters={"$ref": v}),
    "kind of a tool": lambda v: {"tools": [{"type": v, "function": FUNCTION}]},
    "chosen tool": lambda v: {**tool(), "tool_choice": {"type": "function", "function": {"name": v}}},
    "choice of tools": lambda v: {**tool(), "tool_choice": v},
    "reference of a schema": lambda v: formed({"properties": {"x": {"$ref": v}}}),
    "dynamic reference of a schema": lambda v: formed({"$dynamicRef": v}),
    "address of a schema": lambda v: formed(
        {"$id": v, "properties": {"x": {"$ref": "#/$defs/y"}}, "$defs": {"y": {"type": "string"}}}
    ),
    "dialect of a schema": lambda v: formed({"$schema": v}),
    "kind of a schema": lambda v: formed({"type": v}),
    "pattern of a schema": lambda v: formed({"type": "string", "pattern": v}),
    "format of a schema": lambda v: formed({"type": "string", "format": v}),
    "content of a schema": lambda v: formed({"type": "string", "contentMediaType": v, "contentSchema": {"$ref": v}}),
    "name of a schema": lambda v: formed({"type": "string"}, name=v),
    "schema that is a text": formed,
    "kind of a format": lambda v: {"response_format": {"type": v}},
    "text of a turn": said,
    "role": lambda v: {"messages": [{**QUESTION[0], "role": v}]},
    "name of a speaker": lambda v: {"messages": [{**QUESTION[0], "name": v}]},
    "picture": lambda v: said([{"type": "image_url", "image_url": {"url": v}}]),
    "file": lambda v: said([{"type": "input_file", "file": {"file_id": v, "file_url": v}}]),
    "result of a tool": lambda v: {"messages": [*QUESTION, {"role": "tool", "tool_call_id": v, "content": v}]},
    "call of a tool": lambda v: {
        "messages": [*QUESTION, {"role": "assistant", "tool_calls": [{"function": {"name": v, "arguments": v}}]}]
    },
    "stop text": lambda v: {"stop": [v]},
    "effort": lambda v: {"reasoning_effort": v},
    "user": lambda v: {"user": v, "safety_identifier": v, "prompt_cache_key": v, "service_tier": v},
    "metadata": lambda v: {"metadata": {v: v, "path": v, "task": v}, "store": True},
    "prediction": lambda v: {"prediction": {"type": "content", "content": v}},
    "template": lambda v: {"chat_template": v, "chat_template_kwargs": {"x": v}},
    "grammar": lambda v: {"guided_json": v, "guided_regex": v, "guided_grammar": v},
    "task": lambda v: {"task": v, "verifier": v, "backend": v, "url": v, "extra_body": {"url": v}},
}
HEADERS = (
    "authorization idempotency-key traceparent tracestate baggage x-forwarded-for x-request-id accept cookie origin"
)
ADDRESSES = (
    "/v1/searches/{}/trace",
    "/v1/searches/{}/trace?format=html",
    "/v1/searches/{}/events",
    "/v1/models/{}",
    "/{}",
    "/?model={}",
    "/tokenizer_info?model={}",
)


@pytest.fixture
def gateway(client: Any, tmp_path: Any) -> Any:
    """A gateway that keeps searches in a file and has answered one request of each kind."""
    made = client(store=str(tmp_path / "searches.sqlite"))
    warm = [
        tool(),
        formed({"type": "object", "properties": {"a": {"type": "string", "pattern": "a+", "format": "date"}}}),
    ]
    warm += [
        {"tts": {"strategy": "best_of_n(n=2) | majority", "verifier": "none"}},
        {"response_format": {"type": "json_object"}},
    ]
    for fields in warm:
        assert post(made, fields).status_code == 200
    for fields in (
        {"tts": {"strategy": "x"}},
        {"tts": {"verifier": "x"}},
        formed({"$ref": "#/x"}),
        formed({"type": "x"}),
        {"budget": "x"},
    ):
        post(made, fields)
    made.post("/v1/completions", json={"model": "toy", "prompt": "3 + 4", "tts": {"budget": 100}})
    for path in ADDRESSES:
        made.get(path.format("x"))
    return made


def post(gateway: Any, fields: dict[str, Any], headers: Any = None) -> Any:
    body = json.dumps({"model": "toy", "messages": QUESTION, **fields})
    return gateway.post(
        "/v1/chat/completions", content=body, headers={"content-type": "application/json", **(headers or {})}
    )


def reached(seen: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return what was reached besides the file of searches."""
    return [one for one in seen if "searches.sqlite" not in str(one)]


@pytest.mark.parametrize("every", [None, pytest.param(4, marks=pytest.mark.slow)], ids=["as it is", "spelled"])
@pytest.mark.parametrize("field", FIELDS)
def test_no_value_of_a_field_reaches_anything(field: str, every: int | None, gateway: Any) -> None:
    for value in VALUES if every else VALUES[::3]:
        post(gateway, FIELDS[field](value))  # what is loaded on the first use of a field, errors included
    with audit.events() as seen:
        for value in VALUES:
            for spelling in spellings(value)[::every] if every else [value]:
                assert post(gateway, FIELDS[field](spelling)).status_code in (200, 400, 404), spelling
    assert not reached(seen)


@pytest.mark.slow
def test_no_header_and_no_address_reaches_anything(gateway: Any) -> None:
    for name in HEADERS.split():
        post(gateway, {}, {name: "x"})
    with audit.events() as seen:
        for value in VALUES:
            for name in HEADERS.split():
                header = value.encode("ascii", "ignore").replace(b"\x00", b"")
                assert post(gateway, {"tts": {"budget": 50}}, {name: header}).status_code in (200, 400, 403)
            for path in ADDRESSES:
                reply = gateway.get(path.format(quote(value, safe="")))
                assert reply.status_code in (200, 400, 404), (path, value)
                assert "root:" not in reply.text
            assert gateway.delete(f"/v1/searches/{quote(value, safe='')}").status_code in (404, 405)
    assert not reached(seen)
    assert gateway.get("/v1/searches").json()["data"], "no text of a client changed the file of searches"


@pytest.mark.slow
def test_no_field_of_a_completion_reaches_anything(gateway: Any) -> None:
    fields: tuple[Callable[[str], dict[str, Any]], ...] = (
        lambda v: {"model": v}, lambda v: {"prompt": v}, lambda v: {"prompt": [v, v]}, lambda v: {"suffix": v},
        lambda v: {"stop": v}, lambda v: {"tts": {"strategy": v}}, lambda v: {"tts": {"verifier": v}}, lambda v: {v: v},
        lambda v: {"user": v, "logit_bias": {v: 1}},
    )  # fmt: skip

    def complete(given: dict[str, Any]) -> Any:
        return gateway.post("/v1/completions", json={"model": "toy", "prompt": "3 + 4", "max_tokens": 3, **given})

    for field in fields:
        complete(field("x"))
    with audit.events() as seen:
        for value in VALUES:
            for field in fields:
                assert complete(field(value)).status_code in (200, 400, 404), value
            for path, body in (("/tokenize", {"prompt": value}), ("/detokenize", {"tokens": [1]})):
                assert gateway.post(path, json={"model": value, **body}).status_code in (400, 404)
    assert not reached(seen)
