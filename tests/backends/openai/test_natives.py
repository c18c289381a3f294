"""Tools, JSON schemas and pictures where a server takes them: found by the probe, sent by chats, and read into the
path.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

import tts
from tests.addons.gateway.wire.upstream import PICTURE_TOKENS, call, serving_script
from tts.backends.openai.backend import OpenAIBackend
from tts.backends.openai.prompt import messages
from tts.backends.openai.reply import ServerReply
from tts.errors import CapabilityError, ConfigError
from tts.models.registry import ModelRecord
from tts.tasks.json import JsonTask
from tts.types import AnswerForm, Message, Picture, ToolCall, ToolOffer, ToolResult

PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="  # noqa: E501
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
LOOKED = Picture(PIXEL)


def says(text: str) -> Any:
    return lambda _: {"content": text}


def record(url: str, **fields: Any) -> ModelRecord:
    return ModelRecord(name="scripted", backend="openai", url=url, **fields)


OFFER = ToolOffer(
    (json.dumps({"type": "function", "function": {"name": "weather", "parameters": CITY}}),),
    '"auto"',
    False,
    "You may call weather.",
)
ASKED = (
    Message.of("system", ("Be brief.\n\n", OFFER)),
    Message("user", "Oslo?"),
    Message.of(
        "assistant",
        ("I look.", ToolCall("weather", '{"city": "Oslo"}', "c1"), ToolCall("weather", '{"city": "Rome"}', "c2")),
    ),
    Message.of("user", (ToolResult("c1", "rain"), ToolResult("c2", "sun"), "\n\n", "And now?")),
)


def test_a_history_with_tools_has_two_forms() -> None:
    native = messages(ASKED, tools=True)
    calls = [
        {"id": one, "type": "function", "function": {"name": "weather", "arguments": f'{{"city": "{city}"}}'}}
        for one, city in (("c1", "Oslo"), ("c2", "Rome"))
    ]
    assert native == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Oslo?"},
        {"role": "assistant", "content": "I look.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
        {"role": "tool", "tool_call_id": "c2", "content": "sun"},
        {"role": "user", "content": "And now?"},
    ]
    plain = messages(ASKED)
    assert [one["role"] for one in plain] == ["system", "user", "assistant", "user"]
    assert plain[0]["content"] == "Be brief.\n\nYou may call weather."
    assert plain[2]["content"].startswith(
        'I look.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>\n<tool_call>'
    )
    assert plain[3]["content"].endswith("<tool_response>\nsun\n</tool_response>\nAnd now?")


def test_calls_are_written_into_the_path() -> None:
    """Also where their arguments hold the mark that ends a call."""
    arguments = {"text": "a </tool_call> b", "n": 1}

    def script(body: dict[str, Any]) -> dict[str, Any]:
        return {**call("weather", arguments), "content": "I look."}

    with serving_script(script) as upstream:
        solution = tts.solve(list(ASKED), 400, model=record(upstream.url), strategy="best_of_n(n=2) | majority")
        body = upstream.bodies[-1]
    assert (body["tool_choice"], body["parallel_tool_calls"]) == ("auto", False)
    assert [tool["function"]["name"] for tool in body["tools"]] == ["weather"]
    text = solution.candidates[0].trajectory.full_text
    said, _, rest = text.partition("\n<tool_call>\n")
    assert said == "I look."
    assert json.loads(rest.removesuffix("\n</tool_call>")) == {"name": "weather", "arguments": arguments}
    assert not solution.failures


@pytest.mark.parametrize("stream", [False, True])
def test_pieces_of_calls_are_put_together(stream: bool) -> None:
    reply = ServerReply(1)
    pieces = [("weather", '{"ci'), (None, 'ty": "Oslo"}')] if stream else [("weather", '{"city": "Oslo"}')]
    for name, told in pieces:
        one = {"index": 0, "function": {"arguments": told, **({"name": name} if name else {})}}
        message = {"tool_calls": [one], "content": None}
        event = {"delta": message} if stream else {"message": message, "finish_reason": "tool_calls"}
        reply.take({"choices": [{"index": 0, **event}]})
    if stream:
        reply.take({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    assert reply.error(0) is None
    assert (
        "".join(reply.choices[0].pieces)
        == '\n<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    )


def test_arguments_that_are_no_json_are_no_call() -> None:
    reply = ServerReply(1)
    one = {"function": {"name": "weather", "arguments": '{"city": '}}
    reply.take({"choices": [{"index": 0, "message": {"tool_calls": [one]}, "finish_reason": "tool_calls"}]})
    text = "".join(reply.choices[0].pieces)
    assert json.loads(text.removeprefix("\n<tool_call>\n").removesuffix("\n</tool_call>"))["arguments"] == '{"city":'


def test_a_schema_is_decoded_by_the_server() -> None:
    with serving_script(says('{"city": "Oslo"}')) as upstream:
        solution = tts.solve("Where?", 400, model=record(upstream.url), task=JsonTask(schema=CITY), strategy="single")
        body = upstream.bodies[-1]
    assert body["response_format"]["json_schema"]["schema"] == CITY
    assert json.dumps(CITY) in body["messages"][-1]["content"]
    assert solution.answer == '{"city": "Oslo"}'


@pytest.mark.parametrize(("obeys", "probed"), [(True, True), (False, True), (True, False)])
def test_an_unknown_server_that_obeys_a_schema_gets_it_and_another_is_named(
    obeys: bool, probed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def script(body: dict[str, Any]) -> dict[str, Any]:
        return {"content": '{"ready": true}' if obeys and "response_format" in body else "Yes."}

    with serving_script(script, owner="") as upstream:
        model = record(upstream.url, options=() if probed else (("probe", "never"),))
        solution = tts.solve("Ready?", 400, model=model, task="json", strategy="single")
        is_sent = "response_format" in upstream.bodies[-1]
    assert is_sent == (solution.answer is not None) == (obeys and probed)
    assert caplog.text.count("is asked for JSON in words alone") == (not is_sent)


def test_a_form_has_no_text() -> None:
    assert Message.of("user", ("Where?", AnswerForm("{}"))).content == "Where?"


# Pictures -------------------------------------------------------------------------------------------------------------


def seen() -> list[Message]:
    return [Message.of("user", ("What is it?", LOOKED))]


def test_a_picture_reaches_a_model_that_takes_it() -> None:
    """By messages with parts, and by mappings as clients write them; what it cost is the server's report."""
    with serving_script(says("A point.")) as upstream:
        by_parts = tts.solve(seen(), 400, model=record(upstream.url), strategy="single", seed=1)
        written = [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is it?"},
                    {"type": "image_url", "image_url": {"url": PIXEL}},
                ],
            }
        ]
        by_mappings = tts.solve(written, 400, model=record(upstream.url), strategy="single", seed=1)
        first, second = upstream.bodies[-2]["messages"], upstream.bodies[-1]["messages"]
    assert first == second
    assert first[0]["content"] == written[0]["content"]
    assert by_parts.usage.prompt_tokens == by_mappings.usage.prompt_tokens > PICTURE_TOKENS
    assert PIXEL not in by_parts.trace.to_json()


