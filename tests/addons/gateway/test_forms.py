"""Tools, JSON, stop texts, temperature, effort and histories: what a request asks for beside an answer."""

from __future__ import annotations

import json

import pytest

from tests.addons.gateway import parts
from tests.addons.gateway.asking import QUESTION, ask, chunks, function_models
from tts_addons.gateway.config import GatewayLimits
from tts_addons.gateway.orders import order_of
from tts_addons.gateway.wire import chat

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tell the weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "number"}},
            "required": ["city"],
        },
    },
}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@pytest.fixture
def gateway(client):
    names = ("calls", "texts", "objects", "lists", "stopped", "mixed", "scattered", "towns")
    models = function_models(*names, strategy="best_of_n(n=4) | majority")
    parts.ASKED.clear()
    return client(models={**models, "toy": {"strategy": "best_of_n(n=4) | majority"}})


def test_calls_of_tools_are_voted_on_as_values(gateway):
    pytest.importorskip("jsonschema")
    reply = ask(gateway, model="calls", tools=[WEATHER], n=2, tts={"distinct": True}).json()
    first, second = reply["choices"]
    (call,) = first["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"city": "Oslo", "days": 2}
    assert (call["type"], call["function"]["name"], first["finish_reason"]) == ("function", "weather", "tool_calls")
    assert json.loads(second["message"]["tool_calls"][0]["function"]["arguments"]) == {"city": "Rome"}
    assert reply["tts"]["weights"] == [0.5, 0.25]
    system, question = parts.ASKED[0].prompt
    assert '"description": "Tell the weather"' in system.content
    assert (system.role, question.content) == ("system", "3 + 4 - 2")


def test_the_majority_decides_whether_a_tool_is_called(gateway):
    """Two equal calls do not win against three texts, nor two equal texts against three calls."""
    pytest.importorskip("jsonschema")
    fields = {"tools": [WEATHER], "tts": {"strategy": "best_of_n(n=5) | majority"}}
    reply = ask(gateway, model="mixed", **fields).json()
    message = reply["choices"][0]["message"]
    assert ("tool_calls" not in message, message["content"]) == (True, "It is sunny.")
    assert (reply["tts"]["answer"], reply["tts"]["confidence"]) == ("It is sunny.", 0.2)
    parts.ASKED.clear()
    reply = ask(gateway, model="scattered", **fields).json()
    (call,) = reply["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"city": "Oslo", "days": 2}


def test_calls_that_the_choice_rules_out_never_win(gateway):
    pytest.importorskip("jsonschema")
    reply = ask(gateway, model="texts", tools=[WEATHER], tool_choice="required").json()
    (choice,) = reply["choices"]
    assert choice["message"]["content"] is None
    assert choice["message"]["refusal"]
    assert reply["tts"]["answer"] is None
    told = ask(gateway, model="texts", tools=[WEATHER]).json()["choices"][0]["message"]["content"]
    assert told == "It is sunny."
    untold = ask(gateway, model="texts", tools=[WEATHER], tool_choice="none")
    assert untold.status_code == 200
    assert parts.ASKED[-1].prompt[0].role == "user"


def test_a_streamed_call_is_that_of_the_reply(gateway):
    pytest.importorskip("jsonschema")
    whole = ask(gateway, model="calls", tools=[WEATHER], seed=5).json()["choices"][0]
    told = chunks(ask(gateway, model="calls", tools=[WEATHER], seed=5, stream=True))
    deltas = [choice["delta"] for chunk in told for choice in chunk["choices"]]
    (made,) = [delta["tool_calls"] for delta in deltas if "tool_calls" in delta]
    assert [call["function"] for call in made] == [call["function"] for call in whole["message"]["tool_calls"]]
    assert [call["index"] for call in made] == [0]
    assert told[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_answers_of_a_schema_win_and_are_all_of_the_content(gateway):
    pytest.importorskip("jsonschema")
    form = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA}}
    reply = ask(gateway, model="objects", response_format=form).json()
    assert json.loads(reply["choices"][0]["message"]["content"]) == {"city": "Oslo", "size": 1}
    assert reply["tts"]["weights"] == [0.5]
    wrong = ask(gateway, model="texts", response_format=form).json()["choices"][0]["message"]
    assert (wrong["content"], bool(wrong["refusal"])) == (None, True)


def test_a_request_names_the_members_that_vote(gateway):
    pytest.importorskip("jsonschema")
    schema = {"type": "object", "properties": {"city": {"type": "string"}, "size": {"type": "number"}}}
    form = {"type": "json_schema", "json_schema": {"name": "town", "schema": schema}}
    reply = ask(gateway, model="towns", response_format=form, tts={"vote": ["city"]}).json()
    assert (json.loads(reply["choices"][0]["message"]["content"])["city"], reply["tts"]["weights"]) == ("Oslo", [0.75])
    assert ask(gateway, model="towns", response_format=form).json()["tts"]["weights"] == [0.5]  # by size
    for fields in ({"tts": {"vote": ["city"]}}, {"response_format": form, "tts": {"vote": ["town"]}}):
        refused = ask(gateway, model="towns", **fields)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tts.vote")


def test_a_stop_text_ends_the_answer_and_is_no_part_of_it(gateway):
    reply = ask(gateway, model="stopped", stop=["\nQuestion:", "never"]).json()
    assert reply["choices"][0]["message"]["content"] == "Paris"
    assert (reply["choices"][0]["finish_reason"], reply["tts"]["answer"]) == ("stop", "Paris")


def test_temperature_0_is_obeyed_by_a_single_sample_and_reported_elsewhere(gateway):
    reply = ask(gateway, model="texts", temperature=0).json()
    assert parts.ASKED[-1].temperature == 0.8
    assert any("temperature 0 " in line for line in reply["tts"]["warnings"])
    single = ask(gateway, model="texts", temperature=0, tts={"strategy": "single"}).json()
    assert parts.ASKED[-1].temperature == 0
    assert not any("temperature 0 " in line for line in single["tts"]["warnings"])
    ask(gateway, model="texts", temperature=0.3)
    assert parts.ASKED[-1].temperature == 0.3


def test_rows_are_drawn_as_the_preset_and_the_request_state(client):
    parts.ASKED.clear()
    gateway = client(models=function_models("texts", presets={"cold": {"strategy": "single", "temperature": 0.3}}))
    assert ask(gateway, model="texts:cold").status_code == 200
    assert parts.ASKED[-1].temperature == 0.3
    assert ask(gateway, model="texts:cold", temperature=0.5).status_code == 200
    assert parts.ASKED[-1].temperature == 0.5
    body = {"model": "texts:cold", "messages": QUESTION, "top_p": 0.5, "max_tokens": 7}
    sampling = order_of(chat.read(body, GatewayLimits()), gateway.app.state.gateway).sampling
    assert (sampling.temperature, sampling.top_p, sampling.max_tokens) == (0.3, 0.5, 7)


def test_effort_is_a_budget_and_tts_overrides_it(gateway):
    assert ask(gateway, reasoning_effort="xhigh").json()["tts"]["budget"] == {"tokens": 16_384}
    assert ask(gateway, reasoning_effort="low", tts={"budget": {"samples": 2}}).json()["tts"]["budget"] == {
        "samples": 2,
        "tokens": 100_000,
    }


def test_the_whole_history_reaches_the_model(gateway):
    function = {"name": "weather", "arguments": '{"city": "Oslo"}'}
    calls = [{"id": name, "type": "function", "function": function} for name in ("c1", "c2")]
    history = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "And "}, {"type": "text", "text": "Oslo?"}]},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
        {"role": "tool", "tool_call_id": "c2", "content": "snow"},
        {"role": "assistant", "content": "Rain."},
        {"role": "user", "content": "Thanks"},
    ]
    assert ask(gateway, model="texts", messages=history).status_code == 200
    told = [(turn.role, turn.content) for turn in parts.ASKED[-1].prompt]
    assert told == [
        ("system", "Be brief."),
        ("user", "And Oslo?"),
        ("assistant", "\n".join(['<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'] * 2)),
        ("user", "<tool_response>\nrain\n</tool_response>\n<tool_response>\nsnow\n</tool_response>"),
        ("assistant", "Rain."),
        ("user", "Thanks"),
    ]
