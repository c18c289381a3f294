"""A search as an async iterator, and many problems awaited."""

from __future__ import annotations

import asyncio

import pytest

import tts
from tests.support.guard import LIMIT_S
from tts.errors import ConfigError


def test_events_have_the_texts_of_new_candidates_and_the_last_one_the_solution() -> None:
    async def events() -> list:
        return [event async for event in tts.stream("3 + 4 - 2", 400, model="toy", strategy="best_of_n(n=9) | majority")]

    seen = asyncio.run(events())
    texts = [text for event in seen for text in event.texts]
    *before, last = seen
    assert all(event.solution is None for event in before)
    assert sorted(texts) == sorted(c.trajectory.full_text for c in last.solution.candidates)
    assert [event.candidates for event in seen] == sorted(event.candidates for event in seen)
    assert last.solution.answer == tts.solve("3 + 4 - 2", 400, model="toy", strategy="best_of_n(n=9) | majority").answer


def test_what_leaves_early_cancels_the_search() -> None:
    begun, cancelled = [], []

    async def slow(ask: tts.Ask) -> str:
        begun.append(ask.seed)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(ask.seed)
            raise
        return "A: 1"

    async def first() -> None:
        stream = tts.stream("1 + 1", tts.Budget(samples=50), backend=slow, strategy="best_of_n", task="arithmetic")
        async for _ in stream:  # the prompt was opened
            break
        while not begun:
            await asyncio.sleep(0.001)
        await stream.aclose()
        while not cancelled:
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(first(), LIMIT_S))
    assert cancelled


def test_a_mistake_is_raised_to_who_iterates() -> None:
    async def events() -> None:
        async for _ in tts.stream("1 + 1", 100, model="toy", verifier="checker", strategy="best_of_n | best"):
            raise AssertionError("nothing may be spent")

    with pytest.raises(ConfigError, match="needs permission"):
        asyncio.run(events())


def test_many_problems_are_awaited_as_they_are_solved() -> None:
    problems = ["1 + 2", "2 + 3 - 1", ""]
    awaited = asyncio.run(tts.asolve_many(problems, each=200, model="toy", strategy="best_of_n(n=3) | majority"))
    plain = tts.solve_many(problems, each=200, model="toy", strategy="best_of_n(n=3) | majority")
    assert [(s.answer, s.usage.tokens) for s in awaited] == [(s.answer, s.usage.tokens) for s in plain]
    assert awaited[2].error is not None
    assert asyncio.run(tts.asolve_many([], each=200, model="toy")) == []


def test_the_callers_own_listener_hears_the_events_as_well() -> None:
    heard: list[tts.Event] = []

    async def events() -> list[tts.Event]:
        return [event async for event in tts.stream("3 + 4 - 2", 400, model="toy", strategy="best_of_n(n=9)", on_event=heard.append)]

    *seen, _ = asyncio.run(events())
    assert seen == heard
    assert all(event.nodes is not None for event in heard)


def test_many_that_are_cancelled_cancel_every_search() -> None:
    begun, cancelled = [], []

    async def slow(ask: tts.Ask) -> str:
        begun.append(ask.seed)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(ask.seed)
            raise
        return "A: 1"

    async def main() -> None:
        task = asyncio.ensure_future(tts.asolve_many(["1 + 1", "2 + 2"], each=90, backend=slow, strategy="single", task="arithmetic"))
        while len(begun) < 2:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while len(cancelled) < 2:
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(main(), LIMIT_S))
    assert sorted(cancelled) == sorted(begun)
