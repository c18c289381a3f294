"""`auto` over models of several prices: which model is asked about which problem, what that costs, and what cannot be
compared.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tts
from tests.allocator.test_allocate import state
from tts.allocator.allocate import Allocator
from tts.allocator.difficulty import RATES, Population
from tts.allocator.performance import PerformanceCurve, PerformanceModel
from tts.allocator.values import Curved, ProblemStates, evidence_of
from tts.backends.function import Answer, Ask, FunctionBackend
from tts.backends.toy.backend import ToyBackend
from tts.budget.budget import Rates
from tts.errors import ConfigError
from tts.types import Problem, Solution

SIZES = np.array([1.0, 2, 4, 8, 16])
DEAR, RIGHT = 20, 0.95  # samples of the policy that one of the dear model costs, and how often that is right
CHEAP_RATES, DEAR_RATES = (Rates(flops=2, usd_in=0, usd_reused=0, usd_out=each * 10**9) for each in (1, DEAR))
PLAIN, LARGE = "best_of_n | majority", "best_of_n(writer='large') | majority"
POPULATION = Population.from_rates(np.where((RATES < 0.1) | (RATES > 0.9), 1.0, 1e-6))  # easy and hard problems
LENGTH = tts.tasks.get("arithmetic").typical_tokens("solve")  # of every solution
UNIT = LENGTH * 1e-6  # dollars of a sample of the policy
EASY, HARD = [f"{i} + 1" for i in range(8)], [f"{i} + 4 - 2" for i in range(8)]


def performance(**changes: Any) -> PerformanceModel:
    """Return what is known of both: the policy is right by its rate, the dear model as often everywhere."""
    curves = {
        PLAIN: PerformanceCurve(SIZES, np.repeat(RATES[:, None], len(SIZES), 1), np.zeros((len(RATES), len(SIZES)))),
        LARGE: PerformanceCurve(np.array([float(DEAR)]), np.full((len(RATES), 1), RIGHT), np.zeros((len(RATES), 1))),
    }
    facts: dict[str, Any] = {
        "model": "callable", "task": "arithmetic", "verifiers": {}, "source": "a test", "problems": 100, "tokens": 2.0,
        "population": POPULATION, "curves": curves, "models": {"large": "callable"}, "unit": "usd",
    }  # fmt: skip
    return PerformanceModel(**facts | changes)


def policy(ask: Ask) -> Answer:
    """Right on easy problems, and of another opinion each time on hard ones."""
    if ask.max_tokens < LENGTH:
        return Answer("A", tokens=ask.max_tokens, finished=False)
    text = str(ask.prompt)
    easy = any(one in text and f"{one} " not in text for one in EASY) and "- 2" not in text
    return Answer(f"A: {7 if easy else 100 + np.random.default_rng(ask.seed).integers(10**6)}", tokens=LENGTH)


def dear(ask: Ask) -> Answer:
    if ask.max_tokens < LENGTH:
        return Answer("A", tokens=ask.max_tokens, finished=False)
    return Answer(f"A: {7 if np.random.default_rng(ask.seed).random() < RIGHT else 8}", tokens=LENGTH)


def models(rates: Rates = DEAR_RATES) -> Mapping[str, FunctionBackend]:
    small, large = FunctionBackend(policy), FunctionBackend(dear)
    small.rates, large.rates = CHEAP_RATES, rates
    return {"policy": small, "large": large}


@pytest.fixture
def plan(tmp_path: Path) -> str:
    performance().save(tmp_path / "prices.json")
    return f"auto(model={str(tmp_path / 'prices.json')!r}) | majority"


def spent(solutions: Sequence[Solution]) -> float:
    return math.fsum(s.usage.usd or 0.0 for s in solutions)


# The division ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [0.0, 19, 20, 39, 40, 59, 60, 79, 80, 120])
def test_the_dear_model_is_asked_as_by_the_best_of_all_divisions(left: float) -> None:
    """Four problems, of which two are open: every choice of who is asked the dear model is tried."""
    known = performance()
    curved = Curved(known, (PLAIN, LARGE), known.population)
    start = state(samples=[4, 4, 4, 4], leader=[4, 1, 1, 4], left=left)
    allocator, had, over, spends = Allocator(values=curved, pilots=2, price=0.002), np.zeros((4, 2), np.int64), left, 0
    while True:
        now = ProblemStates.of(start.samples, over, leader=start.leader, had=had)
        grant = allocator.next(now)
        asked = np.flatnonzero(grant.plan * grant.samples)
        if grant.reason or not len(asked):
            break
        assert (grant.samples * (grant.plan > 0)).sum() <= over
        had[asked, 1], over, spends = grant.samples[asked], over - int(grant.samples[asked].sum()), spends + len(asked)
        assert spends < 9

    def chance(choice: Sequence[bool]) -> float:
        every = np.array([[0, DEAR * one] for one in choice])
        return float(curved.chance(ProblemStates.of(start.samples, 1.0, leader=start.leader, had=every)).sum())

    every = [choice for choice in itertools.product([False, True], repeat=4) if DEAR * sum(choice) <= left]
    best = max(map(chance, every))
    idle = min(int(left // DEAR), 4) - int((had[:, 1] > 0).sum())
    assert chance((had[:, 1] > 0).tolist()) >= best - idle * DEAR * allocator.price - 1e-9, (
        "what was left out is worth less than its price"
    )
    assert left >= 3 * DEAR or np.flatnonzero(had[:, 1]).tolist() == [1, 2][: int(left // DEAR)], (
        "the open ones come first"
    )


def test_what_a_dear_model_has_said_is_worth_what_its_curve_says() -> None:
    known = performance()
    curved = Curved(known, (PLAIN, LARGE), known.population)
    at = ProblemStates.of([4, 4], 100.0, leader=[1, 1], had=np.array([[0, 0], [0, DEAR]]))
    assert curved.chance(at)[1] == pytest.approx(RIGHT)
    assert curved.chance(at)[0] < 0.3
    worth = curved.worth(at)
    assert (worth.plan[0], worth.block[0]) == (1, DEAR)
    assert worth.rate[0] == pytest.approx((RIGHT - curved.chance(at)[0]) / DEAR)
    assert worth.rate[1] <= 0, "votes of the policy say nothing beside it"


def test_what_costs_more_than_the_greatest_table_can_be_chosen() -> None:
    size = np.array([150.0])
    known = performance(
        curves={
            **performance().curves,
            LARGE: PerformanceCurve(size, np.full((len(RATES), 1), 1.0), np.zeros((len(RATES), 1))),
        }
    )
    curved = Curved(known, (PLAIN, LARGE), known.population)
    worth = curved.worth(ProblemStates.of([64], 200.0, leader=[1]))
    assert (worth.plan[0], worth.block[0]) == (1, 150)


def test_what_a_dear_model_solved_says_nothing_of_the_policy() -> None:
    at = ProblemStates.of([3, 3], 1.0, solved=[True, True], checked=True, beside=np.array([0, 1]))
    assert evidence_of(at).tolist() == [[1, 0], [2, 3]]


# A total in dollars ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_total_in_dollars_goes_to_the_model_that_each_problem_needs(plan: str, seed: int) -> None:
    total = tts.Budget(usd=(16 * 4 + 8 * DEAR) * UNIT)
    made: list[list[Solution]] = []
    for concurrency in (1024, 2):
        with tts.Solver(models(), {}, task="arithmetic", strategy=plan, concurrency=concurrency) as solver:
            made.append(solver.solve_many([*EASY, *HARD], total, seed=seed))
            assert not [line for s in made[-1] for line in s.warnings if "performance model" in line]
    assert [s.trace.canonical() for s in made[0]] == [s.trace.canonical() for s in made[1]], "whatever runs beside what"
    solutions = made[0]
    assert spent(solutions) <= total.limits["usd"] * (1 + 1e-12)
    asked = [any(node.model == "large" for node in s.trace.nodes) for s in solutions]
    assert all(asked[8:])
    assert sum(asked[:8]) <= 1, "what two pilots leave pays the dear model once more"
    assert [s.answer for s, dear in zip(solutions[:8], asked[:8], strict=True) if not dear] == ["7"] * asked[:8].count(
        False
    )
    assert sum(s.answer == "7" for s in solutions[8:]) >= 6, "the dear model's answer counts, not the votes before it"
    assert any("best_of_n(writer='large')" in line for line in solutions[-1].trace.reasons)
    with tts.Solver(models(), {}, task="arithmetic") as solver:
        alone = {
            role: solver.solve_many([*EASY, *HARD], total, strategy=f"best_of_n(writer={role!r}) | majority")
            for role in models()
        }
    right = {role: sum(s.answer == "7" for s in ends) for role, ends in alone.items()}
    assert sum(s.answer == "7" for s in solutions) > max(right.values())


CASCADE = "cascade(models=('policy', 'large'), samples=(2, 1), thresholds=(1.0,)) | majority"


@pytest.mark.slow
@pytest.mark.parametrize("alone", [False, True])
def test_a_cascade_answers_by_its_last_model_and_its_end_is_not_that_of_the_problem(
    tmp_path: Path, *, alone: bool
) -> None:
    curve = PerformanceCurve(
        np.array([DEAR / 2 + 2]),
        np.full((len(RATES), 1), RIGHT),
        np.zeros((len(RATES), 1)),
        np.array([DEAR + 2.0]),
        np.where(RATES < 0.5, DEAR + 2.0, 2.0)[:, None],
    )
    known = performance(curves={PLAIN: performance().curves[PLAIN], CASCADE: curve})
    known.save(tmp_path / "cascade.json")
    plan = f"auto(model={str(tmp_path / 'cascade.json')!r}) | majority"
    with tts.Solver(models(), {}, task="arithmetic", strategy=plan) as solver:
        if alone:
            solutions = [solver.solve(one, tts.Budget(usd=40 * DEAR * UNIT), seed=1) for one in HARD]
        else:
            solutions = solver.solve_many(HARD, tts.Budget(usd=8 * (4 + DEAR + 10) * UNIT), seed=1)
    asked = [one for one in solutions if any(node.model == "large" for node in one.trace.nodes)]
    assert len(asked) >= 6
    for one in asked:
        assert {candidate.trajectory.model for candidate in one.candidates} == {"large"}
    assert sum(one.answer == "7" for one in asked) >= len(asked) - 2
    assert not any(one.stopped_by.startswith("the model") for one in solutions)


@pytest.mark.slow
@pytest.mark.parametrize("usd", [0.5 * UNIT, 15 * UNIT, 55 * UNIT, 200 * UNIT])
def test_no_limit_is_passed_and_every_token_has_the_price_of_its_model(plan: str, usd: float) -> None:
    with tts.Solver(models(), {}, task="arithmetic", strategy=plan) as solver:
        solutions = solver.solve_many([*EASY, *HARD], tts.Budget(usd=usd), seed=2)
        alone = solver.solve(HARD[0], tts.Budget(usd=usd), seed=2)
    assert spent(solutions) <= usd * (1 + 1e-12)
    assert (alone.usage.usd or 0) <= usd * (1 + 1e-12)
    for one in (*solutions, alone):
        by_model = {
            role: sum(call.usage.generated_tokens for call in one.trace.calls if call.model == role)
            for role in models()
        }
        assert one.usage.usd == pytest.approx(1e-6 * by_model["policy"] + DEAR * 1e-6 * by_model["large"])
    assert any(node.model == "large" for node in alone.trace.nodes) == (usd > (4 + DEAR) * UNIT)


def test_a_checker_takes_the_answer_of_whoever_is_right(plan: str) -> None:
    problems = [Problem(text, answer="7") for text in (*EASY, *HARD)]
    with tts.Solver(
        models(),
        {"main": "checker"},
        task="arithmetic",
        strategy=plan.replace("majority", "weighted"),
        allow_oracle=True,
    ) as solver:
        solutions = solver.solve_many(problems, tts.Budget(usd=400 * UNIT), seed=1)
    assert spent(solutions) <= 400 * UNIT * (1 + 1e-12)
    assert sum(s.answer == "7" for s in solutions) >= 15
    assert {s.stopped_by for s in solutions if s.answer == "7"} == {"settled: the checker has accepted an answer"}


def test_models_of_different_kinds_see_the_same_problem(tmp_path: Path) -> None:
    """Their tokenizers differ: nothing but the problem's text is given to both."""
    performance(model="toy", models={"large": "callable"}).save(tmp_path / "kinds.json")
    toy = ToyBackend()
    toy.rates = CHEAP_RATES
    given = {"policy": toy, "large": models()["large"]}
    with tts.Solver(
        given, {}, task="arithmetic", strategy=f"auto(model={str(tmp_path / 'kinds.json')!r}) | majority"
    ) as solver:
        solutions = solver.solve_many(["13 + 14 - 5 + 16 - 7 + 8 - 9"] * 3, tts.Budget(usd=5e-3), seed=3)
    assert spent(solutions) <= 5e-3
    assert all(s.error is None for s in solutions)


