"""Tools and pictures reach a served model natively through the gateway, however its server is called otherwise."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("starlette", reason="the extra serve is not installed")
pytest.importorskip("jsonschema", reason="the extra serve is not installed")

from tests.addons.gateway.asking import refused, said
from tests.addons.gateway.wire.frames import EVENTS, PATHS, ask_by, frames
from tests.addons.gateway.wire.test_equal_searches import CITY, PIXEL
from tests.addons.gateway.wire.upstream import PICTURE_TOKENS, Refusal, Upstream, call, check_template, serving_script
from tts.backends.openai.backend import OpenAIBackend
from tts.backends.openai.capabilities import Capabilities
from tts.errors import EngineError
from tts_addons.gateway.failures import ApiError, api_error
from tts_addons.gateway.offers import chat_records
from tts_addons.gateway.wire import chat as chat_wire
from tts_addons.gateway.wire import messages, responses

WIRES: dict[str, Any] = {"chat": chat_wire, "responses": responses, "messages": messages}

TOOL = {"type": "function", "function": {"name": "weather", "parameters": CITY}}
URL = f"data:image/png;base64,{PIXEL}"
PLACE = "messages[0].content[0].image_url.url"


def script(body: dict[str, Any]) -> dict[str, Any]:
    """Call the weather of Oslo twice and of Rome once in three; else say what is seen."""
    if "tools" in body:
        cities = ("Oslo", "Rome", "Oslo")
        return call("weather", {"city": cities[hash(str(body.get("seed"))) % 3]})
    return {"content": "It is sunny." if isinstance(body["messages"][-1]["content"], str) else "A point."}


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with serving_script(script) as made:
        yield made


@pytest.fixture(autouse=True)
def _cache(monkeypatch: Any, tmp_path: Any) -> None:
    """What is found of a server is kept in a folder of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def scripted(upstream: Upstream, strategy: str = "single") -> dict[str, Any]:
    return {"scripted": {"model": "scripted", "url": [upstream.url], "strategy": strategy}}


@pytest.fixture
def gateway(client: Any, upstream: Upstream) -> Any:
    return client(models={**scripted(upstream, "best_of_n(n=5) | majority"), "toy": {}})


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": "scripted", **said("Weather?"), **fields}


def test_calls_of_the_server_are_voted_on(gateway: Any, upstream: Upstream) -> None:
    found = ask_by("chat", gateway, chat(tools=[TOOL], seed=1), streamed=False)
    assert found.finish == "calls"
    bodies = upstream.bodies[-5:]
    assert all(body["tools"] == [TOOL] and body["tool_choice"] == "auto" for body in bodies)
    votes = [call["function"]["arguments"] for body in bodies for call in script(body)["tool_calls"]]
    assert found.calls == [("weather", {"city": "Oslo" if sum("Oslo" in one for one in votes) > 2 else "Rome"})]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wire", "content"),
    [
        ("chat", {"type": "image_url", "image_url": {"url": URL}}),
        ("responses", {"type": "input_image", "image_url": URL}),
        ("messages", {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}),
    ],
)
def test_a_picture_reaches_the_model(gateway: Any, upstream: Upstream, wire: str, content: Any) -> None:
    found = ask_by(wire, gateway, body_of(wire, said([content])["messages"]), streamed=False)
    assert found.text == "A point."
    assert found.usage[0] > PICTURE_TOKENS
    (turn,) = upstream.bodies[-1]["messages"]
    assert (turn["role"], turn["content"]) == ("user", [{"type": "image_url", "image_url": {"url": URL}}])


def seen(url: str, **fields: Any) -> dict[str, Any]:
    return chat(**said([{"type": "image_url", "image_url": {"url": url}}]), **fields)


