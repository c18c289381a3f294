"""The official clients of both vendors on `tts serve` itself, by Responses and by Messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")
pytest.importorskip("jsonschema", reason="the extra serve is not installed")
pytest.importorskip("yaml", reason="the extra serve is not installed")

from pydantic import BaseModel

from tests.addons.gateway.asking import function_models, said, write_keys
from tests.addons.gateway.wire.started import started
from tests.support.guard import LIMIT_S

openai = pytest.importorskip("openai", reason="openai-python is not installed")
anthropic = pytest.importorskip("anthropic", reason="anthropic-sdk-python is not installed")

CITY = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "number"}}, "required": ["city"]}
FLAT = {"type": "function", "name": "weather", "description": "Tell the weather", "parameters": CITY, "strict": False}
TOOL = {"name": "weather", "description": "Tell the weather", "input_schema": CITY}
QUESTION = [{"role": "user", "content": "3 + 4 - 2"}]
FILE = {"type": "image", "source": {"type": "url", "url": "file:///etc/passwd"}}
CLIENTS = ExitStack()  # which are closed before their server ends
KEYS = {"anna": "key-of-anna-0123456789", "bert": "key-of-bert-0123456789"}


@pytest.fixture(scope="module")
def url(tmp_path_factory: Any) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("gateway")
    write_keys(folder, *KEYS)
    names = ("calls", "objects", "stopped", "texts", "fails", "forever")
    models = function_models(*names, strategy="best_of_n(n=4) | majority")
    models |= {"toy": {"strategy": "best_of_n(n=8) | majority"}}
    with started(folder, {"models": models, "keys": "keys.txt", "limits": {"tokens": 20_000}}) as made, CLIENTS:
        yield made


def responses(url: str, name: str = "anna") -> Any:
    return CLIENTS.enter_context(
        openai.OpenAI(base_url=f"{url}/v1", api_key=KEYS[name], max_retries=0, timeout=LIMIT_S)
    )


def messages(url: str, name: str = "anna", **how: Any) -> Any:
    how = how or {"api_key": KEYS[name]}
    return CLIENTS.enter_context(anthropic.Anthropic(base_url=url, max_retries=0, timeout=LIMIT_S, **how))


# Responses ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_response(url):
    reply = responses(url).responses.create(
        model="toy", input="3 + 4 - 2", extra_body={"tts": {"seed": 7, "budget": 500}}
    )
    assert (reply.status, reply.output_text.splitlines()[-1]) == ("completed", "A: 5")
    assert reply.usage.total_tokens == reply.usage.input_tokens + reply.usage.output_tokens
    assert (reply.tts["seed"], reply.tts["budget"]) == (7, {"tokens": 500})


@pytest.mark.slow
def test_a_streamed_response_is_the_whole_one(url):
    asked = {"model": "toy", "input": "3 + 4 - 2", "extra_body": {"tts": {"seed": 7}}}
    with responses(url).responses.stream(**asked) as stream:
        kinds = [one.type for one in stream]
        final = stream.get_final_response()
    assert final.output_text == responses(url).responses.create(**asked).output_text
    assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")


def test_nothing_is_kept_with_store_false(url):
    api = responses(url)
    reply = api.responses.create(model="texts", input="Oslo?", store=False)
    with pytest.raises(openai.NotFoundError):
        api.responses.retrieve(reply.id)


def test_a_function_is_called_and_its_output_read(url):
    api = responses(url)
    reply = api.responses.create(model="calls", input="Oslo?", tools=[FLAT])
    (call,) = [item for item in reply.output if item.type == "function_call"]
    assert (call.name, call.arguments) == ("weather", '{"city": "Oslo", "days": 2}')
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    assert (
        api.responses.create(model="texts", input=[output], previous_response_id=reply.id).output_text == "It is sunny."
    )
    with pytest.raises(openai.BadRequestError) as refused:
        api.responses.create(model="texts", input=[{**output, "call_id": "lost"}], previous_response_id=reply.id)
    assert "lost" in refused.value.message


def test_hosted_tools_are_left_out_and_functions_of_namespaces_kept(url):
    api = responses(url)
    space = {"type": "namespace", "name": "sky", "description": "The sky", "tools": [FLAT]}
    hosted = [{"type": "web_search"}, {"type": "image_generation"}]
    reply = api.responses.create(model="calls", input="Oslo?", tools=[space, *hosted])
    (call,) = [item for item in reply.output if item.type == "function_call"]
    assert (call.namespace, call.name) == ("sky", "weather")
    assert reply.tts["warnings"] == ["tools that only their vendor runs are left out: image_generation, web_search"]
    with pytest.raises(openai.BadRequestError) as refused:
        api.responses.create(model="calls", input="Oslo?", tools=[space, *hosted], tool_choice={"type": "web_search"})
    assert refused.value.param == "tool_choice"


class Place(BaseModel):
    city: str
    size: float


def test_a_schema_is_parsed_by_the_client(url):
    reply = responses(url).responses.parse(model="objects", input="Where?", text_format=Place)
    assert reply.output_parsed == Place(city="Oslo", size=1)


def test_what_the_api_has_no_word_for_goes_by_tts(url):
    options = {"n": 2, "seed": 1, "stop": ["."], "distinct": True}
    reply = responses(url).responses.create(model="calls", input="Oslo?", tools=[FLAT], extra_body={"tts": options})
    assert {one["calls"][0]["arguments"]["city"] for one in reply.tts["answers"]} == {"Oslo", "Rome"}
    assert (reply.tts["seed"], len(reply.tts["weights"])) == (1, 2)
    assert (
        responses(url).responses.create(model="texts", input="Oslo?", extra_body={"tts": options}).output_text
        == "It is sunny"
    )
    told = messages(url).messages.create(
        model="calls", max_tokens=100, messages=QUESTION, tools=[TOOL], extra_body={"tts": options}
    )
    assert len(told.tts["answers"]) == 2


# Messages -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["api_key", "auth_token"])
def test_a_message(url, how):
    api = messages(url, **{how: KEYS["anna"]})
    reply = api.messages.create(model="toy", max_tokens=100, messages=QUESTION, extra_body={"tts": {"seed": 7}})
    assert (reply.stop_reason, reply.content[-1].text.splitlines()[-1]) == ("end_turn", "A: 5")
    assert 0 < reply.usage.output_tokens < reply.tts["usage"]["generated_tokens"]
    assert reply.tts["seed"] == 7


def test_a_streamed_message_is_the_whole_one(url):
    asked = {"model": "toy", "max_tokens": 100, "messages": QUESTION, "extra_body": {"tts": {"seed": 7}}}
    api = messages(url)
    with api.messages.stream(**asked) as stream:
        final = stream.get_final_message()
    whole = api.messages.create(**asked)
    assert final.content[-1].text == whole.content[-1].text
    assert (final.stop_reason, final.usage) == (whole.stop_reason, whole.usage)


def test_a_tool_is_used_and_its_result_read(url):
    api = messages(url)
    hosted = {"type": "web_search_20250305", "name": "web_search"}
    reply = api.messages.create(model="calls", max_tokens=100, messages=QUESTION, tools=[TOOL, hosted])
    (use,) = [block for block in reply.content if block.type == "tool_use"]
    assert (reply.stop_reason, use.name, use.input) == ("tool_use", "weather", {"city": "Oslo", "days": 2})
    assert reply.tts["warnings"] == ["tools that only their vendor runs are left out: web_search"]
    result = {"type": "tool_result", "tool_use_id": use.id, "content": [{"type": "text", "text": "rain"}]}
    turns = [*QUESTION, {"role": "assistant", "content": reply.content}, {"role": "user", "content": [result]}]
    assert (
        api.messages.create(model="texts", max_tokens=100, messages=turns, tools=[TOOL]).content[-1].text
        == "It is sunny."
    )
    with pytest.raises(anthropic.BadRequestError, match=r"earlier.*makes"):
        api.messages.create(model="texts", max_tokens=100, messages=[{"role": "user", "content": [result]}])
    forced = {"type": "tool", "name": "web_search"}
    with pytest.raises(anthropic.BadRequestError, match="tool_choice asks for 'web_search'"):
        api.messages.create(model="calls", max_tokens=9, messages=QUESTION, tools=[TOOL, hosted], tool_choice=forced)


def test_a_stop_sequence_is_named(url):
    reply = messages(url).messages.create(
        model="stopped", max_tokens=100, messages=QUESTION, stop_sequences=["\nQuestion:"]
    )
    assert (reply.content[-1].text, reply.stop_reason, reply.stop_sequence) == ("Paris", "stop_sequence", "\nQuestion:")


def test_budgets_in_the_words_of_messages(url):
    """A budget of thinking, an effort, and a limit above the operator's, which is clipped and said."""
    api = messages(url)
    asked = {"model": "toy", "messages": QUESTION}
    thinks = api.messages.create(max_tokens=2000, thinking={"type": "enabled", "budget_tokens": 1024}, **asked)
    assert thinks.tts["budget"] == {"tokens": 3024}
    assert api.messages.create(max_tokens=100, output_config={"effort": "low"}, **asked).tts["budget"] == {
        "tokens": 1000
    }
    clipped = api.messages.create(max_tokens=32_000, thinking={"type": "adaptive"}, **asked)
    assert clipped.tts["warnings"] == ["max_tokens is 32000, but was clipped to limits.tokens, 20000"]


