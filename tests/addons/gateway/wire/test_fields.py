"""Fields of requests on `tts serve` itself: obeyed, refused by name before anything is spent, or reported; by each
API.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")
pytest.importorskip("jsonschema", reason="the extra serve is not installed")
pytest.importorskip("yaml", reason="the extra serve is not installed")

import httpx

import tts
from tests.addons.gateway.asking import function_models
from tests.addons.gateway.wire.frames import ERROR, PATHS, Found, ask_by, frames, read
from tests.addons.gateway.wire.started import started
from tests.addons.gateway.wire.upstream import Upstream, serving_script
from tests.support.guard import LIMIT_S

CAPABILITIES = dict.fromkeys(("efforts", "penalties", "biases", "filters"), True)
WIRES = ("chat", "responses", "messages")
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CHAT_TOOL = {"type": "function", "function": {"name": "weather", "parameters": CITY}}
FLAT_TOOL = {"type": "function", "name": "weather", "parameters": CITY}
TOOL = {"name": "weather", "input_schema": CITY}


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with serving_script(lambda body: {"content": "It is sunny."}) as made:
        yield made


@pytest.fixture(scope="module")
def api(tmp_path_factory: Any, upstream: Upstream) -> Iterator[httpx.Client]:
    names = ("calls", "objects", "lists", "texts", "thoughts")
    models = function_models(*names, strategy="best_of_n(n=4) | majority")
    models |= {"toy": {"strategy": "best_of_n(n=4) | majority", "presets": {"single": {"strategy": "single"}}}}
    served = {"model": "scripted", "url": upstream.url, "strategy": "best_of_n(n=4) | majority"}
    models |= {"served": {**served, "capabilities": {**CAPABILITIES, "streams": True, "usage": True}}}
    models |= {"bare": {**served, "capabilities": {"streams": True}}}
    models |= {"plain": {"backend": "tests.addons.gateway.parts:texts"}}
    config = {"models": models, "limits": {"tokens": 20_000}, "efforts": {"low": 1000, "deep": 7000}}
    with (
        started(tmp_path_factory.mktemp("gateway"), config) as url,
        httpx.Client(base_url=url, timeout=LIMIT_S) as client,
    ):
        yield client


def body_of(wire: str, turns: Any, model: str = "texts", **fields: Any) -> dict[str, Any]:
    """Return a request; `turns` are texts in turn of user and assistant, or the API's own."""
    if all(isinstance(one, str) for one in turns):
        turns = [{"role": ("user", "assistant")[place % 2], "content": one} for place, one in enumerate(turns)]
    most = {"max_tokens": 100} if wire == "messages" else {}
    return {"model": model, ("input" if wire == "responses" else "messages"): turns, **most, **fields}


def ask(api: httpx.Client, wire: str, turns: Any = ("Oslo?",), model: str = "texts", **fields: Any) -> Found:
    """Ask whole and as a stream, check both strictly, and return what they say."""
    body = body_of(wire, turns, model, **fields)
    found, streamed = (ask_by(wire, api, body, streamed=streamed) for streamed in (False, True))
    assert (streamed.text, streamed.refusal, streamed.calls) == (found.text, found.refusal, found.calls)
    return found


def refusal(api: httpx.Client, wire: str, turns: Any = ("Oslo?",), model: str = "texts", **fields: Any) -> str:
    """Return the message of a refusal, in the API's own form."""
    reply = api.post(PATHS[wire], json=body_of(wire, turns, model, **fields))
    assert reply.status_code == 400, reply.text
    if wire == "messages":
        return ERROR.validate_json(reply.content, strict=True).error.message
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error["message"] if error["param"] in error["message"] else f"{error['param']}: {error['message']}"


# Unknown keys ---------------------------------------------------------------------------------------------------------

