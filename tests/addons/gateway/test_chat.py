"""A chat request is a search: what comes back, and what it cost."""

from __future__ import annotations

import pytest

import tts
from tests.addons.gateway.asking import VOTE, ask


def test_a_reply_is_what_solve_gives_with_the_whole_bill(client):
    answered = ask(client(), seed=7)
    reply, solution = answered.json(), tts.solve("3 + 4 - 2", 2000, model="toy", strategy=VOTE, seed=7)
    (choice,) = reply["choices"]
    assert choice["message"] == {"role": "assistant", "refusal": None, "content": solution.text}
    assert choice["finish_reason"] == "stop"
    told = reply["tts"]
    assert (told["answer"], told["confidence"], told["strategy"]) == (solution.answer, solution.confidence, VOTE)
    usage, spent = reply["usage"], told["usage"]
    tokens = spent["generated_tokens"] + spent["cancelled_tokens"] + spent["verifier_tokens"]
    winner = solution.candidates[0].trajectory.num_tokens
    assert tokens == solution.usage.tokens > winner
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (solution.trace.nodes[0].tokens, winner)
    assert usage["total_tokens"] == usage["prompt_tokens"] + winner
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 0
    written = sum(row.get("generated_tokens", 0) for row in told["ledger"])
    assert written == spent["generated_tokens"] == solution.usage.generated_tokens
    assert int(answered.headers["x-tts-tokens"]) == tokens
    assert float(answered.headers["x-tts-seconds"]) == spent["seconds"]
    assert "x-ratelimit-limit-tokens" not in answered.headers  # this key has no limit


def test_a_seed_is_drawn_and_reported(client):
    gateway = client()
    first, second = ask(gateway).json()["tts"]["seed"], ask(gateway).json()["tts"]["seed"]
    assert first != second
    assert ask(gateway, seed=first).json()["tts"]["seed"] == first


def test_presets_are_models(client):
    gateway = client()
    assert [one["id"] for one in gateway.get("/v1/models").json()["data"]] == ["toy", "toy:single"]
    assert gateway.get("/v1/models/toy:single").json()["tts"] == {"strategy": "single", "budget": 2000}
    reply = ask(gateway, model="toy:single").json()
    assert (reply["model"], reply["tts"]["strategy"], reply["tts"]["candidates"]) == (
        "toy:single",
        "single | majority",
        1,
    )


@pytest.mark.slow
def test_the_pair_answers(client):
    gateway = client(models={"pocket": {"strategy": "best_of_n(n=4) | weighted", "verifiers": "process"}})
    question = [{"role": "user", "content": "What is 12 + 7 * 3?"}]
    reply = gateway.post("/v1/chat/completions", json={"model": "pocket", "messages": question, "seed": 0}).json()
    solution = tts.solve("What is 12 + 7 * 3?", 2000, strategy="best_of_n(n=4) | weighted", verifier="process", seed=0)
    assert reply["choices"][0]["message"]["content"] == solution.text
    assert reply["tts"]["usage"]["verifier_tokens"] == solution.usage.verifier_tokens > 0


def test_headers_have_the_limit_of_the_key(client):
    reply = ask(client(limits={"client_tokens": 5000, "client_hours": 2}), seed=7)
    assert reply.headers["x-ratelimit-limit-tokens"] == "5000"
    assert int(reply.headers["x-ratelimit-remaining-tokens"]) == 5000 - int(reply.headers["x-tts-tokens"])
    assert 0 < float(reply.headers["x-ratelimit-reset-tokens"].removesuffix("s")) <= 7200


def test_answers_of_several_choices_are_counted_together(client):
    reply = ask(client(), seed=7, n=3).json()
    ranked = tts.solve("3 + 4 - 2", 2000, model="toy", strategy=VOTE, seed=7).candidates[:3]
    assert reply["usage"]["completion_tokens"] == sum(one.trajectory.num_tokens for one in ranked)
