"""A function as a model: whatever it raises, reports or delays, each row ends, is charged a bound, and nobody else
notices.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

import tts
from tests.support.guard import LIMIT_S
from tts.backends.base import Row, RowSet, Sample, SampleRequest, Sampling, StopCondition
from tts.backends.function import Answer, Ask, FunctionBackend
from tts.errors import ConfigError, EngineError

CAP = 40


async def started(
    backend: FunctionBackend, count: int = 1, prompt: str = "a b c", stop: StopCondition | None = None
) -> RowSet:
    [reply] = await backend.open([prompt])
    rows = tuple(Row(i, 0, CAP) for i in range(count))
    return backend.sample(SampleRequest(reply.value, rows, Sampling(), stop or StopCondition()))


async def ended(rows: RowSet) -> list[Sample]:
    await asyncio.wait_for(rows.drain(), LIMIT_S)
    return [sample for sample in rows.samples if sample is not None]


def said(fn: Any, count: int = 1) -> list[Sample]:
    """Return what rows of a function end with."""

    async def main() -> list[Sample]:
        return await ended(await started(FunctionBackend(fn), count))

    return asyncio.run(main())


def plain_and_async(write: Callable[[Ask], Any]) -> list[Any]:
    """Return a function, the same as a coroutine function, and as a plain function that returns a coroutine."""

    async def later(ask: Ask) -> Any:
        await asyncio.sleep(0)
        return write(ask)

    def lazily(ask: Ask) -> Awaitable[Any]:
        return later(ask)

    return [write, later, lazily]


# What it raises -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [ValueError, asyncio.CancelledError, SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration]
)
@pytest.mark.parametrize("way", range(3))
def test_whatever_the_function_raises_is_its_rows_error(kind: type[BaseException], way: int) -> None:
    def write(ask: Ask) -> str:
        if ask.seed == 0:  # of the first two rows
            raise kind
        return "fine"

    samples = said(plain_and_async(write)[way], 3)
    assert [sample.finish for sample in samples] == ["error", "error", "eos"]
    for failed in samples[:2]:
        # a coroutine cannot raise StopIteration
        assert failed.error.partition(": ")[0] in (kind.__name__, "RuntimeError")
        assert (failed.num_tokens, failed.estimated, failed.handle) == (CAP, True, None)


def test_a_function_that_leaves_the_interpreter_leaves_the_event_loop_alive() -> None:
    async def leave(ask: Ask) -> str:
        raise SystemExit

    with pytest.raises(EngineError, match="SystemExit"):
        tts.solve("3 + 4", 200, backend=leave, strategy="best_of_n(n=2) | majority", task="arithmetic")
    assert (
        tts.solve(
            "3 + 4", 200, backend=lambda ask: "A: 7", strategy="best_of_n(n=2) | majority", task="arithmetic"
        ).answer
        == "7"
    )


# Cancelling and closing -----------------------------------------------------------------------------------------------


def test_cancelling_ends_asynchronous_functions_at_once_and_charges_them_in_full() -> None:
    heard: list[str] = []

    async def main() -> None:
        begun = asyncio.Event()

        async def write(ask: Ask) -> str:
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                heard.append("cancelled")
                raise
            return ""

        backend = FunctionBackend(write, concurrency=2)
        rows = await started(backend, 3)
        await begun.wait()
        await asyncio.sleep(0)
        rows.cancel()
        assert rows.done
        samples = await ended(rows)
        assert [(s.finish, s.num_tokens, s.estimated) for s in samples] == [("cancelled", CAP, True)] * 2 + [
            ("cancelled", 0, False)
        ]
        assert backend.counters.generated_tokens == 2 * CAP
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert heard == ["cancelled"] * 2

    asyncio.run(main())


def test_a_function_that_will_not_be_cancelled_is_not_waited_for() -> None:
    async def main() -> None:
        begun, end = asyncio.Event(), asyncio.Event()

        async def write(ask: Ask) -> str:
            begun.set()
            while not end.is_set():
                try:
                    await end.wait()
                except asyncio.CancelledError:
                    continue
            return "late"

        backend = FunctionBackend(write)
        rows = await started(backend)
        await begun.wait()
        rows.cancel()
        assert rows.done
        end.set()
        await asyncio.gather(*backend._tasks)
        assert [sample.text for sample in await ended(rows)] == [""]
        assert backend.counters.generated_tokens == CAP

    asyncio.run(main())


def test_cancelling_does_not_wait_for_threads_and_drops_what_they_say() -> None:
    async def main() -> None:
        begun, end = threading.Event(), threading.Event()

        def write(ask: Ask) -> Any:
            begun.set()
            assert end.wait(LIMIT_S)
            return write_on()

        async def write_on() -> str:
            wrote_on.append("once")
            return "late"

        wrote_on: list[str] = []

        backend = FunctionBackend(write, concurrency=4)
        rows = await started(backend, 4)
        await asyncio.to_thread(begun.wait, LIMIT_S)
        rows.cancel()
        assert rows.done
        assert {(s.finish, s.num_tokens, s.estimated) for s in await ended(rows)} == {("cancelled", CAP, True)}
        later = await started(backend)
        await asyncio.sleep(0)
        assert later.prompt_tokens == 0  # a thread that runs on keeps its place
        end.set()
        assert [sample.text for sample in await ended(later)] == ["late"]
        assert wrote_on == ["once"]  # for nobody who had given up
        while backend._tasks:
            await asyncio.wait(backend._tasks)
            await asyncio.sleep(0)  # to the callbacks that remove them
        assert {sample.text for sample in await ended(rows)} == {""}

    asyncio.run(main())


def test_a_time_limit_ends_a_function_that_never_returns() -> None:
    async def write(ask: Ask) -> str:
        await asyncio.Event().wait()
        return ""

    budget = tts.Budget(tokens=100, seconds=0.05)
    solution = tts.solve("3 + 4", budget, backend=write, strategy="best_of_n(n=2) | majority", task="arithmetic")
    assert solution.answer is None
    assert 0 < solution.usage.tokens <= 100


def test_plain_functions_run_at_once_and_never_in_the_event_loop() -> None:
    meeting = threading.Barrier(16)
    loop_runs = threading.Event()

    def write(ask: Ask) -> str:
        assert loop_runs.wait(LIMIT_S)
        meeting.wait(LIMIT_S)
        return "met"

    async def main() -> None:
        rows = await started(FunctionBackend(write), 16)
        for _ in range(5):
            await asyncio.sleep(0)
        loop_runs.set()
        assert {sample.text for sample in await ended(rows)} == {"met"}

    asyncio.run(main())


@pytest.mark.parametrize("way", range(3))
def test_closing_fails_what_waits_and_what_is_under_way(way: int) -> None:
    begun, end = threading.Event(), threading.Event()

    def write(ask: Ask) -> str:
        begun.set()
        assert end.wait(LIMIT_S)
        return "late"

    async def hang(ask: Ask) -> str:
        begun.set()
        await asyncio.Event().wait()
        return ""

    def lazily(ask: Ask) -> Awaitable[str]:
        return hang(ask)

    async def main() -> None:
        backend = FunctionBackend([write, hang, lazily][way], concurrency=1)
        rows = await started(backend, 2)
        await asyncio.to_thread(begun.wait, LIMIT_S)
        await backend.close()
        for index in range(2):
            with pytest.raises(EngineError, match="the backend was closed"):
                await asyncio.wait_for(rows.row(index), LIMIT_S)
        with pytest.raises(EngineError, match="the backend was closed"):
            await started(backend)
        end.set()
        await asyncio.gather(*backend._tasks)
        assert rows.samples == [None, None]

    asyncio.run(main())


# What it reports ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [-1, CAP + 1, 2.0, 2.5, float("nan"), True, "3", 10**400])
def test_tokens_that_cannot_be_are_an_error_that_names_value_and_rule(tokens: Any) -> None:
    [sample] = said(lambda ask: Answer("A: 7", tokens))
    assert (sample.finish, sample.num_tokens, sample.estimated, sample.text) == ("error", CAP, True, "")
    assert (
        sample.error == f"BadReply: Answer.tokens is {tokens!r}, but must be a whole number from 0 to max_tokens, {CAP}"
    )


@pytest.mark.parametrize("tokens", [0, 7, CAP, np.int64(7)])
def test_tokens_that_can_be_are_charged_as_reported(tokens: Any) -> None:
    [sample] = said(lambda ask: Answer("A: 7", tokens))
    assert (sample.finish, sample.num_tokens, sample.estimated) == ("eos", tokens, False)
    assert type(sample.num_tokens) is int


@pytest.mark.parametrize("wrong", [None, 7, b"A: 7", Answer(None), Answer(7, 3)])  # type: ignore[arg-type]
def test_what_is_no_text_is_an_error_and_not_read_as_one(wrong: Any) -> None:
    [sample] = said(lambda ask: wrong)
    assert (sample.finish, sample.num_tokens) == ("error", CAP)
    assert sample.error.startswith(f"BadReply: the function returned {type(wrong).__name__}, but must return text")


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 1), ("A: 7", 5), ("é", 3), ("\ud800", 4), ("x" * (CAP - 1), CAP), ("x" * CAP, CAP), ("x" * 999, CAP)],
)
@pytest.mark.parametrize("wrap", [str, Answer])
def test_a_row_without_a_report_is_charged_its_bytes_and_one_at_most_its_grant(
    text: str, tokens: int, wrap: Any
) -> None:
    [sample] = said(lambda ask: wrap(text))
    assert (sample.finish, sample.num_tokens, sample.estimated) == ("eos", tokens, True)


def test_bare_text_leaves_a_budget_for_more_samples() -> None:
    solution = tts.solve(
        "3 + 4", 2000, backend=lambda ask: "A: 7", strategy="best_of_n(n=8) | majority", task="arithmetic"
    )
    assert (solution.usage.samples, solution.usage.tokens, solution.usage.estimated) == (8, 8 * 5, True)
    budget = tts.Budget(samples=3)
    few = tts.solve(
        "3 + 4", budget, backend=lambda ask: "A: 7", strategy="best_of_n(n=3) | majority", task="arithmetic"
    )
    assert (few.usage.samples, few.usage.tokens) == (3, 3 * 5)


def test_every_row_reads_its_prompt_and_path_again_and_no_more_than_they_count() -> None:
    async def main() -> None:
        backend = FunctionBackend(lambda ask: "one two\nthree")
        assert backend.caps.fork == "emulated"
        rows = await started(backend, 4, stop=StopCondition(("\n",), at_step=True))
        [first, *_] = await ended(rows)
        assert rows.prompt_tokens == 4 * backend.count("a b c") == 12
        assert rows.reused_tokens is None
        [longer] = await backend.extend([first.handle], ["and so"])
        again = backend.sample(
            SampleRequest(longer.value.handle, (Row(9, 3, CAP),) * 3, Sampling(), StopCondition(), "one two\nand so")
        )
        await ended(again)
        assert again.prompt_tokens == 3 * backend.count("a b c one two and so") == 21
        assert backend.counters.prompt_tokens == 12 + 21

    asyncio.run(main())


def test_a_concurrency_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="concurrency is 0"):
        FunctionBackend(lambda ask: "", concurrency=0)


def test_a_cut_row_costs_what_others_took_and_not_the_most_there_could_be() -> None:
    """No limit of tokens bounds a row here, so that its grant says nothing of its cost."""
    released = threading.Event()

    def slow(ask: tts.Ask) -> Answer:
        if ask.seed % 3:
            released.wait(LIMIT_S)
        return Answer("A: 7", tokens=9)

    budget = tts.Budget(samples=8, seconds=0.5)
    try:
        found = tts.solve("3 + 4", budget, backend=slow, strategy="best_of_n(n=8) | majority", task="arithmetic")
    finally:
        released.set()
    assert found.usage.estimated
    assert found.usage.generated_tokens + found.usage.cancelled_tokens == 8 * 9

    def failing(ask: tts.Ask) -> Answer:
        raise ValueError

    with pytest.raises(tts.errors.EngineError) as caught:
        tts.solve(
            "3 + 4",
            tts.Budget(samples=2),
            backend=failing,
            strategy="best_of_n(n=2) | majority",
            task="arithmetic",
        )
    failed = caught.value.partial
    assert failed is not None
    assert failed.usage.estimated
    assert failed.usage.tokens < 10_000  # what the task's solutions take, and not a million for each row


class Watched(FunctionBackend):
    """A backend that knows how many calls had begun when the rows of the problem "single" came."""

    def __init__(self, fn: Callable[[Ask], Awaitable[str]]) -> None:
        super().__init__(fn, concurrency=2)
        self.begun: int | None = None
        self.asked: list[str] = []

    def sample(self, request: SampleRequest) -> RowSet:
        if "single" in str(request.handle.prompt):
            self.begun = len(self.asked)
        return super().sample(request)


def test_rows_of_one_search_do_not_hold_the_line_and_do_not_change_by_it() -> None:
    async def write(ask: Ask) -> str:
        backend.asked.append(str(ask.prompt))
        while len(backend.asked) > 20 and backend.begun is None:  # wait for the narrow search
            await asyncio.sleep(0)
        return f"A: {ask.seed % 7}"

    async def solve(problem: str, n: int) -> Any:
        plan = f"best_of_n(n={n}) | majority"
        return await tts.asolve(problem, tts.Budget(samples=n), backend=backend, strategy=plan, task="text", seed=3)

    async def solve_together() -> Any:
        wide = [asyncio.create_task(solve(f"wide {place}", 200)) for place in range(4)]
        while len(backend.asked) < 20:
            await asyncio.sleep(0)
        await asyncio.wait_for(solve("single", 1), LIMIT_S)
        return [await task for task in wide][2]

    backend = Watched(write)
    together = asyncio.run(solve_together())
    place = next(place for place, prompt in enumerate(backend.asked) if "single" in prompt)
    assert backend.begun is not None
    assert place - backend.begun < 20, "it waited for whole searches"
    backend = Watched(write)
    backend.begun = 0
    alone = asyncio.run(solve("wide 2", 200))
    texts = [[c.trajectory.text for c in found.candidates] for found in (together, alone)]
    assert texts[0] == texts[1]
    assert len(texts[0]) == 200


def test_a_failure_of_the_library_itself_ends_the_row(monkeypatch):
    def fail(*_: object) -> int:
        raise RecursionError("too deep")

    monkeypatch.setattr(FunctionBackend, "count", fail)
    [sample] = said(lambda ask: "7")
    assert (sample.finish, sample.error) == ("error", "RecursionError: too deep")
