"""Many requests at once, some of them bad and some of them left: the books are equal, and nothing stays behind."""

from __future__ import annotations

import asyncio
import gc
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.addons.gateway.asking import VOTE, serving, spent_tokens
from tests.support.guard import LIMIT_S
from tts import randomness

BUDGET = 300
BAD = [b"{", b"[]", b"\xff", b'{"model": "toy"}', b'{"model": "toy", "messages": [], "tts": {"x": 1}}']


@pytest.mark.parametrize("requests", [40, pytest.param(1000, marks=pytest.mark.slow)])
def test_books_are_equal_and_nothing_stays_behind(requests):
    models = {"toy": {"strategy": VOTE, "budget": BUDGET}}
    with serving(
        models=models, limits={"searches": 16, "queue": 64, "tokens": BUDGET}, linger_s=0.0, kept=20
    ) as server:
        gateway = server.config.app.state.gateway
        port = server.servers[0].sockets[0].getsockname()[1]
        ends: Counter[str] = Counter()
        asyncio.run(load(port, requests, ends))
        settle(gateway)
        before, tasks = resident_kib(), num_tasks(server)
        asyncio.run(load(port, requests, ends))
        settle(gateway)
        grown = resident_kib() - before
        assert num_tasks(server) <= tasks
        bad, left = 2 * (requests // 20), 2 * (requests // 10)
        assert ends["400"] == bad
        assert ends["left"] == left
        assert ends["200"] == 2 * requests - bad - left
        (servers,) = gateway.offers.servers.values()
        counted = gateway.cache.backend(servers.records[0]["policy"]).counters
        booked = {
            dict(labels)["kind"]: count
            for (name, labels), count in gateway.metrics._counts.items()
            if name == "tts_tokens_total"
        }
        assert booked["generated"] + booked["cancelled"] == counted.generated_tokens > 0
        assert booked["generated"] + booked["cancelled"] == spent_tokens(gateway)
        assert not gateway.books.held
        assert (gateway.admission.running.total(), gateway.admission.waiting) == (0, 0)
        assert not gateway._by_key
        assert grown < 30_000, f"{grown} KiB more after as many requests again"


async def load(port: int, requests: int, ends: Counter[str]) -> None:
    """Send requests from 64 connections at once: one in 20 is bad, one in 10 leaves; count how each ended."""
    numbers = iter(range(requests))

    async def connection() -> None:
        for number in numbers:
            async with asyncio.timeout(LIMIT_S):
                ends[await one(port, number)] += 1

    await asyncio.gather(*(connection() for _ in range(64)))


async def one(port: int, number: int) -> str:
    """Send a request on a connection of its own; returns the status, or that it left."""
    body = BAD[number // 20 % len(BAD)] if number % 20 == 7 else asked(number)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: "
        f"application/json\r\ncontent-length: {len(body)}\r\n"
    )
    writer.write(head.encode() + b"connection: close\r\n\r\n" + body)
    await writer.drain()
    try:
        if number % 10 == 3:
            await asyncio.sleep(randomness.hash64("leave", number) % 20 / 1000)  # anywhere in the search
            return "left"
        reply = await reader.read()
    finally:
        writer.close()
    status, _, content = reply.partition(b"\r\n")
    if b" 200 " in status and number % 2:
        told = json.loads(content.partition(b"\r\n\r\n")[2])
        assert told["usage"]["completion_tokens"] <= BUDGET
    return status.split()[1].decode()


def asked(number: int) -> bytes:
    """A request; every second one is streamed."""
    question = [{"role": "user", "content": f"{number % 9} + 4 - 2"}]
    return json.dumps({"model": "toy", "messages": question, "seed": number, "stream": number % 2 == 0}).encode()


def settle(gateway: Any) -> None:
    """Wait until all searches are over, and those that nobody waits for have been noticed."""

    async def wait() -> None:
        async with asyncio.timeout(LIMIT_S):
            while gateway.running or gateway._writing:
                await asyncio.sleep(0.01)

    asyncio.run(wait())
    gc.collect()


def num_tasks(server: Any) -> int:
    """Tasks in the server's loop."""

    async def count() -> int:
        return len(asyncio.all_tasks())

    return asyncio.run_coroutine_threadsafe(count(), server.loop).result(LIMIT_S)


def resident_kib() -> int:
    """Memory of this process in RAM."""
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("this system has no /proc")
    return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmRSS"))
