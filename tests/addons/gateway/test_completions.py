"""Completions of a model alone: log-probabilities as the engine has them, texts by their seed, and what both cost."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")
pytest.importorskip("numba", reason="the extra engine is not installed")

from starlette.testclient import TestClient

from tests.addons.gateway.asking import http_scope, refused, scored, spent_tokens
from tests.support.guard import LIMIT_S
from tts.backends.capabilities import prompt_logprobs
from tts.backends.engine import EngineBackend
from tts.backends.prompt_logprobs import PromptLogprobs
from tts.models import registry
from tts_addons.gateway.app import create_app
from tts_addons.gateway.config import gateway_config

PAIR: dict[str, Any] = {
    "models": {"pocket": {"presets": {"vote": {"strategy": "best_of_n(n=4) | majority", "budget": 1000}}}}
}
SUM = "12 + 7 * 3\n"
LINES = ("7 * 3 = 21\n", "7 * 3 = 22\n", "12 + 7 = 19\n")


@pytest.fixture
def complete(client):
    """Ask a gateway with the embedded policy for completions."""
    return asking(client(**PAIR))


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A gateway with the embedded policy and the toy for tests that leave no trace in it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TTS_HOME", str(tmp_path_factory.mktemp("home")))
        app = create_app(gateway_config({"models": {**PAIR["models"], "toy": {}}}))
    with TestClient(app, base_url="http://127.0.0.1") as gateway:
        yield gateway


def asking(gateway: Any) -> Any:
    """Return what asks a gateway for completions."""

    def ask(status: int = 200, **fields: Any) -> Any:
        reply = gateway.post("/v1/completions", json={"model": "pocket", "prompt": SUM, **fields})
        assert reply.status_code == status, reply.text
        return reply.json() if "stream" not in fields else reply.text

    ask.gateway = gateway  # pyright: ignore[reportFunctionMemberAccess]
    return ask


def directly(*prompts: str, top: int = 0) -> list[PromptLogprobs]:
    """Read prompts with the engine itself."""

    async def read() -> list[PromptLogprobs]:
        backend = EngineBackend.from_record(registry.get("pocket"))
        try:
            return [reply.value for reply in await prompt_logprobs(backend, prompts, top)]
        finally:
            await backend.close()

    return asyncio.run(read())


@pytest.mark.slow
def test_log_likelihoods_are_those_of_the_engine(complete):
    prompts = [SUM + line for line in LINES]
    reply = complete(prompt=prompts, echo=True, logprobs=1, max_tokens=1, temperature=0)
    [context, *wanted] = directly(SUM, *prompts, top=1)
    for place, (choice, found) in enumerate(zip(reply["choices"], wanted, strict=True)):
        assert choice["index"] == place
        assert choice["logprobs"]["token_logprobs"][1:-1] == found.logprobs[1:].tolist()
        assert choice["logprobs"]["token_logprobs"][0] is None
        assert choice["logprobs"]["tokens"][:-1] == list(found.texts)
        assert choice["text"].startswith(prompts[place])
        size = len(context.texts)
        greedy = all(
            value == top[0].logprob for value, top in zip(found.logprobs[size:], found.tops[size:], strict=True)
        )
        assert scored(choice, size) == (pytest.approx(found.logprobs[size:].sum(), abs=1e-12), greedy)
    likelihoods = [scored(choice, len(context.texts))[0] for choice in reply["choices"]]
    assert max(likelihoods) == likelihoods[0], "the policy knows its times table"


@pytest.mark.slow
@pytest.mark.parametrize("as_ids", [False, True])
def test_prompts_do_not_depend_on_each_other_and_token_ids_are_read_as_they_are(complete, as_ids):
    long = SUM * 12
    prompts: list[Any] = [long + line for line in LINES]
    if as_ids:
        prompts = [complete.gateway.post("/tokenize", json={"prompt": prompt}).json()["tokens"] for prompt in prompts]
    fields = {"echo": True, "logprobs": 2, "max_tokens": 0}
    together, backwards = complete(prompt=prompts, **fields), complete(prompt=prompts[::-1], **fields)
    alone = [complete(prompt=prompt, **fields) for prompt in prompts]
    shown = [choice["logprobs"] for choice in together["choices"]]
    assert shown == [reply["choices"][0]["logprobs"] for reply in alone]
    assert shown == [choice["logprobs"] for choice in backwards["choices"][::-1]]
    assert together["usage"]["prompt_tokens"] == sum(reply["usage"]["prompt_tokens"] for reply in alone)
    assert together["usage"]["prompt_tokens_details"]["cached_tokens"] == 2 * 64
    assert together["usage"]["completion_tokens"] == 0


@pytest.mark.slow
def test_one_token_is_the_most_likely_one_and_costs_no_further_reading(complete):
    by_reading = complete(echo=True, logprobs=3, max_tokens=1, temperature=0)
    by_writing = complete(max_tokens=1, temperature=0)
    assert by_reading["choices"][0]["text"] == SUM + by_writing["choices"][0]["text"]
    assert by_reading["usage"] == by_writing["usage"]
    assert by_reading["tts"]["usage"]["prompt_tokens"] == by_writing["tts"]["usage"]["prompt_tokens"]
    tops = by_reading["choices"][0]["logprobs"]["top_logprobs"][-1]
    assert max(tops, key=tops.get) == by_writing["choices"][0]["text"]
    assert len(tops) == 3


def test_offsets_count_in_the_text(complete):
    choice = complete(echo=True, logprobs=0, max_tokens=8, temperature=0)["choices"][0]
    told = choice["logprobs"]
    cut = [
        choice["text"][at : at + len(token)]
        for token, at in zip(told["tokens"][1:], told["text_offset"][1:], strict=True)
    ]
    assert cut == told["tokens"][1:]
    assert told["top_logprobs"][1] == {told["tokens"][1]: told["token_logprobs"][1]}


@pytest.mark.slow
def test_written_tokens_have_the_log_probabilities_of_reading_them(complete):
    reply = complete(max_tokens=12, seed=3, logprobs=1)
    told = reply["choices"][0]["logprobs"]
    [found] = directly(SUM + "".join(told["tokens"]))
    np.testing.assert_allclose(told["token_logprobs"], found.logprobs[-len(told["tokens"]) :], atol=1e-5)
    assert "".join(told["tokens"]).startswith(reply["choices"][0]["text"])


@pytest.mark.slow
def test_a_text_is_a_function_of_its_seed_and_choices_are_different_draws(complete):
    fields = {"prompt": "93 - 8 * 7 + 41 * 6\n", "n": 4, "temperature": 2, "max_tokens": 60}
    first, again, other = complete(seed=5, **fields), complete(seed=5, **fields), complete(seed=6, **fields)
    assert first["choices"] == again["choices"] != other["choices"]
    assert len({choice["text"] for choice in first["choices"]}) > 1
    assert complete(seed=5, **{**fields, "n": 1})["choices"][0] == first["choices"][0]
    drawn = complete(**fields)["tts"]["seed"]
    assert complete(seed=drawn, **fields)["tts"]["reproducible"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stop", "text"), [("\n", "7 * 3 = 21"), (["= 3", "21\n"], "7 * 3 = "), (["A:"], "7 * 3 = 21\n12 + 21 = 33\n")]
)
def test_a_stop_text_ends_a_choice_and_is_no_part_of_it(shared, stop, text):
    choice = asking(shared)(stop=stop, temperature=0, max_tokens=60)["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == (text, "stop")


def events(text: str) -> list[Any]:
    """Return the values of a stream's events; its end must be there."""
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields", [{}, {"stop": ["33", "\nA"]}, {"echo": True}, {"logprobs": 1}, {"max_tokens": 0, "echo": True}]
)
def test_a_stream_joins_to_the_reply(complete, fields):
    fields = {"max_tokens": 40, "n": 2, "seed": 1, "temperature": 1.2, **fields}
    whole = complete(**fields)
    told = events(complete(stream=True, stream_options={"include_usage": True}, **fields))
    *chunks, usage = told
    texts, ends = ["", ""], dict[int, str]()
    for chunk in chunks:
        for choice in chunk["choices"]:
            assert choice["index"] not in ends
            texts[choice["index"]] += choice["text"]
            if choice["finish_reason"]:
                ends[choice["index"]] = choice["finish_reason"]
        assert chunk["usage"] is None
    assert texts == [choice["text"] for choice in whole["choices"]]
    assert [ends[0], ends[1]] == [choice["finish_reason"] for choice in whole["choices"]]
    assert (usage["usage"], usage["choices"]) == (whole["usage"], [])
    assert chunks[-1]["tts"]["seed"] == 1
    if "logprobs" in fields:
        assert [chunk["choices"][0]["logprobs"] for chunk in chunks] == [
            choice["logprobs"] for choice in whole["choices"]
        ]


