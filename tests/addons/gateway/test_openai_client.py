"""The client that the gateway is for: openai-python over a real socket."""

from __future__ import annotations

import asyncio
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.addons.gateway import parts
from tests.addons.gateway.asking import QUESTION, VOTE, GatewayServer, function_models, serving, url_of
from tests.support.guard import LIMIT_S

openai = pytest.importorskip("openai", reason="openai-python is not installed")


@pytest.fixture(scope="module")
def server() -> Iterator[GatewayServer]:
    models = {"toy": {"strategy": VOTE}, **function_models("forever", "fails")}
    with serving(models=models, linger_s=0.0) as made:
        yield made


@pytest.fixture
def api(server) -> Iterator[Any]:
    with openai.OpenAI(base_url=url_of(server), api_key="any", max_retries=0, timeout=LIMIT_S) as made:
        yield made


def searches(server: GatewayServer) -> Any:
    return server.config.app.state.gateway


def test_chat(api):
    reply = api.chat.completions.create(model="toy", messages=QUESTION, seed=1, extra_body={"tts": {"budget": 500}})
    assert reply.choices[0].message.content.endswith("A: 5")
    assert reply.choices[0].finish_reason == "stop"
    assert 0 < reply.usage.completion_tokens < reply.tts["usage"]["generated_tokens"]
    assert reply.tts["budget"] == {"tokens": 500}
    assert reply._request_id == reply.tts["search"]


def test_a_stream_gives_progress_then_the_answer_of_the_same_seed(api):
    whole = api.chat.completions.create(model="toy", messages=QUESTION, seed=3)
    options = {"include_usage": True}
    chunks = list(
        api.chat.completions.create(model="toy", messages=QUESTION, seed=3, stream=True, stream_options=options)
    )
    *told, last = chunks
    deltas = [chunk.choices[0].delta for chunk in told]
    assert "".join(delta.content or "" for delta in deltas) == whole.choices[0].message.content
    reasoning = [getattr(delta, "reasoning_content", None) for delta in deltas]
    first = next(place for place, text in enumerate(reasoning) if text)
    assert first < next(place for place, delta in enumerate(deltas) if delta.content)
    assert "of 32,768 tokens" in reasoning[first]
    assert [chunk.usage for chunk in told] == [None] * len(told)
    assert (last.choices, last.usage) == ([], whole.usage)
    assert told[-1].choices[0].finish_reason == "stop"
    assert told[-1].tts["answer"] == whole.tts["answer"]


def test_a_stream_without_usage_has_a_choice_in_every_chunk(api):
    chunks = list(api.chat.completions.create(model="toy", messages=QUESTION, seed=3, stream=True))
    assert all(len(chunk.choices) == 1 and chunk.usage is None for chunk in chunks)


def test_n_gives_distinct_answers_best_first_where_that_is_asked_for(api):
    options = {"strategy": "best_of_n(n=64)", "distinct": True}
    reply = api.chat.completions.create(model="toy", messages=QUESTION, seed=1, n=3, extra_body={"tts": options})
    texts = [choice.message.content for choice in reply.choices]
    answers = [text.rpartition("A: ")[2] for text in texts]
    assert answers[0] == reply.tts["answer"]
    assert len(set(answers)) == len(answers) == 3
    assert reply.tts["weights"] == sorted(reply.tts["weights"], reverse=True)
    assert [choice.index for choice in reply.choices] == [0, 1, 2]


def test_errors_are_those_of_the_api(api):
    with pytest.raises(openai.NotFoundError) as missing:
        api.chat.completions.create(model="toi", messages=QUESTION)
    assert "toy" in missing.value.message
    assert (missing.value.param, missing.value.code) == ("model", "model_not_found")
    with pytest.raises(openai.BadRequestError) as refused:
        api.chat.completions.create(model="toy", messages=QUESTION, extra_body={"tts": {"budgett": 3}})
    assert refused.value.param == "tts.budgett"
    with pytest.raises(openai.BadRequestError):
        api.chat.completions.create(model="toy", messages=QUESTION, stream=True, logprobs=True, top_logprobs=2)


def test_what_a_retry_does_not_cure_is_tried_once(server):
    attempts: list[Any] = []
    with openai.OpenAI(base_url=url_of(server), api_key="any", max_retries=2, timeout=LIMIT_S) as api:
        send = api._client.send
        api._client.send = lambda *a, **k: (attempts.append(a), send(*a, **k))[1]
        with pytest.raises(openai.InternalServerError) as failed:
            api.chat.completions.create(model="fails", messages=QUESTION)
    assert len(attempts) == 1
    assert "/secret" not in str(failed.value)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the client's own retries wait, in seconds, in place of waiting; `waits.then` is called instead."""

    class Waits(list[float]):
        then: Any = staticmethod(lambda: None)

    made = Waits()
    clock = types.SimpleNamespace(**vars(openai._base_client.time))
    clock.sleep = lambda seconds: (made.append(seconds), made.then())
    monkeypatch.setattr(openai._base_client, "time", clock)
    return made