@pytest.mark.slow
@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd", "http://pictures.example/a.png", "https://pictures.example/a.png",
        "https://pictures.example:8443/a.png", "data:text/html;base64,AAAA", "data:image/png;base64,@@@@", "",
        "https://user@pictures.example/a.png",
    ],
)  # fmt: skip
def test_other_pictures_are_refused_before_anything_is_spent(gateway: Any, upstream: Upstream, url: str) -> None:
    before = len(upstream.bodies)
    refused(gateway.post(PATHS["chat"], json=seen(url)), 400, PLACE, "invalid_value")
    assert len(upstream.bodies) == before


def test_hosts_and_sizes_of_pictures_are_the_operators(client: Any, upstream: Upstream) -> None:
    limits = {"image_hosts": ["pictures.example"], "image_bytes": 100}
    gateway = client(models=scripted(upstream), limits=limits)
    assert gateway.post(PATHS["chat"], json=seen("https://pictures.example/a.png")).status_code == 200
    for url in ("http://pictures.example", "https://pictures.example.evil", "https://pictures.example@evil"):
        assert gateway.post(PATHS["chat"], json=seen(f"{url}/a.png")).status_code == 400
    refused(gateway.post(PATHS["chat"], json=seen(URL + "A" * 400)), 400, PLACE, "too_long")


def test_a_picture_is_refused_by_the_name_of_a_model_of_text(gateway: Any) -> None:
    reply = gateway.post(PATHS["chat"], json={**seen(URL), "model": "toy"})
    cause = refused(reply, 400, "messages", "unsupported")
    assert cause == "messages has a picture, but the model 'toy' reads text alone; leave it out"


def test_a_server_that_continues_tokens_is_called_by_chats_for_tools(gateway: Any, monkeypatch: Any) -> None:
    """Where the strategy works on whole solutions; one of steps is shown the tools as text."""
    offers = gateway.app.state.gateway.offers
    policy = offers.backends(offers.get("scripted"))["policy"]
    assert isinstance(policy, OpenAIBackend)
    monkeypatch.setattr(
        policy, "capabilities", Capabilities(root=policy.capabilities.root, model="scripted", mode="tokens", tools=True)
    )
    from tts_addons.gateway.config import GatewayLimits
    from tts_addons.gateway.orders import order_of
    from tts_addons.gateway.wire import chat as wire

    def chats(**fields: Any) -> bool:
        return order_of(wire.read(chat(**fields), GatewayLimits()), gateway.app.state.gateway).chats

    assert chats(tools=[TOOL])
    assert not chats()
    assert not chats(tools=[TOOL], tts={"strategy": "beam(n=2)"})
    (record,) = offers.servers["scripted"].records
    assert dict(chat_records(record)["policy"].options)["mode"] == "chat"


@pytest.mark.slow
@pytest.mark.parametrize("several", [True, False])
def test_a_prompt_counts_once_however_many_rows_read_it(client: Any, several: bool) -> None:
    """A server may count the prompt once for all choices of a call, or once for each call."""
    counts: set[int] = set()
    with serving_script(lambda body: {"content": "It rains."}, several=several) as upstream:
        gateway = client(models={"scripted": {"model": "scripted", "url": [upstream.url]}})
        for wire, rows, streamed in itertools.product(PATHS, (1, 2, 5), (False, True)):
            body = body_of(wire, chat()["messages"], tts={"strategy": f"best_of_n(n={rows}) | majority"})
            before = len(upstream.bodies)
            counts.add(ask_by(wire, gateway, body, streamed=streamed).usage[0])
            assert len(upstream.bodies) - before == (1 if several else rows)
    assert len(counts) == 1
    assert counts != {0}


# Histories of clients -------------------------------------------------------------------------------------------------


def strict_script(body: dict[str, Any]) -> dict[str, Any]:
    """Answer as a server whose template takes one system turn, at the beginning, and turns in alternation."""
    check_template(body)
    if "LONG" in str(body["messages"]):
        raise Refusal(400, "This model's maximum context length is 4096 tokens. However, your request has 9000 tokens.")
    names = [tool["function"]["name"] for tool in body.get("tools", ())]
    return call(names[0], {"input": "*** Begin Patch"}) if "apply_patch" in names else {"content": "Done."}


