"""What is asked of the transformers backend while it decodes: it joins between two steps, ends alone, and leaves
nothing behind.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from tests.backends.rows import PROMPTS, bare, drained, one, opened, start
from tests.support.guard import LIMIT_S
from tts.backends.base import Row, StopCondition
from tts.errors import EngineError

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

# A row of one token, which says that decoding has begun, and three that go on nearly to the end of the context.
LONG = (Row(1, 0, 1), *(Row(stream, 0, 990) for stream in range(2, 5)))


@pytest.fixture
def make_endless(make_tiny: Callable[..., Any]) -> Callable[..., Any]:
    """The maker of tiny backends whose rows end only where they must."""

    def make(**options: Any) -> Any:
        backend = make_tiny(**options)
        backend._decoder.eos = frozenset()
        return backend

    return make


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [150, pytest.param(990, marks=pytest.mark.slow)])
def test_what_arrives_while_rows_decode_waits_for_none_of_them_and_changes_no_bit(
    make_endless: Callable[..., Any], tokens: int
) -> None:
    backend, rows = make_endless(), [dataclasses.replace(row, max_tokens=min(row.max_tokens, tokens)) for row in LONG]
    shorts = [Row(31, 0, 3), Row(32, 0, 9)]

    async def main() -> None:
        first, second = await opened(backend, *PROMPTS[:2])
        alone = [bare(sample) for sample in await drained(start(backend, first, *rows))]
        wanted = [bare(sample) for sample in await drained(start(backend, second, *shorts))]
        assert [sample.num_tokens for sample in alone] == [1, tokens, tokens, tokens]
        long = start(backend, first, *rows)
        await long.row(0)
        (joined,) = await opened(backend, PROMPTS[1])
        short = await drained(start(backend, joined, *shorts))
        again = await one(backend, joined, shorts[0])
        (scored,) = await backend.score([joined], ["and"])
        assert not long.done
        assert scored.value.shape == (1,)
        assert [bare(sample) for sample in short] == wanted
        assert bare(again) == wanted[0]
        assert [bare(sample) for sample in await drained(long)] == alone

    asyncio.run(main())


def test_rows_that_wait_for_a_place_end_when_they_are_cancelled(make_endless: Callable[..., Any]) -> None:
    backend = make_endless(max_rows=1)

    async def main() -> None:
        (handle,) = await opened(backend, PROMPTS[0])
        long = start(backend, handle, *LONG)
        await long.row(0)
        waiting = start(backend, handle, Row(3, 0, 5), Row(4, 0, 5))
        waiting.cancel()
        assert [(sample.finish, sample.num_tokens) for sample in await drained(waiting)] == [("cancelled", 0)] * 2
        assert not long.done
        long.cancel()
        await drained(long)

    asyncio.run(main())


@pytest.mark.slow
def test_states_of_requests_that_have_ended_are_dropped_while_others_go_on(make_endless: Callable[..., Any]) -> None:
    backend = make_endless()

    async def state_of_a_row() -> weakref.ref[Any]:
        (handle,) = await opened(backend, PROMPTS[3])
        await one(backend, handle, Row(2, 0, 3))
        return weakref.ref(backend._states[handle].state[0][0][0])

    async def main() -> None:
        (handle,) = await opened(backend, PROMPTS[0])
        long = start(backend, handle, *LONG)
        await long.row(0)
        state = await state_of_a_row()
        await one(backend, handle, Row(5, 0, 2))  # the worker has forgotten what came before
        gc.collect()
        assert state() is None
        assert not long.done
        long.cancel()
        await drained(long)

    asyncio.run(main())


def test_closing_fails_rows_and_reads_under_way_and_stops_the_worker(make_endless: Callable[..., Any]) -> None:
    backend = make_endless()

    async def main() -> None:
        (handle,) = await opened(backend, PROMPTS[0])
        long = start(backend, handle, *LONG)
        await long.row(0)
        late = start(backend, handle, Row(2, 0, 5))
        read = asyncio.create_task(backend.score([handle], ["and"]))
        await asyncio.sleep(0)
        await backend.close()
        for waiting in (long.row(1), late.row(0), read, backend.open(["a"]), backend.score([handle], ["a"])):
            with pytest.raises(EngineError, match="the backend was closed"):
                await asyncio.wait_for(waiting, LIMIT_S)
        with pytest.raises(EngineError, match="the backend was closed"):
            start(backend, handle, Row(2, 0, 5))
        await asyncio.to_thread(backend._queue._queue._pool.shutdown)
        assert any(sample is None for sample in long.samples), "the worker went on to the end"

    asyncio.run(main())


def test_a_predicate_that_raises_fails_its_row_and_no_other(make_tiny: Callable[..., Any]) -> None:
    def wrong(text: str) -> bool:
        raise ZeroDivisionError(text)

    backend = make_tiny()

    async def main() -> None:
        (handle,) = await opened(backend, "the cat")
        alphabet = tuple(chr(code) for code in range(32, 127))
        other = start(backend, handle, Row(1, 0, 40))
        broken = await one(backend, handle, Row(1, 0, 500), stop=StopCondition(alphabet, finished=wrong))
        assert (broken.finish, broken.handle) == ("error", None)
        assert "ZeroDivisionError" in broken.error
        assert bare((await drained(other))[0]) == bare(await one(backend, handle, Row(1, 0, 40)))

    asyncio.run(main())


def test_a_read_that_raises_fails_alone(make_tiny: Callable[..., Any]) -> None:
    backend = make_tiny()

    async def main() -> None:
        (handle,) = await opened(backend, "the cat")
        honest = backend._model.hidden

        def wrong(*args: Any) -> None:
            raise ZeroDivisionError

        other = start(backend, handle, Row(1, 0, 40))
        backend._model.hidden = wrong
        with pytest.raises(EngineError, match="ZeroDivisionError"):
            await backend.hidden([handle])
        backend._model.hidden = honest
        assert (await drained(other))[0].finish in ("length", "eos")

    asyncio.run(main())