def told(reply: Any, *, stream: bool) -> str:
    if not stream:
        return reply.choices[0].message.content
    return "".join(chunk.choices[0].delta.content or "" for chunk in reply)


@contextmanager
def full() -> Iterator[tuple[Any, Any, Callable[[], None]]]:
    """Serve one search, which waits; gives the gateway, a client, and what lets the search end."""
    parts.GATE.clear()
    models = {**function_models("gated"), "toy": {"strategy": VOTE}}
    with (
        serving(models=models, limits={"searches": 1, "queue": 0}) as server,
        openai.OpenAI(base_url=url_of(server), api_key="any", max_retries=2, timeout=LIMIT_S) as api,
    ):
        first = threading.Thread(target=lambda: api.chat.completions.create(model="gated", messages=QUESTION))
        first.start()
        asyncio.run(until(lambda: searches(server).running))

        def end() -> None:
            parts.GATE.set()
            first.join(LIMIT_S)
            assert not first.is_alive()

        yield searches(server), api, end
        end()


@pytest.mark.parametrize("stream", [False, True])
def test_the_clients_own_retry_waits_as_a_full_queue_says_and_finds_room(waits, stream):
    with full() as (gateway, api, end):
        waits.then = end
        reply = api.chat.completions.create(model="toy", messages=QUESTION, stream=stream, seed=1)
        assert told(reply, stream=stream).endswith("A: 5")
    assert len(waits) == 1
    assert 1 <= waits[0] <= 60
    assert gateway.metrics._counts["tts_replies_total", (("status", "429"),)] == 1


def test_a_queue_that_stays_full_is_the_clients_error_after_its_retries(waits):
    with full() as (_gateway, api, _end), pytest.raises(openai.RateLimitError) as refused:
        api.chat.completions.create(model="gated", messages=[{"role": "user", "content": "another"}])
    assert refused.value.code == "queue_full"
    assert len(waits) == 2


def test_the_clients_own_retry_finds_the_server_that_is_started_again(waits):
    """The first server ends with a 503 while it searches; the client's retry comes to the next one at the same port."""
    with ExitStack() as held:
        first = held.enter_context(ExitStack())
        forever = function_models("forever")["forever"]
        server = first.enter_context(serving(models={"toy": forever}))
        url = url_of(server)

        def restart() -> None:
            first.close()
            port = int(url.rpartition(":")[2].partition("/")[0])
            held.enter_context(serving(port=port, models={"toy": {"strategy": VOTE}}))

        waits.then = restart
        with openai.OpenAI(base_url=url, api_key="any", max_retries=2, timeout=LIMIT_S) as api:
            ends = threading.Thread(target=lambda: (asyncio.run(until(lambda: searches(server).running)), end(server)))
            ends.start()
            reply = api.chat.completions.create(model="toy", messages=QUESTION, seed=1)
            ends.join(LIMIT_S)
    assert reply.choices[0].message.content.endswith("A: 5")
    assert waits == [5.0]


def end(server: GatewayServer) -> None:
    """Tell a server to end, as SIGTERM does."""
    server.should_exit = True


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_its_search(server, stream):
    gateway = searches(server)
    with openai.OpenAI(
        base_url=url_of(server), api_key="any", max_retries=0, timeout=openai.Timeout(LIMIT_S, read=0.5)
    ) as api:
        if stream:
            with api.chat.completions.create(
                model="forever", messages=QUESTION, stream=True, timeout=LIMIT_S
            ) as chunks:
                next(iter(chunks))
                assert len(gateway.running) == 1
        else:
            with pytest.raises(openai.APITimeoutError):
                api.chat.completions.create(model="forever", messages=QUESTION)
    # the server's thread takes the search away and then books it: both are waited for, and a hold that stays is a
    # time-out
    asyncio.run(until(lambda: not (gateway.running or gateway.books.held or gateway.admission.running)))


def test_a_retry_joins_the_search_under_way(server):
    gateway = searches(server)
    with openai.OpenAI(base_url=url_of(server), api_key="any", max_retries=0, timeout=LIMIT_S) as api:

        def ask(**headers: str) -> None:
            with pytest.raises(openai.APIError):
                api.chat.completions.create(model="forever", messages=QUESTION, extra_headers=headers, timeout=LIMIT_S)

        keys = ({}, *({"idempotency-key": key} for key in "aab"))
        threads = [threading.Thread(target=ask, kwargs=headers) for headers in keys]
        for number, thread in enumerate(threads, start=1):
            thread.start()
            waited = lambda number=number: sum(one.listeners for one in list(gateway.running.values())) == number  # noqa: E731
            asyncio.run(until(waited))
        assert sorted(one.listeners for one in gateway.running.values()) == [1, 1, 2]
        for one in list(gateway.running.values()):
            server.loop.call_soon_threadsafe(one.cancel, RuntimeError("enough"))
        for thread in threads:
            thread.join(LIMIT_S)
            assert not thread.is_alive()
    assert not gateway.running


async def until(condition: Any) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0.005)
