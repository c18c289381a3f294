"""A search as an async iterator, and many problems awaited."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import tts
from tests.backends.openai.server import ToyServer, serving
from tests.contracts.verifier_contract import Do
from tests.support.guard import LIMIT_S
from tests.support.runs import make_run, solve_and_show
from tts.backends.base import Caps, Draft, Reply, RowSet, Sample
from tts.backends.toy.backend import ToyBackend
from tts.errors import ConfigError


def events_of(problem: str, budget: float = 400, strategy: str = "single", **more: Any) -> list[tts.Event]:
    """Return all events of a stream."""

    async def events() -> list[tts.Event]:
        return [event async for event in tts.stream(problem, budget, strategy=strategy, **more)]

    return asyncio.run(asyncio.wait_for(events(), LIMIT_S))


def test_events_have_the_texts_of_new_candidates_and_the_last_one_the_solution() -> None:
    seen = events_of("3 + 4 - 2", model="toy", strategy="best_of_n(n=9) | majority")
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
    heard: list[tts.Event] = []
    with pytest.raises(ConfigError, match="needs permission"):
        events_of("1 + 1", model="toy", verifier="checker", strategy="best_of_n | best", on_event=heard.append)
    assert heard == []


def test_many_problems_are_awaited_as_they_are_solved() -> None:
    problems = ["1 + 2", "2 + 3 - 1", ""]
    awaited = asyncio.run(tts.asolve_many(problems, each=200, model="toy", strategy="best_of_n(n=3) | majority"))
    plain = tts.solve_many(problems, each=200, model="toy", strategy="best_of_n(n=3) | majority")
    assert [(s.answer, s.usage.tokens) for s in awaited] == [(s.answer, s.usage.tokens) for s in plain]
    assert awaited[2].error is not None
    assert asyncio.run(tts.asolve_many([], each=200, model="toy")) == []


def test_the_callers_own_listener_hears_the_events_as_well() -> None:
    heard: list[tts.Event] = []

    *seen, _ = events_of("3 + 4 - 2", model="toy", strategy="best_of_n(n=9)", on_event=heard.append)
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
        task = asyncio.ensure_future(
            tts.asolve_many(["1 + 1", "2 + 2"], each=90, backend=slow, strategy="single", task="arithmetic")
        )
        while len(begun) < 2:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while len(cancelled) < 2:
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(main(), LIMIT_S))
    assert sorted(cancelled) == sorted(begun)


class Typing(tts.Backend):
    """A backend that shows its rows letter by letter, each letter once the one before was seen.

    Attributes:
        seen: Letters of the leading row that a reader has seen.
    """

    name = "typing"
    caps = Caps(streams=True, usage=True)
    words = ("A: 5",) * 8

    def __init__(self) -> None:
        self.seen = 0

    async def open(self, prompts):
        return [Reply(prompt, self.count(prompt)) for prompt in prompts]

    def sample(self, request):
        rows = RowSet(request)
        for index in range(len(request.rows)):
            rows.show_draft(index, lambda index=index: Draft(self.words[index][: self.seen + 1], self.seen + 1))
        self.task = asyncio.get_running_loop().create_task(self._write(rows))
        return rows

    async def _write(self, rows: RowSet) -> None:
        while self.seen < 3 and not rows.cancelled:
            await asyncio.sleep(0.001)
        for index, text in enumerate(self.words[: len(rows.request.rows)]):
            rows.resolve(index, Sample(text, (), (), "eos", rows.request.handle, num_tokens=4))


def test_what_rows_under_way_have_written_is_seen_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tts.solver.live._LOOK_SECONDS", 0.001)
    backend = Typing()

    async def events() -> list:
        seen = []
        async for event in tts.stream("2 + 3", 400, model=backend, task="arithmetic", strategy="single"):
            seen.append(event)
            backend.seen = max(backend.seen, len(event.writing))
        return seen

    seen = asyncio.run(asyncio.wait_for(events(), LIMIT_S))
    written = [(event.writing, event.tokens) for event in seen if event.writing]
    assert written == [("A", 1), ("A:", 2), ("A: ", 3), ("A: 5", 4)][: len(written)]
    assert len(written) >= 3
    tokens = [event.tokens for event in seen]
    assert tokens == sorted(tokens)
    assert tokens[-1] == seen[-1].solution.usage.tokens == 4


def test_a_call_that_has_ended_is_no_longer_under_way() -> None:
    async def check(search: tts.Search) -> None:
        await search.complete([search.root], 2)
        assert search.rows.draft().tokens == 0

    assert solve_and_show(make_run("2 + 3", 400, Do(check=check), ToyBackend())).solution.error is None


def test_a_server_s_stream_is_seen_while_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tts.solver.live._LOOK_SECONDS", 0.001)
    server = ToyServer(pause_s=0.01)
    with serving(server) as url:
        seen = events_of("3 + 4 - 2 + 9", model="toy", url=url, task="arithmetic")
    written = [event.writing for event in seen if event.writing]
    whole = seen[-1].solution.candidates[0].trajectory.full_text
    assert len(set(written)) > 1
    assert all(whole.startswith(text) for text in written)
    assert [len(text) for text in written] == sorted(len(text) for text in written)


def test_the_engine_s_rows_are_seen_while_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="the engine is not installed")
    monkeypatch.setattr("tts.solver.live._LOOK_SECONDS", 0.0005)

    seen = events_of("12 + 7 * 3 - 4 + 5 * 2", 2000)
    whole = seen[-1].solution.candidates[0].trajectory.full_text
    written = [event.writing for event in seen if event.writing]
    assert written
    assert all(whole.startswith(text) for text in written)
    tokens = [event.tokens for event in seen]
    assert tokens == sorted(tokens)


def test_only_a_problem_that_is_solved_alone_is_looked_at() -> None:
    """A study or a gateway with a thousand searches has no thousand clocks."""
    looked = []
    with tts.Solver(Typing(), task="arithmetic", on_event=lambda event: looked.append(event.writing)) as solver:
        run = solver.prepare("2 + 3", 400, strategy="single")
        assert not run.live
