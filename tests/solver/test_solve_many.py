"""`solve_many`: every problem as if it were alone, whatever becomes of the others."""

from __future__ import annotations

import asyncio

import pytest

import tts
from tests.solver.test_solver import PLAN, PROBLEMS, traces
from tests.support.guard import program, run_at_once
from tts.backends.function import Answer, Ask
from tts.budget.budget import Budget, divide
from tts.errors import ConfigError
from tts.solver.run import solve_problem
from tts.solver.solver import Solver
from tts.types import Problem


@pytest.fixture(scope="module")
def alone():
    """The solutions of the problems, each solved alone by `tts.solve`."""
    return [tts.solve(p, 300, model="toy", strategy=PLAN, seed=3) for p in PROBLEMS]


@pytest.mark.parametrize("concurrency", [1, 3, 1024])
def test_many_are_solved_as_each_alone(alone, concurrency):
    with Solver("toy", strategy=PLAN, concurrency=concurrency) as solver:
        assert traces(solver.solve_many(PROBLEMS, each=300, seed=3)) == traces(alone)
        assert traces(solver.solve_many(iter(PROBLEMS), 1200, seed=3)) == traces(alone)
        assert solver.solve_many([], 1200) == []
    assert traces(tts.solve_many(PROBLEMS, each=300, model="toy", strategy=PLAN, seed=3)) == traces(alone)


def test_no_more_problems_are_in_flight_than_concurrency_says():
    now, most = [0], [0]

    async def write(ask: Ask) -> Answer:
        now[0] += 1
        most[0] = max(most[0], now[0])
        for _ in range(20):
            await asyncio.sleep(0)
        now[0] -= 1
        return Answer("A: 7", tokens=3)

    solver = Solver(write, task="arithmetic", strategy="single", concurrency=3)
    (ends,) = run_at_once(lambda: solver.solve_many(PROBLEMS * 3, each=90))
    assert [end.answer for end in ends] == ["7"] * 12
    assert most == [3]


class Limited(tts.Strategy):
    """One sample, with a limit on its thought, on machines that are counted."""

    def __init__(self, thought_tokens=None):
        self.thought_tokens, self.checks = thought_tokens, 0

    def needs(self):
        return tts.Needs(machine=self.count, thought_tokens=self.thought_tokens)

    def count(self):
        self.checks += 1

    async def run(self, search):
        return await search.complete([search.root], 1)


def test_parts_are_checked_once_for_all_problems_of_a_task():
    strategy = Limited()
    with Solver("toy", {}, strategy=strategy) as solver:
        solver.solve_many(PROBLEMS, each=300)
        assert strategy.checks == 1
        solver.solve_many([Problem(text, task="arithmetic") for text in PROBLEMS], 1200)
        assert strategy.checks == 3  # for problems without a task, and for those with one


def test_a_limit_that_a_smaller_share_does_not_exceed_refuses_its_problem():
    with Solver("toy", {}, strategy=Limited(thought_tokens=100)) as solver:
        first, second = solver.solve_many(PROBLEMS[:2], 201)
    assert first.error is None
    assert "thought_tokens is 100, but must be below the budget of 100 tokens" in str(second.error)


@pytest.mark.parametrize("concurrency", [0, -1, 1.5, True, None, "4"])
def test_a_concurrency_is_a_whole_number(concurrency):
    with pytest.raises(ConfigError, match=r"concurrency.*,.*whole.*1"):
        Solver("toy", concurrency=concurrency)


def test_a_bad_problem_is_no_reason_for_the_others_to_fail(alone):
    bad = [
        Problem("1 + 1", task="nonsense"),
        "",
        "no sum at all",
        None,
        5,
        [{"role": "user"}],
        {"role": "user", "content": "1 + 1"},
        Problem("1 + 1", task=5),
    ]
    mixed = [PROBLEMS[0], *bad, *PROBLEMS[1:]]
    first, *failed = tts.solve_many(mixed, each=300, model="toy", strategy=PLAN, seed=3)
    assert traces([first, *failed[len(bad) :]]) == traces(alone)
    for end in failed[: len(bad)]:
        assert isinstance(end.error, Exception)
        assert (end.answer, end.candidates, end.stopped_by) == (None, (), "failed")
        assert end.warnings
    assert "nonsense" in str(failed[0].error)


