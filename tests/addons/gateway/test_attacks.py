"""What a hostile or clumsy client can send, and what a model can write, that once broke a reply, a limit or a
stream.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest

from tests.addons.gateway.asking import (
    QUESTION,
    TOY,
    ask,
    chunks,
    formed,
    function_models,
    http_scope,
    refused,
    said,
    serving,
    spent_tokens,
)
from tests.addons.gateway.wire.started import server
from tests.support.guard import LIMIT_S
from tts_addons.gateway.access import Client
from tts_addons.gateway.config import GatewayLimits, gateway_config
from tts_addons.gateway.failures import ApiError
from tts_addons.gateway.gateway import Gateway
from tts_addons.gateway.orders import order_of
from tts_addons.gateway.wire import chat

TOOL = {"type": "function", "function": {"name": "weather"}}


X = "x" * 100_000
LONG: dict[str, dict[str, Any]] = {
    "model": {"model": X},
    "unknown field": {"tts": {X: 1}},
    "unit": {"tts": {"budget": {X: 1}}},
    "budget": {"tts": {"budget": X}},
    "strategy": {"tts": {"strategy": X[:3000]}},
    "parameter of a strategy": {"tts": {"strategy": f"best_of_n({X[:1500]}={X[:1500]})"}},
    "verifier": {"tts": {"verifier": X[:3000]}},
    "role": {"messages": [{"role": X, "content": "1"}]},
    "part": said([{"type": X}]),
    "stop": {"stop": [X, ""]},
    "choice": {"tools": [TOOL], "tool_choice": X},
    "function": {"tools": [{"type": "function", "function": {"name": X}}]},
    "schema of a function": {"tools": [{"type": "function", "function": {"name": "w", "parameters": {"type": X}}}]},
    "pattern of a schema": formed({"type": "string", "pattern": "(" + X}),
    "reference of a schema": formed({"$ref": "#/" + X}),
    "format": {"response_format": {"type": X}},
    "bias": {"logit_bias": {X: 1}},
    "temperature": {"temperature": X},
}


@pytest.mark.parametrize("name", LONG)
def test_an_error_repeats_the_beginning_of_a_value_alone(client, name):
    pytest.importorskip("jsonschema")
    error = ask(client(), **LONG[name]).json()["error"]
    assert len(error["message"]) <= 500
    assert len(error["param"] or "") < 200


def test_a_warning_repeats_the_beginning_of_a_value_alone(client):
    (warning,) = ask(client(), **{X[:5000]: 1}).json()["tts"]["warnings"]
    assert warning.startswith("the field 'xx")
    assert len(warning) < 300


@pytest.mark.parametrize("header", ["host", "origin", "content-type"])
def test_an_error_repeats_the_beginning_of_a_header_alone(client, header):
    reply = client().post(
        "/v1/chat/completions", content=b"{}", headers={"content-type": "application/json", header: "x" * 5000}
    )
    assert reply.status_code in (403, 415)
    assert len(reply.json()["error"]["message"]) < 300


def test_schemas_that_refer_to_their_own_parts_are_taken(client):
    pytest.importorskip("jsonschema")
    parts = {"$id": "https://example.org/a", "$defs": {"x": {"type": "string"}, "y": {"$id": "b", "$anchor": "c"}}}
    schema = {
        **parts,
        "properties": {"city": {"$ref": "#/$defs/x"}, "next": {"$ref": "#"}, "other": {"type": "object"}},
    }
    assert ask(client(), **formed(schema)).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_reply_has_a_choice_where_the_budget_paid_for_none(client, stream):
    """Clients read the first choice, and the end of a stream stands in it."""
    reply = ask(client(), model="toy:single", seed=1, tts={"budget": {"seconds": 1e-9}}, stream=stream)
    assert reply.status_code == 200
    told = chunks(reply) if stream else [reply.json()]
    (choice,) = told[-1]["choices"]
    assert choice["finish_reason"] == "length"
    assert told[-1]["tts"]["stopped_by"] == "budget: seconds"
    said = [one.get("delta") or one.get("message") or {} for part in told for one in part["choices"]]
    assert not any(one.get("content") for one in said)


def test_half_a_character_has_no_tokens(client):
    gateway = client()
    headers = {"content-type": "application/json"}
    refused(gateway.post("/tokenize", content=b'{"prompt": "\\ud800"}', headers=headers), 400, None, "invalid_value")
    whole = gateway.post("/tokenize", content=b'{"prompt": "\\ud83d\\ude00"}', headers=headers)
    assert whole.status_code == 200


def test_the_operators_limit_bounds_all_prompts_of_a_request_together(client):
    gateway = client(limits={"tokens": 5000})
    fields = {"model": "toy", "max_tokens": 2000}
    reply = gateway.post("/v1/completions", json={**fields, "prompt": ["1 + 2", "2 + 3", "3 + 4"]})
    refused(reply, 400, "prompt", "too_long")
    assert spent_tokens(gateway.app.state.gateway) == 0
    assert gateway.post("/v1/completions", json={**fields, "prompt": ["1 + 2", "2 + 3"]}).status_code == 200


WRITES = {"writes": {"backend": "tests.addons.gateway.test_attacks:writes", "strategy": "single"}}


@pytest.mark.parametrize("written", ['"\\ud800"', "NaN", "1e999"])
def test_calls_with_what_json_has_not_are_no_calls(client, written):
    pytest.importorskip("jsonschema")
    WRITTEN[:] = [f'<tool_call>\n{{"name": "weather", "arguments": {{"city": {written}}}}}\n</tool_call>']
    (choice,) = ask(client(models=WRITES), model="writes", tools=[TOOL]).json()["choices"]
    assert "tool_calls" not in choice["message"]


def test_a_reply_that_is_nested_without_end_is_read_at_once(client):
    WRITTEN[:] = ['{"city": ' + "[" * 80_000]
    gateway, begun = client(models=WRITES), time.monotonic()
    (choice,) = ask(gateway, model="writes", response_format={"type": "json_object"}).json()["choices"]
    assert choice["message"]["refusal"]
    assert time.monotonic() - begun < 20


def test_each_streamed_choice_begins_with_its_role(client):
    first: dict[int, Any] = {}
    for chunk in chunks(ask(client(), n=3, seed=1, temperature=1.5, stream=True)):
        for choice in chunk["choices"]:
            first.setdefault(choice["index"], choice["delta"])
    assert len(first) > 1
    assert all(delta["role"] == "assistant" for delta in first.values())


def test_a_body_that_does_not_come_is_not_waited_for(client):
    app, sent = client(limits={"body_seconds": 0.2}).app, list[Any]()
    parts = [{"type": "http.request", "body": b"{", "more_body": True}]

    async def receive() -> Any:
        return parts.pop() if parts else await asyncio.sleep(30)

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app(http_scope("/v1/chat/completions"), receive, send))
    assert sent[0]["status"] == 408
    assert json.loads(sent[1]["body"])["error"]["code"] == "body_too_slow"


HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: "
    b"application/json\r\ntransfer-encoding: chunked\r\n"
)
ENDLESS: dict[str, tuple[bytes, bytes]] = {
    "a header": (HEAD + b"x-long: ", b"x" * 4096),
    "headers": (HEAD, b"x-%d: y\r\n" % 7 * 400),
    "a line": (b"GET /", b"x" * 4096),
    "a trailer": (HEAD + b"\r\n1\r\n{\r\n0\r\nx-long: ", b"x" * 4096),
}


@contextmanager
def connected() -> Iterator[socket.socket]:
    """Connect to a gateway by a socket."""
    with (
        serving() as server,
        socket.create_connection(server.servers[0].sockets[0].getsockname()[:2], timeout=LIMIT_S) as connection,
    ):
        yield connection


@pytest.mark.parametrize("name", ENDLESS)
def test_what_stands_around_a_body_is_bounded_before_a_key_is_read(name):
    first, more = ENDLESS[name]
    with connected() as connection:
        connection.sendall(first)
        with suppress(ConnectionError):  # it is closed while we send
            for _ in range(2000):
                connection.sendall(more)
            pytest.fail("8 MB were taken")


def test_a_body_in_chunks_of_a_byte_is_read():
    body = json.dumps({"model": "toy", "messages": QUESTION, "metadata": {"more": "x" * 30_000}}).encode()
    chunks = b"".join(b"1\r\n%c\r\n" % one for one in body)
    with connected() as connection:
        connection.sendall(HEAD + b"\r\n" + chunks + b"0\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.usefixtures("closing_files")
def test_a_retry_does_not_join_a_search_that_was_cancelled():
    """The first one's client has left, but it is not over yet: the second must not get the error of the first."""
    gateway, anna = Gateway(gateway_config(TOY)), Client("anna", "anna")

    async def twice() -> None:
        order = order_of(chat.read({"model": "toy", "messages": QUESTION, "seed": 1}, GatewayLimits()), gateway)
        first = gateway.begin(anna, order, key="k", digest=b"1")
        assert gateway.begin(anna, order, key="k", digest=b"1") is first
        first.cancel(ApiError(499, "the client has left"))
        second = gateway.begin(anna, order, key="k", digest=b"1")
        assert second is not first
        assert first.task is not None
        await asyncio.wait([first.task])
        await asyncio.sleep(0)
        assert gateway.begin(anna, order, key="k", digest=b"1") is second, "the first took the key away"
        assert second.task is not None
        await asyncio.wait([second.task])
        await asyncio.sleep(0)
        assert second.result().answer == "5"
        assert gateway.books.held == {}
        await gateway.wait_for_archive()
        await gateway.close()

    asyncio.run(twice())


@pytest.mark.parametrize("stream", [False, True])
def test_a_completion_that_fails_is_told_without_its_reason(client, caplog, stream):
    gateway = client(models=function_models("fails"))
    reply = gateway.post("/v1/completions", json={"model": "fails", "prompt": "1 + 2", "stream": stream})
    assert "/secret/path" not in refused(reply, 502, None, "model_failed")
    assert "/secret/path" in caplog.text


@pytest.mark.slow
def test_the_log_has_the_reason_that_clients_are_not_told(tmp_path):
    pytest.importorskip("yaml")
    with server(tmp_path, {"models": function_models("fails")}) as found:
        for path, body in (("chat/completions", {"messages": QUESTION}), ("completions", {"prompt": "1 + 2"})):
            reply = httpx.post(f"{found.url}/v1/{path}", json={"model": "fails", **body}, timeout=LIMIT_S)
            assert refused(reply, 502, None, "model_failed")
            assert "/secret/path" not in reply.text
    assert found.log.read_text().count("/secret/path") >= 2


WRITTEN: list[str] = []


def writes(ask: Any) -> str:
    """Write what the test wants."""
    return WRITTEN[0]
