"""What the official clients read: replies and frames of streams, checked strictly by the vendors' own models."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import TypeAdapter

pytest.importorskip("openai", reason="openai-python is not installed")
pytest.importorskip("anthropic", reason="anthropic-sdk-python is not installed")

from anthropic.types import ErrorResponse, Message, MessageTokensCount, RawMessageStreamEvent
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent

EVENTS = {
    "chat": TypeAdapter(ChatCompletionChunk),
    "responses": TypeAdapter(ResponseStreamEvent),
    "messages": TypeAdapter(RawMessageStreamEvent),
}
WHOLE = {"chat": TypeAdapter(ChatCompletion), "responses": TypeAdapter(Response), "messages": TypeAdapter(Message)}
ERROR = TypeAdapter(ErrorResponse)
COUNT = TypeAdapter(MessageTokensCount)
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}


@dataclass
class Found:
    """What a reply says, whichever API it has."""

    text: str | None = None
    refusal: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    finish: str = ""
    stop_text: str | None = None
    usage: tuple[int, int, int, int] = (0, 0, 0, 0)  # input, of which cached, output, of which reasoning
    report: dict[str, Any] = field(default_factory=dict)


def read(wire: str, reply: Any) -> Found:
    """Check a whole reply, and read it."""
    WHOLE[wire].validate_json(reply.content, strict=True)
    return READERS[wire](reply.json())


def read_stream(wire: str, reply: Any) -> Found | str:
    """Check every frame of a stream, put them together as clients do, and read the result, or the message of its
    error.
    """
    events = frames(reply.text)
    if (failed := _failure(wire, events)) is not None:
        return failed
    for name, data in events:
        if data == "[DONE]" or name == "ping":
            continue
        EVENTS[wire].validate_json(data, strict=True)
        assert name in ("", json.loads(data).get("type")), name
    return READERS[wire](
        GATHER[wire]([json.loads(data) for name, data in events if data != "[DONE]" and name != "ping"])
    )


def ask_by(wire: str, gateway: Any, body: dict[str, Any], *, streamed: bool) -> Found:
    """Ask by an API, whole or as a stream, and return what it says."""
    more = {"stream_options": {"include_usage": True}} if wire == "chat" and streamed else {}
    reply = gateway.post(PATHS[wire], json={**body, "stream": streamed, **more})
    found = read_stream(wire, reply) if streamed else read(wire, reply)
    assert isinstance(found, Found), found
    return found


def _failure(wire: str, events: list[tuple[str, str]]) -> str | None:
    """Return the message of the error that ends a stream; None where none does."""
    name, data = events[-1]
    last = None if data == "[DONE]" else json.loads(data)
    if wire == "messages" and name == "error":
        return ERROR.validate_json(data, strict=True).error.message
    if wire == "responses" and name == "response.failed":
        return EVENTS[wire].validate_json(data, strict=True).response.error.message
    return last["error"]["message"] if wire == "chat" and last is not None else None


def frames(text: str) -> list[tuple[str, str]]:
    """Return the names and data of a stream's events; comments are none."""
    found: list[tuple[str, str]] = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "data" in lines:
            found.append((lines.get("event", ""), lines["data"]))
    return found


# One reader an API ----------------------------------------------------------------------------------------------------


def _chat(reply: Any) -> Found:
    message, usage = reply["choices"][0]["message"], reply["usage"]
    calls = [
        (one["function"]["name"], json.loads(one["function"]["arguments"])) for one in message.get("tool_calls") or ()
    ]
    return Found(
        message["content"],
        message.get("refusal") or "",
        calls,
        {"stop": "stop", "length": "length", "tool_calls": "calls"}[reply["choices"][0]["finish_reason"]],
        None,
        (
            usage["prompt_tokens"],
            usage["prompt_tokens_details"]["cached_tokens"],
            usage["completion_tokens"],
            usage["completion_tokens_details"]["reasoning_tokens"],
        ),
        reply["tts"],
    )


