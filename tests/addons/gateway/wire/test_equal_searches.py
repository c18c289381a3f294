"""On what all three APIs can say, a request gives the same search, text, calls, usage and end, and every frame is
valid.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.addons.gateway import parts
from tests.addons.gateway.asking import formed, function_models

pytest.importorskip("starlette", reason="the extra serve is not installed")
pytest.importorskip("jsonschema", reason="the extra serve is not installed")

from tests.addons.gateway.wire.frames import PATHS, read, read_stream
from tts.randomness import hash64

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "number"}},
    "required": ["city"],
}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CALL_ID = "call_1"


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, *(pytest.param(number, marks=pytest.mark.slow) for number in range(60, 300, 60))])
def test_three_hundred_random_requests_are_the_same_on_all(client, first):
    models = function_models("proposals", strategy="best_of_n(n=5) | majority", budget=200)
    gateway = client(models=models, efforts={"low": 20, "high": 60}, limits={"tokens": 500})
    for number in range(first, first + 60):
        asked = drawn(number)
        found = {wire: answered(gateway, wire, asked) for wire in PATHS}
        assert found["chat"] == found["responses"] == found["messages"], (number, asked)


BODY = {"turns": [("user", "Oslo?")], "seed": 1, "max_tokens": 100, "model": "proposals", "stream": False}
UNSAID = "system tools choice parallel form stop temperature top_p effort strategy budget picture"
PLAIN: dict[str, Any] = dict.fromkeys(UNSAID.split())


@pytest.mark.parametrize("wire", PATHS)
def test_unknown_fields_and_headers_are_reported(client, wire):
    gateway = client(models=function_models("proposals"))
    body = {**BODIES[wire]({**PLAIN, **BODY}), "colour": "blue"}
    warnings = gateway.post(PATHS[wire], json=body, headers={"anthropic-beta": "x-1"}).json()["tts"]["warnings"]
    assert "the field 'colour' is not known here and had no effect" in warnings
    assert ("the header anthropic-beta 'x-1' had no effect" in warnings) == (wire != "responses")


def drawn(number: int) -> dict[str, Any]:
    """Draw a request that all APIs can express."""

    def draw(name: str, *values: Any) -> Any:
        return values[hash64("wire", number, name) % len(values)]

    turns: list[tuple[str, Any]] = [("user", draw("question", "Weather?", "Oslo?", "And Rome?"))]
    if draw("history", False, True):
        turns += [("assistant", "It depends."), ("user", "Then look.")]
    if draw("results", False, False, True):
        turns += [("call", {"city": "Oslo"}), ("result", draw("result", "rain", ""))]
        turns += draw("more", [], [("user", "Go on.")])
    tools = draw("tools", False, True)
    return {
        "system": draw("system", None, "Be brief."),
        "turns": turns,
        "tools": tools,
        "choice": draw("choice", "auto", "auto", "required", "none", "weather") if tools else None,
        "parallel": draw("parallel", None, False) if tools else None,
        "form": draw("form", None, None, CITY),
        "stop": draw("stop", None, "Question:"),
        "temperature": draw("temperature", None, 0, 0.7),
        "top_p": draw("top_p", None, 0.9),
        "max_tokens": draw("max_tokens", 5, 100, 2000),
        "effort": draw("effort", None, None, "low", "high", "extreme"),
        "strategy": draw("strategy", None, "single", "best_of_n(n=3)", "no_such_strategy"),
        "budget": draw("budget", None, 35, 10_000),
        "seed": number,
        "stream": draw("stream", False, True),
        "model": draw("model", "proposals", "proposals", "proposals", "nobody"),
        "picture": draw("picture", False, False, False, False, False, True),
    }


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def _common(asked: dict[str, Any]) -> dict[str, Any]:
    options = {"seed": asked["seed"], "budget": asked["budget"], "strategy": asked["strategy"]}
    named = {name: asked[name] for name in ("temperature", "top_p", "model", "stream") if asked[name] is not None}
    return {**named, "tts": {name: value for name, value in options.items() if value is not None}}


NAMED = {"type": "function", "name": "weather"}


def turns_of(
    asked: dict[str, Any], calls: Callable[[Any], Any], results: Callable[[Any], Any], image: Any
) -> list[Any]:
    """Return the turns of a request, with calls, their results and a picture as an API writes them."""
    write = {"call": calls, "result": results}
    turns = [write[role](it) if role in write else {"role": role, "content": it} for role, it in asked["turns"]]
    return [*turns, {"role": "user", "content": [image]}] if asked["picture"] else turns


def chat_body(asked: dict[str, Any]) -> dict[str, Any]:
    def calls(values: Any) -> Any:
        call = {"id": CALL_ID, "type": "function", "function": {"name": "weather", "arguments": json.dumps(values)}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    def results(text: str) -> Any:
        return {"role": "tool", "tool_call_id": CALL_ID, "content": text}

    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    system = [{"role": "system", "content": asked["system"]}] if asked["system"] else []
    body = {**_common(asked), "messages": [*system, *turns_of(asked, calls, results, image)]}
    body |= {"max_tokens": asked["max_tokens"], "stream_options": {"include_usage": True}}
    if asked["tools"]:
        function = {"name": "weather", "description": "Tell it", "parameters": WEATHER}
        body["tools"] = [{"type": "function", "function": function}]
        named = {"type": "function", "function": {"name": "weather"}}
        body["tool_choice"] = named if asked["choice"] == "weather" else asked["choice"]
        body |= {} if asked["parallel"] is None else {"parallel_tool_calls": False}
    body |= formed(asked["form"]) if asked["form"] else {}
    return body | _given(stop=asked["stop"], reasoning_effort=asked["effort"])


def responses_body(asked: dict[str, Any]) -> dict[str, Any]:
    def calls(values: Any) -> Any:
        return {"type": "function_call", "call_id": CALL_ID, "name": "weather", "arguments": json.dumps(values)}

    def results(text: str) -> Any:
        return {"type": "function_call_output", "call_id": CALL_ID, "output": text}

    image = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"}
    body = {**_common(asked), "input": turns_of(asked, calls, results, image), "store": False}
    body["max_output_tokens"] = asked["max_tokens"]
    body["tts"] |= _given(stop=asked["stop"])
    if asked["tools"]:
        body["tools"] = [{**NAMED, "description": "Tell it", "parameters": WEATHER, "strict": None}]
        body["tool_choice"] = NAMED if asked["choice"] == "weather" else asked["choice"]
        body |= {} if asked["parallel"] is None else {"parallel_tool_calls": False}
    if asked["form"]:
        body["text"] = {"format": {"type": "json_schema", "name": "x", "schema": asked["form"]}}
    return body | _given(instructions=asked["system"], reasoning=asked["effort"] and {"effort": asked["effort"]})


def messages_body(asked: dict[str, Any]) -> dict[str, Any]:
    def calls(values: Any) -> Any:
        use = {"type": "tool_use", "id": CALL_ID, "name": "weather", "input": values}
        return {"role": "assistant", "content": [use]}

    def results(text: str) -> Any:
        return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": CALL_ID, "content": text}]}

    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    body = {**_common(asked), "messages": turns_of(asked, calls, results, image), "max_tokens": asked["max_tokens"]}
    if asked["tools"]:
        body["tools"] = [{"name": "weather", "description": "Tell it", "input_schema": WEATHER}]
        choice = {"required": {"type": "any"}, "weather": {"type": "tool", "name": "weather"}}
        body["tool_choice"] = choice.get(asked["choice"], {"type": asked["choice"]})
        body["tool_choice"] |= {} if asked["parallel"] is None else {"disable_parallel_tool_use": True}
    output = _given(effort=asked["effort"], format=asked["form"] and {"type": "json_schema", "schema": asked["form"]})
    return body | _given(system=asked["system"], stop_sequences=asked["stop"] and [asked["stop"]], output_config=output)


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


BODIES = {"chat": chat_body, "responses": responses_body, "messages": messages_body}


def answered(gateway: Any, wire: str, asked: dict[str, Any]) -> Any:
    """Send a request by an API, and return what was asked of the model and what the reply says; of an error its status
    and cause.
    """
    parts.ASKED.clear()
    reply = gateway.post(PATHS[wire], json=BODIES[wire](asked))
    if reply.status_code != 200:
        error = reply.json()["error"]
        return reply.status_code, [fieldless(error["message"])], len(parts.ASKED)
    found = (read_stream if asked["stream"] else read)(wire, reply)
    if isinstance(found, str):
        return fieldless(found), len(parts.ASKED)
    report = {
        name: value
        for name, value in found.report.items()
        if name not in ("search", "trace", "usage", "ledger", "warnings")
    }
    report["receipt"] = {name: report["receipt"][name] for name in ("tokens", "parts", "reason")}
    report["warnings"] = [fieldless(one) for one in found.report["warnings"]]
    known = sorted((one.seed, one.prompt, one.max_tokens, one.temperature) for one in parts.ASKED)
    return dataclasses.replace(found, stop_text=None, report=report), known


def fieldless(text: str) -> str:
    """Return a message without the place that Messages put in front, and without its API's names of fields."""
    text = re.sub(r"^[\w.]+: ", "", text)
    for names in (
        ("max_output_tokens", "max_tokens"),
        ("reasoning.effort", "output_config.effort", "reasoning_effort"),
        ("input has", "messages has"),
    ):
        for name in names:
            text = text.replace(name, names[-1])
    return text
