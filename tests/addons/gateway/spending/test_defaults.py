"""Requests that name no budget, and problems that a model does not read."""

from __future__ import annotations

import pytest

from tests.addons.gateway.asking import ask, refused
from tts.models.record import ModelRecord
from tts.search.plan import parse
from tts_addons.gateway.config import GatewayLimits, GatewayModel
from tts_addons.gateway.spending.defaults import default_budget

VOTE = "best_of_n(n=8) | majority"


@pytest.mark.parametrize(
    ("strategy", "max_tokens", "record", "settings", "tokens"),
    [
        (VOTE, 3000, {}, {}, 24_000),
        ("single", 3000, {}, {}, 3000),
        (VOTE, None, {"expected_tokens": 500}, {}, 16_000),
        (VOTE, None, {}, {"expected_tokens": 200}, 6400),
        (VOTE, None, {"context": 8192}, {}, 16_384),
        (VOTE, None, {}, {}, 32_768),
        (VOTE, 10, {}, {}, 2000),
        (VOTE, 90_000, {}, {}, 100_000),
        ("best_of_n(n=8) | weighted", 1000, {}, {}, 16_000),
        (None, 4000, {}, {}, 8000),
    ],
)
def test_a_budget_pays_each_answer_in_full(strategy, max_tokens, record, settings, tokens):
    plan = None if strategy is None else parse(strategy)
    budget = default_budget(
        GatewayModel(model="toy", **settings),
        ModelRecord(name="m", backend="toy", **record),
        plan,
        max_tokens,
        GatewayLimits(),
    )
    assert budget.limits == {"tokens": tokens}


def test_a_key_may_spend_the_default_budget():
    limits = GatewayLimits(client_tokens=5000)
    assert default_budget(
        GatewayModel(model="toy"), ModelRecord(name="m", backend="toy"), parse(VOTE), None, limits
    ).limits == {"tokens": 5000}


def test_the_request_and_the_catalogue_have_it(client):
    gateway = client(models={"toy": {"strategy": VOTE}})
    assert ask(gateway, max_tokens=1000).json()["tts"]["budget"] == {"tokens": 8000}
    assert gateway.get("/v1/models/toy").json()["tts"]["budget"] == ask(gateway).json()["tts"]["budget"]["tokens"]


TURNS = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "3 + 4"}]


@pytest.mark.parametrize("messages", [TURNS, [{"role": "user", "content": "hello"}]])
@pytest.mark.parametrize("stream", [False, True])
def test_what_a_model_of_sums_does_not_read_is_refused_in_words_for_http(client, messages, stream):
    gateway = client(models={"pocket": {}})
    reply = gateway.post("/v1/chat/completions", json={"model": "pocket", "messages": messages, "stream": stream})
    message = refused(reply, 400, "messages", "invalid_value")
    assert "--model" not in message
    assert "/v1/models" in message
    told = gateway.post("/v1/responses", json={"model": "pocket", "input": messages}).json()["error"]
    assert told["param"] == "input"