def test_reading_and_writing_are_booked(client):
    gateway = client(models={"pocket": {"budget": 20}}, efforts={}, limits={"client_tokens": 40, "tokens": 30})

    def ask(**fields: Any) -> Any:
        return gateway.post("/v1/completions", json={"model": "pocket", "prompt": SUM, **fields})

    assert ask(max_tokens=0, echo=True, logprobs=1).json()["tts"]["usage"]["read_tokens"] == 8
    assert ask(max_tokens=31).json()["error"]["code"] == "too_long"
    assert ask(max_tokens=10, temperature=0).json()["usage"]["completion_tokens"] == 10
    left = ask(max_tokens=30)
    assert (left.status_code, left.json()["error"]["code"]) == (429, "insufficient_quota")
    assert "22 are left" in left.json()["error"]["message"]
    told = gateway.get("/metrics").text
    assert 'tts_completions_total{model="pocket"} 2' in told
    assert 'tts_tokens_total{model="pocket",kind="generated"} 10' in told
    assert 'tts_client_tokens_total{client="anyone"} 18' in told  # 8 of them were read


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"prompt": ""}, "prompt", "invalid_value"),
        ({"prompt": []}, "prompt", "invalid_value"),
        ({"prompt": ["a", ""]}, "prompt[1]", "invalid_value"),
        ({"prompt": [[1], ["a"]]}, "prompt[1]", "invalid_value"),
        ({"prompt": [1, True]}, "prompt[0]", "invalid_value"),
        ({"prompt": None}, "prompt", "invalid_value"),
        ({"prompt": [-1]}, "prompt", "invalid_value"),
        ({"prompt": [10**30], "logprobs": 1, "max_tokens": 0}, "prompt", "invalid_value"),
        ({"prompt": "1 + 1\n" * 2000, "logprobs": 1, "max_tokens": 0}, "prompt", "context_length_exceeded"),
        ({"prompt": "1 + 1\n" * 2000}, "prompt", "context_length_exceeded"),
        ({"max_tokens": -1}, "max_tokens", "invalid_value"),
        ({"max_tokens": 2**64}, "max_tokens", "invalid_value"),
        ({"max_tokens": 10**7}, "prompt", "too_long"),
        ({"logprobs": 21}, "logprobs", "invalid_value"),
        ({"logprobs": True}, "logprobs", "invalid_value"),
        ({"n": 17}, "n", "invalid_value"),
        ({"n": 2, "best_of": 4}, "best_of", "unsupported"),
        ({"suffix": "x"}, "suffix", "unsupported"),
        ({"stop": [""]}, "stop", "invalid_value"),
        ({"temperature": 2.5}, "temperature", "invalid_value"),
        ({"presence_penalty": 1}, "presence_penalty", "unsupported"),
        ({"model": "pocket:vote"}, "model", "unsupported"),
        ({"tts": {"n": 2}}, "tts", "unsupported"),
        ({"tts": {"strategie": "x"}}, "tts.strategie", "invalid_value"),
    ],
)
def test_bad_input_is_refused_in_openais_form_and_spends_nothing(shared, fields, param, code):
    books = shared.app.state.gateway.books
    before = spent_tokens(shared.app.state.gateway)
    error = asking(shared)(400, **fields)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["param"], error["code"], error["type"]) == (param, code, "invalid_request_error")
    assert "\n" not in error["message"]
    assert not books.held
    assert spent_tokens(shared.app.state.gateway) == before


