"""Reads of the engine that are under way when a search is cancelled are computed to their end, and booked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.contracts.verifier_contract import Do
from tests.support import pair
from tests.support.pair import home  # noqa: F401 - a fixture
from tests.support.runs import Solved, check_books, make_run, solve_runs
from tts.search.ends import Tokens
from tts.search.search import Search
from tts.types import Trajectory
from tts.verifiers.heads import ProcessVerifier

pytest.importorskip("torch", reason="the engine runs on torch")
pytest.importorskip("transformers", reason="the pair's files are made by it")
pytest.importorskip("numba", reason="the engine's kernels are compiled by numba")

PROBLEM = "3 + 4 - 2 + 9"


async def _open(search: Search, ts: Sequence[Trajectory]) -> None:
    await search.open(prompt="sea")


async def _fork(search: Search, ts: Sequence[Trajectory]) -> None:
    await search.fork(ts[0], 2)


async def _extend(search: Search, ts: Sequence[Trajectory]) -> None:
    await search.extend(ts, "so")


async def _ask(search: Search, ts: Sequence[Trajectory]) -> None:
    await search.ask(ts, "s?", ["y", "n"])


async def _score(search: Search, ts: Sequence[Trajectory]) -> None:
    await search.score(ts)


@pytest.mark.parametrize("read", [_open, _fork, _extend, _ask, _score])
def test_a_read_that_is_under_way_when_the_search_is_cancelled_is_booked(
    read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = pair.shared_engine()
    runners = [engine.runner, engine.reward_models["process"].runner]

    async def run() -> Solved:
        loop = asyncio.get_running_loop()
        jobs: list[asyncio.Task[Any]] = []

        def cancels(add: Callable[[Any], None]) -> Callable[[Any], None]:
            def added(job: Any) -> None:  # in the engine's thread, before anything is computed
                loop.call_soon_threadsafe(jobs[0].cancel)
                add(job)

            return added

        async def check(search: Search) -> None:
            [ts] = await search.expand([search.root], 2, Tokens(6))
            for runner in runners:
                monkeypatch.setattr(runner, "add_prefill", cancels(runner.add_prefill))
            if (job := asyncio.current_task()) is not None:
                jobs.append(job)
            await read(search, ts)

        made = make_run(PROBLEM, 10**4, Do(check=check), engine, verifiers=ProcessVerifier())
        (end,) = await solve_runs([made])
        while any(runner.busy for runner in runners):
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)  # for what the engine's thread has delivered
        return end

    before = engine.counters.prompt_tokens + engine.counters.generated_tokens
    end = asyncio.run(run())
    assert end.search is not None
    assert end.solution.stopped_by == "interrupted"
    check_books(end.search)
    total = end.search.account.ledger.total()
    assert (
        engine.counters.prompt_tokens + engine.counters.generated_tokens - before == total.prompt_tokens + total.tokens
    )
    assert len(end.search.account.ledger.calls) == 3
    assert not engine._states
    assert not engine._prompts
