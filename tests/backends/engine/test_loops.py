"""Event loops that end, threads that release, a collector that comes at any time, and processes that fork."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest

pytest.importorskip("torch", reason="the engine runs on torch")
pytest.importorskip("numba", reason="the engine's kernels are compiled by numba")

from tests.backends.engine.stepping import (
    emptied,
    engine,
    text_of,
)
from tests.backends.rows import bare, drained, opened, start
from tests.support.guard import LIMIT_S, program
from tts.backends.base import Row
from tts.errors import EngineError

ROWS = [Row(stream, 0, 25) for stream in range(1, 6)]


async def samples_of(backend: Any, handle: Any, **options: Any) -> list[Any]:
    """Return what the same few rows give behind a handle."""
    return [
        bare(sample) for sample in await asyncio.wait_for(drained(start(backend, handle, *ROWS, **options)), LIMIT_S)
    ]


@pytest.mark.slow
def test_a_caller_that_leaves_while_its_prompt_is_read_leaves_nothing_behind() -> None:
    async def main() -> None:
        backend = engine(step_tokens=4)
        task = asyncio.ensure_future(backend.open([text_of(300, 1), text_of(200, 2)]))
        while backend.stats.steps < 5:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task
        await emptied(backend)

    asyncio.run(main())


@pytest.mark.slow
def test_closing_in_the_middle_fails_everything_and_keeps_nothing() -> None:
    async def main() -> None:
        backend = engine(12)
        (handle,) = await opened(backend, text_of(50, 1))
        rows = start(backend, handle, *(Row(stream, 0, 100) for stream in range(6)))
        reads = asyncio.ensure_future(backend.score([handle, handle], ["kz", text_of(60, 2)]))
        while backend.stats.decode_tokens < 10:
            await asyncio.sleep(0)
        await backend.close()
        for late in (rows.row(5), reads, backend.open(["a"])):
            with pytest.raises(EngineError, match="closed"):
                await asyncio.wait_for(late, LIMIT_S)
        with pytest.raises(EngineError, match="closed"):
            start(backend, handle, Row(1, 0, 1))
        del rows, reads, late
        backend.release([handle])
        await emptied(backend)

    asyncio.run(main())


def test_event_loops_one_after_the_other_use_the_same_handles_and_get_the_same() -> None:
    backend = engine()
    handle, first = asyncio.run(_opened_and_drawn(backend))
    for _ in range(2):
        assert asyncio.run(samples_of(backend, handle)) == first


async def _opened_and_drawn(backend: Any) -> tuple[Any, list[Any]]:
    (handle,) = await opened(backend, text_of(50, 1))
    return handle, await samples_of(backend, handle)


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [12, 300])
def test_a_loop_that_dies_with_work_under_way_takes_its_work_with_it_and_the_next_one_gets_the_same(
    blocks: int,
) -> None:
    backend = engine(blocks, step_tokens=8)
    handle, wanted = asyncio.run(_opened_and_drawn(backend))

    async def dies() -> None:
        start(backend, handle, *(Row(stream, 0, 100) for stream in range(40)))
        asyncio.ensure_future(backend.open([text_of(90, 2)]))  # noqa: RUF006 - it ends with the loop
        before = backend.stats.decode_tokens
        while backend.stats.decode_tokens < before + 20:
            await asyncio.sleep(0)

    async def after() -> None:
        assert await samples_of(backend, handle) == wanted
        backend.release([handle])
        await emptied(backend)

    for _ in range(2):
        asyncio.run(dies())
        assert asyncio.run(samples_of(backend, handle)) == wanted
    asyncio.run(dies())
    asyncio.run(after())


@pytest.mark.slow
def test_handles_that_garbage_collection_finds_in_the_middle_of_a_step_are_given_up() -> None:
    async def main() -> None:
        backend = engine(20)
        (handle,) = await opened(backend, text_of(50, 1))
        wanted = await samples_of(backend, handle)
        step, collected = backend.runner.step, []
        gc.collect()
        gc.freeze()  # what is there already need not be looked at again
        gc.disable()  # only steps collect

        def stepped() -> None:
            collected.append(gc.collect())
            step()
            collected.append(gc.collect())

        backend.runner.step = stepped
        for number in range(4):
            knot: list[Any] = [
                *backend.fork(handle, 3),
                *(s.handle for s in await drained(start(backend, handle, *ROWS))),
            ]
            knot.append(knot)  # only the collector can untie it
            (other,) = await opened(backend, text_of(40, 10 + number))
            knot.append(other)
            del knot, other
            assert await samples_of(backend, handle) == wanted
        gc.enable()
        gc.unfreeze()
        assert max(collected) > 0
        backend.runner.step = step
        backend.release([handle])
        await emptied(backend)

    asyncio.run(main())


@pytest.mark.slow
def test_handles_may_be_released_by_other_threads_while_the_engine_steps() -> None:
    async def main() -> None:
        backend = engine(40)
        (handle,) = await opened(backend, text_of(50, 1))
        wanted = await samples_of(backend, handle)
        forks = backend.fork(handle, 2000)
        halves = [forks[::2], forks[1::2]]

        def release(some: list[Any]) -> None:
            while some:
                backend.release([some.pop()])

        threads = [threading.Thread(target=release, args=(half,)) for half in halves]
        del forks
        for thread in threads:
            thread.start()
        for _ in range(5):
            assert await samples_of(backend, handle) == wanted
        for thread in threads:
            thread.join(LIMIT_S)
        assert not any(thread.is_alive() for thread in threads)
        backend.release([handle])
        await emptied(backend)

    asyncio.run(main())


FORKED = """
import asyncio, os, sys
import torch
torch.set_num_threads(1)
from tests.backends.engine.stepping import engine, text_of
from tests.backends.rows import drained, opened, start
from tts.backends.base import Row

