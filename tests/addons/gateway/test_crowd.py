"""Many users of one gateway: searches at once, several servers of a model, retries and full queues."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.addons.gateway import parts
from tests.addons.gateway.asking import QUESTION, VOTE, function_models, refused, serving, url_of
from tests.backends.openai.server import ToyServer
from tests.backends.openai.server import serving as serving_model
from tests.support.guard import LIMIT_S
from tests.support.repeats import repeats
from tts_addons.gateway.offers import ModelServers

CROWDED = {"models": {"crowd": {"backend": "tests.addons.gateway.parts:CrowdBackend", "strategy": "single"}}}
FOREVER = {"models": function_models("forever")}


@pytest.fixture
def crowd() -> Iterator[None]:
    parts.ASKED.clear()
    parts.TOGETHER.clear()
    yield
    parts.ASKED.clear()


async def posted(url: str, count: int, **body: Any) -> list[httpx.Response]:
    """Send requests at once."""
    limits = httpx.Limits(max_connections=count)
    async with httpx.AsyncClient(limits=limits, timeout=LIMIT_S) as http:
        asked = (http.post(f"{url}/chat/completions", json={"messages": QUESTION, **body}) for _ in range(count))
        return await asyncio.gather(*asked)


@repeats(64, 256, "count")
def test_256_searches_run_at_once_on_one_backend(crowd, count, monkeypatch):
    monkeypatch.setattr(parts, "CROWD", count)
    with serving(**CROWDED) as server:  # each call of the model waits until all are under way
        replies = asyncio.run(posted(url_of(server), count, model="crowd"))
    assert [reply.status_code for reply in replies] == [200] * count


def test_a_search_goes_to_the_server_with_the_fewest():
    servers = ModelServers([{"policy": name} for name in "abc"])  # pyright: ignore[reportArgumentType]
    with servers.borrow() as first, servers.borrow() as second:
        with servers.borrow() as third:
            assert [one.records["policy"] for one in (first, second, third)] == ["a", "b", "c"]
        with servers.borrow() as again:
            assert again.records["policy"] == "c"


@pytest.mark.slow
def test_servers_of_one_model_share_its_searches():
    models = [ToyServer(prompts=("3 + 4 - 2",)), ToyServer(prompts=("3 + 4 - 2",))]
    with serving_model(models[0]) as one, serving_model(models[1]) as other:
        settings = {"models": {"toy": {"model": "toy", "url": [one, other], "task": "arithmetic", "strategy": VOTE}}}
        with serving(**settings) as server:
            replies = asyncio.run(posted(url_of(server), 8, model="toy"))
    assert {reply.json()["tts"]["answer"] is not None for reply in replies} == {True}
    assert all(any(call.whole for call in model.served) for model in models)


def test_a_full_queue_asks_to_come_back():
    with serving(**FOREVER, limits={"searches": 1, "queue": 1}) as server:
        gateway, url = server.config.app.state.gateway, url_of(server)
        threads = [threading.Thread(target=lambda: asyncio.run(posted(url, 1, model="forever"))) for _ in range(2)]
        for thread in threads:
            thread.start()
        while len(gateway.running) < 2:
            pass
        (reply,) = asyncio.run(posted(url, 1, model="forever"))
        refused(reply, 429, None, "queue_full")
        assert (reply.headers["x-should-retry"], int(reply.headers["retry-after"]) >= 1) == ("true", True)
        for one in list(gateway.running.values()):
            server.loop.call_soon_threadsafe(one.cancel, RuntimeError("enough"))
        for thread in threads:
            thread.join(LIMIT_S)


def test_a_retry_after_a_timeout_finds_its_search():
    with serving(**FOREVER, linger_s=LIMIT_S) as server:
        gateway, url = server.config.app.state.gateway, f"{url_of(server)}/chat/completions"
        body = {"model": "forever", "messages": QUESTION}
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(url, json=body, headers={"idempotency-key": "a"}, timeout=httpx.Timeout(LIMIT_S, read=0.5))
        while next(iter(gateway.running.values())).listeners:
            pass
        (search,) = gateway.running.values()
        again = threading.Thread(
            target=lambda: httpx.post(url, json=body, headers={"idempotency-key": "a"}, timeout=LIMIT_S)
        )
        again.start()
        while not search.listeners:
            pass
        assert [*gateway.running.values()] == [search]
        server.loop.call_soon_threadsafe(search.cancel, RuntimeError("enough"))
        again.join(LIMIT_S)


def test_an_idempotency_key_of_another_body_is_refused():
    with serving(**FOREVER) as server:
        gateway, url = server.config.app.state.gateway, f"{url_of(server)}/chat/completions"
        headers, body = {"idempotency-key": "a"}, {"model": "forever", "messages": QUESTION}
        first = threading.Thread(target=lambda: httpx.post(url, json=body, headers=headers, timeout=LIMIT_S))
        first.start()
        while not gateway.running:
            pass
        refused(httpx.post(url, json={**body, "seed": 3}, headers=headers), 409, None, "idempotency_key_reused")
        for one in list(gateway.running.values()):
            server.loop.call_soon_threadsafe(one.cancel, RuntimeError("enough"))
        first.join(LIMIT_S)
