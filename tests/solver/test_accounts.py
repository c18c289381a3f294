"""Accounts in place of budgets: many calls share one total, wait for what others only hold, and say when timing
decided.
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Sequence
from typing import Any

import pytest

import tts
from tests.support.chaos import ChaosBackend
from tests.support.guard import LIMIT_S
from tests.support.runs import make_run, recount
from tts.backends.toy.backend import ToyBackend
from tts.budget.budget import Rates
from tts.budget.units import UNITS
from tts.solver.run import solve_problem

SUMS = [f"{i % 9} + {i % 7} - {i % 5}" for i in range(100)]
PRICES = Rates(flops=2, usd_in=10**6, usd_out=4 * 10**6)
BEST_OF_4 = "best_of_n(n=4) | majority"


def toy(**more: Any) -> ChaosBackend:
    return ChaosBackend(ToyBackend(), seed=0, slow=more.pop("slow", 4), rates=PRICES, **more)


async def asked(
    account: tts.Account, problems: Sequence[str], strategy: str = BEST_OF_4, model: Any = "toy", **more: Any
) -> list[tts.Solution]:
    """Return the solutions of problems that are asked at once; of a call that raises, what it has found."""

    async def ask(problem: str) -> tts.Solution:
        try:
            return await tts.asolve(problem, account, model=model, strategy=strategy, **more)
        except tts.EngineError as failure:
            return failure.partial

    return await asyncio.gather(*map(ask, problems))


def timeless(solution: tts.Solution) -> tts.Solution:
    """Return a solution without what its clock has read."""
    return dataclasses.replace(solution, usage=dataclasses.replace(solution.usage, seconds=0, work_seconds=0))


def check(account: tts.Account, solutions: Sequence[tts.Solution]) -> None:
    """Check that no limit was passed, that nothing is held, and that the solutions cost what the account has spent."""
    spent = recount(account.ledger)
    for unit in UNITS:
        assert account.reservation(unit) == 0, unit
        assert account.spending(unit) == spent[unit], unit
    for unit in account.units:
        assert account.spending(unit) <= account.limit(unit), unit
    assert sum(one.usage.tokens for one in solutions) == account.spent["tokens"]
    assert sum(one.usage.samples for one in solutions) == account.spent["samples"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "limits",
    [
        {"tokens": 3000}, {"generated_tokens": 2000}, {"verifier_tokens": 900}, {"verifier_calls": 150},
        {"samples": 150}, {"flops": 6000}, {"usd": 8e-6}, {"tokens": 3000, "usd": 6e-6, "samples": 200},
        {"seconds": 1e-9}, {"seconds": 600, "tokens": 2000},
    ],
    ids=str,
)  # fmt: skip
def test_a_hundred_calls_at_once_share_one_total(limits: dict[str, Any]) -> None:
    account = tts.Account(tts.Budget(**limits))
    backend = toy()
    solutions = asyncio.run(
        asked(account, SUMS, "best_of_n(n=4) | weighted", backend, verifier="toy(error=0.1)", task="arithmetic")
    )
    check(account, solutions)
    assert not backend.live
    assert all(one.error is None for one in solutions)
    if "seconds" not in limits or "tokens" in limits:
        assert sum(one.answer is not None for one in solutions) > 5
        assert any(min(1, account.left[unit] / limits[unit]) < 0.2 for unit in limits), account
    else:
        assert {one.stopped_by for one in solutions} == {"budget: seconds"}


@pytest.mark.slow
def test_functions_that_are_slow_or_fail_and_a_judge_share_one_total() -> None:
    asked_before: set[str] = set()

    async def model(ask: tts.Ask) -> tts.Answer:
        problem = str(ask.prompt)
        is_first = problem not in asked_before
        asked_before.add(problem)
        place = len(asked_before)
        await asyncio.sleep(0.001 * (place % 3))
        if is_first and place % 3 == 0:
            raise OSError("the line is down")
        return tts.Answer("Thus it is so.\nA: 5", tokens=min(12, ask.max_tokens))

    def judge(problem: tts.Problem, text: str) -> float:
        return len(text) % 7 / 7

    # a row that fails is charged all that it might have written
    account = tts.Account(tts.Budget(tokens=20_000, samples=400))
    solutions = asyncio.run(
        asked(account, SUMS, "best_of_n(n=3) | weighted", None, backend=model, verifier=judge, task="arithmetic")
    )
    check(account, solutions)
    assert sum(one.answer == "5" for one in solutions) >= 30
    assert sum(sum(one.failures.values()) for one in solutions) > 0


def test_calls_in_threads_share_one_total() -> None:
    account = tts.Account(tts.Budget(tokens=600))
    solutions: list[tts.Solution] = []

    def work(first: int) -> None:
        solutions.extend(tts.solve(sum_, account, model="toy", strategy=BEST_OF_4) for sum_ in SUMS[first::4][:5])

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(LIMIT_S)
    assert len(solutions) == 20
    check(account, solutions)


def test_calls_wait_for_what_others_only_hold() -> None:
    """Each call may hold all that is left, and costs a part of it."""
    account = tts.Account(tts.Budget(tokens=64 * 10))
    solutions = asyncio.run(asked(account, SUMS[:10], "single"))
    assert all(one.answer is not None for one in solutions)
    check(account, solutions)


def test_rows_are_those_of_a_call_of_its_own() -> None:
    account = tts.Account(tts.Budget(tokens=10_000))
    solutions = asyncio.run(asked(account, SUMS[:20]))
    for sum_, found in zip(SUMS, solutions, strict=False):
        alone = tts.solve(sum_, 10_000, model="toy", strategy=BEST_OF_4)
        assert [c.trajectory.full_text for c in found.candidates] == [c.trajectory.full_text for c in alone.candidates]
        assert found.usage.tokens == alone.usage.tokens


def test_one_call_on_an_account_is_that_on_its_budget() -> None:
    limits = tts.Budget(tokens=300, samples=9)
    for strategy in (BEST_OF_4, "best_of_n | majority", "beam(n=4) | best", "auto"):
        found = tts.solve("3 + 4 - 2", tts.Account(limits), model="toy", strategy=strategy, verifier="toy(error=0.1)")
        alone = tts.solve("3 + 4 - 2", limits, model="toy", strategy=strategy, verifier="toy(error=0.1)")
        assert (timeless(found), found.trace.budget) == (timeless(alone), alone.trace.budget)
        assert found.reproducible


async def at_once(payers: Sequence[tts.Account], strategy: str) -> list[tts.Solution]:
    """Return the solutions of searches that begin in one turn of one event loop, each paid by its account."""
    runs = [make_run(sum_, 1, strategy, toy()) for sum_, _ in zip(SUMS, payers, strict=False)]
    return await asyncio.gather(
        *(solve_problem(dataclasses.replace(run, budget=payer)) for run, payer in zip(runs, payers, strict=True))
    )


def test_calls_one_after_another_are_reproducible_and_calls_at_once_are_not() -> None:
    account = tts.Account(tts.Budget(tokens=5000))
    assert all(tts.solve(sum_, account, model="toy", strategy=BEST_OF_4).reproducible for sum_ in SUMS[:3])
    assert not any(one.reproducible for one in asyncio.run(at_once([account] * 5, BEST_OF_4)))


def test_calls_at_once_on_parts_with_limits_of_their_own_are_reproducible() -> None:
    account = tts.Account(tts.Budget(tokens=5000))
    first, second = (asyncio.run(at_once([account.part(tokens=200) for _ in range(5)], "auto")) for _ in range(2))
    assert all(one.reproducible for one in first)
    assert [timeless(one) for one in first] == [timeless(one) for one in second]


@pytest.mark.parametrize("strategy", ["auto", BEST_OF_4])
def test_many_problems_take_what_an_account_has_and_give_back_the_rest(strategy: str) -> None:
    account = tts.Account(tts.Budget(tokens=900))
    spent = tts.solve("3 + 4", account, model="toy", strategy="single").usage.tokens
    solutions = tts.solve_many(SUMS[:6], account, model="toy", strategy=strategy)
    assert all(one.answer is not None and one.reproducible for one in solutions)
    assert account.spent["tokens"] == spent + sum(one.usage.tokens for one in solutions)
    assert account.left["tokens"] == 900 - account.spent["tokens"]
    again = tts.solve_many(SUMS[:6], tts.Account(tts.Budget(tokens=900 - spent)), model="toy", strategy=strategy)
    assert [*map(timeless, solutions)] == [*map(timeless, again)]


@pytest.mark.parametrize("strategy", ["auto", BEST_OF_4, "beam(n=2)"])
@pytest.mark.parametrize("limits", [{"tokens": 1}, {"samples": 1}, {"tokens": 1, "usd": 1e-15}], ids=str)
def test_a_spent_account_gives_a_solution_without_an_answer(strategy: str, limits: dict[str, Any]) -> None:
    account = tts.Account(tts.Budget(**limits))

    async def spend() -> None:
        with account.lease({unit: account.available(unit) for unit in limits}, kind="expand", rates=PRICES) as lease:
            lease.spend(
                generated_tokens=limits.get("tokens", 0),
                samples=limits.get("samples", 0),
                priced={"flops": 0, "usd": account.available("usd") if "usd" in limits else 0},
            )

    asyncio.run(spend())
    for found in (
        tts.solve("3 + 4", account, model=toy(), strategy=strategy, verifier="toy", task="arithmetic"),
        *tts.solve_many(SUMS[:3], account, model=toy(), strategy=strategy, verifier="toy", task="arithmetic"),
    ):
        assert found.answer is None
        assert found.error is None
        assert found.stopped_by.startswith("budget: ")


def test_a_part_that_got_less_than_it_asked_for_says_so_in_its_solutions() -> None:
    account = tts.Account(tts.Budget(tokens=500))
    part = account.part(tokens=2000)
    found = tts.solve("3 + 4", part, model="toy", strategy="single")
    assert "the part asked for 2,000 tokens, and got the 500 that were left" in found.warnings
    assert found.reproducible


def test_a_closed_account_is_refused_before_anything_runs() -> None:
    backend = toy()
    with tts.Account(100, name="alice") as account:
        pass
    for call in (tts.solve, lambda problem, *args, **more: tts.solve_many([problem], *args, **more)):
        with pytest.raises(tts.ConfigError, match="the account 'alice' is closed"):
            call("3 + 4", account, model=backend, strategy="single")
    assert not backend.rows_made
    assert not backend.counters.prompt_tokens


def test_an_account_for_each_problem_is_refused_in_one_line() -> None:
    with pytest.raises(tts.ConfigError, match="an account is a total") as refusal:
        tts.solve_many(["3 + 4"], each=tts.Account(100), model="toy")
    assert "\n" not in str(refusal.value)


def test_a_stream_and_a_solver_take_an_account() -> None:
    account = tts.Account(tts.Budget(tokens=400))

    async def last() -> Any:
        found = None
        async for event in tts.stream("3 + 4 - 2", account, model="toy", strategy=BEST_OF_4):
            found = event.solution
        return found

    first = asyncio.run(last())
    with tts.Solver("toy", strategy=BEST_OF_4, budget=account) as solver:
        second = solver.solve("3 + 4 - 2", account)
        third = asyncio.run(solver.asolve("3 + 4 - 2", account))
    check(account, [first, second, third])
    assert account.spent["samples"] == 12


def test_settings_are_checked_against_the_limits_of_an_account() -> None:
    with pytest.raises(tts.ConfigError, match="has no rate"):
        tts.solve("3 + 4", tts.Account(tts.Budget(usd=1)), backend=lambda ask: "5", strategy="single")
    with pytest.raises(tts.ConfigError, match="thought_tokens is 500"):
        tts.solve("3 + 4", tts.Account(400).part(), model="toy-thinking", strategy="budget_forcing(thought_tokens=500)")
    found = tts.solve("3 + 4 - 2", tts.Account(tts.Budget(samples=5)), model="toy", strategy="best_of_n | majority")
    assert found.usage.samples == 5


def test_a_cancelled_call_gives_back_what_it_held() -> None:
    account = tts.Account(tts.Budget(tokens=400))

    async def model(ask: tts.Ask) -> str:
        await asyncio.sleep(3600)
        return "too late"

    async def run() -> None:
        task = asyncio.ensure_future(tts.asolve("3 + 4 - 2", account, backend=model, strategy=BEST_OF_4))
        while not account.reservation("tokens"):
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises((asyncio.CancelledError, tts.Interrupted)):
            await task
        while account.reservation("tokens"):
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(run(), LIMIT_S))
    assert account.spending("tokens") + account.available("tokens") == 400
