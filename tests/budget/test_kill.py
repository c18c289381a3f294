"""A search that is cancelled at any of its awaits leaves true books: nothing stays held, and every handle is
released.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Coroutine, Generator
from typing import Any

import pytest

from tests.support.chaos import ChaosBackend
from tests.support.guard import LIMIT_S
from tests.support.programs import Judge
from tests.support.runs import Clock, make_run, recount
from tts.backends.toy.backend import ToyBackend
from tts.budget.account import Account
from tts.budget.budget import Budget, Rates
from tts.budget.units import UNITS
from tts.solver.run import solve_problem
from tts.solver.setup import ProblemRun
from tts.types import Solution
from tts.verifiers.toy import ToyVerifier

PRICES = Rates(flops=2, usd_in=10**6, usd_out=4 * 10**6)
LIMITS = Budget(tokens=300, samples=30, usd=1e-5)
PLANS = {
    "best_of_n(n=4) | weighted": ToyVerifier,
    "best_of_n(n=3) | best": Judge,
    "beam(n=4) | best": ToyVerifier,
    "best_of_n | majority": None,
    "auto(n=6) | weighted": ToyVerifier,
    "mcts(n=6) | best": ToyVerifier,
}


class Killed:
    """Runs a coroutine in the current task, and cancels the task at one of its awaits.

    Args:
        work: The coroutine.
        at: The number of the await; None: none.

    Attributes:
        awaits: The number of awaits so far.
    """

    def __init__(self, work: Coroutine[Any, Any, Solution], at: int | None) -> None:
        self._work, self._at = work, at
        self.awaits = 0

    def __await__(self) -> Generator[Any, Any, Solution]:
        failure: BaseException | None = None
        while True:
            try:
                waits_for = self._work.send(None) if failure is None else self._work.throw(failure)
            except StopIteration as end:
                return end.value
            task = asyncio.current_task()
            assert task is not None
            if self.awaits == self._at:
                task.cancel()
            self.awaits += 1
            try:
                failure = yield waits_for
            except BaseException as raised:  # noqa: BLE001 - for the work
                failure = raised


def made(plan: str, budget: Budget | Account, backend: ChaosBackend, problem: str = "3 + 4 - 2") -> ProblemRun:
    verifier = PLANS[plan]
    run = make_run(
        problem, 1, plan, backend, verifiers={} if verifier is None else {"main": verifier()}, clock=Clock(tick=1e-6)
    )
    return dataclasses.replace(run, budget=budget)


def chaos(seed: int = 0) -> ChaosBackend:
    return ChaosBackend(ToyBackend(), seed=seed, slow=3, fail=0.05, rates=PRICES)


async def settled(backend: ChaosBackend) -> None:
    while backend.late:
        await asyncio.sleep(0)


def check_balanced(account: Account) -> None:
    spent = recount(account.ledger)
    for unit in UNITS:
        assert account.reservation(unit) == 0, unit
        assert account.spending(unit) == spent[unit], unit
    for unit in account.units:
        assert account.spending(unit) <= account.limit(unit), unit


def awaits_of(plan: str, neighbours: int) -> int:
    """Return the number of awaits of a search that is not cancelled."""
    return asyncio.run(killed(plan, None, neighbours))


async def killed(plan: str, at: int | None, neighbours: int) -> int:
    """Cancel a search at an await; neighbours share its account. Check what is left, and return the awaits that it
    had.
    """
    backend, account = chaos(), Account(LIMITS)
    others = [asyncio.ensure_future(solve_problem(made(plan, account, backend, f"{i} + 4"))) for i in range(neighbours)]
    killer = Killed(solve_problem(made(plan, account, backend)), at)
    solution = await asyncio.wait_for(asyncio.ensure_future(killer), LIMIT_S)
    for other in await asyncio.wait_for(asyncio.gather(*others), LIMIT_S):
        assert other.error is None
    await settled(backend)
    assert (solution.stopped_by == "interrupted") == (at is not None), at
    assert not backend.live, at
    check_balanced(account)
    return killer.awaits


@pytest.mark.parametrize("neighbours", [0, 3])
@pytest.mark.parametrize("plan", PLANS)
def test_a_search_that_is_cancelled_at_an_await_leaves_true_books(plan: str, neighbours: int) -> None:
    count = awaits_of(plan, neighbours)
    assert count > 5
    for at in range(0, count, max(1, count // 6)):
        asyncio.run(killed(plan, at, neighbours))


@pytest.mark.slow
@pytest.mark.parametrize("neighbours", [0, 1, 3])
@pytest.mark.parametrize("plan", PLANS)
def test_a_search_that_is_cancelled_at_any_await_leaves_true_books(plan: str, neighbours: int) -> None:
    for at in range(awaits_of(plan, neighbours)):
        asyncio.run(killed(plan, at, neighbours))
