"""`solve_many` with `auto`: one total, divided by what samples are worth, exactly, in waves that do not depend on
timing.
"""

from __future__ import annotations

import pytest

import tts
from tests.support.chaos import ChaosBackend
from tests.support.runs import Clock
from tts.allocator.allocate import Allocator
from tts.allocator.auto import Auto
from tts.allocator.evidence import Round
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget, Rates
from tts.errors import ConfigError
from tts.solver.run import solve_problem
from tts.solver.solver import Solver
from tts.types import Problem

EASY = [f"{i} + 1" for i in range(6)]
HARD = [f"{i} + 4 - 2 + 7 - 5 + 9" for i in range(6)]
LANGUAGE = ToyLanguage(accuracy=0.8, mute=0.05)
PLAN = "auto(price=0.0) | majority"


def solver(concurrency=1024, backend=None):
    return Solver(backend or ToyBackend(LANGUAGE), {}, task="arithmetic", strategy=PLAN, concurrency=concurrency)


def spent(ends, unit):
    return sum(getattr(end.usage, unit) for end in ends)


@pytest.mark.slow
@pytest.mark.parametrize("concurrency", [1, 3, 1024])
def test_a_total_goes_to_the_problems_that_need_it_whatever_runs_beside_what(concurrency):
    with solver() as one, solver(concurrency) as other:
        ends = one.solve_many([*EASY, *HARD], Budget(samples=96), seed=1)
        again = other.solve_many([*EASY, *HARD], Budget(samples=96), seed=1)
    assert [end.trace.canonical() for end in ends] == [end.trace.canonical() for end in again]
    assert spent(ends, "samples") == 96
    assert spent(ends[6:], "samples") > 1.5 * spent(ends[:6], "samples")
    assert [end.answer for end in ends[:6]] == [str(i + 1) for i in range(6)]
    assert all(end.strategy == PLAN and end.trace.reasons for end in ends)
    assert "pilots" in ends[0].trace.reasons[0]
    assert "each further sample adds" in ends[6].trace.reasons[1]


@pytest.mark.slow
@pytest.mark.parametrize("fail", [0.0, 0.3])
@pytest.mark.parametrize(
    "total",
    [
        {"samples": 5},
        {"samples": 40},
        {"tokens": 7},
        {"tokens": 300},
        {"tokens": 3000},
        {"flops": 4000.0},
        {"usd": 2e-6},
        {"tokens": 900, "samples": 20},
    ],
)
def test_the_total_holds_exactly_under_failures(total, fail):
    rates = Rates(flops=2, usd_in=10**6, usd_reused=0, usd_out=4 * 10**6)
    chaos = ChaosBackend(ToyBackend(LANGUAGE), seed=2, fail=fail, rates=rates)
    with solver(backend=chaos) as one:
        ends = one.solve_many([*EASY, *HARD], Budget(**total), seed=1)
    for unit, limit in total.items():
        assert spent(ends, unit) <= limit
        if fail == 0 and limit in (40, 3000, 20):
            assert spent(ends, unit) >= 0.8 * limit
    assert len(ends) == 12
    assert all(end.answer is not None or end.warnings for end in ends)


def test_problems_that_cannot_be_solved_leave_their_share_to_the_others(monkeypatch):
    async def broken(run):
        if run.problem.text == EASY[0]:
            raise RuntimeError("a defect")
        return await solve_problem(run)

    monkeypatch.setattr("tts.solver.solver.solve_problem", broken)
    with solver() as one:
        ends = one.solve_many([EASY[0], "", *HARD], Budget(samples=60))
    assert [end.stopped_by for end in ends[:2]] == ["failed", "failed"]
    assert spent(ends, "samples") == 60


def test_what_is_settled_returns_the_rest():
    with Solver(ToyBackend(ToyLanguage(accuracy=1.0)), {}, task="arithmetic", strategy="auto(price=0.01)") as one:
        ends = one.solve_many(EASY, Budget(samples=600))
        alone = one.solve(EASY[0], Budget(samples=600))
    assert spent(ends, "samples") < 120
    assert all(end.stopped_by.startswith("settled") for end in ends)
    assert alone.stopped_by.startswith("settled")
    assert alone.usage.samples < 20
    assert "below the price" in alone.trace.reasons[-1]


def test_it_says_that_there_is_no_performance_model():
    end = tts.solve("1 + 1", 200, model="toy", strategy="auto")
    assert any("no performance model" in line for line in end.warnings)


def test_a_model_that_is_not_there_is_refused_before_anything_is_spent():
    with pytest.raises(ConfigError, match=r"performance.*.nowhere\.json."):
        tts.solve("1 + 1", 200, model="toy", strategy="auto(model='nowhere.json')")


def test_fewer_samples_than_problems_go_to_the_first():
    with solver() as one:
        ends = one.solve_many(EASY, Budget(samples=4))
        assert [end.usage.samples for end in ends] == [1, 1, 1, 1, 0, 0]
        assert one.solve_many([], Budget(samples=4)) == []
        tried = one.solve_many([Problem("1 + 1")], Budget(samples=1))
    assert tried[0].answer is not None


def test_most_samples_of_a_problem_are_kept_to():
    with solver() as one:
        ends = one.solve_many(HARD, Budget(samples=600), strategy="auto(n=5, price=0.0)")
    assert [end.usage.samples for end in ends] == [5] * 6


CHECKED = {"main": "checker"}


def checked_problems(texts):
    return [Problem(text, answer=str(eval(text))) for text in texts]