def _responses(reply: Any) -> Found:
    usage, parts = (
        reply["usage"],
        [part for item in reply["output"] if item["type"] == "message" for part in item["content"]],
    )
    calls = [(one["name"], json.loads(one["arguments"])) for one in reply["output"] if one["type"] == "function_call"]
    assert (reply["status"] == "incomplete") == (reply["incomplete_details"] == {"reason": "max_output_tokens"})
    return Found(
        next((part["text"] for part in parts if part["type"] == "output_text"), None),
        next((part["refusal"] for part in parts if part["type"] == "refusal"), ""),
        calls,
        "length" if reply["status"] == "incomplete" else "calls" if calls else "stop",
        None,
        (
            usage["input_tokens"],
            usage["input_tokens_details"]["cached_tokens"],
            usage["output_tokens"],
            usage["output_tokens_details"]["reasoning_tokens"],
        ),
        reply["tts"],
    )


def _messages(reply: Any) -> Found:
    usage, reason = reply["usage"], reply["stop_reason"]
    text = next((block["text"] for block in reply["content"] if block["type"] == "text"), None)
    calls = [(block["name"], block["input"]) for block in reply["content"] if block["type"] == "tool_use"]
    cached = usage["cache_read_input_tokens"]
    finish = {
        "end_turn": "stop",
        "stop_sequence": "stop",
        "refusal": "stop",
        "max_tokens": "length",
        "tool_use": "calls",
    }[reason]
    is_refusal = reason == "refusal" or (text or "").startswith("no candidate has the form")
    return Found(
        None if is_refusal else text,
        (text or "") if is_refusal else "",
        calls,
        finish,
        reply["stop_sequence"],
        (
            usage["input_tokens"] + cached,
            cached,
            usage["output_tokens"],
            usage["output_tokens_details"]["thinking_tokens"],
        ),
        reply["tts"],
    )


READERS: dict[str, Callable[[Any], Found]] = {"chat": _chat, "responses": _responses, "messages": _messages}


# One gatherer of a stream an API --------------------------------------------------------------------------------------


def _gather_chat(events: list[Any]) -> Any:
    message: dict[str, Any] = {"content": None}
    finish, report, usage = None, None, None
    for one in events:
        usage = one.get("usage") or usage
        for choice in one["choices"]:
            if choice["index"]:
                continue
            delta = choice["delta"]
            if delta.get("content"):
                message["content"] = (message["content"] or "") + delta["content"]
            message["refusal"] = delta.get("refusal") or message.get("refusal")
            message["tool_calls"] = delta.get("tool_calls") or message.get("tool_calls")
            finish, report = choice["finish_reason"] or finish, one.get("tts") or report
    return {"choices": [{"message": message, "finish_reason": finish}], "usage": usage, "tts": report}


def _gather_responses(events: list[Any]) -> Any:
    assert [one["sequence_number"] for one in events] == list(range(len(events)))
    assert [one["type"] for one in events[:2]] == ["response.created", "response.in_progress"]
    whole = events[-1]["response"]
    done = {one["output_index"]: one["item"] for one in events if one["type"] == "response.output_item.done"}
    assert [done[place] for place in range(len(done))] == whole["output"]
    for item in whole["output"]:
        deltas = "".join(
            one["delta"] for one in events if one["type"].endswith(".delta") and one["item_id"] == item["id"]
        )
        (part,) = [*item.get("content", item.get("summary", ())), *([item] if item["type"] == "function_call" else [])]
        assert deltas == part.get("text", part.get("refusal", part.get("arguments")))
    return whole


def _gather_messages(events: list[Any]) -> Any:
    first, blocks, end = events[0], dict[int, Any](), None
    assert (first["type"], events[-1]["type"]) == ("message_start", "message_stop")
    for one in events[1:-1]:
        if one["type"] == "content_block_start":
            assert one["index"] == len(blocks)
            blocks[one["index"]] = {**one["content_block"], "json": ""}
        elif one["type"] == "content_block_delta":
            block, delta = blocks[one["index"]], one["delta"]
            kind = delta["type"].removesuffix("_delta")
            if kind == "input_json":
                block["json"] += delta["partial_json"]
                block["input"] = json.loads(block["json"])
            else:
                block[kind] += delta[kind]
        elif one["type"] == "message_delta":
            end = one
    assert end is not None
    return {
        **first["message"],
        "content": list(blocks.values()),
        **end["delta"],
        "usage": end["usage"],
        "tts": end["tts"],
    }


GATHER: dict[str, Callable[[list[Any]], Any]] = {
    "chat": _gather_chat,
    "responses": _gather_responses,
    "messages": _gather_messages,
}
