"""What is refused: in OpenAI's form, with the field and the cure, and nothing spent."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.addons.gateway.asking import (
    QUESTION,
    ask,
    formed,
    function_models,
    refused,
    said,
    serving,
    spent_tokens,
    url_of,
)
from tests.support.guard import LIMIT_S
from tts_addons.gateway.bodies import LARGE
from tts_addons.gateway.wire import chat
from tts_addons.gateway.wire.request import has_many_values

IMAGE = [{"type": "text", "text": "what is it?"}, {"type": "image_url", "image_url": {"url": "http://localhost/a.png"}}]


def required(schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": schema}, "required": ["a"]}


def nested(levels: int) -> Any:
    return {"not": nested(levels - 1)} if levels else {}


TOOL = {"type": "function", "function": {"name": "weather"}}
EARLIER = {"role": "assistant", "tool_calls": [{"function": {"name": "weather", "arguments": 3}}]}
LOST = {"role": "tool", "tool_call_id": "c", "content": "2"}
BAD: dict[str, tuple[dict[str, Any], str | None]] = {
    "model of another type": ({"model": 3}, "model"),
    "no messages": ({"messages": []}, "messages"),
    "unknown role": ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
    "no content": ({"messages": [{"role": "user"}]}, "messages[0].content"),
    "an image": (said(IMAGE), "messages[0].content[1].image_url.url"),
    "text that is a number": (said([{"type": "text", "text": 3}]), "messages[0].content[0].text"),
    "an empty prompt": (said("  "), None),
    "half a character": (said("3 + \ud800"), None),
    "half a character in a stop text": ({"stop": "\ud800"}, None),
    "half a character in a name": ({"\ud800": 1}, None),
    "a result without its call": ({"messages": [*QUESTION, LOST]}, "messages[1].tool_call_id"),
    "arguments that are a number": (
        {"messages": [EARLIER, *QUESTION]},
        "messages[0].tool_calls[0].function.arguments",
    ),
    "a schema that is false": (formed(False), "response_format"),
    "a type without its values": (formed({"type": "string", "enum": [1, None]}), "response_format"),
    "a required property that no value fits": (formed(required(False)), "response_format"),
    "a constant of another type": (formed(required({"type": "integer", "const": 1.5})), "response_format"),
    "an unknown format": ({"response_format": {"type": "xml"}}, "response_format"),
    "a schema that is a path": (formed("/etc/passwd"), "response_format"),
    "a schema that refers elsewhere": (formed({"$ref": "file:///etc/passwd"}), "response_format"),
    "a schema that is nested deeply": (formed(nested(400)), "response_format"),
    "a schema that refers to nothing": (formed({"properties": {"x": {"$ref": "#/$defs/x"}}}), "response_format"),
    "a schema that refers to no anchor": (formed({"$dynamicRef": "#x"}), "response_format"),
    "unknown field of tts": ({"tts": {"budgett": 3}}, "tts.budgett"),
    "unknown budget unit": ({"tts": {"budget": {"token": 3}}}, "tts.budget"),
    "budget above the operator's": ({"tts": {"budget": 5001}}, "tts.budget"),
    "a budget that is no number": ({"tts": {"budget": "lots"}}, "tts.budget"),
    "a budget of half a token": ({"tts": {"budget": 3.5}}, "tts.budget"),
    "a limit that is no number": ({"tts": {"budget": {"tokens": "many"}}}, "tts.budget"),
    "dollars of a model without prices": ({"tts": {"budget": {"usd": 0.1}}}, "tts.budget"),
    "budget of nothing": ({"tts": {"budget": 0}}, "tts.budget"),
    "a budget beyond every float": ({"tts": {"budget": 10**400}}, "tts.budget"),
    "a limit beyond every float": ({"tts": {"budget": {"tokens": 10**400}}}, "tts.budget"),
    "an account that is a number": ({"tts": {"account": 3}}, "tts.account"),
    "a seed beyond 64 bits": ({"tts": {"seed": 2**64}}, "tts.seed"),
    "unknown strategy": ({"tts": {"strategy": "best_of"}}, "tts.strategy"),
    "a strategy at a place": ({"tts": {"strategy": "os:system"}}, "tts.strategy"),
    "a strategy of megabytes": ({"tts": {"strategy": "x" * 2_000_000}}, "tts.strategy"),
    "an embedder": ({"tts": {"strategy": "best_of_n | medoid(embedder='sentences')"}}, "tts.strategy"),
    "a verifier that is not offered": ({"tts": {"verifier": "code"}}, "tts.verifier"),
    "n above the limit": ({"n": 17}, "n"),
    "n of nothing": ({"n": 0}, "n"),
    "temperature out of range": ({"temperature": 2.5}, "temperature"),
    "temperature as text": ({"temperature": "hot"}, "temperature"),
    "top_p out of range": ({"top_p": 0}, "top_p"),
    "max_tokens of nothing": ({"max_tokens": 0}, "max_tokens"),
    "five stops": ({"stop": list("abcde")}, "stop"),
    "an empty stop": ({"stop": ""}, "stop"),
    "logprobs as a number": ({"logprobs": 3}, "logprobs"),
    "a tool without a name": ({"tools": [{"type": "function"}]}, "tools"),
    "a tool that refers to nothing": (
        {"tools": [{"type": "function", "function": {"name": "w", "parameters": {"$ref": "#/x"}}}]},
        "tools",
    ),
    "a choice that is no tool": ({"tools": [], "tool_choice": "required"}, "tools"),
    **{
        f"a choice of the function {function}": ({"tools": [TOOL], "tool_choice": {"function": function}}, "tools")
        for function in ("weather", {}, {"name": ["weather"]})
    },
}
UNSUPPORTED: dict[str, tuple[dict[str, Any], str | None]] = {
    "a sound": (said([{"type": "input_audio"}]), "messages[0].content[0]"),
    "a verifier that the model lacks": ({"tts": {"verifier": "process"}}, None),
    "likely tokens": ({"logprobs": True, "top_logprobs": 2}, "top_logprobs"),
    "a bias": ({"logit_bias": {"3": 5}}, "logit_bias"),
    "a penalty": ({"frequency_penalty": 0.5}, "frequency_penalty"),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", [*BAD, *UNSUPPORTED])
def test_what_is_wrong_is_refused(client, name, stream):
    pytest.importorskip("jsonschema")
    fields, param = {**BAD, **UNSUPPORTED}[name]
    gateway = client(limits={"tokens": 5000})
    reply = gateway.post(
        "/v1/chat/completions",
        content=json.dumps({"model": "toy", "messages": QUESTION, "stream": stream, **fields}),
        headers={"content-type": "application/json"},
    )
    assert len(refused(reply, 400, param, "invalid_value" if name in BAD else "unsupported")) < 1000
    assert reply.headers["x-should-retry"] == "false"
    state = gateway.app.state.gateway
    assert not state.running
    assert (spent_tokens(state), state.books.held) == (0, {})


@pytest.mark.parametrize(
    ("budget", "told"),
    [
        ("lots", "budget tokens is 'lots', but must be a number (hint: give a number"),
        (True, "budget tokens is True, but must be a number (hint: give a number"),
        ([], "budget tokens is [], but must be a number (hint: give a number"),
        (3.5, "budget tokens is 3.5, but must be a whole number of at least 1 (hint: the nearest valid value is 4)"),
        ({"seconds": "long"}, "budget seconds is 'long', but must be a number (hint: give a number"),
        ({"tokens": None}, "the budget has no limit, but needs at least one (hint: "),
        ({"token": 9}, "budget unit is 'token', but no budget unit has that name (hint: did you mean tokens?)"),
    ],
)
def test_a_wrong_budget_is_named_with_its_rule_and_cure(client, budget, told):
    assert ask(client(), tts={"budget": budget}).json()["error"]["message"].startswith(f"tts.budget: {told}")


BODIES: dict[str, tuple[bytes, int, str]] = {
    "malformed": (b'{"model": "toy", ', 400, "invalid_json"),
    "a list": (b"[]", 400, "invalid_json"),
    "empty": (b"", 400, "invalid_json"),
    "not UTF-8": (b'{"model": "\xff"}', 400, "invalid_json"),
    "nested deeply": (b"[" * 100_000, 400, "invalid_json"),
    "NaN": (b'{"temperature": NaN}', 400, "invalid_json"),
    "50 MB": (b'{"model": "' + b"x" * 50_000_000 + b'"}', 413, "body_too_large"),
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies_that_are_no_request_are_refused(client, name):
    body, status, code = BODIES[name]
    refused(
        client().post("/v1/chat/completions", content=body, headers={"content-type": "application/json"}),
        status,
        None,
        code,
    )


def test_a_body_that_does_not_say_its_length_is_bounded_too(client):
    def parts():
        for _ in range(30):
            yield b"x" * 1000

    reply = client(limits={"body_bytes": 10_000}).post(
        "/v1/chat/completions", content=parts(), headers={"content-type": "application/json"}
    )
    refused(reply, 413, None, "body_too_large")


def test_a_history_is_bounded(client):
    gateway = client(limits={"messages": 2, "characters": 50})
    refused(ask(gateway, messages=QUESTION * 3), 400, "messages", "too_long")
    refused(ask(gateway, messages=[{"role": "user", "content": "1 + " * 20}]), 400, "messages", "too_long")


def test_unknown_endpoints_have_the_same_form(client):
    refused(client().get("/v1/nothing"), 404, None, "unknown_url")
    refused(client().get("/v1/chat/completions"), 405, None, "unknown_url")


# Large bodies ---------------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.integers() | st.text(st.sampled_from('a",[]{}:\\\\é')),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.sampled_from('a",[{\\\\')), inner),
)


def num_marks(value: Any) -> int:
    """Count the commas, lists and objects of a value in JSON."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(0, len(inner) - 1) + sum(map(num_marks, inner))