FORM = {"type": "json_schema", "name": "x", "schema": CITY}
KNOWN: dict[str, dict[str, Any]] = {
    "chat": {
        "response_format": {"type": "json_schema", "json_schema": {"schema": CITY}},
        "stream_options": {"include_usage": True},
        "tools": [CHAT_TOOL],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
    },
    "responses": {
        "reasoning": {"effort": "low"},
        "text": {"format": FORM},
        "stream_options": {},
        "tools": [{"type": "namespace", "name": "s", "tools": [FLAT_TOOL]}],
    },
    "messages": {
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": CITY}},
        "tools": [TOOL],
        "tool_choice": {"type": "auto"},
        "system": [{"type": "text", "text": "Be brief."}],
    },
}
UNKNOWN = {
    "chat": "mystery response_format.foo response_format.json_schema.foo stream_options.x tools[0].zzz "
    "tools[0].function.zzz tool_choice.function.x",
    "responses": "mystery reasoning.bar text.verbosity text.format.foo stream_options.x tools[0].tools[0].zzz "
    "tools[0].zzz",
    "messages": "mystery thinking.x output_config.x output_config.format.x tools[0].zzz tool_choice.x system[0].x",
}


def with_unknown(wire: str, place: str) -> dict[str, Any]:
    """Return fields that are known, with one more key at a place."""
    *path, key = re.findall(r"\w+", place)
    names = {"tool_choice": ("tools", "tool_choice")}.get((path or [""])[0], path[:1])
    fields = copy.deepcopy({name: KNOWN[wire][name] for name in names})
    at: Any = fields
    for one in path:
        at = at[int(one) if one.isdigit() else one]
    at[key] = 1
    return fields


@pytest.mark.parametrize(("wire", "place"), [(wire, place) for wire in WIRES for place in UNKNOWN[wire].split()])
def test_unknown_keys_inside_of_known_fields_are_reported(api, wire, place):
    reply = api.post(PATHS[wire], json=body_of(wire, ["Oslo?"], **with_unknown(wire, place)))
    assert reply.status_code == 200, reply.text
    lines = [line for line in reply.json()["tts"]["warnings"] if "not known" in line]
    assert lines == [f"the field '{place}' is not known here and had no effect"]


@pytest.mark.parametrize("wire", WIRES)
def test_unknown_keys_of_turns_and_parts_are_reported_once_a_kind(api, wire):
    kind = "input_text" if wire == "responses" else "text"
    turns = [
        {
            "role": "user",
            "content": [{"type": kind, "text": "Oslo?", "x": 1}, {"type": kind, "text": "Now?", "x": 2}],
            "y": 1,
        }
    ]
    field = "input" if wire == "responses" else "messages"
    assert ask(api, wire, turns).report["warnings"] == [
        f"the field '{field}[0].content[0].x' is not known here and had no effect; so had 1 more like it",
        f"the field '{field}[0].y' is not known here and had no effect",
    ]


def test_reports_of_many_unknown_keys_are_bounded(api):
    report = ask(api, "chat", **{f"mystery_{place}": 1 for place in range(300)}).report
    assert len(report["warnings"]) == 21
    assert report["warnings"][-1] == "280 more fields are not known here and had no effect"


@pytest.mark.parametrize("wire", WIRES)
def test_an_unknown_key_of_tts_is_refused(api, wire):
    assert "tts.unknown" in refusal(api, wire, tts={"unknown": 1})


def test_what_clients_send_by_default_is_not_reported(api):
    idle = {
        "user": "u",
        "store": False,
        "metadata": {"a": "b"},
        "min_tokens": 0,
        "logit_bias": {},
        "add_generation_prompt": True,
    }
    assert ask(api, "chat", **idle, stop_token_ids=[], tools=[CHAT_TOOL], logprobs=False).report["warnings"] == []
    cached = {"type": "text", "text": "Oslo?", "cache_control": {"type": "ephemeral"}}
    turns = [{"role": "user", "content": [cached]}]
    assert ask(api, "messages", turns, system=[cached], metadata={"user_id": "u"}).report["warnings"] == []
    asked = {
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "low", "summary": "auto"},
        "store": False,
    }
    assert ask(api, "responses", **asked, prompt_cache_key="k").report["warnings"] == []


# Fields that change what an answer means ------------------------------------------------------------------------------

