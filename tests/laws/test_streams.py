"""One seed, one result: whatever shares the batch, in whatever order rows come back, however a path is cut into
calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from tests.support.chaos import ChaosBackend
from tests.support.programs import PROBLEMS, Program
from tests.support.runs import make_run, solve, solve_runs
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.search.ends import END, STEP, Tokens, Until
from tts.search.needs import Needs
from tts.search.parts import Selection, Strategy
from tts.search.search import Search
from tts.search.selections.majority import Majority
from tts.solver.setup import ProblemRun
from tts.types import Candidate, Problem
from tts.verifiers.toy import ToyVerifier

LANGUAGE = ToyLanguage(accuracy=0.5, mute=0.1)


@dataclass(frozen=True, kw_only=True)
class Piecewise(Strategy):
    """One sample, written in many calls; `side`: siblings that are written and left behind on the way."""

    registered_as: ClassVar[str] = "piecewise"
    cuts: tuple[Until | Tokens, ...] = (STEP,)
    side: int = 0
    lookahead: int = 0

    def needs(self) -> Needs:
        return Needs(capabilities=("steps",))

    async def run(self, search: Search) -> Sequence[Candidate]:
        t, turn = search.root, 0
        while t.status == "active":
            if self.lookahead:
                await search.rollout([t], self.lookahead)
            t = (await search.expand([t], 1 + self.side, self.cuts[turn % len(self.cuts)]))[0][0]
            turn += 1
        search.finish(t)
        return search.candidates

    def default_selection(self, *, verified: bool) -> Selection:
        return Majority()


def texts(plan: Any, problem: str, seed: int, budget: Budget) -> list[str]:
    solution = solve(make_run(problem, budget, plan, ToyBackend(LANGUAGE), seed=seed))
    return [c.trajectory.full_text for c in sorted(solution.candidates, key=lambda c: c.index)]


@pytest.mark.parametrize(
    "strategy",
    [
        Piecewise(),
        Piecewise(cuts=(Tokens(1),)),
        Piecewise(cuts=(Tokens(3), STEP, Tokens(5))),
        Piecewise(cuts=(STEP, END)),
        Piecewise(side=3),
        Piecewise(lookahead=2),
    ],
)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_path_written_in_pieces_is_one_plain_sample(strategy: Piecewise, problem: str) -> None:
    plenty = Budget(tokens=20000)
    for seed in range(8):
        assert texts(strategy, problem, seed, plenty) == texts("single", problem, seed, plenty)


@pytest.mark.parametrize("budget", [Budget(samples=64), Budget(tokens=64 * 64), Budget(tokens=100, samples=64)])
def test_the_first_eight_of_sixty_four_are_the_eight(budget: Budget) -> None:
    for seed in range(3):
        eight, many = (texts(f"best_of_n(n={n})", "10 - 7 + 5 - 20", seed, budget) for n in (8, 64))
        cut = Budget(tokens=100, samples=64) == budget  # where the budget ends, the last row is cut short
        assert len(many) >= (3 if cut else 60)
        assert many[: len(eight) - cut] == eight[: len(eight) - cut]


PLANS: list[Any] = [
    "single",
    "best_of_n(n=6) | weighted",
    "best_of_n | best",
    "self_consistency(n=7)",
    "best_of_n(n=9) | unanimous(window=2) | best_of_majority",
    Piecewise(side=2, lookahead=1),
    Program(
        ops=(
            ("expand", 0, 0, 5),
            ("rollout", 0, 2, 1),
            ("score", 0, 3, 0),
            ("expand", 1, 3, 8),
            ("keep", 0, 1, 0),
            ("extend", 0, 2, 3),
            ("expand", 0, 2, 5),
            ("finish", 0, 0, 0),
            ("ask", 0, 2, 1),
            ("complete", 0, 2, 3),
        ),
        verifiers=("main",),
    ),
]


def runs_on(backend: Any, plan: Any, seed: int = 0, problems: Sequence[str] = PROBLEMS) -> list[ProblemRun]:
    return [
        make_run(
            Problem(text, id=text),
            Budget(tokens=700),
            plan,
            backend,
            seed=seed,
            verifiers={"main": ToyVerifier(error=0.2)},
        )
        for text in problems
    ]


def traces(backend: Any, plan: Any, order: Sequence[int] = range(len(PROBLEMS))) -> dict[str, Any]:
    """Solve all problems at once, submitted in an order; return the canonical trace of each."""
    runs = runs_on(backend, plan)
    ends = asyncio.run(solve_runs([runs[i] for i in order]))
    return {end.solution.trace.problem: end.solution.trace.canonical() for end in ends}


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_one_seed_gives_one_trace_under_any_batching_and_any_order_of_completion(plan: Any) -> None:
    alone: dict[str, Any] = {}
    for i in range(len(PROBLEMS)):
        alone |= traces(ToyBackend(LANGUAGE), plan, [i])
    assert traces(ToyBackend(LANGUAGE), plan) == alone
    assert traces(ToyBackend(LANGUAGE), plan, [4, 2, 0, 3, 1]) == alone
    for chaos in range(4):
        assert traces(ChaosBackend(ToyBackend(LANGUAGE), seed=chaos, slow=1 + 3 * chaos), plan) == alone


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_one_seed_gives_one_trace_where_rows_fail_too(plan: Any) -> None:
    quick, late = (traces(ChaosBackend(ToyBackend(LANGUAGE), seed=3, fail=0.3, slow=slow), plan) for slow in (0, 9))
    assert quick == late


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_another_seed_gives_another_trace(plan: Any) -> None:
    first, second = (
        [
            end.solution.trace.canonical()["nodes"]
            for end in asyncio.run(solve_runs(runs_on(ToyBackend(LANGUAGE), plan, seed)))
        ]
        for seed in (0, 1)
    )
    assert first != second
