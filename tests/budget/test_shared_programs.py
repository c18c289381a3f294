"""Random programs and open searches that run at once on one account.

None waits for ever, no limit is passed, and all books agree. Open searches also spend the account.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import numpy as np

from tests.budget.test_many_programs import ops_of, pick, plan_of
from tests.support.chaos import ChaosBackend
from tests.support.guard import LIMIT_S, run_at_once
from tests.support.programs import PROBLEMS, Judge, Program
from tests.support.repeats import repeats
from tests.support.runs import Clock, make_run, recount, sum_usages
from tts.backends.toy.backend import ToyBackend
from tts.budget.account import Account
from tts.budget.budget import Budget, Rates
from tts.budget.units import UNITS
from tts.errors import EngineError
from tts.solver.run import solve_problem
from tts.solver.setup import ProblemRun
from tts.types import Solution
from tts.verifiers.toy import ToyVerifier

PRICES = Rates(flops=2, usd_in=10**6, usd_out=4 * 10**6)
OPS = (*(one for one in ("expand", "complete", "score") for _ in range(2)), "extend", "ask", "rollout", "keep")
OPS = (*OPS, "finish", "open")


def budget_of(rng: np.random.Generator) -> Budget:
    """Return limits in one to three units, which pay a part of what some programs would spend."""
    limits: dict[str, Any] = {
        "tokens": pick(rng, [1, 40, 200, 1000]),
        "generated_tokens": pick(rng, [20, 200, 900]),
        "verifier_tokens": pick(rng, [20, 300]),
        "verifier_calls": pick(rng, [1, 10, 60]),
        "samples": pick(rng, [2, 20, 60]),
        "requests": pick(rng, [1, 10, 60]),
        "flops": pick(rng, [100, 2000]),
        "usd": pick(rng, [1e-8, 1e-6]),
    }
    return Budget(
        **{unit: limits[unit] for unit in rng.choice(sorted(limits), int(rng.integers(1, 4)), replace=False).tolist()}
    )


def program(rng: np.random.Generator, account: Account, backend: ChaosBackend) -> ProblemRun:
    verifiers = pick(rng, [{}, {"main": ToyVerifier(error=0.2)}, {"main": Judge()}])
    plan = plan_of(rng, Program(ops=ops_of(rng, OPS), verifiers=tuple(verifiers)), verified=bool(verifiers))
    more: dict[str, Any] = {"verifiers": verifiers, "seed": int(rng.integers(9)), "clock": Clock(tick=1e-6)}
    run = make_run(pick(rng, PROBLEMS), 1, plan, backend, **more)
    payer = account if rng.random() < 0.8 else account.part(samples=int(rng.integers(1, 9)))
    return dataclasses.replace(run, budget=payer)


def check_account(account: Account, seed: object) -> dict[str, float]:
    """Assert that no limit is passed, that nothing is held and that the account agrees with its ledger.

    Returns:
        What the ledger says was spent, by unit.
    """
    spent = recount(account.ledger)
    for unit in UNITS:
        assert account.reservation(unit) == 0, (seed, unit)
        assert account.spending(unit) == spent[unit], (seed, unit)
    for unit in account.units:
        assert account.spending(unit) <= account.limit(unit), (seed, unit)
    return spent


async def check_programs(seed: int, count: int) -> None:
    """Run programs at once, cancel some of them, and check that everything ends and balances."""
    rng = np.random.default_rng(seed)
    account = Account(budget_of(rng))
    backend = ChaosBackend(ToyBackend(), seed=seed, slow=4, fail=0.05, broken=0.02, unread=0.02, rates=PRICES)
    runs = [program(rng, account, backend) for _ in range(count)]
    jobs = [asyncio.ensure_future(solve_problem(run)) for run in runs]
    for job in jobs:
        if rng.random() < 0.2:
            for _ in range(int(rng.integers(6))):
                await asyncio.sleep(0)
            job.cancel()
    ends = await asyncio.wait_for(asyncio.gather(*jobs, return_exceptions=True), LIMIT_S)
    assert [end for end in ends if isinstance(end, Exception)] == []
    while backend.late:
        await asyncio.sleep(0)
    for run in runs:
        if isinstance(run.budget, Account) and run.budget is not account:
            run.budget.close()
    check_account(account, seed)
    assert not backend.live, seed


@repeats(40, 2_000)
def test_random_programs_at_once_share_one_account(runs: int) -> None:
    for seed in range(runs):
        asyncio.run(check_programs(seed, 2 + seed % 12))


# Searches that are open -----------------------------------------------------------------------------------------------

LIMITS: tuple[dict[str, Any], ...] = (
    {"tokens": 300},
    {"tokens": 2000},
    {"samples": 5},
    {"samples": 20},
    {"tokens": 900, "samples": 12},
    {"usd": 1e-6, "tokens": 2000},
)
REASONS = ("are left, but", "were held for")  # words of warnings where much of a limit is left


@dataclasses.dataclass
class Searches:
    """Searches without an end of their own on one model, which all pay from one account."""

    backend: ChaosBackend
    runs: list[ProblemRun]

    async def solve(self) -> list[Solution]:
        solutions = await asyncio.gather(*(solve_problem(run) for run in self.runs))
        while self.backend.late:
            await asyncio.sleep(0)
        return list(solutions)


def open_searches(rng: np.random.Generator, account: Account, count: int) -> Searches:
    backend = ChaosBackend(
        ToyBackend(),
        seed=int(rng.integers(10**6)),
        fail=pick(rng, [0, 0.3]),
        slow=int(rng.integers(1, 7)),
        rates=PRICES,
    )
    plan, verifiers = pick(
        rng, [("best_of_n | majority", {}), ("best_of_n | weighted", {"main": ToyVerifier(error=0.1)})]
    )
    runs = [
        make_run("3 + 4 - 2", 1, plan, backend, verifiers=verifiers, seed=seed, clock=Clock(tick=1e-6))
        for seed in range(count)
    ]
    return Searches(backend, [dataclasses.replace(run, budget=account) for run in runs])


def check_searches(seed: int, loops: int) -> None:
    """Run 2 to 9 open searches on one account, in event loops of as many threads."""
    rng = np.random.default_rng(seed)
    account = Account(Budget(**pick(rng, LIMITS)))
    count = int(rng.integers(2, 10))
    groups = [open_searches(rng, account, len(range(loop, count, loops))) for loop in range(loops)]
    ends = run_at_once(*(lambda group=group: asyncio.run(group.solve()) for group in groups))
    assert [end for end in ends if isinstance(end, BaseException)] == [], seed
    solutions: list[Solution] = [solution for end in ends for solution in end]
    errors = {type(solution.error) for solution in solutions if solution.error is not None}
    assert errors <= {EngineError}, (seed, errors)  # of searches whose every row failed
    spent = check_account(account, seed)
    assert sum_usages(solution.usage for solution in solutions) == spent, seed
    assert not any(group.backend.live for group in groups), seed
    share = max(spent[unit] / account.limit(unit) for unit in account.units)
    assert share >= 0.8 or any(map(names_reason, solutions)), (seed, share, [s.warnings for s in solutions])


def names_reason(solution: Solution) -> bool:
    """Return whether a search failed, or its solution says why much of the budget is left."""
    return solution.error is not None or any(reason in note for note in solution.warnings for reason in REASONS)


@repeats(20, 400, "accounts")
def test_open_searches_at_once_spend_one_account(accounts: int) -> None:
    for seed in range(accounts):
        check_searches(seed, loops=1)


@repeats(10, 200, "accounts")
def test_open_searches_in_two_event_loops_spend_one_account(accounts: int) -> None:
    for seed in range(accounts):
        check_searches(seed, loops=2)