CHANGES: dict[str, Any] = {
    "guided_json": CITY, "structured_outputs": {"choice": ["a"]}, "guided_regex": "a+", "guided_choice": ["a", "b"],
    "guided_grammar": "root ::= x", "grammar": "root ::= x",
    "min_tokens": 5, "continue_final_message": True, "add_generation_prompt": False, "ignore_eos": True, "echo": True,
    "best_of": 3, "prefill": "A", "repetition_penalty": 1.2, "bad_words": ["a"], "stop_token_ids": [1],
    "chat_template": "x", "use_beam_search": True, "chat_template_kwargs": {"enable_thinking": False, "x": 1},
}  # fmt: skip


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", CHANGES)
def test_what_changes_the_meaning_of_an_answer_is_refused_by_name(api, wire, name):
    before = api.get("/v1/searches").json()
    assert refusal(api, wire, **{name: CHANGES[name]}).startswith(f"{name} is ")
    assert api.get("/v1/searches").json() == before


# Forms ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", ["chat", "responses"])
def test_an_object_is_an_object(api, wire):
    """Of four answers three are JSON, but no object."""
    form = {"type": "json_object"}
    fields = {"response_format": form} if wire == "chat" else {"text": {"format": form}}
    assert json.loads(ask(api, wire, model="lists", **fields).text or "") == {"city": "Oslo"}
    assert ask(api, wire, **fields).refusal


def test_messages_name_a_schema_for_an_object(api):
    """The API has no word for any object."""
    assert "output_config.format" in refusal(api, "messages", output_config={"format": {"type": "json_object"}})
    form = {"type": "json_schema", "schema": {"type": "object"}}
    assert json.loads(ask(api, "messages", model="lists", output_config={"format": form}).text or "") == {
        "city": "Oslo"
    }


# Histories ------------------------------------------------------------------------------------------------------------