def test_a_checker_ends_a_problem_at_its_first_right_sample():
    with Solver(ToyBackend(LANGUAGE), CHECKED, task="arithmetic", strategy="auto(price=0.0)", allow_oracle=True) as one:
        ends = one.solve_many(checked_problems([*EASY, *HARD]), Budget(samples=150), seed=1)
        alone = one.solve(checked_problems(HARD)[0], Budget(samples=100), seed=1)
    for end in [*ends, alone]:
        right = [c.answer == end.problem.answer for c in sorted(end.candidates, key=lambda c: c.index)]
        assert not any(right[:-4])  # at most the wave in which it came
        assert any(right) == (end.answer == end.problem.answer) == end.stopped_by.startswith("settled: the checker")
    assert sum(end.answer == end.problem.answer for end in ends) >= 11
    assert spent(ends, "samples") < 50
    assert "one is accepted" in alone.trace.reasons[-1]


def test_scores_weigh_the_votes_that_decide():
    """A perfect verifier that is no checker settles sooner than votes do, and costs nothing that the selection would
    not.
    """
    samples = {}
    for verifiers in ({}, {"main": "toy"}):
        with Solver(ToyBackend(LANGUAGE), verifiers, task="arithmetic", strategy="auto(price=0.005)") as one:
            ends = one.solve_many(HARD, Budget(samples=400), seed=1)
        samples[bool(verifiers)] = spent(ends, "samples")
        assert all(end.usage.verifier_calls == (end.usage.samples if verifiers else 0) for end in ends)
    assert samples[True] < 0.8 * samples[False]


def test_time_alone_is_divided_too():
    clock = Clock(tick=1e-6)
    with Solver(ToyBackend(LANGUAGE), {}, task="arithmetic", strategy=PLAN, clock=clock) as one:
        ends = one.solve_many([*EASY, *HARD], Budget(seconds=0.05), seed=1)
        late = one.solve_many(EASY, Budget(seconds=1e-6), seed=1)
    assert sum(end.answer is not None for end in ends) == 12
    assert spent(ends[6:], "samples") > spent(ends[:6], "samples") > 6
    assert not any(end.reproducible for end in ends)
    assert [end.stopped_by for end in late] == ["budget: seconds"] * 6


def test_what_a_problem_that_breaks_down_in_its_turn_has_left_goes_to_the_others(monkeypatch):
    drawn = Auto._draw_plain

    async def broken(self, search, samples):
        if search.problem.text == EASY[0] and search.candidates:
            raise RuntimeError("a defect")
        await drawn(self, search, samples)

    monkeypatch.setattr(Auto, "_draw_plain", broken)
    with solver() as one:
        ends = one.solve_many([*EASY, *HARD], Budget(samples=90), seed=1)
    assert [end.stopped_by == "failed" for end in ends] == [True] + [False] * 11
    assert ends[0].answer is not None
    assert spent(ends, "samples") == 90


LONG = [f"{i} + 1" if i % 2 else f"{i} + 4 - 2 + 7 - 5 + 9 + 1 - 3 + 8 - 6 + 2 - 1 + 5" for i in range(30)]


def answered(ends):
    return sum(end.answer is not None for end in ends)


@pytest.mark.parametrize("concurrency", [2, 1024])
def test_first_samples_are_not_cut_short_while_the_total_pays_for_one_of_each(concurrency):
    alike = Solver(ToyBackend(ToyLanguage(accuracy=0.9)), {}, task="arithmetic", strategy=PLAN, concurrency=concurrency)
    with alike as one:
        single = one.solve_many(LONG, each=Budget(samples=1), strategy="single | majority", seed=1)
        total = int(1.05 * spent(single, "tokens"))
        # so that equal parts would cut long ones
        assert max(end.usage.tokens for end in single) > 1.5 * total / len(LONG)
        ends = one.solve_many(LONG, Budget(tokens=total), seed=1)
        half = one.solve_many(LONG, Budget(tokens=total // 2), seed=1)
    assert spent(ends, "tokens") <= total
    assert answered(ends) >= answered(single) - 1
    right = [sum(end.answer == str(eval(end.problem.text)) for end in each) for each in (ends, single)]
    assert right[0] >= right[1] - 3
    assert spent(half, "tokens") <= total // 2
    assert 0.4 * len(LONG) <= answered(half) == answered(half[: answered(half)])  # those at the front, not all a little


def test_a_total_that_pays_for_no_sample_is_spent_on_the_first_problem():
    with solver() as one:
        ends = one.solve_many([*HARD, *EASY], Budget(tokens=7))
        assert [end.usage.tokens > 0 for end in ends] == [True] + [False] * 11
        assert all(end.stopped_by.startswith("budget") for end in ends)


def test_another_strategy_is_not_asked_twice_at_a_size(monkeypatch):
    asked = []
    turns = iter([Round(2), Round(8, 1), Round(4, 1), Round(16, 1), Round(0, why="over")])

    async def next_round(self, search, found, had):
        asked.append(dict(had))
        return next(turns)

    monkeypatch.setattr(Auto, "plans", lambda self: ("best_of_n", "best_of_n(n=3)"))
    monkeypatch.setattr(Auto, "next_round", next_round)
    with solver() as one:
        one.solve(HARD[0], Budget(samples=60))
    assert asked == [{}, {}, {1: 8}, {1: 8}, {1: 16}]


def test_a_division_that_fails_is_the_error_of_every_problem_that_waits(monkeypatch):
    def broken(self, state):
        raise RuntimeError("a defect")

    monkeypatch.setattr(Allocator, "next", broken)
    with solver() as one:
        ends = one.solve_many(EASY, Budget(samples=12))
    assert [str(end.error) for end in ends] == ["the strategy auto(price=0.0) failed: RuntimeError: a defect"] * len(
        EASY
    )
