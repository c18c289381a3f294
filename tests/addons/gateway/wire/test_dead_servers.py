"""A server of a model that fails rests, and its searches go to the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")

from tests.addons.gateway.asking import ask, function_models, refused, said
from tests.addons.gateway.wire.upstream import Refusal, serving_script
from tts_addons.gateway.offers import ModelServers

MODELS = {"dead": function_models("fails")["fails"], "alive": function_models("texts")["texts"]}


def scripted(url: str, **more: Any) -> dict[str, Any]:
    return {"scripted": {"model": "scripted", "url": url, "strategy": "single", **more}}


def where_bad(end: Callable[[], dict[str, Any]]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a script that ends so where a request has the word BAD."""
    return lambda body: end() if "BAD" in str(body["messages"]) else {"content": "fine"}


def raises(refusal: Refusal) -> NoReturn:
    raise refusal


def test_a_server_that_fails_rests_longer_each_time_and_one_that_works_at_once_not():
    now = 0.0
    servers = ModelServers([{"policy": name} for name in "ab"], lambda: now)  # pyright: ignore[reportArgumentType]

    def chosen() -> int:
        with servers.borrow() as loan:
            return loan.place

    assert (chosen(), servers.awake) == (0, 2)
    for seconds in (2, 4, 8, 16, 32, 60, 60):
        servers.report(0, failed=True)
        assert (chosen(), servers.awake) == (1, 1)
        now += seconds - 0.5
        assert chosen() == 1
        now += 0.5
        assert (chosen(), servers.awake) == (0, 2)
    servers.report(0, failed=False)
    servers.report(0, failed=True)
    now += 2
    assert chosen() == 0
    servers.report(0, failed=True)
    servers.report(1, failed=True)
    assert (chosen(), servers.awake) == (1, 0)  # its rest ends first


@pytest.mark.slow
def test_searches_go_on_where_one_of_two_servers_dies(client: Any):
    ended = False

    def script(body: dict[str, Any]) -> dict[str, Any]:
        return {"content": f"A: {len(body['messages'])}"}

    def until_it_ends(body: dict[str, Any]) -> dict[str, Any]:
        if ended:
            raise ConnectionResetError  # which closes a connection that was kept
        return script(body)

    with serving_script(script) as alive:
        with serving_script(until_it_ends) as dies:
            models = {"scripted": {"model": "scripted", "url": [dies.url, alive.url], "strategy": "single"}}
            gateway = client(models=models)
            assert ask(gateway, model="scripted").status_code == 200
        ended = True
        replies = [ask(gateway, model="scripted") for _ in range(4)]
        assert Counter(one.status_code for one in replies) == {200: 4}
        assert gateway.get("/ready").json() == {"status": "ready", "models": 1, "working": 1}


def test_a_server_that_fails_after_a_spend_gets_no_further_search(client: Any):
    gateway = client(models=MODELS)
    servers = gateway.app.state.gateway.offers.servers
    servers["dead"].records.append(servers["alive"].records[0])
    replies = [ask(gateway, model="dead") for _ in range(6)]
    assert [one.status_code for one in replies] == [502, 200, 200, 200, 200, 200]
    assert servers["dead"].awake == 1