OBJECT = {"type": "json_object"}
OWN: dict[str, dict[str, Any]] = {  # by the API: what a model that calls, and one of texts, are asked
    "chat": {"calls": {"tools": [CHAT_TOOL]}, "texts": {"response_format": OBJECT}},
    "responses": {"calls": {"tools": [FLAT_TOOL]}, "texts": {"text": {"format": OBJECT}}},
    "messages": {
        "calls": {"tools": [TOOL]},
        "texts": {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
    },
}


def given_back(wire: str, reply: Any) -> list[Any]:
    """Return the turns that a client makes of a reply: what it got, the results of calls, and a question."""
    question = {"role": "user", "content": "And now?"}
    if wire == "chat":
        message = reply["choices"][0]["message"]
        ids = [one["id"] for one in message.get("tool_calls", ())]
        results = [{"role": "tool", "tool_call_id": one, "content": "rain", "name": "weather"} for one in ids]
        return [{"function_call": None, "audio": None, "annotations": [], **message}, *results, question]
    if wire == "responses":
        ids = [one["call_id"] for one in reply["output"] if one["type"] == "function_call"]
        results = [{"type": "function_call_output", "call_id": one, "output": "rain"} for one in ids]
        return [*reply["output"], *results, question]
    ids = [one["id"] for one in reply["content"] if one["type"] == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": one, "content": "rain"} for one in ids]
    text = {"type": "text", "text": "And now?"}
    return [{"role": "assistant", "content": reply["content"]}, {"role": "user", "content": [*results, text]}]


@pytest.mark.parametrize("wire", WIRES)
def test_what_an_api_answered_is_accepted_back(api, wire):
    """A call, a refusal, and an answer with its thought, each as the client got it."""
    turns: list[Any] = [{"role": "user", "content": "Oslo?"}]
    for model, fields in {**OWN[wire], "thoughts": {}}.items():
        turns += given_back(wire, api.post(PATHS[wire], json=body_of(wire, turns, model, **fields)).json())
    said = json.dumps(turns)
    if wire == "chat":
        assert [bool(one.get("refusal")) for one in turns if one["role"] == "assistant"] == [False, True, False]
        assert turns[-2]["reasoning_content"] == "hm"
        parts = [{"type": "thinking", "thinking": "hm"}, {"type": "refusal", "refusal": "No."}]
        turns += [{"role": "assistant", "content": parts}, turns[0]]
    elif wire == "responses":
        assert all(f'"type": "{kind}"' in said for kind in ("function_call", "reasoning", "message", "refusal"))
    else:
        assert '"type": "tool_use"' in said
        assert [one["type"] for one in turns[-2]["content"]] == ["thinking", "text"]
        turns[-2]["content"].insert(1, {"type": "redacted_thinking", "data": "x"})
    found = ask(api, wire, turns)
    assert (found.text, found.report["warnings"]) == ("It is sunny.", [])


# Efforts --------------------------------------------------------------------------------------------------------------

EFFORT_FIELDS = {"chat": "reasoning_effort", "responses": "reasoning.effort", "messages": "output_config.effort"}


def effort(wire: str, word: str) -> dict[str, Any]:
    """Return the fields that name an effort."""
    outer, _, inner = EFFORT_FIELDS[wire].partition(".")
    return {outer: {inner: word} if inner else word}


@pytest.mark.parametrize("wire", WIRES)
def test_an_effort_that_the_operator_names_is_a_budget(api, wire):
    assert ask(api, wire, **effort(wire, "deep")).report["budget"] == {"tokens": 7000}


@pytest.mark.parametrize("wire", WIRES)
def test_an_effort_goes_to_a_server_that_takes_it(api, wire, upstream):
    for word, budget in (("ultra", None), ("deep", 7000), ("none", None)):
        found = ask(api, wire, model="served", **effort(wire, word))
        assert upstream.bodies[-1]["reasoning_effort"] == word
        assert found.report["warnings"] == []
        assert budget is None or found.report["budget"] == {"tokens": budget}


@pytest.mark.parametrize("wire", WIRES)
def test_an_effort_that_nothing_knows_is_refused_with_those_known(api, wire):
    told = refusal(api, wire, **effort(wire, "ultra"))
    assert told == (
        f"{EFFORT_FIELDS[wire]} is 'ultra', but the model 'texts' knows no such effort; it takes low, deep, none, "
        "minimal, medium, high, "
        "xhigh, max"
    )
    assert "at most 100 characters" in refusal(api, wire, **effort(wire, "x" * 101))


@pytest.mark.parametrize("wire", WIRES)
def test_an_effort_that_clients_send_by_default_is_reported(api, wire):
    report = ask(api, wire, **effort(wire, "xhigh")).report
    assert report["warnings"] == [f"{EFFORT_FIELDS[wire]} 'xhigh' is no effort of this server and had no effect"]


# Choices --------------------------------------------------------------------------------------------------------------


def texts_of(api: httpx.Client, wire: str, count: int, **fields: Any) -> tuple[list[str], dict[str, Any]]:
    """Return the texts of several answers, and the object `tts`."""
    options = fields.pop("tts", {})
    fields |= {"n": count, "tts": options} if wire == "chat" else {"tts": {"n": count, **options}}
    reply = api.post(PATHS[wire], json=body_of(wire, **{"turns": ["Oslo?"], "temperature": 0.8, **fields}))
    assert isinstance(read(wire, reply), Found)
    report = reply.json()["tts"]
    if wire == "chat":
        assert [one["index"] for one in reply.json()["choices"]] == list(range(len(reply.json()["choices"])))
        return [one["message"]["content"] for one in reply.json()["choices"]], report
    return [one["text"] for one in report["answers"]] if "answers" in report else [read(wire, reply).text or ""], report


@pytest.mark.parametrize("wire", WIRES)
def test_n_counts_equal_answers(api, wire):
    texts, report = texts_of(api, wire, 3)
    assert (texts, report["weights"], report["warnings"]) == (["It is sunny."] * 3, [1.0] * 3, [])
    texts, report = texts_of(api, wire, 3, tts={"distinct": True})
    assert (texts, report["warnings"]) == (["It is sunny."], ["n is 3, but the search found 1 distinct answers"])


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("model", ["toy:single", "plain"])
def test_a_plan_of_one_sample_draws_as_many_as_there_are_answers(api, wire, model):
    """A preset of one sample, and the default for free text."""
    body = {**body_of(wire, ["3 + 4 - 2"], model), "tts": {"n": 3, "seed": 5}}
    report = api.post(PATHS[wire], json=body).json()["tts"]
    assert (report["candidates"], len(report["weights"])) == (3, 3)
    assert api.post(PATHS[wire], json={**body, "tts": {"n": 1}}).json()["tts"]["candidates"] == 1


@pytest.mark.parametrize("wire", WIRES)
def test_greedy_answers_of_one_sample_are_equal(api, wire):
    texts, report = texts_of(api, wire, 3, model="toy:single", turns=["3 + 4 - 2"], temperature=0)
    assert (len(set(texts)), len(texts), report["warnings"]) == (1, 3, [])


def test_a_search_of_fewer_candidates_says_so(api):
    texts, report = texts_of(api, "chat", 6)
    assert (len(texts), report["warnings"]) == (4, ["n is 6, but the search found 4 answers"])


def test_equal_answers_are_streamed_as_choices_of_their_own(api):
    body = body_of("chat", ["Oslo?"], n=3, stream=True)
    chunks = [json.loads(data) for _, data in frames(api.post(PATHS["chat"], json=body).text) if data != "[DONE]"]
    ends = [
        (one["index"], one["finish_reason"]) for chunk in chunks for one in chunk["choices"] if one["finish_reason"]
    ]
    assert ends == [(0, "stop"), (1, "stop"), (2, "stop")]


# Penalties and biases -------------------------------------------------------------------------------------------------

DRAWS: dict[str, Any] = {
    "presence_penalty": 0.5, "frequency_penalty": -0.5, "logit_bias": {"7": -100, "3": 2.5}, "top_k": 5, "min_p": 0.25,
    "top_p": 0.5,
}  # fmt: skip


@pytest.mark.parametrize("wire", WIRES)
def test_penalties_biases_and_filters_go_to_servers_that_take_them(api, wire, upstream):
    assert ask(api, wire, model="served", **DRAWS).report["warnings"] == []
    assert {name: upstream.bodies[-1][name] for name in DRAWS} == DRAWS
    ask(api, wire, model="served", presence_penalty=0, logit_bias={}, top_k=-1)
    assert not {"presence_penalty", "frequency_penalty", "logit_bias"} & upstream.bodies[-1].keys()


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", ["presence_penalty", "frequency_penalty", "logit_bias"])
def test_backends_without_penalties_refuse_them_by_name(api, wire, name):
    told = refusal(api, wire, **{name: DRAWS[name]})
    assert told.startswith(f"{name} is ")
    assert told.endswith("but the model 'texts' does not take it; leave it out")


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("presence_penalty", 2.5), ("frequency_penalty", "high"), ("logit_bias", {"x": 1}), ("logit_bias", {"7": 101}),
        ("logit_bias", {"-7": 1}), ("logit_bias", {"9" * 10: 1}), ("logit_bias", [7]), ("min_p", 1), ("top_k", -2),
    ],
)  # fmt: skip
def test_wrong_penalties_and_biases_are_refused(api, wire, name, value):
    assert name in refusal(api, wire, model="served", **{name: value})


