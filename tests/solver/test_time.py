"""Time that runs out: nobody is waited for, what is unknown is said, and what was not begun is no candidate."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import tts
from tests.contracts.verifier_contract import Do
from tests.support.guard import LIMIT_S
from tests.support.runs import Clock, make_run, solution_of, solve_and_show, solve_runs
from tts.backends.function import FunctionBackend
from tts.backends.toy.backend import ToyBackend
from tts.errors import VerifierError
from tts.search.ends import END
from tts.search.search import Search
from tts.solver.run import solve_problem
from tts.types import Trajectory
from tts.verifiers.base import StepScores


def test_a_candidate_that_was_held_back_for_is_counted_once() -> None:
    async def check(search: Search) -> None:
        for of in await search.expand([search.root], 1, END, max_tokens=2):
            for t in of:
                search.finish(t)
        while True:
            await search.expand([search.root], 1)

    end = solve_and_show(make_run("3 + 4 - 2", tts.Budget(samples=400, tokens=100), Do(check=check), ToyBackend()))
    nodes = [c.trajectory.node for c in end.solution.candidates]
    assert len(nodes) == len(set(nodes)) == 2
    assert end.solution.confidence == 0.5


class Judge(tts.Verifier):
    name, range, oracle, needs, model = "judge", (0.0, 1.0), False, (), "policy"

    async def score(self, problem: tts.Problem, trajectories: Sequence[Trajectory], calls: Any) -> list[StepScores]:
        for t in trajectories:
            await calls.generate([f"rate {t.full_text}"], max_tokens=20, sampling=tts.Sampling())
        return [StepScores(whole=0.5) for _ in trajectories]

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        return prefix_tokens + new_tokens + 200


def test_a_judge_is_not_waited_for_beyond_the_time() -> None:
    release = threading.Event()

    def model(ask: tts.Ask) -> str:
        if "rate" in str(ask.prompt):
            release.wait(LIMIT_S)
        return "x 5"

    solution = tts.solve(
        "q",
        tts.Budget(tokens=3000, seconds=3),
        backend=model,
        verifier=Judge(),
        task="text",
        sampling=tts.Sampling(max_tokens=50),
        strategy="best_of_n(n=4) | best",
    )
    release.set()
    assert solution.usage.seconds < 20
    assert solution.stopped_by == "budget: seconds"
    assert not solution.reproducible
    assert any("could not be scored" in note for note in solution.warnings)


def test_scores_that_time_left_unknown_are_said() -> None:
    def slow(problem: tts.Problem, text: str) -> float:
        time.sleep(0.1)
        return 1.0

    solution = tts.solve(
        "3 + 4", tts.Budget(tokens=4000, seconds=0.35), model="toy", verifier=slow, strategy="best_of_n(n=12) | best"
    )
    assert (solution.stopped_by, solution.reproducible) == ("budget: seconds", False)
    assert any("could not be scored" in note for note in solution.warnings)


def test_verifiers_that_hang_keep_no_later_problem_from_being_solved() -> None:
    gate = threading.Event()
    problems = [f"3 + {i}" for i in range(40)]

    def hangs(problem: tts.Problem, text: str) -> float:
        gate.wait(LIMIT_S)
        return 0.5

    started = time.perf_counter()
    tts.solve_many(
        problems,
        each=tts.Budget(tokens=100, seconds=0.3),
        model="toy",
        verifier=hangs,
        strategy="best_of_n(n=2) | best",
    )
    tts.solve("3 + 4", 100, model="toy", verifier=lambda problem, text: 0.5, strategy="best_of_n(n=2) | best")
    gate.set()
    assert time.perf_counter() - started < 30


@pytest.mark.slow
def test_a_verifier_that_hangs_does_not_keep_the_interpreter_from_ending() -> None:
    script = (
        "import time, tts\n"
        "def hangs(problem, text): time.sleep(600); return 0.5\n"
        "s = tts.solve('3 + 4', tts.Budget(tokens=400, seconds=0.3), model='toy', verifier=hangs, "
        "strategy='best_of_n(n=2) | best')\n"
        "print(s.answer is not None)\n"
    )
    folder = Path(tts.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=LIMIT_S, cwd=folder, check=True
    )
    assert done.stdout == "True\n"
    assert done.stderr == ""


def test_rows_that_time_left_without_a_word_are_no_candidates_and_no_failures() -> None:
    def slow(ask: tts.Ask) -> str:
        time.sleep(0.2)
        return "x 5"

    solution = tts.solve("q", tts.Budget(seconds=0.5), backend=slow, task="text", strategy="best_of_n(n=64) | majority")
    assert solution.stopped_by == "budget: seconds"
    assert solution.failures == {}
    assert solution.candidates
    assert all(c.trajectory.text for c in solution.candidates)


def test_rows_are_not_waited_for_beyond_the_time() -> None:
    async def never(ask: tts.Ask) -> str:
        await asyncio.Event().wait()
        return "x 5"

    async def solve() -> tts.Solution:
        plan = "best_of_n(n=2) | majority"
        run = make_run("q", tts.Budget(seconds=0.05), plan, FunctionBackend(never), task="text", clock=time.monotonic)
        return await asyncio.wait_for(solve_problem(run), LIMIT_S)

    assert asyncio.run(solve()).stopped_by == "budget: seconds"


def test_a_budget_of_seconds_alone_is_used() -> None:
    async def check(search: Search) -> None:
        await search.complete([search.root], n=None)

    end = solve_and_show(
        make_run("3 + 4", tts.Budget(seconds=0.3), Do(check=check), ToyBackend(), clock=time.perf_counter)
    )
    assert end.solution.stopped_by == "budget: seconds"
    assert end.solution.usage.seconds >= 0.3 * 0.9  # up to a tenth is kept for closing


class Counting(tts.Verifier):
    """Scores at once, while a clock moves on by four seconds a call."""

    name = "counting"

    def __init__(self, clock: Clock) -> None:
        self.clock, self.sizes = clock, list[int]()

    async def score(self, problem: tts.Problem, trajectories: Sequence[Trajectory], calls: Any) -> list[StepScores]:
        self.clock.now += 4
        self.sizes.append(len(trajectories))
        return [StepScores(whole=0.5)] * len(trajectories)

    def solve(self, samples: int, seconds: float | None) -> tts.Solution:
        budget = tts.Budget(samples=samples, seconds=seconds)
        return solution_of("3 + 4", budget, "best_of_n | best", ToyBackend(), verifiers=self, clock=self.clock)


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "sizes"), [(10.0, [1024] * 3), (6.0, [1024] * 2), (None, [5000])])
def test_time_is_looked_at_between_calls_of_a_verifier_that_waits_for_nothing(
    seconds: float | None, sizes: list[int]
) -> None:
    verifier = Counting(Clock())
    solution = verifier.solve(5000, seconds)
    assert verifier.sizes == sizes
    assert solution.answer is not None
    assert sum(c.scores["main"] == 0.5 for c in solution.candidates) == sum(sizes)
    assert len(solution.candidates) == 5000


@pytest.mark.slow
def test_scores_end_before_the_time_by_what_comes_behind_them() -> None:
    """Ten microseconds a candidate, at most a tenth of the time."""
    verifier = Counting(Clock())
    seconds = 4.0 + 2000e-5
    for limit, calls in ((seconds - 0.001, 1), (seconds + 0.001, 2)):
        verifier.clock.now, verifier.sizes = 0.0, []
        assert len(verifier.solve(2000, limit).candidates) == 2000
        assert len(verifier.sizes) == calls


def test_an_embedder_is_not_waited_for_beyond_the_time() -> None:
    class Slow:
        async def embed(self, texts: Sequence[str]) -> Any:
            await asyncio.sleep(60)

    async def check(search: Search) -> None:
        await search.complete([search.root], 2)
        await search.embed(["a"])

    run = make_run(
        "3 + 4", tts.Budget(seconds=0.3), Do(check=check), ToyBackend(), clock=time.perf_counter, embedder=Slow()
    )
    assert solve_and_show(run).solution.stopped_by == "budget: seconds"


def test_a_verifier_that_cancels_itself_is_an_error_and_no_interruption() -> None:
    async def gone(problem: tts.Problem, text: str) -> float:
        raise asyncio.CancelledError

    with pytest.raises(VerifierError, match="cancelled by itself"):
        tts.solve("3 + 4", 400, model="toy", verifier=gone, strategy="best_of_n(n=3) | best")


@pytest.mark.parametrize("waits", ["sleeps", "a future", "a thread", "cancellations are ignored"])
def test_a_strategy_that_awaits_something_else_is_ended_and_keeps_what_it_has(waits: str) -> None:
    gate = threading.Event()

    async def check(search: Search) -> None:
        await search.complete([search.root])
        if waits == "sleeps":
            await asyncio.sleep(LIMIT_S)
        elif waits == "a future":
            await asyncio.get_running_loop().create_future()
        elif waits == "a thread":
            await asyncio.to_thread(gate.wait, LIMIT_S)
        while not gate.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    threading.Timer(3.0, gate.set).start()  # the loop of this run waits for its threads and tasks
    run = make_run("3 + 4", tts.Budget(seconds=0.2), Do(check=check), ToyBackend(), clock=time.perf_counter)
    end = solve_and_show(run)
    assert end.solution.stopped_by == "budget: seconds"
    assert [c.answer for c in end.solution.candidates] == ["7"]


@pytest.mark.slow
def test_a_strategy_that_fails_as_its_run_is_cancelled_is_no_forgotten_exception() -> None:
    told: list[Any] = []
    started = asyncio.Event()

    async def check(search: Search) -> None:
        started.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            raise RuntimeError("on the way out")

    async def cancelled() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        run = make_run("3 + 4", tts.Budget(seconds=60.0), Do(check=check), ToyBackend(), clock=time.perf_counter)
        task = asyncio.ensure_future(solve_runs([run]))
        await started.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    gc.collect()
    assert told == []


def test_a_selection_that_awaits_something_else_is_ended_and_a_vote_chooses() -> None:
    @dataclasses.dataclass(frozen=True)
    class Waits(tts.Selection):
        async def select(self, candidates: Any, search: Search) -> Any:
            await asyncio.get_running_loop().create_future()

    found = tts.solve(
        "3 + 4", tts.Budget(seconds=0.3, samples=2), model="toy", strategy=tts.strategies.BestOfN(n=2) | Waits()
    )
    assert found.answer == "7"
    assert found.stopped_by == "budget: seconds"
    assert any("vote" in warning for warning in found.warnings)
