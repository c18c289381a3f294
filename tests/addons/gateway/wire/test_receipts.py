"""Each API's replies have the receipt of their search, and so has its trace in the store."""

from __future__ import annotations

import pytest

import tts
from tests.addons.gateway.asking import VOTE, ask, function_models, question

SUM = "3 + 4 - 2"
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
REQUESTS = question(SUM, model="toy", tts={"seed": 7})


@pytest.mark.parametrize("path", REQUESTS)
def test_replies_and_stored_traces_have_the_receipt(client, path):
    gateway = client()
    reply = gateway.post(path, json=REQUESTS[path]).json()
    told, expected = reply["tts"]["receipt"], tts.solve(SUM, 2000, model="toy", strategy=VOTE, seed=7).receipt()
    assert [(one["samples"], one["answer"], one["confidence"]) for one in told["parts"]] == [
        (one.samples, one.answer, one.confidence) for one in expected.parts
    ]
    assert [(one["role"], one["work"], one["tokens"]) for one in told["phases"]] == [
        (one.role, one.work, one.tokens) for one in expected.phases
    ]
    usage = reply["tts"]["usage"]
    assert (
        sum(one["tokens"] for one in told["phases"])
        == told["tokens"]
        == usage["generated_tokens"] + usage["cancelled_tokens"]
    )
    assert gateway.get(f"/v1/searches/{reply['tts']['trace']}/trace").json()["trace"]["receipt"] == told


def test_parts_are_not_known_where_answers_may_call_tools(client):
    gateway = client(models=function_models("proposals", strategy=VOTE))
    receipt = ask(gateway, model="proposals", tools=[TOOL], seed=7).json()["tts"]["receipt"]
    assert receipt["parts"] is None
    assert receipt["reason"] == "the choice between calls of tools and texts is made for all samples alone"
    assert receipt["phases"]