def test_filters_are_refused_by_name_where_a_server_does_not_obey_them(api, upstream):
    before = len(upstream.bodies)
    for name in ("top_k", "min_p"):
        assert refusal(api, "chat", model="bare", **{name: DRAWS[name]}).endswith(
            "the model 'bare' does not take it; leave it out"
        )
    assert len(upstream.bodies) == before


def test_completions_of_a_model_alone_refuse_penalties_by_name(api):
    body = {"model": "toy", "prompt": "3 + 4 - 2", "frequency_penalty": 0.5}
    error = api.post("/v1/completions", json=body).json()["error"]
    assert (error["param"], error["code"]) == ("frequency_penalty", "unsupported")


# Log-probabilities ----------------------------------------------------------------------------------------------------

LOGPROBS: dict[str, dict[str, Any]] = {
    "chat": {"logprobs": True},
    "responses": {"include": ["message.output_text.logprobs"]},
}


def tokens_of(wire: str, reply: Any, place: int = 0) -> list[tuple[str, float]]:
    """Return the tokens of an answer, and their log-probabilities."""
    if wire == "chat":
        content = reply["choices"][place]["logprobs"]["content"]
    else:
        (part,) = next(one for one in reply["output"] if one["type"] == "message")["content"]
        content = part["logprobs"]
    assert all(bytes(one["bytes"]).decode() == one["token"] and one["top_logprobs"] == [] for one in content)
    return [(one["token"], one["logprob"]) for one in content]


