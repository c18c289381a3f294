"""Everything that can go wrong goes wrong for its own work alone, with a reason, and the engine goes on to the same
bits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the engine runs on torch")
pytest.importorskip("numba", reason="the engine's kernels are compiled by numba")

from tests.backends.conftest import engine_of, tiny_model, tiny_tokenizer  # noqa: E402 - torch comes first
from tests.backends.engine.stepping import (  # noqa: E402
    BLOCK,
    CONTEXT,
    Hand,
    emptied,
    engine,
    evict,
    ids_of,
    rested,
    runner_of,
    text_of,
    told,
)
from tests.backends.rows import bare, drained, opened, start  # noqa: E402
from tests.support.guard import LIMIT_S  # noqa: E402
from tts.backends.base import Row, StopCondition  # noqa: E402
from tts.errors import ConfigError, EngineError, KVBudgetError, PromptTooLong  # noqa: E402

ROWS = [Row(stream, 0, 25) for stream in range(1, 6)]


async def samples_of(backend: Any, handle: Any, **options: Any) -> list[Any]:
    """Return what the same few rows give behind a handle."""
    return [
        bare(sample) for sample in await asyncio.wait_for(drained(start(backend, handle, *ROWS, **options)), LIMIT_S)
    ]


async def laid_waste(backend: Any) -> None:
    """Evict everything, and leave nonsense behind."""
    await rested(backend)
    evict(backend.runner)
    backend.runner._kept_logits.clear()
    pool = backend.runner.tree.pool
    assert pool.num_used == 0
    pool.keys.fill_(7.0)
    pool.values.fill_(7.0)


# What is asked for ----------------------------------------------------------------------------------------------------


def test_what_does_not_fit_the_context_is_refused_and_nothing_is_computed() -> None:
    async def main() -> None:
        backend = engine()
        with pytest.raises(PromptTooLong):
            await backend.open(["a", text_of(CONTEXT, 1)])
        (handle,) = await opened(backend, text_of(CONTEXT - 10, 1))
        before = backend.stats.prefill_computed
        for call in (backend.extend, backend.score):
            with pytest.raises(PromptTooLong):
                await call([handle], [text_of(11, 1)])
        with pytest.raises(PromptTooLong):
            await backend.next_logprobs([handle], [text_of(11, 1)], ["k"])
        assert backend.stats.prefill_computed == before
        [full] = await backend.extend([handle], [text_of(10, 1)])
        (sample,) = await drained(start(backend, full.value.handle, Row(1, 0, 5)))
        assert (sample.finish, sample.num_tokens) == ("length", 0)

    asyncio.run(main())


def test_a_stop_text_that_never_comes_leaves_rows_to_their_caps_and_the_context() -> None:
    async def main() -> None:
        backend = engine()
        backend.runner._eos = frozenset()
        (handle,) = await opened(backend, text_of(CONTEXT - 60, 1))
        stop = StopCondition(("never in this world",), at_step=True)
        samples = await drained(start(backend, handle, Row(1, 0, 9), Row(2, 0, 1 << 30), stop=stop))
        assert [(sample.finish, sample.num_tokens) for sample in samples] == [("length", 9), ("length", 60)]
        plain = await drained(start(backend, handle, Row(1, 0, 9), Row(2, 0, 1 << 30)))
        assert [sample.token_ids for sample in samples] == [sample.token_ids for sample in plain]

    asyncio.run(main())


def test_tokens_that_the_model_does_not_know_are_refused_before_they_reach_it() -> None:
    tokenizer = tiny_tokenizer()
    backend = engine_of(tiny_model(len(tokenizer) - 2), tokenizer, threads=1)  # "wh" and "is" are the last tokens

    async def main() -> None:
        (handle,) = await opened(backend, "a")
        wanted = await samples_of(backend, handle)
        running = start(backend, handle, *ROWS)
        calls: list[Callable[[], Any]] = [
            lambda: backend.open(["b", "is"]),
            lambda: backend.extend([handle], ["wh"]),
            lambda: backend.score([handle], ["is"]),
            lambda: backend.next_logprobs([handle], [""], ["is"]),
        ]
        for call in calls:
            with pytest.raises(ConfigError, match="the model knows"):
                await call()
        assert [bare(sample) for sample in await drained(running)] == wanted

    asyncio.run(main())


def test_handles_that_were_released_or_are_nobodys_are_refused() -> None:
    async def main() -> None:
        backend, other = engine(), engine()
        (handle,) = await opened(backend, "a")
        (foreign,) = await opened(other, "a")
        backend.release([handle, handle, None, "a", foreign])
        for bad in (handle, foreign, None, 3):
            with pytest.raises(EngineError, match="released"):
                start(backend, bad, ROWS[0])
            with pytest.raises(EngineError, match="released"):
                backend.fork(bad, 2)
            for call in (backend.extend, backend.score):
                with pytest.raises(EngineError, match="released"):
                    await call([bad], ["k"])
        (sample,) = await drained(start(other, foreign, ROWS[0]))
        assert sample.finish in ("length", "eos")

    asyncio.run(main())


def test_a_text_of_no_token_is_scored_without_a_pass() -> None:
    async def main() -> None:
        backend = engine()
        (handle,) = await opened(backend, "the")
        steps = backend.stats.steps
        [reply] = await backend.score([handle], [""])
        assert (reply.value.shape, reply.computed) == ((0,), 0)
        assert backend.stats.steps == steps

    asyncio.run(main())


def test_a_call_that_is_given_up_before_it_begins_computes_nothing() -> None:
    async def main() -> None:
        backend = engine()
        task = asyncio.create_task(backend.open([text_of(40, 1)]))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await backend.open(["a"])  # in a later batch; of its one token nothing is read yet
        assert backend.stats.prefill_computed == 0

    asyncio.run(main())


# Numbers that are none ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_row_whose_logits_are_nan_fails_and_what_shares_its_steps_and_later_its_blocks_does_not() -> None:
    clean, poisoned = engine(14), engine(14)

    async def gather(backend: Any) -> list[Any]:
        (handle,) = await opened(backend, text_of(40, 1))
        rows = await samples_of(backend, handle)
        later = []
        for number in (2, 3, 4):  # in the blocks that the failed row had
            (other,) = await opened(backend, text_of(90, number))
            later.append((await samples_of(backend, other))[0])
            backend.release([other])
        return [rows, later]

    rows, later = asyncio.run(gather(clean))
    bad = next(token for token in rows[0].token_ids[3:-3] if all(token not in s.token_ids for s in [*rows[1:], *later]))
    at = rows[0].token_ids.index(bad)
    decoder = poisoned.runner.decoder
    decoder._embedding = decoder._embedding.clone()
    decoder._embedding[bad] = float("nan")
    found, after = asyncio.run(gather(poisoned))
    assert (found[0].finish, found[0].handle, found[0].token_ids) == ("error", None, rows[0].token_ids[: at + 1])
    assert "NaN" in found[0].error
    for sample, wanted in zip([*found[1:], *after], [*rows[1:], *later], strict=True):
        assert sample == wanted


def test_a_prompt_whose_law_is_none_fails_its_rows_and_reads_and_no_other() -> None:
    async def main() -> None:
        backend = engine()
        decoder = backend.runner.decoder
        decoder._embedding = decoder._embedding.clone()
        decoder._embedding[backend._renderer.single("?")] = float("nan")
        good, bad = await opened(backend, "k", "k?z")
        fine, broken = start(backend, good, *ROWS), start(backend, bad, *ROWS)
        assert {(s.finish, s.num_tokens) for s in await drained(broken)} == {("error", 0)}
        assert {s.finish for s in await drained(fine)} <= {"length", "eos"}
        with pytest.raises(EngineError, match="no distribution over tokens"):
            await backend.score([bad], ["k"])
        with pytest.raises(EngineError, match="no distribution over tokens"):
            await backend.next_logprobs([bad], [""], ["k"])
        [scores] = await backend.score([good], ["kzkz"])
        assert scores.value.shape == (4,)

    asyncio.run(main())


def test_a_prefill_that_failed_has_its_failure_in_place_of_a_result() -> None:
    hand = Hand(runner_of(1))
    asked = hand.score(hand.open(ids_of(3, 1)).path, ids_of(2 * BLOCK, 2))
    hand.run()
    with pytest.raises(KVBudgetError, match=r"path.*35"):
        asked.reading.result()


# Predicates -----------------------------------------------------------------------------------------------------------


def raises(text: str) -> bool:
    raise KeyError(f"no {len(text)}")


def leaves(text: str) -> bool:
    raise SystemExit(3)


def test_a_predicate_that_raises_fails_its_rows_and_no_other() -> None:
    async def main() -> None:
        backend = engine()
        (handle,) = await opened(backend, "a")
        wanted = await samples_of(backend, handle)
        steps = ("e", "a", "1", "\n", "t", "k")
        bad, good = (
            start(backend, handle, *ROWS, stop=StopCondition(steps, finished=raises)),
            start(backend, handle, *ROWS),
        )
        failed = await drained(bad)
        assert [bare(sample) for sample in await drained(good)] == wanted
        ended = [sample for sample in failed if sample.finish == "error"]
        assert ended, "no row met a boundary: the test saw nothing"
        for sample in ended:
            assert sample.error.startswith("KeyError")
            assert sample.handle is None

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.parametrize("max_rows", [64, 2])
def test_a_predicate_that_ends_the_program_fails_what_is_under_way_or_waits_and_the_engine_goes_on(
    max_rows: int,
) -> None:
    async def main() -> None:
        backend = engine(max_rows=max_rows)
        (handle,) = await opened(backend, "a")
        wanted = await samples_of(backend, handle)
        steps = ("e", "a", "1", "\n", "t", "k")
        for _ in range(2):
            bad = start(backend, handle, *ROWS, stop=StopCondition(steps, finished=leaves))
            for index in range(len(ROWS)):
                try:
                    assert (await asyncio.wait_for(bad.row(index), LIMIT_S)).finish in ("error", "length")
                except EngineError as failure:
                    assert "SystemExit" in str(failure)  # noqa: PT017 - a row may also have ended before
            assert await samples_of(backend, handle) == wanted
        backend.release([handle])
        del bad
        await emptied(backend)

    asyncio.run(main())


# Passes that break ----------------------------------------------------------------------------------------------------


class Broken:
    """A forward pass that breaks at some calls, after it wrote nonsense where keys and values belong."""

    def __init__(self, backend: Any, failure: Callable[[], BaseException], at: Callable[[int], bool]) -> None:
        self.decoder, self.failure, self.at = backend.runner.decoder, failure, at
        self.real, self.calls, self.broke = self.decoder.forward, 0, 0
        self.decoder.forward = self

    def __call__(self, ids: Any, planned: Any, wanted: Any, with_logits: Any, pool: Any, **options: Any) -> Any:
        self.calls += 1
        if self.at(self.calls):
            self.broke += 1
            for block, offset in planned.places:
                pool.keys[:, :, block, :, offset] = pool.values[:, :, block, offset] = 5.0
            raise self.failure()
        return self.real(ids, planned, wanted, with_logits, pool, **options)

    def mend(self) -> None:
        self.decoder.forward = self.real


FAILURES = [
    lambda: RuntimeError("out of memory"),
    lambda: IndexError("no such row"),
    MemoryError,
    lambda: SystemExit(1),
]


@pytest.mark.parametrize(
    ("failure", "at"),
    [
        (FAILURES[0], 1),
        (FAILURES[0], 2),
        (FAILURES[0], 3),
        (FAILURES[0], 9),
        *((failure, 2) for failure in FAILURES[1:]),
    ],
)
def test_a_pass_that_breaks_once_fails_its_work_and_later_results_are_right(
    failure: Callable[[], BaseException], at: int
) -> None:
    async def main() -> None:
        backend = engine(30, step_tokens=24)
        (handle,) = await opened(backend, text_of(60, 1))
        [longer] = await backend.extend([handle], [text_of(20, 2)])
        wanted, below = await samples_of(backend, handle), await samples_of(backend, longer.value.handle)
        await laid_waste(backend)
        broken = Broken(backend, failure, lambda call: call == at)
        rows = start(backend, longer.value.handle, *ROWS)
        for index, expected in enumerate(below):
            sample = await asyncio.wait_for(rows.row(index), LIMIT_S)
            assert sample.token_ids == expected.token_ids[: sample.num_tokens]
            assert sample.finish == "error" or bare(sample) == expected
        assert broken.broke == 1
        broken.mend()
        for _ in range(2):
            assert await samples_of(backend, longer.value.handle) == below
            assert await samples_of(backend, handle) == wanted
        backend.release([handle, longer.value.handle])
        del longer, rows
        await emptied(backend)

    asyncio.run(main())


def test_work_that_had_no_part_in_a_broken_pass_is_not_touched() -> None:
    async def main() -> None:
        backend = engine(max_rows=5)
        first, second = await opened(backend, text_of(60, 1), text_of(30, 2))
        wanted = await samples_of(backend, second)
        broken = Broken(backend, FAILURES[0], lambda call: call == 6)
        failed, waiting = start(backend, first, *ROWS), start(backend, second, *ROWS)
        assert {sample.finish for sample in await drained(failed)} == {"error"}
        assert "out of memory" in failed.samples[0].error
        assert [bare(sample) for sample in await drained(waiting)] == wanted
        broken.mend()

    asyncio.run(main())


def test_a_model_that_always_breaks_ends_everything_it_is_asked() -> None:
    async def main() -> None:
        backend = engine(30, step_tokens=8)
        (handle,) = await opened(backend, text_of(60, 1))
        [longer] = await backend.extend([handle], [text_of(20, 2)])
        wanted = await samples_of(backend, longer.value.handle)
        await laid_waste(backend)
        broken = Broken(backend, FAILURES[0], lambda call: True)
        rows = start(backend, longer.value.handle, *ROWS)
        with pytest.raises(EngineError, match="out of memory"):
            await asyncio.wait_for(backend.score([longer.value.handle], ["k"]), LIMIT_S)
        with pytest.raises(EngineError, match="out of memory"):
            await asyncio.wait_for(backend.open(["of the"]), LIMIT_S)
        assert {sample.finish for sample in await asyncio.wait_for(drained(rows), LIMIT_S)} == {"error"}
        broken.mend()
        assert await samples_of(backend, longer.value.handle) == wanted

    asyncio.run(main())


# Memory of a device ---------------------------------------------------------------------------------------------------


class Narrow:
    """A forward pass of a device whose memory is used up by more than so many tokens."""

    def __init__(self, runner: Any, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most, self.failed, self.real = most, 0, runner.decoder.forward
        monkeypatch.setattr(runner.decoder, "forward", self)

    def __call__(self, ids: Any, *arguments: Any, **options: Any) -> Any:
        if len(ids) > self.most:
            self.failed += 1
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return self.real(ids, *arguments, **options)


def asked_of(runner: Any) -> list[Any]:
    """Return what three long prompts with rows behind them give."""
    hand = Hand(runner)
    opened = [hand.open(ids_of(60 + 20 * number, number)) for number in range(3)]
    asked = [hand.write(one.path, [Row(9 * number + i, 0, 12) for i in range(4)]) for number, one in enumerate(opened)]
    hand.run()
    assert all(one.reading.failure is None for one in opened)
    return [told(one.ends[index]) for one in asked for index in range(4)]


@pytest.mark.parametrize("most", [40, 16, 3])
def test_a_step_without_memory_is_tried_with_fewer_tokens_and_ends_no_row(
    most: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    expected = asked_of(runner_of(200))
    runner = runner_of(200, tokens=256)
    narrow = Narrow(runner, max(most, BLOCK), monkeypatch)
    assert asked_of(runner) == expected
    assert runner.stats.shrunk == narrow.failed > 0
    assert "ran out of memory" in caplog.text


def test_a_job_whose_least_step_has_no_memory_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = runner_of(200)
    hand = Hand(runner)
    small = hand.open(ids_of(4, 1))
    hand.run()
    Narrow(runner, 8, monkeypatch)
    large = hand.open(ids_of(120, 2))
    rows = hand.write(small.path, [Row(1, 0, 5)])
    hand.run()
    assert "out of memory" in str(large.reading.failure)
    assert told(rows.ends[0])[3] == "length"


def test_draws_without_memory_are_made_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = asked_of(runner_of(200))
    runner = runner_of(200)
    real, sizes = runner.decoder.operations.draw, list[int]()

    def draw(logits: Any, request: Any, packed: Any = None) -> Any:
        sizes.append(len(request.rows))
        if len(request.rows) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return real(logits, request, packed)

    monkeypatch.setattr(runner.decoder.operations, "draw", draw)
    assert asked_of(runner) == expected
    assert max(sizes) > 2
    assert runner.stats.shrunk == 0


def test_a_draw_that_never_has_memory_ends_its_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = runner_of(200)
    hand = Hand(runner)
    opened = hand.open(ids_of(20, 1))
    hand.run()

    def draw(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    with monkeypatch.context() as patch:
        patch.setattr(runner.decoder.operations, "draw", draw)
        rows = hand.write(opened.path, [Row(i, 0, 5) for i in range(3)])
        hand.run()
    assert {end.finish for end in rows.ends.values()} == {"error"}
    assert "out of memory" in rows.ends[0].error
    rows = hand.write(opened.path, [Row(i, 0, 5) for i in range(3)])
    hand.run()
    assert {end.finish for end in rows.ends.values()} == {"length"}
