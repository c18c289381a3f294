"""Little memory: work gives way and is computed again, nothing hangs, no result changes, and only what can never fit
fails.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest

pytest.importorskip("torch", reason="the engine runs on torch")
pytest.importorskip("numba", reason="the engine's kernels are compiled by numba")

from tests.backends.engine.stepping import (
    ROOMY,
    TOKEN_BYTES,
    Hand,
    assert_empty,
    blocks_of,
    emptied,
    engine,
    ids_of,
    recount,
    rested,
    runner_of,
    scribble,
    script,
    text_of,
    told,
    told_all,
)
from tests.backends.rows import drained, opened, start
from tests.support.guard import LIMIT_S
from tts.backends.base import Reply, Row
from tts.backends.engine import service
from tts.backends.engine.service import EngineTask
from tts.backends.kernels.plan import BLOCK
from tts.backends.reads import read
from tts.errors import KVBudgetError

# Tiny pools -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("tokens", [5, 64])
@pytest.mark.parametrize(("blocks", "sizes"), [(8, (70, 33, 1)), (12, (110, 110, 97)), (20, (200, 17, 180, 64))])
def test_a_tiny_pool_gives_what_an_unbounded_one_gives_in_a_bounded_number_of_steps(
    blocks: int, sizes: tuple[int, ...], tokens: int, share: bool
) -> None:
    caps = (1, 16, 23, 2, 30, 17)
    roomy = Hand(runner_of(ROOMY))
    wanted = script(roomy, sizes, caps)
    roomy.run()
    hand = Hand(runner_of(blocks, tokens=tokens, rows=7, share=share))
    scribble(hand.runner)
    asked = script(hand, sizes, caps)
    steps = 0
    while hand.runner.busy:
        hand.runner.step()
        steps += 1
        recount(hand.runner)
        assert steps <= longest(sizes, caps, tokens), "no progress"
    assert told_all(asked) == told_all(wanted)
    stats = hand.runner.stats
    assert min(stats.parked, stats.recomputed, stats.evictions) > 0, (
        "there was room for everything: the test saw nothing"
    )
    assert stats.kv_tokens_peak <= blocks * BLOCK


def longest(sizes: Sequence[int], caps: Sequence[int], tokens: int) -> int:
    """Return the steps that everything takes one after the other, each path read again from its root: the oldest never
    waits.
    """
    paths = [size + 9 + 5 for size in sizes]
    works = [5 + 2 * len(caps)] * len(sizes)
    return sum(count * (-(-path // tokens) + 4) for path, count in zip(paths, works, strict=True)) + 2 * len(
        sizes
    ) * sum(caps)


@pytest.mark.slow
def test_problems_of_one_backend_that_is_short_of_memory_all_resolve() -> None:
    async def solve(backend: Any, number: int) -> list[Any]:
        (handle,) = await opened(backend, text_of(60 + 9 * number, number))
        found: list[Any] = []
        for depth in range(3):
            rows = [Row(100 * number + 10 * depth + i, 0, 12) for i in range(5)]
            samples = await drained(start(backend, handle, *rows))
            found += [(s.text, s.token_ids, s.logprobs, s.finish) for s in samples]
            [scores] = await backend.score([samples[0].handle], ["the end of it"])
            found.append(scores.value.tobytes())
            backend.release([handle, *(s.handle for s in samples[1:])])
            handle = samples[0].handle
        backend.release([handle])
        return found

    async def main(backend: Any, together: bool) -> list[Any]:
        jobs = [solve(backend, number) for number in range(6)]
        found = await asyncio.wait_for(asyncio.gather(*jobs), LIMIT_S) if together else [await job for job in jobs]
        await emptied(backend)
        await backend.close()
        return found

    tight = engine(14)
    assert asyncio.run(main(tight, together=True)) == asyncio.run(main(engine(), together=False))
    assert tight.stats.recomputed > 0, "there was room for everything: the test saw nothing"


# What can never fit ---------------------------------------------------------------------------------------------------


def names_both(failure: object, path: int, blocks: int) -> None:
    """Assert that an error says what the path of so many blocks needs, and what there is."""
    assert f"{path * BLOCK * TOKEN_BYTES} bytes" in str(failure)
    assert str(blocks * BLOCK * TOKEN_BYTES) in str(failure)


def test_a_prompt_that_cannot_fit_alone_fails_and_no_other_does() -> None:
    hand = Hand(runner_of(6))
    before, large, after = hand.open(ids_of(40, 1)), hand.open(ids_of(98, 2)), hand.open(ids_of(90, 3))
    rows = hand.write(before.path, [Row(1, 0, 12), Row(2, 0, 12)])
    hand.run()
    assert isinstance(large.reading.failure, KVBudgetError)
    names_both(large.reading.failure, 7, 6)
    assert "98 tokens" in str(large.reading.failure)
    assert before.reading.failure is after.reading.failure is None
    assert {end.finish for end in rows.ends.values()} == {"length"}


@pytest.mark.slow
def test_what_other_items_of_a_read_computed_is_known_where_one_fails() -> None:
    async def main() -> None:
        backend = engine(6)
        replies: list[Reply[Any]] = []
        with pytest.raises(KVBudgetError) as failed:
            await asyncio.wait_for(
                read(backend, backend.open([text_of(20, 1), text_of(200, 2), text_of(30, 3)]), replies, opens=True),
                LIMIT_S,
            )
        assert failed.value.kind == "KVBudgetError"
        assert "200 tokens" in str(failed.value)
        assert [reply.computed for reply in replies] == [20, 30]
        await emptied(backend)  # their handles were given up

    asyncio.run(main())


@pytest.mark.slow
def test_a_text_that_cannot_fit_behind_its_path_fails_and_the_path_goes_on() -> None:
    async def main() -> None:
        backend = engine(6)
        (handle,) = await opened(backend, text_of(60, 1))
        wanted = await drained(start(backend, handle, Row(1, 0, 9)))
        for call in (backend.extend, backend.score):
            with pytest.raises(KVBudgetError, match=f"{8 * BLOCK * TOKEN_BYTES} bytes.* {6 * BLOCK * TOKEN_BYTES}"):
                await asyncio.wait_for(call([handle], [text_of(60, 2)]), LIMIT_S)
        [fits] = await backend.score([handle], [text_of(20, 2)])
        assert fits.value.shape == (20,)
        (sample,) = await drained(start(backend, handle, Row(1, 0, 9)))
        assert sample.logprobs == wanted[0].logprobs
        backend.release([handle, sample.handle, wanted[0].handle])
        await emptied(backend)

    asyncio.run(main())


def test_a_row_that_outgrows_the_pool_fails_in_the_middle_and_its_siblings_and_others_do_not() -> None:
    hand, roomy = Hand(runner_of(8, endless=True)), Hand(runner_of(ROOMY, endless=True))
    caps = (20, 200, 5, 49, 50, 300)
    found = []
    for each in (hand, roomy):
        path, other = each.open(ids_of(80, 1)).path, each.open(ids_of(30, 2)).path  # of 5 and 2 blocks
        rows = each.write(path, [Row(i, 0, cap) for i, cap in enumerate(caps)])
        more = each.write(other, [Row(70 + i, 0, 40) for i in range(3)])
        each.run()
        found.append((rows, more))
    (rows, more), (expected, others) = found
    for index, end in rows.ends.items():
        wanted = expected.ends[index]
        assert wanted.finish == "length"
        assert wanted.state.ids[: len(end.state.ids)] == end.state.ids
        if caps[index] <= 49:  # keys and values of 48 tokens fit behind the prompt, and a last token needs none
            assert told(end) == told(wanted)
        else:
            assert (end.finish, end.node, len(end.state.ids)) == ("error", None, 49)
            assert end.error.startswith("KVBudgetError: a path of 129 tokens needs")
            names_both(end.error, 9, 8)
    assert told_all([more]) == told_all([others])


@pytest.mark.parametrize("size", [15, 16, 17, 95, 96, 97])
def test_what_fits_to_the_last_block_runs(size: int) -> None:
    """A prompt is opened without its last token, whose law the first row asks for; a row's last token is never read."""
    hand = Hand(runner_of(-(-size // BLOCK)))
    prompt = hand.open(ids_of(size, 1))
    room = -size % BLOCK
    rows = hand.write(prompt.path, [Row(1, 0, 1)])
    hand.run()
    assert prompt.reading.failure is None
    assert rows.ends[0].finish == "length"
    beyond = hand.write(prompt.path, [Row(1, 0, 2)])
    hand.run()
    assert blocks_of([prompt.path.node]) == hand.runner.tree.pool.num_blocks
    assert beyond.ends[0].finish == "error", f"{room} slots behind a prompt are its own"


def test_memory_below_one_block_is_refused_and_one_block_runs() -> None:
    with pytest.raises(KVBudgetError, match=f"{BLOCK * TOKEN_BYTES - 1} bytes.*takes {BLOCK * TOKEN_BYTES}"):
        engine(kv_budget=BLOCK * TOKEN_BYTES - 1)

    async def main() -> None:
        backend = engine(1)
        (handle,) = await opened(backend, "a")
        (sample,) = await drained(start(backend, handle, Row(1, 0, 1)))
        assert sample.finish == "length"
        (sample,) = await asyncio.wait_for(drained(start(backend, handle, Row(1, 0, 2))), LIMIT_S)
        assert sample.error.startswith("KVBudgetError")

    asyncio.run(main())


# Memory that is given back --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_memory_is_empty_after_releases_in_any_order(order: tuple[int, ...]) -> None:
    hand = Hand(runner_of(30))
    prompt = hand.open(ids_of(40, 1)).path
    longer = hand.extend(prompt, ids_of(20, 2)).path
    rows = hand.write(longer, [Row(1, 0, 5)])
    hand.run()
    fork, row = hand.fork(prompt), hand.keep(rows.ends[0].node, rows.ends[0].state.path_text())
    for which in order:
        hand.release([prompt, longer, fork, row][which])
        recount(hand.runner, [path.node for path in hand.paths])
    assert_empty(hand.runner)


Give = Callable[[Any, list[Any]], None]


def give_back(backend: Any, handles: list[Any]) -> None:
    backend.release(handles)


def give_back_twice(backend: Any, handles: list[Any]) -> None:
    backend.release(handles)
    backend.release(handles[::-1])


def forget(backend: Any, handles: list[Any]) -> None:
    handles.clear()
    gc.collect()
    backend.release([])


@pytest.mark.slow
@pytest.mark.parametrize("give", [give_back, give_back_twice, forget])
@pytest.mark.parametrize("blocks", [12, 400])
def test_a_backend_keeps_nothing_when_its_handles_are_gone(give: Give, blocks: int) -> None:
    async def main() -> None:
        backend = engine(blocks)
        handles: list[Any] = []
        for number in range(3):
            (handle,) = await opened(backend, text_of(50, number))
            rows = start(backend, handle, *(Row(10 * number + i, 0, 20) for i in range(4)))
            handles += [handle, *(sample.handle for sample in await drained(rows)), *backend.fork(handle, 2)]
            [extended] = await backend.extend([handle], ["and so on"])
            handles.append(extended.value.handle)
            del handle, rows, extended
        recount(backend.runner)
        give(backend, handles)
        await emptied(backend)

    asyncio.run(main())


def test_what_is_released_right_behind_the_last_row_is_given_back_without_a_further_call() -> None:
    async def main() -> None:
        backend = engine()
        for number in range(10):
            (handle,) = await opened(backend, text_of(20, number))
            samples = await drained(start(backend, handle, *(Row(stream, 0, 5) for stream in range(3))))
            backend.release([handle, *(sample.handle for sample in samples)])
            await rested(backend)
            end = time.monotonic() + LIMIT_S
            # its thread may not have asked the loop to sweep yet
            while backend.runner.tree.nodes and time.monotonic() < end:
                await asyncio.sleep(0.001)
            assert_empty(backend.runner)

    asyncio.run(main())


class State:
    """What the start of a call refers to."""


@pytest.mark.parametrize("breaks", [False, True])
def test_a_task_that_has_begun_holds_no_state(breaks: bool) -> None:
    """Its queue may drop it after the last sweep, and what it held would stay until the next call."""
    failures: list[Exception] = []
    state = State()
    kept = weakref.ref(state)

    def begin(deliver: Any, state: State = state) -> None:
        if breaks:
            raise ValueError("a call that cannot begin")

    task = EngineTask(begin, failures.append, lambda: False)
    del begin, state
    service._start([task], lambda fn, *args: fn(*args))
    assert [str(failure) for failure in failures] == ["a call that cannot begin"] * breaks
    failures.clear()
    assert kept() is None


@pytest.mark.slow
@pytest.mark.parametrize("turns", [0, 1, 3, 10, 60])
def test_a_backend_keeps_nothing_of_requests_that_were_cancelled(turns: int) -> None:
    async def main() -> None:
        backend = engine(12)
        (handle,) = await opened(backend, text_of(50, 1))
        rowsets = [start(backend, handle, *(Row(10 * k + i, 0, 90) for i in range(4))) for k in range(3)]
        for _ in range(turns):
            await asyncio.sleep(0)
        for rows in rowsets:
            rows.cancel()
            await asyncio.wait_for(rows.drain(), LIMIT_S)
        backend.release([handle, *(s.handle for rows in rowsets for s in rows.samples if s.handle is not None)])
        await emptied(backend)

    asyncio.run(main())