@pytest.mark.parametrize("wire", LOGPROBS)
def test_the_tokens_of_the_winner_have_their_log_probabilities(api, wire):
    """They are those that the same search has in the library."""
    body = body_of(wire, ["3 + 4 - 2"], "toy", tts={"seed": 3, "budget": 2000}, **LOGPROBS[wire])
    reply = api.post(PATHS[wire], json=body)
    found = read(wire, reply)
    tokens = tokens_of(wire, reply.json())
    assert "".join(text for text, _ in tokens) == found.text
    assert found.report["warnings"] == []
    solution = tts.solve("3 + 4 - 2", 2000, model="toy", strategy="best_of_n(n=4) | majority", seed=3)
    expected = [value for node in solution.candidates[0].trajectory.path[1:] for value in node.logprobs]
    assert [value for _, value in tokens] == pytest.approx(expected[: len(tokens)])
    assert len(tokens) >= 5
    assert any(value < -0.001 for _, value in tokens)


@pytest.mark.parametrize("wire", LOGPROBS)
def test_streams_have_the_same_log_probabilities(api, wire):
    body = body_of(wire, ["3 + 4 - 2"], "toy", tts={"seed": 3}, **LOGPROBS[wire])
    whole = tokens_of(wire, api.post(PATHS[wire], json=body).json())
    reply = api.post(PATHS[wire], json={**body, "stream": True})
    events = [json.loads(data) for _, data in frames(reply.text) if data != "[DONE]"]
    if wire == "chat":
        (content,) = [one["logprobs"]["content"] for event in events for one in event["choices"] if one["logprobs"]]
    else:
        (content,) = [event["logprobs"] for event in events if event["type"] == "response.output_text.delta"]
        (done,) = [event["logprobs"] for event in events if event["type"] == "response.output_text.done"]
        assert done == content == events[-1]["response"]["output"][-1]["content"][0]["logprobs"]
    assert [(one["token"], one["logprob"]) for one in content] == whole


def test_each_choice_has_its_log_probabilities(api):
    reply = api.post(PATHS["chat"], json=body_of("chat", ["3 + 4 - 2"], "toy", logprobs=True, n=3)).json()
    assert [sum(len(text) for text, _ in tokens_of("chat", reply, place)) for place in range(3)] == [
        len(one["message"]["content"]) for one in reply["choices"]
    ]
    plain = api.post(PATHS["chat"], json=body_of("chat", ["3 + 4 - 2"], "toy")).json()
    assert plain["choices"][0]["logprobs"] is None


@pytest.mark.slow
def test_only_the_tokens_of_the_text_that_is_shown_are_given(api):
    body = body_of("chat", ["3 + 4 - 2"], "toy:single", logprobs=True, stop=["A: "])
    reply = api.post(PATHS["chat"], json=body).json()
    text = reply["choices"][0]["message"]["content"]
    tokens = "".join(one for one, _ in tokens_of("chat", reply))
    assert tokens.startswith(text)
    assert len(tokens) - len(text) < 5


@pytest.mark.slow
@pytest.mark.parametrize("wire", LOGPROBS)
@pytest.mark.parametrize("model", ["texts", "served"])
def test_models_without_log_probabilities_refuse_them_by_name(api, wire, model):
    field = {"chat": "logprobs", "responses": "include"}[wire]
    told = refusal(api, wire, model=model, **LOGPROBS[wire])
    assert told.startswith(f"{field} asks for log-probabilities, but the model {model!r} gives no")
    assert "top_logprobs is 3" in refusal(api, wire, model="toy", top_logprobs=3, **LOGPROBS[wire])


# Completions ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_completions_refuse_or_report_what_only_chats_have(api):
    body = {"model": "toy", "prompt": "3 + 4 - 2", "max_tokens": 30}
    changes = {
        "guided_json": CITY,
        "structured_outputs": {"json": CITY},
        "response_format": {"type": "json_object"},
        "min_tokens": 3,
        "tools": [CHAT_TOOL],
        "prefill": "A",
    }
    for name, value in changes.items():
        error = api.post("/v1/completions", json={**body, name: value}).json()["error"]
        assert (error["param"], error["code"]) == (name, "unsupported")
    reply = api.post(
        "/v1/completions",
        json={**body, "messages": [], "stream_options": {"x": 1}, "response_format": {"type": "text"}},
    )
    assert reply.json()["tts"]["warnings"] == [
        "the field 'messages' is not known here and had no effect",
        "the field 'stream_options.x' is not known here and had no effect",
    ]
    lines = api.post("/v1/completions", json={**body, "reasoning_effort": "low"}).json()["tts"]["warnings"]
    assert lines == ["reasoning_effort had no effect: it is the budget of a search, and this model writes alone"]