def test_a_run_that_breaks_is_no_reason_for_the_others_to_fail(monkeypatch, alone):
    async def broken(run):
        if run.problem.text == "1 + 1":
            raise RuntimeError("a defect")
        return await solve_problem(run)

    monkeypatch.setattr("tts.solver.solver.solve_problem", broken)
    ends = tts.solve_many(PROBLEMS, each=300, model="toy", strategy=PLAN, seed=3)
    assert [str(end.error) for end in ends] == ["None", "None", "a defect", "None"]
    assert traces(ends[:2] + ends[3:]) == traces(alone[:2] + alone[3:])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "best_of_m"}, "strategy is 'best_of_m'"),
        ({"strategy": "single | best"}, "scores with the role 'main', but no verifier has it"),
        ({"verifier": "checker"}, "an oracle needs permission"),
        ({"verifier": "chekcer"}, "verifier is 'chekcer'"),
        ({"seed": 1.5}, "seed is 1.5"),
        ({"each": 0}, "budget tokens is 0"),
        (
            {"each": Budget(usd=1)},
            "has no rate for it.*usd_in=0.15/M and usd_out=0.60/M in the model's record.*in Python",
        ),
        ({"budget": 90}, "either budget .* or each"),
        ({"each": None}, "either budget .* or each"),
        ({"each": None, "budget": 3}, "too small for 4 problems"),
        ({"task": "nonsense"}, "nonsense"),
    ],
)
def test_what_is_wrong_for_all_is_raised_at_once(options, message):
    with pytest.raises(ConfigError, match=message):
        tts.solve_many(PROBLEMS, **{"each": 90, "model": "toy", "strategy": PLAN, **options})


@pytest.mark.parametrize(
    "problems", ["3 + 4", b"3 + 4", {"role": "user", "content": "3 + 4"}, Problem("3 + 4"), 5, None]
)
def test_what_is_no_list_of_problems_is_refused(problems):
    with pytest.raises(ConfigError, match=r"problems.*,.*list.*problems.*give"):
        tts.solve_many(problems, each=90, model="toy", strategy=PLAN)


MANY_INTERRUPTED = """
import os, signal
import tts
from tts.backends.toy import ToyBackend
from tts.backends.base import RowSet, Sample

class Held(RowSet):
    def cancel(self):
        super().cancel()
        for index, sample in enumerate(self.samples):
            if sample is None:
                self.resolve(index, Sample("", (), (), "cancelled", None, 0))

sample, requests = ToyBackend.sample, []

def held(self, request):
    requests.append(request)
    if len(requests) <= 3:
        return sample(self, request)
    os.kill(os.getpid(), signal.SIGINT)
    return Held(request)

ToyBackend.sample = held
try:
    with tts.Solver("toy", strategy="best_of_n(n=1100)", concurrency=1) as solver:
        solver.solve_many(["3 + 4 - 2", "1 + 1", "2 + 2"], each=tts.Budget(samples=1200))
except tts.Interrupted as end:
    for solution in end.partial:
        print(solution.problem.text, solution.answer, solution.stopped_by, len(solution.candidates), solution.error)
"""


@pytest.mark.slow
def test_ctrl_c_brings_the_solutions_so_far():
    end = program(MANY_INTERRUPTED)
    assert end.stdout.splitlines() == [
        "3 + 4 - 2 5 done 1100 None",
        "1 + 1 2 interrupted 1024 None",
        "2 + 2 None interrupted 0 None",
    ]
    assert (end.stderr, end.returncode) == ("", 0)


def test_shares_sum_to_the_total():
    shares = divide(Budget(tokens=1001, samples=7, seconds=2.5, usd=0.5), 4)
    assert [s.tokens for s in shares] == [251, 250, 250, 250]
    assert [s.samples for s in shares] == [2, 2, 2, 1]
    assert [s.seconds for s in shares] == [2.5] * 4
    assert sum(s.usd for s in shares) == 0.5
    assert divide(Budget(tokens=5), 0) == []
    assert divide(Budget(tokens=5), 1) == [Budget(tokens=5)]


def test_a_total_that_cannot_be_divided_is_refused():
    with pytest.raises(ConfigError, match=r"3 samples.*small.*4"):
        divide(Budget(tokens=1000, samples=3), 4)