# What is refused ------------------------------------------------------------------------------------------------------


def test_what_cannot_be_compared_is_refused_before_anything_is_spent(plan: str) -> None:
    free, alone = models(Rates(flops=2)), {"policy": models()["policy"]}
    for given, budget, message in (
        (free, tts.Budget(usd=1.0), r"limits usd, but the record of the model 'large' .* has no rate for it"),
        (alone, tts.Budget(usd=1.0), "writes with the role 'large', but no model has it; those that have one: policy"),
        (models(), tts.Budget(tokens=500), "compares models by their cost in usd, but the budget limits tokens"),
    ):
        with tts.Solver(given, {}, task="arithmetic", strategy=plan) as solver:
            with pytest.raises(ConfigError, match=message):
                solver.solve(HARD[0], budget)
            with pytest.raises(ConfigError, match=message):
                solver.solve_many(HARD, budget)
        assert given["policy"].counters.prompt_tokens == 0


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("models", {}, "writes with the role 'large', but models has no model of it"),
        ("models", {"large": ""}, "models.large is '', but must have at least 1 character"),
        ("unit", "seconds", "unit is 'seconds', but must be 'tokens', 'flops' or 'usd'"),
    ],
)
def test_a_file_that_names_no_such_model_is_refused(field: str, value: Any, message: str) -> None:
    data = json.loads(performance().to_json())
    assert PerformanceModel.from_json(json.dumps(data)).models == {"large": "callable"}
    with pytest.raises(ConfigError, match=message):
        PerformanceModel.from_json(json.dumps({**data, field: value}))


def test_it_says_what_it_was_fitted_to() -> None:
    known = performance()
    assert known.fits("callable", "arithmetic", {}, {"large": "callable", "other": "x"}) == ""
    assert known.fits("callable", "arithmetic", {}, {"large": "gpt"}) == (
        "it was fitted to the model of the role 'large', 'callable', and this is 'gpt'"
    )


def test_without_a_performance_model_the_policy_writes_alone_and_the_solution_says_so() -> None:
    with tts.Solver(models(), {}, task="arithmetic", strategy="auto") as solver:
        solution = solver.solve(HARD[0], tts.Budget(usd=200 * UNIT))
    assert any("auto writes nothing with the models of the roles 'large'" in line for line in solution.warnings)
    assert {node.model for node in solution.trace.nodes} <= {"policy", None}
