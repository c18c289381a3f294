"""Rows under requests that fuzzing found to break them: each is kept as a test."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tts
from tests.support.chaos import ChaosBackend
from tests.support.runs import check_books, make_run, solve_and_show, solve_runs
from tts.backends.function import Answer, Ask, FunctionBackend
from tts.backends.toy.backend import ToyBackend
from tts.budget.budget import Budget, Rates
from tts.errors import ConfigError
from tts.search.ends import END, SearchEnded, Tokens
from tts.search.needs import Needs
from tts.search.parts import Plan
from tts.verifiers.base import StepScores


class Does(tts.Strategy):
    """A strategy that is a function."""

    def needs(self) -> Needs:
        return Needs(capabilities=("steps",))

    def __init__(self, run: Callable[[Any], Awaitable[Any]]) -> None:
        self._run = run

    async def run(self, search: tts.Search) -> Sequence[tts.Candidate]:
        await self._run(search)
        return search.candidates


def words(length: Callable[[int], int], asked: list[int] | None = None) -> FunctionBackend:
    """A model whose solution of a seed has so many words."""

    def write(ask: Ask) -> Answer:
        if asked is not None:
            asked.append(ask.max_tokens)
        begun = len(ask.text.split())
        count = min(ask.max_tokens, length(ask.seed) - begun)
        ended = begun + count == length(ask.seed)
        return Answer("w " * (count - ended) + ("A: 4" if ended else ""), tokens=count, finished=ended)

    return FunctionBackend(write)


def test_pieces_under_one_cap_and_rows_under_another_stay_within_every_limit() -> None:
    asked: list[int] = []

    async def run(search: Any) -> None:
        [[piece]] = await search.expand([search.root], 1, Tokens(30))
        for _ in range(6):
            await search.expand([piece], 1, END, max_tokens=8)
        await search.complete([search.root])

    end = solve_and_show(make_run("2 + 2", 100, Plan(Does(run), None, None), words(lambda _: 500, asked)))
    check_books(end.search)
    assert min(asked) >= 1
    assert end.solution.usage.tokens <= 100


@pytest.mark.slow
def test_the_last_of_a_fixed_number_may_use_all_that_is_left() -> None:
    for seed in range(40):
        lengths: dict[int, int] = {}
        rng = np.random.default_rng(seed)

        def length(of: int, lengths: dict[int, int] = lengths, rng: np.random.Generator = rng) -> int:
            return lengths.setdefault(of, max(1, int(5 * np.exp(2 * rng.standard_normal()))))

        solution = solve_and_show(
            make_run("2 + 2", 300, "best_of_n(n=6) | majority", words(length), seed=seed)
        ).solution
        if any(c.truncated for c in solution.candidates):
            assert solution.stopped_by == "budget: tokens" or any(
                "were given up for others" in line for line in solution.warnings
            )
        finished = sum(not c.truncated for c in solution.candidates)
        assert finished == 6 or any(f"{finished} of 6 samples were completed" in line for line in solution.warnings)


@pytest.mark.parametrize("failure", [None, RuntimeError("the engine is gone")])
def test_rows_that_had_ended_survive_a_search_that_is_interrupted_or_breaks(failure: Exception | None) -> None:
    """Row 1 is long, the others have ended and wait for it."""
    seeds: list[int] = []

    def length(seed: int) -> int:
        if seed not in seeds:
            seeds.append(seed)
        return 200 if seeds.index(seed) == 1 else 5

    end = asyncio.run(_broken(length, failure))
    assert sum(c.answer == "4" for c in end.solution.candidates) >= 7
    check_books(end.search)


async def _broken(length: Callable[[int], int], failure: Exception | None) -> Any:
    backend = words(length)
    sample, calls = backend.sample, [0]

    def breaking(request: Any) -> Any:
        calls[0] += 1
        if calls[0] > 2:
            if failure is not None:
                raise failure
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        return sample(request)

    backend.sample = breaking  # type: ignore[method-assign]
    run = make_run("2 + 2", Budget(samples=8), "best_of_n(n=8) | majority", backend)
    return (await solve_runs([run], portion=20))[0]


def test_a_row_that_three_continuations_fail_is_drawn_again() -> None:
    first: list[int] = []

    def write(ask: Ask) -> Answer:
        if not first:
            first.append(ask.seed)
        if ask.seed == first[0] and ask.text:
            raise OSError("gone")
        begun = len(ask.text.split())
        return Answer("w " * 3 + ("A: 4" if begun else ""), tokens=3, finished=bool(begun))

    solution = solve_and_show(make_run("2 + 2", 1000, "best_of_n(n=3) | majority", FunctionBackend(write)), 3).solution
    assert [c.answer for c in solution.candidates] == ["4"] * 3
    assert solution.failures == {"OSError": 3}


def test_a_model_that_never_ends_and_replies_with_a_word_at_a_time_is_given_up() -> None:
    calls = [0]

    def write(ask: Ask) -> Answer:
        calls[0] += 1
        return Answer("w ", tokens=1, finished=False)

    solution = solve_and_show(make_run("2 + 2", Budget(samples=1), "single", FunctionBackend(write))).solution
    assert solution.answer is None
    assert calls[0] < 1000


def test_nothing_asked_for_is_nothing() -> None:
    made: list[Any] = []

    async def run(search: Any) -> None:
        made.append([await search.complete([], n=None), await search.complete([], 3), await search.expand([])])
        await search.complete([search.root])

    assert solve_and_show(make_run("3 + 4", 100, Plan(Does(run), None, None), ToyBackend())).solution.error is None
    assert made == [[[], [], []]]


class Free(tts.Verifier):
    """A verifier whose bound is 37 tokens, of which it uses none."""

    async def score(self, problem: Any, trajectories: Sequence[Any], calls: Any) -> list[StepScores]:
        return [StepScores(whole=0.5) for _ in trajectories]

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        return 37


def test_a_tree_search_ends_where_its_rounds_spend_nothing_that_is_limited() -> None:
    solution = solve_and_show(
        make_run("3 + 4", Budget(verifier_tokens=180), "mcts", ToyBackend(), verifiers={"main": Free()})
    ).solution
    assert solution.stopped_by == "nothing is spent any more"


def test_a_pruned_path_is_not_written_on() -> None:
    async def run(search: Any) -> None:
        [[piece]] = await search.expand([search.root], 1, Tokens(3))
        search.keep([])
        await search.expand([piece])

    end = solve_and_show(make_run("3 + 4", 100, Plan(Does(run), None, None), ToyBackend()))
    assert end.solution.error is not None
    assert isinstance(end.solution.error.__cause__, ConfigError)
    assert "was pruned by keep(), but only a live trajectory can be continued" in str(end.solution.error)


@pytest.mark.parametrize("flops", range(140, 220, 16))
def test_paths_that_another_model_cannot_be_paid_to_read_are_not_begun_and_nothing_stays_held(flops: int) -> None:
    async def run(search: Any) -> None:
        [pieces] = await search.expand([search.root], 3, Tokens(3))
        await search.expand(pieces, 1, Tokens(4), model="other")

    def priced() -> ChaosBackend:
        return ChaosBackend(ToyBackend(), seed=1, rates=Rates(flops=2))

    other = priced()
    end = solve_and_show(
        make_run("3 + 4 - 2", Budget(flops=flops), Plan(Does(run), None, None), priced(), models={"other": other})
    )
    check_books(end.search)
    assert not other.live


def test_a_call_that_the_strategy_does_not_wait_for_is_booked() -> None:
    going: list[Any] = []

    async def write(ask: Ask) -> Answer:
        await asyncio.sleep(0)
        return Answer("A: 7", tokens=3)

    async def run(search: Any) -> None:
        going.append(asyncio.ensure_future(search.complete([search.root], 2)))
        await asyncio.sleep(0)

    end = solve_and_show(make_run("3 + 4", 100, Plan(Does(run), None, None), FunctionBackend(write)))
    check_books(end.search)
    assert end.solution.usage.samples == 2
    assert going[0].done()


def test_rows_that_a_later_request_for_fewer_leaves_waiting_are_kept() -> None:
    async def run(search: Any) -> None:
        for count in (4, 1):
            with contextlib.suppress(SearchEnded):
                await search.complete([search.root], count)

    order: dict[int, int] = {}
    model = words(lambda seed: 10 if order.setdefault(seed, len(order)) == 0 else 40)
    end = solve_and_show(make_run("2 + 2", 60, Plan(Does(run), None, None), model), portion=20)
    check_books(end.search)
    assert [c.trajectory.status for c in end.search.candidates] == ["finished", "truncated", "truncated"]
    assert [c.trajectory for c in end.search.candidates] == end.search.tree.nodes[1:]


def test_rows_that_are_given_up_for_others_are_said() -> None:
    order: dict[int, int] = {}
    endless = words(lambda seed: 10**6 if order.setdefault(seed, len(order)) == 3 else 5)
    solution = solve_and_show(make_run("2 + 2", 500, "best_of_n(n=12) | majority", endless)).solution
    assert any(
        re.fullmatch(r"\d+ of 12 samples were completed, \d+ were given up for others", line)
        for line in solution.warnings
    )
