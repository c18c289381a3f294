"""What the workers of `tts serve` share: counts, running searches, responses and accounts."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("uvicorn", reason="the extra serve is not installed")
pytest.importorskip("yaml", reason="the extra serve is not installed")

from tests.addons.gateway.asking import QUESTION, bearer, function_models, write_keys
from tests.addons.gateway.wire.started import clients, server
from tests.support.guard import LIMIT_S, wait_for
from tts.backends.function import Answer, Ask

MODELS = function_models("process", "forever", "texts", "objects")
ANNA, BERT = bearer("anna"), bearer("bert")


@pytest.fixture(scope="module")
def workers(tmp_path_factory) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """Two clients, each connected to a worker of its own."""
    folder: Path = tmp_path_factory.mktemp("workers")
    keys = write_keys(folder, "anna", "bert")
    config = {"models": MODELS, "store": str(folder / "store"), "keys": keys, "operators": ["anna"]}
    with server(folder, config, "--workers", "2") as found, clients(found, 2, ANNA) as by_process:
        one, other = by_process.values()
        yield one, other


def running(client: httpx.Client) -> list[dict[str, Any]]:
    return [one for one in client.get("searches").json()["data"] if one["state"] != "done"]


def test_a_search_that_another_worker_runs_is_listed_and_ended(workers):
    one, other = workers
    body = {"model": "forever", "messages": QUESTION, "stream": True}
    with one.stream("POST", "chat/completions", json=body) as stream:
        (entry,) = wait_for(lambda: running(other))
        assert (entry["model"], entry["question"], entry["answer"]) == ("forever", QUESTION[0]["content"], None)
        number = f"searches/{entry['id']}"
        assert other.delete(number, headers=BERT).status_code == 404  # another key
        assert other.get("searches", headers=BERT).json()["data"] == []
        with other.stream("GET", f"{number}/events") as events:
            assert other.delete(number).json() == {"id": entry["id"], "object": "search", "state": "cancelled"}
            assert '"answer": null}' in "".join(events.iter_text()).rpartition("event: end")[2]
        assert '"code":"cancelled"' in "".join(stream.iter_text())
    assert running(one) == []
    assert other.delete(number).status_code == 404


def test_a_response_that_another_worker_runs_is_found_and_cancelled_by_its_key_alone(workers):
    one, other = workers
    body = {"model": "forever", "input": "3 + 4", "stream": True, "metadata": {"a": "b"}}
    with one.stream("POST", "responses", json=body) as stream:
        lines = stream.iter_lines()
        opening = json.loads(next(line for line in lines if line.startswith("data: ")).removeprefix("data: "))[
            "response"
        ]
        path = f"responses/{opening['id']}"
        assert other.get(path).json() == opening
        following = {"model": "texts", "input": "and?", "previous_response_id": opening["id"]}
        assert other.post("responses", json=following).json()["error"]["code"] == "in_progress"
        for reply in (other.get(path, headers=BERT), other.post(f"{path}/cancel", json={}, headers=BERT)):
            assert (reply.status_code, reply.json()["error"]["code"]) == (404, "response_not_found")
        assert (
            other.post("responses", json=following, headers=BERT).json()["error"]["code"]
            == "previous_response_not_found"
        )
        assert other.post(f"{path}/cancel", json={}).json() == {**opening, "status": "cancelled"}
        (failed,) = [line for line in lines if '"type":"response.failed"' in line.replace(" ", "")]
        assert json.loads(failed.removeprefix("data: "))["response"]["status"] == "cancelled"
    for client in workers:
        assert client.get(path).json() == {**opening, "status": "cancelled"}


def test_a_response_is_continued_and_dropped_at_another_worker_by_its_key_alone(workers):
    one, other = workers
    first = one.post("responses", json={"model": "texts", "input": "How is the weather?"}).json()
    path = f"responses/{first['id']}"
    assert other.get(path).json() == first
    following = {"model": "texts", "input": "And tomorrow?", "previous_response_id": first["id"]}
    for client in workers:
        refused = client.post("responses", json=following, headers=BERT)
        assert (refused.status_code, refused.json()["error"]["param"]) == (404, "previous_response_id")
        assert client.get(path, headers=BERT).status_code == client.delete(path, headers=BERT).status_code == 404
    second = other.post("responses", json=following).json()
    items = one.get(f"responses/{second['id']}/input_items").json()["data"]
    assert [item["content"][0]["text"] for item in reversed(items)] == [
        "How is the weather?",
        "It is sunny.",
        "And tomorrow?",
    ]
    assert other.delete(path).json()["deleted"]
    assert one.get(path).status_code == 404


@pytest.mark.slow
def test_any_worker_shows_the_counts_of_all(workers):
    def count(client: httpx.Client) -> int:
        lines = client.get(str(client.base_url).replace("/v1/", "/metrics")).text.splitlines()
        return sum(
            int(line.rpartition(" ")[2]) for line in lines if line.startswith('tts_searches_total{model="objects"')
        )

    for client, times in zip(workers, (2, 3), strict=True):
        for _ in range(times):
            client.post("chat/completions", json={"model": "objects", "messages": QUESTION})
    for client in workers:
        wait_for(lambda client=client: count(client) == 5)


async def ten(ask: Ask) -> Answer:
    """Write ten tokens."""
    await asyncio.sleep(0.02)
    return Answer("A: 5", tokens=10)


async def ask_until_answered(http: httpx.AsyncClient, url: str) -> tuple[int, str]:
    """Ask for ten tokens, again where the worker is killed meanwhile; returns the status and the code of a refusal."""
    body = {"model": "ten", "messages": QUESTION, "tts": {"account": "crowd"}}
    while True:
        try:
            reply = await http.post(f"{url}/v1/chat/completions", json=body)
        except httpx.TransportError:
            continue
        return reply.status_code, "" if reply.status_code == 200 else reply.json()["error"]["code"]


@pytest.mark.slow
@pytest.mark.parametrize("kills", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_workers_serve_what_an_account_pays_and_lose_nothing_where_one_is_killed(tmp_path, count, kills):
    """Requests of ten tokens on an account that pays two in five. What a killed worker held counts as spent, and a
    restart knows it all.
    """
    paid = count * 4 // 10
    models = {
        "ten": {"backend": "tests.addons.gateway.process.test_workers:ten", "strategy": "single", "budget": 10},
        "process": MODELS["process"],
    }
    limits = {"searches": 64, "queue": 2 * count}
    accounts = {"crowd": {"budget": 10 * paid, "keys": ["anyone"]}}
    config = {"models": models, "store": str(tmp_path / "store"), "limits": limits, "accounts": accounts}

    async def crowd(url: str, killed: int | None) -> Counter[tuple[int, str]]:
        async with httpx.AsyncClient(limits=httpx.Limits(max_connections=count), timeout=LIMIT_S) as http:
            tasks = [asyncio.create_task(ask_until_answered(http, url)) for _ in range(count)]
            while sum(task.done() for task in tasks) < count // 10:
                await asyncio.sleep(0.001)
            if killed is not None:
                os.kill(killed, signal.SIGKILL)
            return Counter(await asyncio.gather(*tasks))

    with server(tmp_path, config, "--workers", "2") as found:
        with clients(found, 2) as by_process:
            killed = min(by_process)
        ends = asyncio.run(crowd(found.url, killed if kills else None))
        served = ends.pop((200, ""))
        assert ends == {(429, "insufficient_quota"): count - served}
        assert served <= paid if kills else served == paid
    with server(tmp_path, config) as found:
        told = httpx.get(f"{found.url}/v1/accounts/crowd", timeout=LIMIT_S).json()
        assert (told["spent"]["tokens"], told["held"], told["left"]) == (10 * paid, {}, {"tokens": 0})