@pytest.fixture(scope="module")
def strict(tmp_path_factory: Any) -> Iterator[tuple[Any, Upstream]]:
    """A gateway before the strict server, and the server."""
    from starlette.testclient import TestClient

    from tts_addons.gateway.app import create_app
    from tts_addons.gateway.config import gateway_config

    with pytest.MonkeyPatch.context() as patch, serving_script(strict_script) as upstream:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        model = {"model": "scripted", "url": [upstream.url], "strategy": "single", "budget": 20_000}
        app = create_app(gateway_config({"models": {"scripted": model}}))
        with TestClient(app, base_url="http://127.0.0.1") as client:
            yield client, upstream


def body_of(wire: str, turns: Any, **fields: Any) -> dict[str, Any]:
    """Return a request of one of the APIs with a history."""
    key, tokens = ("input", "max_output_tokens") if wire == "responses" else ("messages", "max_tokens")
    return {"model": "scripted", key: turns, tokens: 500, **fields}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def turn(*blocks: Any, role: str = "assistant") -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def chat_call(arguments: Any, kind: str = "function") -> dict[str, Any]:
    inner = {"name": "calc", "input" if kind == "custom" else "arguments": arguments}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "type": kind, kind: inner}]}


CHAT_RESULT = {"role": "tool", "tool_call_id": "a", "content": "seen"}
OUTPUT = {"type": "function_call_output", "call_id": "a", "output": "seen"}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "seen"}
BLOB = "A1b2" * 200
# a history by the API and what it has: the turns, the texts that must reach the model, and a word of the warning
HISTORIES: dict[str, tuple[list[Any], tuple[str, ...], str]] = {
    "chat cut arguments": ([user("q"), chat_call('{"x": "1'), CHAT_RESULT], ("seen",), "arguments"),
    "chat arguments that are a list": ([user("q"), chat_call("[1]"), CHAT_RESULT], ("seen",), "arguments"),
    "chat arguments of pairs": ([user("q"), chat_call('[["a", 1]]'), CHAT_RESULT], ("seen",), "arguments"),
    "chat arguments that are NaN": ([user("q"), chat_call("NaN"), CHAT_RESULT], ("seen",), "arguments"),
    "chat nested arguments": ([user("q"), chat_call('{"a":' * 3000), CHAT_RESULT], ("seen",), "arguments"),
    "chat no arguments": ([user("q"), chat_call(None), CHAT_RESULT], ("seen",), ""),
    "chat arguments as an object": ([user("q"), chat_call({"x": 7}), CHAT_RESULT], ('"x": 7', "seen"), ""),
    "chat a call of text": ([user("q"), chat_call("+ a", "custom"), CHAT_RESULT], ("+ a", "seen"), ""),
    "chat a late system turn": ([user("q"), {"role": "system", "content": "Be brief."}], ("Be brief.",), ""),
    "chat two developers": (
        [{"role": role, "content": role * 2} for role in ("developer", "system", "user", "developer", "user")],
        ("systemsystem", "developerdeveloper"),
        "",
    ),
    "chat an unknown part": ([turn({"type": "news", "text": "It rains."}, role="user")], ("It rains.",), "text"),
    "responses cut arguments": (
        [user("q"), {"type": "function_call", "call_id": "a", "name": "calc", "arguments": '{"x'}, OUTPUT],
        ("seen",),
        "arguments",
    ),
    "responses a late developer": ([user("q"), {"role": "developer", "content": "Be brief."}], ("Be brief.",), ""),
    "responses a call of text": (
        [
            user("q"),
            {"type": "custom_tool_call", "call_id": "a", "name": "apply_patch", "input": "*** Begin Patch"},
            {"type": "custom_tool_call_output", "call_id": "a", "output": "ok then"},
            user("go on"),
        ],
        ("*** Begin Patch", "ok then"),
        "",
    ),
    "responses a shell": (
        [
            user("q"),
            {"type": "local_shell_call", "id": "x", "call_id": "a", "action": {"type": "exec", "command": ["ls"]}},
            {"type": "local_shell_call_output", "call_id": "a", "output": "sum.py"},
        ],
        ("local_shell", "ls", "sum.py"),
        "",
    ),
    "responses a search": (
        [user("q"), {"type": "web_search_call", "id": "w", "action": {"type": "search", "query": "Oslo"}}, user("so?")],
        ("Oslo",),
        "text",
    ),
    "responses what only the vendor reads": (
        [
            user("q"),
            {"type": "item_reference", "id": "fc_1"},
            {"type": "compaction", "encrypted_content": BLOB},
            OUTPUT,
            {"type": "news_of_tomorrow", "id": "n"},
        ],
        ("seen",),
        "left out",
    ),
    "messages a late system turn": ([user("q"), {"role": "system", "content": "Be brief."}], ("Be brief.",), ""),
    "messages an empty directive": ([user("q"), turn(role="system"), user("so?")], ("so?",), ""),
    "messages a directive after a result": (
        [user("q"), turn({"type": "tool_use", "id": "a", "name": "f", "input": {}}), turn(RESULT, role="user"),
         {"role": "system", "content": "Be brief."}, turn({"type": "text", "text": "ok"}), user("so?")],
        ("Be brief.", "seen", "so?"),
        "",
    ),
    "messages a failed tool": (
        [user("q"), turn({"type": "tool_use", "id": "a", "name": "f", "input": '{"x'}),
         turn({**RESULT, "is_error": True}, role="user")],
        ("Error: seen",),
        "input",
    ),
    "messages a search of the vendor": (
        [
            user("q"),
            turn(
                {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "Oslo"}},
                {"type": "web_search_tool_result", "tool_use_id": "s", "content": [
                    {"type": "web_search_result", "title": "Rain", "url": "u://x", "encrypted_content": BLOB}]},
                {"type": "text", "text": "It rains."},
            ),
            user("so?"),
        ],
        ("Oslo", "Rain", "It rains."),
        "text",
    ),
    "messages documents": (
        [turn({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "The sum is 4."}},
              {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": BLOB}},
              {"type": "search_result", "title": "t", "source": "s", "content": [{"type": "text", "text": "It is 5."}]},
              {"type": "text", "text": "Which?"}, role="user")],
        ("The sum is 4.\n", "It is 5.", "[document]", "\nWhich?"),
        "left out",
    ),
}  # fmt: skip


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("name", HISTORIES)
def test_a_session_goes_on_whatever_its_history_has(strict: Any, name: str, streamed: bool) -> None:
    client, upstream = strict
    wire = name.partition(" ")[0]
    turns, texts, word = HISTORIES[name]
    found = ask_by(wire, client, body_of(wire, turns), streamed=streamed)
    assert found.text == "Done."
    warnings = " ".join(found.report["warnings"])
    assert word in warnings
    assert word or not warnings
    sent = json.dumps(upstream.bodies[-1]["messages"])
    assert all(json.dumps(text)[1:-1] in sent or json.dumps(json.dumps(text)[1:-1])[1:-1] in sent for text in texts)
    assert BLOB not in sent