def test_the_tokenizer_is_that_of_the_model(client):
    gateway = client(models={"pocket": {}, "toy": {}})
    told = gateway.post("/tokenize", json={"prompt": SUM}).json()
    assert told["count"] == len(told["tokens"])
    assert told["max_model_len"] == 1024
    bare = {"prompt": SUM, "add_special_tokens": False, "return_token_strs": True}
    plain = gateway.post("/tokenize", json=bare).json()
    assert "".join(plain["token_strs"]) == SUM
    assert told["tokens"][-len(plain["tokens"]) :] == plain["tokens"]
    assert gateway.post("/detokenize", json={"tokens": plain["tokens"]}).json() == {"prompt": SUM}
    info = gateway.get("/tokenizer_info").json()
    eos = gateway.post("/tokenize", json={"prompt": info["eos_token"], "add_special_tokens": False}).json()["tokens"]
    assert len(eos) == 1
    assert gateway.post("/detokenize", json={"tokens": eos}).json() == {"prompt": info["eos_token"]}
    assert gateway.get("/tokenizer_info?model=toy").json()["tokenizer_class"] == "ToyTokenizer"
    assert gateway.post("/tokenize", json={"prompt": ""}).json()["tokens"] == []
    chat = gateway.post("/tokenize", json={"messages": [{"role": "user", "content": SUM}]}).json()
    assert chat["tokens"] == told["tokens"]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": []}, "prompt"),
        ("/tokenize", {"prompt": 3}, "prompt"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/detokenize", {"tokens": [10**30]}, "tokens"),
        ("/detokenize", {"tokens": "abc"}, "tokens"),
        ("/detokenize", {"model": "toy", "tokens": [500]}, "tokens"),
    ],
)
def test_bad_input_of_the_tokenizer_is_refused(shared, path, body, param):
    reply = shared.post(path, json=body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


def test_the_tokenizer_runs_beside_the_loop_and_is_bounded(client, monkeypatch):
    from tts.backends.toy.language import ToyTokenizer

    in_loop = list[bool]()
    written = ToyTokenizer.write

    def noted(self: Any, ids: Any) -> str:
        in_loop.append(asyncio._get_running_loop() is not None)
        return written(self, ids)

    monkeypatch.setattr(ToyTokenizer, "write", noted)
    gateway = client(limits={"characters": 20, "queue": 3})
    tokens = gateway.post("/tokenize", json={"prompt": "3 + 4 - 2", "add_special_tokens": False}).json()["tokens"]
    assert gateway.post("/detokenize", json={"tokens": tokens}).json() == {"prompt": "3 + 4 - 2"}
    assert in_loop
    assert not any(in_loop)
    for path, param, value in (("/tokenize", "prompt", "3" * 21), ("/detokenize", "tokens", tokens * 21)):
        refused(gateway.post(path, json={param: value}), 400, param, "too_long")
    gateway.app.state.gateway.aside.running["another"] = 8
    for path, param, value in (("/tokenize", "prompt", "3"), ("/detokenize", "tokens", tokens)):
        reply = gateway.post(path, json={param: value})
        refused(reply, 429, None, "queue_full")
        assert int(reply.headers["retry-after"]) >= 1


SLOW = {"slow": {"backend": "tests.addons.gateway.test_completions:slow"}}


async def slow(ask: Any) -> str:
    """Write after all tests have ended."""
    await asyncio.sleep(600)
    return str(ask)


def test_a_client_that_leaves_stops_the_model_and_is_booked(client):
    """The row of a function is charged in full when it is cancelled, since nobody can know what it has cost."""
    gateway = client(models=SLOW, limits={"client_tokens": 1000})
    state = gateway.app.state.gateway

    async def leave() -> None:
        body = json.dumps({"model": "slow", "prompt": "a b", "max_tokens": 7, "n": 3}).encode()
        left, told = asyncio.Event(), list[Any]()

        async def receive() -> Any:
            if body and not told:
                told.append("read")
                return {"type": "http.request", "body": body, "more_body": False}
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            told.append(message)

        scope = http_scope("/v1/completions", state={}, app=gateway.app)
        task = asyncio.ensure_future(gateway.app(scope, receive, send))
        while not state.books.held:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        left.set()
        await asyncio.wait_for(task, LIMIT_S)

    asyncio.run(leave())
    assert not state.books.held
    assert spent_tokens(state) == 21
    assert 'tts_client_tokens_total{client="anyone"} 21' in gateway.get("/metrics").text
    assert state.admission.running.total() == 0


def test_seconds_end_a_model_that_is_slow_and_what_it_wrote_is_booked(client):
    gateway = client(models=SLOW, limits={"seconds": 0.2})
    body = {"model": "slow", "prompt": "a b", "max_tokens": 7}
    reply = gateway.post("/v1/completions", json=body)
    assert reply.status_code == 400
    assert "after 0.2 seconds, by limits.seconds" in reply.json()["error"]["message"]
    assert (reply.json()["error"]["code"], reply.headers["x-should-retry"]) == ("too_long", "false")
    told = gateway.post("/v1/completions", json={**body, "stream": True})
    assert "limits.seconds" in told.text
    state = gateway.app.state.gateway
    assert (spent_tokens(state), state.books.held.total(), state.admission.running.total()) == (14, 0, 0)


def test_a_full_queue_refuses_with_the_time_to_wait(client):
    gateway = client(**PAIR, limits={"searches": 1, "queue": 0})
    gateway.app.state.gateway.admission.running["another"] = 1
    reply = gateway.post("/v1/completions", json={"model": "pocket", "prompt": SUM})
    refused(reply, 429, None, "queue_full")
    assert int(reply.headers["retry-after"]) >= 1
    del gateway.app.state.gateway.admission.running["another"]
