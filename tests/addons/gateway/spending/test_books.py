"""What a client may spend: over time, at once, in several workers, and after one was killed."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress

import httpx
import numpy as np
import pytest

from tests.addons.gateway.asking import QUESTION, serving, spent_tokens, url_of
from tests.support.guard import LIMIT_S
from tts.backends.function import Answer, Ask
from tts_addons.gateway.failures import ApiError
from tts_addons.gateway.spending.accounts import SharedAccount
from tts_addons.gateway.spending.books import DEAD_S, Part, RequestEntry, SharedBooks

HUNDRED = {name: SharedAccount(name, {"tokens": 100}, 1, label="limits.client_tokens") for name in "ab"}
NUMBERS = itertools.count()

pytestmark = pytest.mark.usefixtures("closing_files")


def reserve(books: SharedBooks, account: str, tokens: int) -> Part:
    entry = RequestEntry(name=str(next(NUMBERS)), owner="owner", client=account, account=HUNDRED[account])
    return books.reserve(entry, {"tokens": tokens})


def spent(books: SharedBooks, account: str) -> int:
    return books.spending(HUNDRED[account]).get("tokens", 0)


class Clock:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_what_is_held_waits_and_what_is_spent_is_refused_until_a_period_ends():
    clock = Clock()
    books = SharedBooks(clock)
    first = reserve(books, "a", 60)
    assert reserve(books, "a", 50).is_held is False
    assert reserve(books, "b", 100).is_held
    first.close({"tokens": 10})
    second = reserve(books, "a", 90)
    second.close({"tokens": 90})
    with pytest.raises(ApiError, match="0 are left") as refusal:
        reserve(books, "a", 1)
    assert refusal.value.code == "insufficient_quota"
    clock.seconds = 3600.0
    assert reserve(books, "a", 100).is_held


def test_those_that_wait_get_theirs_in_order_and_who_gives_up_is_forgotten():
    async def run() -> None:
        books, served = SharedBooks(Clock()), list[int]()
        first = reserve(books, "a", 100)

        async def ask(place: int) -> None:
            hold = reserve(books, "a", 20)
            await hold.wait()
            served.append(place)
            await asyncio.sleep(0)
            hold.close({"tokens": 10})

        tasks = [asyncio.create_task(ask(place)) for place in range(5)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        tasks[3].cancel()
        await asyncio.wait([tasks[0], tasks[3]])
        assert served == []
        first.close({"tokens": 60})
        await asyncio.wait(tasks)
        assert (served, spent(books, "a"), books.held) == ([1, 2, 4], 90, {})

    asyncio.run(run())


def test_workers_share_totals_which_a_restart_does_not_forget(tmp_path):
    clock, path = Clock(), str(tmp_path / "store.sqlite")
    one, other = SharedBooks(clock, path), SharedBooks(clock, path)
    hold = reserve(one, "a", 60)
    assert reserve(other, "a", 60).is_held is False
    hold.close({"tokens": 50})
    with pytest.raises(ApiError, match="50 are left"):
        reserve(other, "a", 60)
    one.close()
    other.close()
    assert spent(SharedBooks(clock, path), "a") == 50


def test_what_a_dead_worker_held_counts_as_spent(tmp_path):
    clock, path = Clock(), str(tmp_path / "store.sqlite")
    dead, alive = SharedBooks(clock, path), SharedBooks(clock, path)
    hold = reserve(dead, "a", 60)
    clock.seconds = DEAD_S + 1
    alive.show_life({}, {})
    assert spent(alive, "a") == 60
    with pytest.raises(ApiError, match="40 are left"):
        reserve(alive, "a", 41)
    hold.close({"tokens": 10})  # it was not dead, only late: all of it is booked already
    assert spent(alive, "a") == 60


HOLDS = """
import sys, time
from tests.addons.gateway.spending.test_books import reserve
from tts_addons.gateway.spending.books import SharedBooks
books = SharedBooks(time.time, sys.argv[1])
reserve(books, "a", 30).close({"tokens": 25})
reserve(books, "a", 60)
print("held", flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_nothing_is_lost_where_a_worker_is_killed(tmp_path):
    path = str(tmp_path / "store.sqlite")
    with subprocess.Popen([sys.executable, "-c", HOLDS, path], stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"held\n"
        worker.kill()
    soon = SharedBooks(time.time, path)
    assert (spent(soon, "a"), reserve(soon, "a", 20).is_held) == (25, False)  # 60 are still held
    later = SharedBooks(lambda: time.time() + DEAD_S + 1, path)
    assert spent(later, "a") == 85


def test_a_worker_waits_for_what_another_holds(tmp_path):
    async def run() -> None:
        path = str(tmp_path / "store.sqlite")
        one, other = SharedBooks(Clock(), path), SharedBooks(Clock(), path)
        hold, waiting = reserve(one, "a", 60), reserve(other, "a", 60)
        task = asyncio.create_task(waiting.wait())
        await asyncio.sleep(0)
        assert not task.done()
        hold.close({"tokens": 20})
        await asyncio.wait_for(task, LIMIT_S)
        assert waiting.is_held

    asyncio.run(run())


@pytest.mark.parametrize("seed", range(4))
def test_no_limit_is_ever_passed(tmp_path, seed):
    """Three workers hold, spend, wait and are buried at random: what is spent and held never passes a limit, and no
    spend is lost.
    """
    draw, path, clock = np.random.default_rng(seed), str(tmp_path / "store"), Clock()
    workers = [SharedBooks(clock, path, name) for name in "abc"]
    account = SharedAccount("a", {"tokens": 200, "usd": 10**19})
    held: list[tuple[int, Part]] = []
    booked: Counter[str] = Counter()

    def check() -> None:
        spent, holds = workers[0].spending(account), workers[0].held_of(account)
        assert {unit: spent.get(unit, 0) for unit in account.limits} == {unit: booked[unit] for unit in account.limits}
        assert all(spent.get(unit, 0) + holds.get(unit, 0) <= limit for unit, limit in account.limits.items())

    for number in range(200):
        place = int(draw.integers(3))
        limits = {"tokens": int(draw.integers(1, 41)), "usd": int(draw.integers(1, 10**18))}
        if draw.random() < 0.5:
            with suppress(ApiError):
                part = workers[place].reserve(
                    RequestEntry(name=str(number), owner="o", client="c", account=account), limits
                )
                held += [(place, part)] if part.is_held else []
        elif held and draw.random() < 0.9:
            place, part = held.pop(int(draw.integers(len(held))))
            spent = {unit: int(draw.integers(limit // 4 + 1)) for unit, limit in part.amounts.items()}
            part.close(spent)
            booked.update(spent)
        elif number % 7 == 0:
            workers[(place + 1) % 3].bury("abc"[place])
            for _, part in (one for one in held if one[0] == place):
                booked.update(part.amounts)
                part.close({"tokens": 1})  # it was not dead
            held = [one for one in held if one[0] != place]
        check()
    assert booked["tokens"] > 100


async def ten(ask: Ask) -> Answer:
    """Write ten tokens."""
    await asyncio.sleep(0.01)
    return Answer("A: 5", tokens=10)


@pytest.mark.slow
@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_of_a_crowd_as_many_are_served_as_the_key_can_pay(count):
    """Requests of ten tokens on a key that pays two in five of them: no request is refused for tokens that are only
    held.
    """
    models = {"ten": {"backend": "tests.addons.gateway.spending.test_books:ten", "strategy": "single", "budget": 10}}
    paid = count * 4 // 10
    limits = {"client_tokens": 10 * paid, "searches": 64, "queue": 2 * count}

    async def crowd(url: str) -> Counter[int]:
        body = {"model": "ten", "messages": QUESTION}
        pool = httpx.Limits(max_connections=count)
        async with httpx.AsyncClient(limits=pool, timeout=LIMIT_S) as client:
            replies = await asyncio.gather(*(client.post(f"{url}/chat/completions", json=body) for _ in range(count)))
        refusals = [reply.json()["error"] for reply in replies if reply.status_code == 429]
        assert all("0 are left" in one["message"] for one in refusals)
        assert {one["code"] for one in refusals} == {"insufficient_quota"}
        return Counter(reply.status_code for reply in replies)

    with serving(models=models, limits=limits) as server:
        ends = asyncio.run(crowd(url_of(server)))
        books = server.config.app.state.gateway.books
        assert (ends, spent_tokens(server.config.app.state.gateway), books.held) == (
            {200: paid, 429: count - paid},
            10 * paid,
            {},
        )