def test_readiness_says_whether_any_model_works(client: Any):
    gateway = client(models={"dead": MODELS["dead"]})
    assert gateway.get("/ready").status_code == 200
    refused(ask(gateway, model="dead"), 502, None, "model_failed")
    reply = gateway.get("/ready")
    assert (reply.status_code, reply.json()) == (503, {"status": "unready", "models": 1, "working": 0})
    assert gateway.get("/health").status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize(
    ("refusal", "status", "code", "retry_after"),
    [
        (Refusal(429, "slow down", retry_after="3600"), 429, "model_rate_limited", "3600"),
        (Refusal(429, "you exceeded your current quota"), 429, "model_quota_exceeded", None),
        (Refusal(503, "at capacity", retry_after="1800"), 503, "model_unavailable", "1800"),
        (Refusal(400, "this model's maximum context length is 100 tokens"), 400, "context_length_exceeded", None),
        (Refusal(401, "no such key"), 502, "model_failed", None),
    ],
    ids=lambda one: str(one) if isinstance(one, Refusal) else None,
)
def test_a_refusal_of_a_models_server_keeps_its_status(
    client: Any, refusal: Refusal, status: int, code: str, retry_after: Any
):
    with serving_script(where_bad(lambda: raises(refusal))) as upstream:
        gateway = client(models=scripted(upstream.url))
        assert ask(gateway, model="scripted").status_code == 200
        for path in ("chat/completions", "responses", "messages"):
            text = {"input": "BAD"} if path == "responses" else said("BAD")
            reply = gateway.post(f"/v1/{path}", json={"model": "scripted", "max_tokens": 50, **text})
            assert reply.status_code == status, reply.text
            assert path == "messages" or reply.json()["error"]["code"] == code
            assert refusal.message not in reply.text
            assert reply.headers.get("retry-after") == retry_after
            assert reply.headers["x-should-retry"] == "false"  # no client waits longer than a minute by itself


REFUSALS = [
    (Refusal(400, "This model's maximum context length is 4096 tokens"), 400, "context_length_exceeded", "context"),
    (Refusal(400, "filtered due to the content management policy"), 400, "content_filter", "content management policy"),
    (Refusal(400, "Invalid 'messages[0].content': unsupported image"), 400, "model_refused", "unsupported image"),
    (Refusal(422, "Extra inputs are not permitted"), 422, "model_refused", "Extra inputs"),
    (Refusal(413, "Request Entity Exceeds It"), 413, "model_refused", "Entity"),
    (Refusal(400, "no /etc/x at http://gpu.local:80/v1 of gpu-7.corp.example, me@corp"), 400, "model_refused", "no …"),
]


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_of_one_request_is_no_failure_of_its_server(client: Any, stream: bool):
    refusals, turns = [Refusal(400, "no")], said("BAD")["messages"]
    with serving_script(where_bad(lambda: raises(refusals[0]))) as upstream:
        gateway = client(models=scripted(upstream.url))
        ask(gateway, model="scripted", messages=turns)  # after it the server is probed once more
        bodies = {"completions": {"prompt": "BAD"}, "messages": {"messages": turns}, "responses": {"input": "BAD"}}
        for refusal, status, code, word in REFUSALS:
            refusals[0] = refusal
            for fields in ({}, {"tts": {"strategy": "best_of_n(n=3) | majority"}}):
                reply = ask(gateway, model="scripted", messages=turns, stream=stream, **fields)
                message = refused(reply, status, None, code)
                assert word in message
                assert not any(private in message for private in ("/etc", "gpu", "corp", upstream.url))
            for path, body in bodies.items():
                reply = gateway.post(
                    f"/v1/{path}", json={"model": "scripted", "max_tokens": 9, "stream": stream, **body}
                )
                # clients of Responses look for a full context in the stream
                in_stream = stream and path == "responses" and code == "context_length_exceeded"
                assert reply.status_code == (200 if in_stream else status), reply.text
                assert not in_stream or "response.failed" in reply.text
        assert gateway.get("/ready").json()["working"] == 1
        assert ask(gateway, model="scripted").status_code == 200


def test_a_reply_that_a_content_filter_withheld_is_a_refusal(client: Any):
    with serving_script(where_bad(lambda: {"content": "", "finish": "content_filter"})) as upstream:
        gateway = client(models=scripted(upstream.url))
        refused(ask(gateway, model="scripted", **said("BAD")), 400, None, "content_filter")
        assert gateway.get("/ready").status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize("status", [401, 403, 404, 500])
def test_a_failure_of_a_server_is_not_taken_for_a_refusal(client: Any, status: int):
    refusal = Refusal(status, "filtered by the content policy")
    with serving_script(where_bad(lambda: raises(refusal))) as upstream:
        gateway = client(models=scripted(upstream.url, options={"tries": 1}))
        refused(ask(gateway, model="scripted", **said("BAD")), 502, None, "model_failed")
        assert gateway.get("/ready").status_code == 503