@pytest.mark.slow
@given(JSON, st.booleans())
def test_values_are_counted_before_they_are_built_and_texts_do_not_count(value: Any, is_ascii: bool):
    text, count = json.dumps(value, ensure_ascii=is_ascii).encode(), 1 + num_marks(value)
    assert not has_many_values(text, max(1, count, text.count(b'"') // 4 + 1))
    assert count == 1 or has_many_values(text, count - 1)


NESTS = {
    "lists": [[[]] * 400] * 400,
    "objects": [{"a": {}}] * 90_000,
    "numbers": [0] * 200_000,
    "keys": dict.fromkeys(map(str, range(200_000))),
}


@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages", "completions"])
@pytest.mark.parametrize("name", NESTS)
def test_a_body_with_too_many_values_is_refused_wherever_they_stand(client: Any, name: str, path: str):
    gateway = client(limits={"characters": 100_000})
    prompt = {"responses": {"input": "2"}, "completions": {"prompt": "2"}}.get(path, {"messages": QUESTION})
    for field in ("zz", "metadata", "tools"):
        reply = gateway.post(f"/v1/{path}", json={"model": "toy", "max_tokens": 4, **prompt, field: NESTS[name]})
        assert reply.status_code == 400
        assert "values" in reply.text
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": json.dumps(NESTS[name])}}]
    turns = [*QUESTION, {"role": "assistant", "tool_calls": calls}]
    refused(ask(gateway, messages=turns), 400, "messages[1].tool_calls[0].function.arguments", "too_long")
    assert spent_tokens(gateway.app.state.gateway) == 0


def test_a_large_text_with_many_marks_is_no_body_with_many_values(client: Any):
    gateway = client(models=function_models("texts"))
    turns = [{"role": "user", "content": '1,2,"[{}],\\' * 60_000}]
    assert ask(gateway, model="texts", messages=turns).status_code == 200


def test_large_bodies_are_read_outside_of_the_loop_and_small_ones_inside(client: Any, monkeypatch: Any):
    threads: list[str] = []
    read = chat.read
    monkeypatch.setattr(chat, "read", lambda *given: threads.append(threading.current_thread().name) or read(*given))
    gateway = client(models=function_models("texts"))
    for size in (10, 10 * LARGE):
        turns = [{"role": "user", "content": "é" * size}]
        assert ask(gateway, model="texts", messages=turns).status_code == 200
    assert threads[0] != "tts-function"
    assert threads[1] == "tts-function"
    gateway.get("/v1/searches")
    assert not gateway.app.state.gateway.shares._held


def test_bytes_of_large_bodies_count_toward_the_limit_of_their_key(client: Any):
    gateway = client(
        models=function_models("texts", budget=100),
        limits={"client_tokens": 25_000},
    )
    books = gateway.app.state.gateway
    long = [{"role": "user", "content": "x" * (LARGE + 64 * 10_000)}]
    assert ask(gateway, model="texts").status_code == 200
    small = spent_tokens(books)
    assert small < 100
    for place in (1, 2):
        assert ask(gateway, model="texts", messages=long).status_code == 200
        assert 10_000 * place <= spent_tokens(books) < 10_100 * place + small
    refused(ask(gateway, model="texts", messages=long), 429, "tts.budget.tokens", "insufficient_quota")
    assert ask(gateway, model="texts").status_code == 200


def test_a_key_is_checked_before_a_body_is_read(tmp_path: Any):
    keys = tmp_path / "keys"
    keys.write_text("anna key-of-anna\n")
    with serving(keys=str(keys)) as server:
        host, port = url_of(server).removeprefix("http://").removesuffix("/v1").split(":")
        with socket.create_connection((host, int(port)), timeout=LIMIT_S) as one:
            head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            one.sendall(f"{head}content-length: 9000000\r\n\r\n".encode())  # and no byte of the body
            assert b" 401 " in one.recv(4096)