def test_a_late_directive_leaves_the_messages_before_it_as_they_were(strict: Any) -> None:
    """So that a server's cache of the earlier turns holds."""
    client, upstream = strict
    first = [{"role": "system", "content": "Help."}, user("q"), {"role": "assistant", "content": "a"}]
    client.post(PATHS["chat"], json=body_of("chat", [*first, user("r")]))
    before = upstream.bodies[-1]["messages"]
    client.post(PATHS["chat"], json=body_of("chat", [*first, {"role": "system", "content": "Be brief."}, user("r")]))
    after = upstream.bodies[-1]["messages"]
    assert after[:3] == before[:3]
    assert "Be brief." in after[3]["content"]
    assert after[3]["content"].endswith("r")


@pytest.mark.parametrize(
    ("wire", "turns", "place"),
    [
        ("chat", [user("q"), turn({"type": "text", "text": 3}, role="user")], "messages[1].content[0].text"),
        ("chat", [turn({"type": 3}, role="user")], "messages[0].content[0].type"),
        ("chat", [{"role": "assistant", "tool_calls": [{"function": {"name": 3}}]}],
         "messages[0].tool_calls[0].function.name"),
        ("chat", [{"role": "assistant", "tool_calls": [{"type": "custom", "custom": {"name": "f", "input": 3}}]}],
         "messages[0].tool_calls[0].custom.input"),
        ("responses", [{"type": "message", "role": "user", "content": {"a": 1}}], "input[0].content"),
        ("responses", [{"type": ["x"]}], "input[0].type"),
        ("responses", [{"type": "function_call", "call_id": "a", "name": "f", "arguments": 3}], "input[0].arguments"),
        ("responses", [{"type": "custom_tool_call", "call_id": "a", "name": "f", "input": 3}], "input[0].input"),
        ("responses", [{"type": "function_call_output", "call_id": "a", "output": 3}], "input[0].output"),
        ("messages", [turn({"type": "tool_use", "id": "a", "name": "f", "input": 3})], "messages[0].content[0].input"),
        ("messages", [turn({**RESULT, "tool_use_id": 3}, role="user")], "messages[0].content[0].tool_use_id"),
        ("messages", [turn({**RESULT, "content": 3}, role="user")], "messages[0].content[0].content"),
        ("messages", [turn({**RESULT, "content": ["x"]}, role="user")], "messages[0].content[0].content"),
        ("messages", [turn({**RESULT, "content": [{"type": None}]}, role="user")],
         "messages[0].content[0].content[0].type"),
    ],
)  # fmt: skip
def test_a_block_of_a_wrong_type_is_refused_with_its_place(strict: Any, wire: str, turns: Any, place: str) -> None:
    reply = strict[0].post(PATHS[wire], json=body_of(wire, turns))
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert (error.get("param") or error["message"]).startswith(place) or place in error["message"]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("wire", ["chat", "responses"])
@pytest.mark.parametrize("choice", [None, "named", "allowed"])
def test_a_tool_of_free_text_is_offered_and_called(strict: Any, wire: str, streamed: bool, choice: Any) -> None:
    client, upstream = strict
    inner = {"name": "apply_patch", "description": "Edit.", "format": {"type": "text"}}
    named: dict[str, Any] = {"name": "apply_patch"}
    tool, one = {"type": "custom", **inner}, {"type": "custom", **named}
    other = {"type": "function", "name": "other"}
    allowed: Any = {"type": "allowed_tools", "mode": "required", "tools": [one]}
    if wire == "chat":
        tool, one = {"type": "custom", "custom": inner}, {"type": "custom", "custom": named}
        other = {"type": "function", "function": {"name": "other"}}
        allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [one]}}
    fields: dict[str, Any] = {"named": {"tool_choice": one}, "allowed": {"tool_choice": allowed}}.get(choice, {})
    body = body_of(wire, [user("go")], tools=[tool, other], stream=streamed, **fields)
    reply = client.post(PATHS[wire], json=body)
    offered = upstream.bodies[-1]
    assert len(offered["tools"]) == (1 if choice == "allowed" else 2)
    assert offered["tools"][0]["function"]["parameters"]["required"] == ["input"]
    events = [json.loads(data) for _name, data in frames(reply.text) if data != "[DONE]"] if streamed else []
    if wire == "chat":
        made = (
            [call for event in events for c in event["choices"] for call in c["delta"].get("tool_calls", ())]
            if streamed
            else reply.json()["choices"][0]["message"]["tool_calls"]
        )
        assert [(one["type"], one["custom"]) for one in made] == [
            ("custom", {"name": "apply_patch", "input": "*** Begin Patch"})
        ]
        return
    for event in events:
        EVENTS[wire].validate_python(event)
    if streamed:
        pieces = [event["delta"] for event in events if event["type"] == "response.custom_tool_call_input.delta"]
        assert "".join(pieces) == "*** Begin Patch"
    whole = events[-1]["response"] if streamed else reply.json()
    (item,) = [item for item in whole["output"] if item["type"] == "custom_tool_call"]
    assert (item["name"], item["input"]) == ("apply_patch", "*** Begin Patch")
    assert whole["tts"]["warnings"] == []