@pytest.mark.slow
def test_tokens_are_counted(url):
    api = messages(url)
    short = api.messages.count_tokens(model="toy", messages=QUESTION).input_tokens
    assert 0 < short < api.messages.count_tokens(model="toy", messages=QUESTION, system="Be brief. " * 50).input_tokens


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"model": "nobody"}, "NotFoundError", "model is 'nobody'"),
        (said([FILE]), "BadRequestError", "takes pictures as data urls"),
        ({"tools": [{"name": "w", "input_schema": {"type": 3}}]}, "BadRequestError", "tools"),
        ({"tools": [{"name": "w", "input_schema": False}]}, "BadRequestError", r"tools\[0\].input_schema"),
        ({"thinking": {"type": "enabled"}}, "BadRequestError", "thinking.budget_tokens"),
        ({"extra_body": {"temperature": 1.5}}, "BadRequestError", "temperature"),
    ],
)
def test_a_refusal_has_the_form_of_messages(url, fields, error, message):
    asked = {"model": "toy", "max_tokens": 100, "messages": QUESTION, **fields}
    with pytest.raises(getattr(anthropic, error), match=message) as refused:
        messages(url).messages.create(**asked)
    assert refused.value.body["type"] == "error"


@pytest.mark.slow
def test_missing_tokens_and_keys_are_refused_in_the_form_of_messages(url):
    import httpx

    head = {"x-api-key": KEYS["anna"], "anthropic-version": "2023-06-01"}
    reply = httpx.post(f"{url}/v1/messages", json={"model": "toy", "messages": QUESTION}, headers=head)
    assert reply.json()["error"] == {
        "type": "invalid_request_error",
        "message": "max_tokens is missing, but must be given",
    }
    with pytest.raises(anthropic.AuthenticationError) as refused:
        messages(url, api_key="unknown-key").messages.create(model="toy", max_tokens=9, messages=QUESTION)
    assert refused.value.body["error"]["type"] == "authentication_error"
    with pytest.raises(anthropic.InternalServerError):
        messages(url).messages.create(model="fails", max_tokens=9, messages=QUESTION)
