"""The queue in front of a backend: what joins a batch that runs, and what closing does to it. No clocks: threads meet
at events.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.guard import LIMIT_S
from tts.backends.base import Row, RowSet, SampleRequest, Sampling, StopCondition
from tts.backends.batching import BatchQueue, TurnQueue, search_turns
from tts.errors import EngineError


def job() -> RowSet:
    return RowSet(SampleRequest(None, (Row(1, 0, 1),), Sampling(), StopCondition()))


def fail(jobs: list[RowSet], failure: Exception) -> None:
    for rows in jobs:
        rows.fail(failure)


async def failure_of(rows: RowSet) -> Exception:
    with pytest.raises(EngineError) as raised:
        await asyncio.wait_for(rows.row(0), LIMIT_S)
    return raised.value


class Held:
    """An `execute` that waits in its thread until it is let go."""

    def __init__(self) -> None:
        self.started, self.go = threading.Event(), threading.Event()
        self.delivered: list[str] = []

    def __call__(self, _: BatchQueue, jobs: list[Any], deliver: Callable[..., None]) -> None:
        self.started.set()
        assert self.go.wait(LIMIT_S)
        deliver(self.delivered.append, "late")


@pytest.mark.parametrize("threaded", [True, False])
def test_closing_fails_pending_jobs_and_refuses_later_ones(threaded: bool) -> None:
    async def main() -> None:
        queue = BatchQueue(lambda _queue, jobs, deliver: None, fail, threaded=threaded)
        first, second = job(), job()
        queue.submit(first)
        queue.submit(second)
        queue.close()
        assert "closed" in str(await failure_of(first))
        assert "closed" in str(await failure_of(second))
        with pytest.raises(EngineError, match="closed"):
            queue.submit(job())
        queue.close()

    asyncio.run(main())


def test_closing_fails_jobs_under_way_at_once_and_loses_nothing_that_was_delivered() -> None:
    async def main() -> None:
        held = Held()
        queue = BatchQueue(held, fail, threaded=True)
        running, pending = job(), job()
        queue.submit(running)
        await asyncio.to_thread(held.started.wait, LIMIT_S)
        queue.submit(pending)
        queue.close()
        assert "closed" in str(await failure_of(running))
        assert "closed" in str(await failure_of(pending))
        held.go.set()
        assert queue._pool is not None
        await asyncio.to_thread(queue._pool.shutdown)
        await asyncio.sleep(0)
        assert held.delivered == ["late"]

    asyncio.run(main())


def test_a_batch_takes_what_is_submitted_while_it_runs_and_fails_with_it() -> None:
    async def main() -> None:
        held = Held()
        taken: list[list[Any]] = []

        def execute(queue: BatchQueue, jobs: list[Any], deliver: Callable[..., None]) -> None:
            held(queue, jobs, deliver)
            taken.extend((list(jobs), queue.take(lambda rows: rows.done), queue.take(lambda rows: rows.done)))
            raise ArithmeticError("broken")

        def broke(jobs: list[RowSet], failure: Exception) -> None:
            failed.append(jobs)
            fail(jobs, EngineError(str(failure)))

        failed: list[list[RowSet]] = []
        queue = BatchQueue(execute, broke, threaded=True)
        first, ended, later = job(), job(), job()
        queue.submit(first)
        queue.submit(ended)
        await asyncio.to_thread(held.started.wait, LIMIT_S)
        ended.fail(EngineError("needs nothing any more"))
        queue.submit(later)
        held.go.set()
        assert "broken" in str(await failure_of(first))
        assert "broken" in str(await failure_of(later))
        assert taken == [[first, ended], [later], []]
        assert failed == [[first, later]]
        queue.close()

    asyncio.run(main())


def test_a_batch_that_ends_its_worker_fails_its_jobs() -> None:
    def leave(_: BatchQueue, jobs: list[Any], deliver: Callable[..., None]) -> None:
        raise SystemExit

    async def main() -> None:
        queue = BatchQueue(leave, fail, threaded=True)
        rows = job()
        queue.submit(rows)
        assert "SystemExit" in str(await failure_of(rows))
        queue.close()

    asyncio.run(main())


def test_a_closed_queue_tells_its_batch_to_end() -> None:
    async def main() -> None:
        held, ended = Held(), threading.Event()

        def execute(queue: BatchQueue, jobs: list[Any], deliver: Callable[..., None]) -> None:
            held(queue, jobs, deliver)
            with pytest.raises(EngineError, match="closed"):
                queue.take(lambda rows: rows.done)
            ended.set()

        queue = BatchQueue(execute, fail, threaded=True)
        queue.submit(job())
        await asyncio.to_thread(held.started.wait, LIMIT_S)
        queue.close()
        held.go.set()
        assert await asyncio.to_thread(ended.wait, LIMIT_S)

    asyncio.run(main())


def test_a_queue_whose_loop_has_ended_keeps_no_job() -> None:
    held = Held()
    queue = BatchQueue(lambda _queue, jobs, deliver: held(_queue, jobs, lambda *args: None), fail, threaded=True)

    async def main() -> None:
        queue.submit(job())
        await asyncio.to_thread(held.started.wait, LIMIT_S)

    asyncio.run(main())
    held.go.set()
    assert queue._pool is not None
    queue._pool.shutdown()
    assert queue._running == []
    queue.close()


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6)), max_size=12))
def test_searches_take_turns_and_the_items_of_each_keep_their_order(added: list[tuple[int, int]]) -> None:
    queue = TurnQueue[tuple[int, int]]()
    of_search: dict[int, list[tuple[int, int]]] = {}
    for search, count in added:
        line = of_search.setdefault(search, [])
        items = [(search, len(line) + place) for place in range(count)]
        line += items
        queue.add(("search", search), items)
    taken = []
    while queue:
        taken.append(queue.take())
    for search, line in of_search.items():
        assert [item for item in taken if item[0] == search] == line
    for place, (_search, number) in enumerate(taken):  # nobody is served `number` times before a waiting one was
        before = [one for one, _ in taken[:place]]
        assert all(before.count(other) >= min(number, len(line)) for other, line in of_search.items())
    assert queue.clear() == []


def test_all_requests_of_a_search_share_its_turns() -> None:
    queue = TurnQueue[str]()
    with search_turns():
        for request in range(100):
            queue.add(request, ["wide"])
    with search_turns():
        queue.add("other", ["single"])
    queue.add("direct", ["direct"])
    assert [queue.take() for _ in range(4)] == ["wide", "single", "direct", "wide"]
