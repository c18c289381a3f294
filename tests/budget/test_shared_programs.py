"""Random programs that run at once on one account: none waits for ever, no limit is passed, and all books agree."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import numpy as np

from tests.budget.test_many_programs import ops_of, pick, plan_of
from tests.support.chaos import ChaosBackend
from tests.support.guard import LIMIT_S
from tests.support.programs import PROBLEMS, Judge, Program
from tests.support.repeats import repeats
from tests.support.runs import Clock, make_run, recount
from tts.backends.toy.backend import ToyBackend
from tts.budget.account import Account
from tts.budget.budget import Budget, Rates
from tts.budget.ledger import UNITS
from tts.solver.run import solve_problem
from tts.solver.setup import ProblemRun
from tts.verifiers.toy import ToyVerifier

PRICES = Rates(flops=2, usd_in=10**6, usd_out=4 * 10**6)
OPS = (
    "expand",
    "expand",
    "complete",
    "complete",
    "score",
    "score",
    "extend",
    "ask",
    "rollout",
    "keep",
    "finish",
    "open",
)


def budget_of(rng: np.random.Generator) -> Budget:
    """Return limits in one to three units, which pay a part of what some programs would spend."""
    limits: dict[str, Any] = {
        "tokens": pick(rng, [1, 40, 200, 1000]),
        "generated_tokens": pick(rng, [20, 200, 900]),
        "verifier_tokens": pick(rng, [20, 300]),
        "verifier_calls": pick(rng, [1, 10, 60]),
        "samples": pick(rng, [2, 20, 60]),
        "flops": pick(rng, [100, 2000]),
        "usd": pick(rng, [1e-8, 1e-6]),
    }
    return Budget(
        **{unit: limits[unit] for unit in rng.choice(sorted(limits), int(rng.integers(1, 4)), replace=False).tolist()}
    )


def program(rng: np.random.Generator, account: Account, backend: ChaosBackend) -> ProblemRun:
    verifiers = pick(rng, [{}, {"main": ToyVerifier(error=0.2)}, {"main": Judge()}])
    plan = plan_of(rng, Program(ops=ops_of(rng, OPS), verifiers=tuple(verifiers)), verified=bool(verifiers))
    run = make_run(
        pick(rng, PROBLEMS), 1, plan, backend, verifiers=verifiers, seed=int(rng.integers(9)), clock=Clock(tick=1e-6)
    )
    payer = account if rng.random() < 0.8 else account.part(samples=int(rng.integers(1, 9)))
    return dataclasses.replace(run, budget=payer)


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
        if run.budget is not account:
            run.budget.close()
    spent = recount(account.ledger)
    for unit in UNITS:
        assert account.reservation(unit) == 0, (seed, unit)
        assert account.spending(unit) == spent[unit], (seed, unit)
    for unit in account.units:
        assert account.spending(unit) <= account.limit(unit), (seed, unit)
    assert not backend.live, seed


@repeats(40, 2_000)
def test_random_programs_at_once_share_one_account(runs: int) -> None:
    for seed in range(runs):
        asyncio.run(check_programs(seed, 2 + seed % 12))