async def drawn(backend):
    (handle,) = await opened(backend, text_of(30, 1))
    return [s.token_ids for s in await drained(start(backend, handle, Row(1, 0, 9), Row(2, 0, 9)))]

wanted = asyncio.run(drawn(engine()))
child = os.fork()
if child == 0:
    os._exit(0 if asyncio.run(drawn(engine())) == wanted else 7)
assert os.waitpid(child, 0)[1] == 0
assert asyncio.run(drawn(engine())) == wanted
print("done")
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="this system has no os.fork")
def test_a_forked_process_loads_an_engine_of_its_own() -> None:
    ended = program(FORKED, options=("-W", "ignore"))
    assert (ended.stdout.strip(), ended.returncode) == ("done", 0), ended.stderr


POOL = """
import asyncio, multiprocessing, sys, time
import torch
torch.set_num_threads(2)  # a team of threads that no forked process has
import tts
from tests.backends.rows import opened
from tts.backends.engine.backend import EngineBackend
from tts.errors import EngineError
from tts.models import registry
from tts.solver import Solver

PROBLEM = "What is 12 + 7 * 3?"
solver, inherited = Solver("pocket"), EngineBackend.from_record(registry.get("pocket"))

def by_name(_):
    return tts.solve(PROBLEM, 100, strategy="single | weighted", seed=1).trace.canonical()

def by_solver(_):
    return solver.solve(PROBLEM, 100, strategy="single | weighted", seed=1).trace.canonical()

def by_record(_):
    made = EngineBackend.from_record(registry.get("pocket"))
    return tts.solve(PROBLEM, 300, backend=made, task="pocket", strategy="single", seed=1).answer

def by_inherited(_):
    began = time.monotonic()
    try:
        tts.solve(PROBLEM, 300, backend=inherited, task="pocket", strategy="single", seed=1)
    except EngineError as failure:
        return "make the backend in the forked process" in failure.hint and time.monotonic() - began < 1.0
    return False

wanted = by_name(0), by_solver(0), tts.solve(PROBLEM, 300, backend=inherited, task="pocket", strategy="single", seed=1).answer
workers = int(sys.argv[1])
with multiprocessing.get_context("fork").Pool(workers) as pool:
    told = [pool.map_async(each, range(workers)).get(60) for each in (by_name, by_solver, by_record, by_inherited)]
assert told == [[one] * workers for one in (*wanted, True)], told
assert by_name(0) == wanted[0]
tts.close()
print("done")
"""  # noqa: E501


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="this system has no os.fork")
@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_forked_workers_solve_with_several_threads_and_refuse_a_backend_of_their_parent(workers: str) -> None:
    ended = program(POOL, workers, options=("-W", "ignore"))
    assert (ended.stdout.strip(), ended.returncode) == ("done", 0), ended.stderr