def test_tools_that_items_of_the_input_list_are_offered(strict: Any) -> None:
    """A client lists its tools in an item, and finds others on the way, one of them twice."""
    client, upstream = strict
    space = {"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "apply_patch"}]}
    found = [
        {"type": "tool_search_call", "call_id": "a", "execution": "client", "arguments": {"query": "day"}},
        {"type": "tool_search_output", "call_id": "a", "tools": [{"type": "function", "name": "day"}]},
    ]
    turns = [{"type": "additional_tools", "role": "developer", "tools": [space]},
             {"role": "developer", "content": "Help."}, user("go"), *found, *found]  # fmt: skip
    reply = client.post(PATHS["responses"], json=body_of("responses", turns)).json()
    offered = upstream.bodies[-1]
    assert [tool["function"]["name"] for tool in offered["tools"]] == ["apply_patch", "day"]
    assert [one["role"] for one in offered["messages"]][:3] == ["system", "user", "assistant"]
    assert reply["tts"]["warnings"] == []
    (item,) = reply["output"]
    assert (item["type"], item["namespace"], item["input"]) == ("custom_tool_call", "functions", "*** Begin Patch")


def test_two_tools_of_one_name_are_refused(strict: Any) -> None:
    tool = {"type": "function", "name": "day"}
    refused = strict[0].post(PATHS["responses"], json=body_of("responses", [user("go")], tools=[tool, tool]))
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "tools[1].name"


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_a_call_that_is_none_is_text_unless_a_call_was_asked_for(client: Any, choice: str) -> None:
    """A client would end a session at a refusal."""
    with serving_script(lambda _: call("weather", "{not JSON")) as upstream:
        gateway = client(models=scripted(upstream))
        found = ask_by("chat", gateway, chat(tools=[TOOL], tool_choice=choice), streamed=False)
    assert (found.finish, found.calls, bool(found.refusal)) == ("stop", [], choice == "required")
    assert ("not JSON" in (found.text or "")) == (choice == "auto")


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("wire", PATHS)
def test_a_prompt_above_the_context_is_refused_in_the_words_that_clients_compare(
    strict: Any, wire: str, streamed: bool
) -> None:
    reply = strict[0].post(PATHS[wire], json=body_of(wire, [user("LONG")], stream=streamed))
    if wire == "responses" and streamed:
        assert reply.status_code == 200
        last = json.loads(frames(reply.text)[-1][1])
        assert last["type"] == "response.failed"
        error = last["response"]["error"]
    else:
        assert reply.status_code == 400
        error = reply.json()["error"]
    assert error["message"] == "prompt is too long: 9000 tokens > 4096 maximum"
    assert error.get("type", "invalid_request_error") == "invalid_request_error"
    assert wire == "messages" or error["code"] == "context_length_exceeded"


@pytest.mark.parametrize(
    ("cause", "message"),
    [
        ("request (9000 tokens) exceeds the available context size (4096 tokens)", "9000 tokens > 4096"),
        ("maximum context length is 1,024 tokens. However, you requested 2,024 tokens (24 in", "2024 tokens > 1024"),
        ("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", "1200000 tokens"),
        ("Prompt contains 40000 tokens, too large for model with 32768 maximum context length", "40000 tokens > 32768"),
        ("`inputs` tokens must be <= 1024. Given: 2400 `inputs` tokens", "2400 tokens > 1024"),
        ("prompt is too long: 210000 tokens > 200000 maximum", "210000 tokens > 200000"),
        ("context of 'http://127.0.0.1:8811/9000' is full", "does not say"),
        ("the context window of 128k tokens is full after 90 turns", "does not say"),
        ("status 400: the request exceeds the available context size", "does not say"),
    ],
)
def test_the_length_of_a_prompt_is_read_from_the_words_of_servers(cause: str, message: str) -> None:
    error = api_error(EngineError(cause, kind="NoRoom"))
    assert error.message.startswith("prompt is too long")
    assert (message in error.message) == (" > " in error.message)


@pytest.mark.parametrize(
    ("wire", "fields"),
    [
        ("messages", {"thinking": {"type": "disabled"}}),
        ("chat", {"chat_template_kwargs": {"enable_thinking": False}}),
        ("chat", {"enable_thinking": False}),
        ("responses", {"chat_template_kwargs": {"thinking": False}}),
    ],
)
@pytest.mark.parametrize("has_switch", [True, False])
def test_thoughts_are_switched_off_alike_on_all(
    strict: Any, monkeypatch: Any, wire: str, fields: Any, has_switch: bool
) -> None:
    from tts_addons.gateway.config import GatewayLimits
    from tts_addons.gateway.orders import order_of

    gateway = strict[0].app.state.gateway
    policy = gateway.offers.backends(gateway.offers.get("scripted"))["policy"]
    monkeypatch.setattr(policy, "caps", dataclasses.replace(policy.caps, thought_switch=has_switch))
    order = order_of(WIRES[wire].read(body_of(wire, [user("q")], **fields), GatewayLimits()), gateway)
    assert order.sampling.thought_tokens == (0 if has_switch else None)
    assert any("thoughts" in note for note in order.notes) != has_switch


@pytest.mark.parametrize("wire", PATHS)
def test_no_tokens_are_refused_by_the_name_of_the_field(strict: Any, wire: str) -> None:
    name = "max_output_tokens" if wire == "responses" else "max_tokens"
    reply = strict[0].post(PATHS[wire], json={**body_of(wire, [user("q")]), name: 0})
    assert reply.status_code == 400
    assert name in reply.json()["error"]["message"]


KEYS = (
    "type", "role", "content", "text", "input", "output", "arguments", "name", "id", "call_id", "tool_use_id", "custom",
    "function", "tool_calls", "tool_call_id", "source", "image_url", "tools", "allowed_tools", "format", "action",
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", "text", "{", *PATHS]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=12,
)  # fmt: skip
KINDS = (
    "text", "image", "image_url", "tool_use", "tool_result", "function", "custom", "function_call", "message",
    "custom_tool_call", "local_shell_call", "x_output", "document", "allowed_tools", "namespace", "reasoning",
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(PATHS)), st.data())
def test_any_history_is_read_or_refused(wire: str, data: Any) -> None:
    """No value in the place of a turn, a block, a tool or a choice is a fault of the server."""
    from tts_addons.gateway.config import GatewayLimits

    block = st.fixed_dictionaries({"type": st.sampled_from(KINDS) | VALUES}, optional=dict.fromkeys(KEYS[1:], VALUES))
    blocks = st.lists(block | VALUES, max_size=3)
    role = st.sampled_from(["user", "assistant", "system", "tool", "developer"])
    turns = st.lists(
        block | st.fixed_dictionaries({"role": role, "content": blocks | VALUES}, optional={"tool_calls": blocks}),
        max_size=4,
    )
    fields = {"tools": data.draw(blocks), "tool_choice": data.draw(block | VALUES)}
    with contextlib.suppress(ApiError):
        WIRES[wire].read(body_of(wire, data.draw(turns), **fields), GatewayLimits())
