"""Streams of candidates: those of `complete`, one by one, whatever happens between two of them or at their end."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

import tts
from tests.support.chaos import ChaosBackend
from tests.support.runs import check_books, make_run, solve_and_show, solve_runs
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.errors import ConfigError
from tts.search.finishing import CandidateStream
from tts.search.search import Search
from tts.types import Candidate, Solution
from tts.verifiers.toy import ToyVerifier

PROBLEM = "10 - 7 + 5 - 20"


class Doing(tts.Strategy):
    """A strategy of one function."""

    def __init__(self, do: Callable[[Search], Any]) -> None:
        self.do = do

    async def run(self, search: Search) -> Sequence[Candidate]:
        await self.do(search)
        return search.candidates


@dataclasses.dataclass
class End:
    """A solution with the search behind it."""

    solution: Solution
    search: Search


def searched(do: Callable[[Search], Any], selection: str = "majority", **limits: Any) -> End:
    backend = ChaosBackend(ToyBackend(ToyLanguage(accuracy=0.5, mute=0.1)), seed=3, slow=5)
    verifiers = {"main": ToyVerifier(error=0.1)} if selection == "best" else {}
    plan = Doing(do) | cast("Any", tts.parse(f"single | {selection}").selection)
    end = solve_and_show(make_run(PROBLEM, tts.Budget(**limits), plan, backend, verifiers=verifiers))
    assert isinstance(end.solution, Solution)
    assert end.search is not None
    check_books(end.search)
    assert not backend.live
    return End(end.solution, end.search)


def texts(candidates: Sequence[Candidate]) -> list[str]:
    return [c.trajectory.full_text for c in candidates]


@pytest.mark.parametrize("n", [1, 5, None])
@pytest.mark.parametrize("limits", [{"tokens": 300}, {"samples": 7}, {"flops": 900}], ids=str)
def test_the_kth_candidate_is_that_of_complete(n: int | None, limits: dict[str, Any]) -> None:
    streamed: list[Candidate] = []

    async def stream(search: Search) -> None:
        async for candidate in search.stream([search.root], n):
            streamed.append(candidate)

    whole = searched(lambda search: search.complete([search.root], n), **limits)
    end = searched(stream, **limits)
    assert texts(streamed) == texts(end.search.candidates) == texts(whole.search.candidates)
    assert (end.solution.usage.tokens, end.solution.stopped_by) == (
        whole.solution.usage.tokens,
        whole.solution.stopped_by,
    )


def test_a_candidate_comes_before_the_rows_after_it_are_written() -> None:
    written: list[int] = []

    async def stream(search: Search) -> None:
        async for candidate in search.stream([search.root], 40):
            written.append(len(search.account.ledger.calls))
            del candidate

    end = searched(stream, tokens=5000)
    assert written[0] < len(end.search.account.ledger.calls)
    assert len(set(written)) < len(written), "several candidates of one call"


@pytest.mark.parametrize("ways", ["close", "break", "return"])
def test_what_is_left_is_cancelled_and_charged(ways: str) -> None:
    after: list[Candidate] = []

    async def stream(search: Search) -> None:
        candidates = search.stream([search.root], 40)
        async for candidate in candidates:
            if candidate.index < 6:
                continue
            if ways == "close":
                await candidates.aclose()
            if ways == "return":
                return
            break
        after.extend(await search.complete([search.root], 2))

    end = searched(stream, tokens=5000)
    kept = 7 if ways == "return" else 9
    assert len(end.search.candidates) == kept
    assert end.solution.usage.cancelled_tokens > 0
    assert end.solution.stopped_by == "done"
    rows = end.search.tree.nodes[1:]
    assert len({t.stream for t in rows}) == len(rows)


@pytest.mark.parametrize("tokens", [100, 130, 300])
def test_scores_between_candidates_are_paid_from_what_is_held_for_them(tokens: int) -> None:
    scores: list[float] = []

    async def stream(search: Search) -> None:
        async for candidate in search.stream([search.root], None):
            scores.extend(await search.score([candidate.trajectory], required=False))

    end = searched(stream, "best", tokens=tokens)
    assert len(scores) == len(end.search.candidates) > 1
    assert sum(not math.isnan(score) for score in scores) >= len(scores) - 1  # the first row may take all that is left


def test_a_question_may_be_asked_between_candidates_and_two_writing_calls_may_not_overlap() -> None:
    async def stream(search: Search) -> None:
        async for candidate in search.stream([search.root], 6):
            law = await search.ask([candidate.trajectory], "", ["A: ", "7"])
            assert law.shape == (1, 2)
            asking = asyncio.ensure_future(search.ask([candidate.trajectory], "", ["7"]))
            await asyncio.sleep(0)
            with pytest.raises(ConfigError, match="in flight"):
                await search.score([candidate.trajectory])
            await asking

    end = searched(stream, "best", tokens=5000)
    assert len(end.search.candidates) == 6


def test_a_stop_rule_ends_a_stream() -> None:
    class Third(tts.StopRule):
        def should_stop(self, candidates: Sequence[Candidate]) -> tts.StopDecision | None:
            return tts.StopDecision("three") if len(candidates) == 3 else None

    seen: list[Candidate] = []

    class Streaming(tts.Strategy):
        async def run(self, search: Search) -> Sequence[Candidate]:
            async for candidate in search.stream([search.root], 9):
                seen.append(candidate)
            return seen

    found = tts.solve(PROBLEM, 2000, model="toy", strategy=Streaming() | Third())
    assert (found.stopped_by, len(found.candidates), len(seen)) == ("three", 3, 2)


def test_a_search_that_is_cancelled_between_candidates_books_what_was_written() -> None:
    async def stream(search: Search) -> None:
        async for candidate in search.stream([search.root], 40):
            if candidate.index == 5:
                cast("asyncio.Task[None]", asyncio.current_task()).cancel()
                await asyncio.sleep(0)

    end = searched(stream, tokens=5000)
    assert end.solution.stopped_by == "interrupted"
    assert len(end.search.candidates) == 6


def test_a_failure_between_candidates_is_the_strategys() -> None:
    async def stream(search: Search) -> None:
        async for _ in search.stream([search.root], 40):
            raise ZeroDivisionError

    end = searched(stream, tokens=5000)
    assert "ZeroDivisionError" in str(end.solution.error)
    assert len(end.search.candidates) == 1


def test_a_stream_that_is_cancelled_while_it_closes_books_its_rows_and_ends() -> None:
    async def run() -> list[str]:
        ended: list[str] = []

        async def complete(_show: Any) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                for _ in range(3):
                    await asyncio.sleep(0)
                ended.append("booked")

        stream = CandidateStream(complete)
        first = asyncio.create_task(stream.next())
        await asyncio.sleep(0.01)
        closing = asyncio.create_task(stream.close())
        await asyncio.sleep(0)
        closing.cancel()
        ends = await asyncio.gather(first, closing, return_exceptions=True)
        return [*ended, *(type(end).__name__ for end in ends)]

    assert asyncio.run(run()) == ["booked", "CancelledError", "CancelledError"]


@pytest.mark.parametrize("turn", range(8, 40))
@pytest.mark.parametrize("closes", [True, False])
def test_a_cancellation_of_a_search_that_leaves_streams_ends_it(turn: int, closes: bool) -> None:
    async def leave(search: Search) -> None:
        for _ in range(2):
            stream = search.stream([search.root], 6)
            async for _ in stream:
                if not closes:
                    break
                await stream.aclose()

    plan = Doing(leave) | cast("Any", tts.parse("single | majority").selection)
    run = make_run(PROBLEM, tts.Budget(samples=60), plan, ChaosBackend(ToyBackend(), seed=0, slow=4))
    (end,) = asyncio.run(solve_runs([run], [turn]))
    if end.search is not None:
        check_books(end.search)
        assert isinstance(end.solution, Solution)
        assert end.solution.error is None
        assert end.solution.stopped_by in ("interrupted", "done")