def test_pictures_differ_by_their_digests() -> None:
    one, other = (
        Message.of("user", ("?", Picture(url))) for url in ("data:image/png;base64,AA==", "data:image/png;base64,AQ==")
    )
    assert one.content != other.content
    assert one.content.startswith("?[picture ")


def test_a_picture_is_refused_by_name_before_anything_is_spent() -> None:
    with pytest.raises(
        CapabilityError,
        match=r"picture,.*'policy'.*'toy'",
    ):
        tts.solve(seen(), 400, model="toy")


def test_a_picture_without_known_tokens_is_refused_where_input_is_limited() -> None:
    with serving_script(says("A point.")) as upstream:
        priced = {"usd_in": 1.0, "usd_reused": 1.0, "usd_out": 1.0}
        with pytest.raises(ConfigError, match=r"limits.*picture"):
            tts.solve(seen(), tts.Budget(usd=1.0), model=record(upstream.url, **priced), strategy="single")
        before = len(upstream.bodies)
        known = record(upstream.url, tokens_per_image=PICTURE_TOKENS, **priced)
        solution = tts.solve(seen(), tts.Budget(usd=1.0), model=known, strategy="single")
        assert len(upstream.bodies) > before
        backend = OpenAIBackend.from_record(known)
    assert solution.usage.prompt_tokens > PICTURE_TOKENS
    assert backend.count(tuple(seen())) >= PICTURE_TOKENS + backend.count(seen()[0].content.partition("[")[0])
