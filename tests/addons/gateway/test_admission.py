"""Which search runs next."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("starlette", reason="the extra serve is not installed")

from tts_addons.gateway.admission import Admission
from tts_addons.gateway.bodies import ByteShares
from tts_addons.gateway.config import GatewayLimits
from tts_addons.gateway.failures import ApiError


def test_a_client_with_one_request_does_not_wait_for_one_with_many():
    async def run() -> list[str]:
        admission, order = Admission(GatewayLimits(searches=2), lambda: 0.0), list[str]()

        async def search(client: str) -> None:
            async with admission.place(client):
                order.append(client)
                await asyncio.sleep(0)

        await asyncio.gather(*(search("many") for _ in range(200)), search("one"), search("other"))
        assert not admission.running
        assert not admission.waiting
        return order

    order = asyncio.run(run())
    assert len(order) == 202
    assert order.index("one") < 5
    assert order.index("other") < 5


def test_those_who_give_up_waiting_leave_no_trace():
    async def run() -> None:
        admission = Admission(GatewayLimits(searches=1), lambda: 0.0)
        held = asyncio.Event()

        async def search() -> None:
            async with admission.place("a"):
                await held.wait()

        tasks = [asyncio.create_task(search()) for _ in range(4)]
        await asyncio.sleep(0)
        assert (admission.running.total(), admission.waiting) == (1, 3)
        tasks[2].cancel()
        tasks[0].cancel()  # its place goes to the next, which is cancelled at the same moment
        tasks[1].cancel()
        await asyncio.wait(tasks[:3])
        held.set()
        await tasks[3]
        assert (admission.running.total(), admission.waiting) == (0, 0)

    asyncio.run(run())


def test_those_who_have_a_place_or_wait_are_counted_by_client_until_they_give_up():
    async def run() -> None:
        admission = Admission(GatewayLimits(searches=1), lambda: 0.0)
        held = asyncio.Event()

        async def search(client: str) -> None:
            async with admission.place(client):
                await held.wait()

        tasks = [asyncio.create_task(search(client)) for client in "aaba"]
        await asyncio.sleep(0)
        assert admission.count_by_client() == {"a": 3, "b": 1}
        tasks[2].cancel()
        await asyncio.wait(tasks[2:3])
        assert (admission.count_by_client(), admission.waiting) == ({"a": 3}, 2)
        held.set()
        await asyncio.wait(tasks)
        assert not admission.count_by_client()

    asyncio.run(run())


def test_a_full_queue_says_when_to_come_back():
    admission = Admission(GatewayLimits(searches=2, queue=1), lambda: 0.0)
    admission.refuse_if_full(2, 2)
    admission.refuse_if_full(3, 0)  # others fill it: this client has nothing there
    with pytest.raises(ApiError):
        admission.refuse_if_full(4, 0)
    with pytest.raises(ApiError) as refusal:
        admission.refuse_if_full(3, 1)
    assert refusal.value.status == 429
    headers = refusal.value.headers()
    assert headers["x-should-retry"] == "true"
    assert int(headers["retry-after"]) >= 1


def test_a_place_that_is_given_to_one_who_gives_up_at_that_moment_goes_on_to_the_next():
    async def run() -> None:
        admission, held = Admission(GatewayLimits(searches=1), lambda: 0.0), asyncio.Event()
        tasks: list[asyncio.Task[None]] = []

        async def first() -> None:
            async with admission.place("a"):
                await held.wait()
            tasks[1].cancel()  # it has the place by now, and does not know it yet

        async def search() -> None:
            async with admission.place("a"):
                await asyncio.sleep(0)

        tasks += [asyncio.create_task(one) for one in (first(), search(), search())]
        await asyncio.sleep(0)
        held.set()
        await asyncio.wait(tasks)
        assert [task.cancelled() for task in tasks] == [False, True, False]
        assert not admission.count_by_client()

    asyncio.run(run())


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 15), st.booleans()), max_size=20))
@settings(deadline=None)
def test_large_bodies_of_a_key_have_bounded_bytes_under_work_and_another_key_does_not_wait(
    asked: list[tuple[str, int, bool]],
):
    async def main() -> None:
        shares, held, frees = ByteShares(10), Counter[str](), dict[int, Any]()

        async def work(place: int, owner: str, size: int) -> None:
            frees[place] = await shares.hold(owner, size)
            held[owner] += min(size, 10)
            assert held[owner] <= 10

        tasks = [asyncio.create_task(work(place, owner, size)) for place, (owner, size, _) in enumerate(asked)]
        for task, (_owner, _size, leaves) in zip(tasks, asked, strict=True):
            await asyncio.sleep(0)
            if leaves and not task.done():
                task.cancel()
        for owner in "ab":  # whatever the other key does, the first that waits has come
            came = [place for place in frees if asked[place][0] == owner]
            waits = [place for place, one in enumerate(tasks) if asked[place][0] == owner and not one.cancelled()]
            assert bool(came) == bool(waits)
        while frees:
            place, free = frees.popitem()
            held[asked[place][0]] -= min(asked[place][1], 10)
            free()
            for _ in range(len(tasks) + 2):
                await asyncio.sleep(0)
        assert all(task.done() for task in tasks)
        assert not shares._held

    asyncio.run(main())
