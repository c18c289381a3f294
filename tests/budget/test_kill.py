"""A search that is cancelled at any of its awaits leaves true books: nothing stays held, and every handle is
released.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any

import pytest

from tests.budget.test_shared_programs import check_account
from tests.support.chaos import ChaosBackend
from tests.support.guard import LIMIT_S
from tests.support.programs import Judge
from tests.support.runs import Clock, make_run
from tts.backends.toy.backend import ToyBackend
from tts.budget.account import Account
from tts.budget.budget import Budget, Rates
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


def made(plan: str, account: Account, backend: ChaosBackend, problem: str = "3 + 4 - 2") -> ProblemRun:
    verifier = PLANS[plan] and PLANS[plan]()
    return make_run(problem, account, plan, backend, verifiers=verifier, clock=Clock(tick=1e-6))


def chaos(seed: int = 0) -> ChaosBackend:
    return ChaosBackend(ToyBackend(), seed=seed, slow=3, fail=0.05, rates=PRICES)


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
    while backend.late:
        await asyncio.sleep(0)
    assert (solution.stopped_by == "interrupted") == (at is not None), at
    assert not backend.live, at
    check_account(account, at)
    return killer.awaits


@pytest.mark.parametrize(
    ("neighbours", "cancelled"), [(0, 6), (3, 6), *(pytest.param(n, 10**6, marks=pytest.mark.slow) for n in (0, 1, 3))]
)
@pytest.mark.parametrize("plan", PLANS)
def test_a_search_that_is_cancelled_at_any_await_leaves_true_books(plan: str, neighbours: int, cancelled: int) -> None:
    count = asyncio.run(killed(plan, None, neighbours))
    assert count > 5
    for at in range(0, count, max(1, count // cancelled)):
        asyncio.run(killed(plan, at, neighbours))
