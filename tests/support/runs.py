"""Helpers that tests of searches share: runs made from a few words, solved at once, and their books.

The books of a run are counted again.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import tts.solver.run as solver_run
from tts import tasks
from tts.backends.base import Backend, Sampling
from tts.budget.account import Account
from tts.budget.budget import Budget
from tts.budget.ledger import Ledger
from tts.budget.units import USD_UNIT
from tts.search.parts import Plan
from tts.search.plan import parse
from tts.search.search import Search
from tts.solver.live import Event
from tts.solver.run import solve_problem
from tts.solver.setup import ProblemRun, Setup
from tts.tasks.base import Task
from tts.types import Problem, Solution, Usage
from tts.verifiers.base import Verifier


@dataclass
class Clock:
    """A clock that stands still until it is moved, or moves by `tick` at each look."""

    now: float = 0.0
    tick: float = 0.0

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


@dataclass
class Solved:
    """How a run ended: its solution, or what it raised, and the search behind it, if it came to that."""

    solution: Any
    search: Search | None = field(repr=False)


def make_run(
    problem: str | Problem,
    budget: Budget | Account | float,
    plan: str | Plan | Any,
    backend: Backend,
    *,
    verifiers: Mapping[str, Verifier] | Verifier | None = None,
    seed: int = 0,
    temperature: float = 1.0,
    task: str | Task = "arithmetic",
    clock: Callable[[], float] | None = None,
    models: Mapping[str, Backend] | None = None,
    expected_tokens: int | None = None,
    started: float | None = None,
    on_event: Callable[[Event], None] | None = None,
    **settings: Any,
) -> ProblemRun:
    """Return a run, with further settings of its setup; one verifier alone has the role "main"."""
    setup = Setup(
        task=tasks.get(task) if isinstance(task, str) else task,
        plan=parse(plan) if isinstance(plan, str) else Plan.of(plan),
        backends={"policy": backend, **(models or {})},
        verifiers={"main": verifiers} if isinstance(verifiers, Verifier) else verifiers or {},
        sampling=Sampling(temperature=temperature),
        model_names={"policy": backend.name},
        clock=clock or Clock(tick=1e-6),
        **settings,
    )
    return ProblemRun(
        setup=setup,
        problem=Problem(problem) if isinstance(problem, str) else problem,
        budget=budget if isinstance(budget, Account) else Budget.of(budget),
        seed=seed,
        expected_tokens=expected_tokens,
        started=started,
        on_event=on_event,
    )


def change_setup(run: ProblemRun, **settings: Any) -> ProblemRun:
    """Return a run with other settings of its setup."""
    return dataclasses.replace(run, setup=dataclasses.replace(run.setup, **settings))


async def solve_runs(
    runs: Sequence[ProblemRun], cancel_at: Sequence[int | None] = (), portion: int | None = None
) -> list[Solved]:
    """Solve runs at once.

    Args:
        runs: The runs.
        cancel_at: The event-loop turn at which each run is cancelled; None: never.
        portion: The most tokens of a row in one call; None: no limit.
    """
    searches: dict[int, Search] = {}

    def make_search(*parts: Any, **options: Any) -> Search:
        search = Search(*parts, **options, portion=portion)
        searches[id(options["sampling"])] = search  # each run has a sampling of its own
        return search

    with mock.patch.object(solver_run, "Search", make_search):
        loop = asyncio.get_running_loop()
        jobs = [loop.create_task(solve_problem(run)) for run in runs]
        turns = [(turn, job) for turn, job in zip(cancel_at, jobs, strict=False) if turn is not None]
        for turn in range(max((turn for turn, _ in turns), default=-1) + 1):
            await asyncio.sleep(0)
            for at, job in turns:
                if at == turn:
                    job.cancel()
        ends = await asyncio.gather(*jobs, return_exceptions=True)
    return [Solved(end, searches.get(id(run.setup.sampling))) for run, end in zip(runs, ends, strict=True)]


def solve(run: ProblemRun) -> Solution:
    """Solve one run in a loop of its own."""
    return asyncio.run(solve_problem(run))


def solve_and_show(run: ProblemRun, portion: int | None = None) -> Solved:
    """Solve one run, and return its solution with the search behind it.

    Args:
        run: The run.
        portion: The most tokens of a row in one call; None: no limit.
    """
    return asyncio.run(solve_runs([run], portion=portion))[0]


def search_one(
    problem: str | Problem, budget: Budget | Account | float, plan: Any, backend: Backend, **more: Any
) -> Solved:
    """Solve a run that `make_run` makes of these; its solution has no error, and its books are right."""
    (end,) = search_many([problem], budget, plan, backend, **more)
    return end


def search_many(
    problems: Sequence[str | Problem], budget: Budget | Account | float, plan: Any, backend: Backend, **more: Any
) -> list[Solved]:
    """Solve runs on one backend at once; their solutions have no errors, and their books are right."""
    ends = asyncio.run(solve_runs([make_run(problem, budget, plan, backend, **more) for problem in problems]))
    for end in ends:
        if isinstance(end.solution, BaseException):
            raise end.solution
        assert end.solution.error is None
        check_books(end.search)
    return ends


def solution_of(
    problem: str | Problem, budget: Budget | Account | float, plan: Any, backend: Backend, **more: Any
) -> Solution:
    """Return the solution of a run that `make_run` makes of these."""
    return solve(make_run(problem, budget, plan, backend, **more))


def copies(text: str, count: int) -> list[Problem]:
    """Return so many problems of one text, which draw from streams of their own."""
    return [Problem(text, id=f"p{i}") for i in range(count)]


def texts_of(end: Solved | Solution) -> list[str]:
    """Return the texts of a solution's candidates, in the order in which they were begun."""
    solution = end.solution if isinstance(end, Solved) else end
    return [c.trajectory.full_text for c in sorted(solution.candidates, key=lambda c: c.index)]


def recount(ledger: Ledger) -> dict[str, float]:
    """Count the spend again, call by call, in every unit of a budget but seconds."""
    return sum_usages(call.usage for call in ledger.calls)


def sum_usages(usages: Iterable[Usage]) -> dict[str, float]:
    """Return the sum of usages in every unit of a budget but seconds."""
    each = list(usages)
    return {
        "tokens": sum(u.generated_tokens + u.cancelled_tokens + u.verifier_tokens for u in each),
        "generated_tokens": sum(u.generated_tokens + u.cancelled_tokens for u in each),
        "verifier_tokens": sum(u.verifier_tokens for u in each),
        "verifier_calls": sum(u.verifier_calls for u in each),
        "samples": sum(u.samples for u in each),
        "requests": sum(u.requests or 0 for u in each),
        "flops": sum(u.flops or 0 for u in each),
        "usd": sum(round((u.usd or 0) * USD_UNIT) for u in each),
    }


def check_books(search: Search | None) -> None:
    """Assert that no limit is passed by any count and that nothing is held any more."""
    assert search is not None, "the search never began"
    account, spent = search.account, recount(search.account.ledger)
    for unit in account.units:
        limit, paid = account.limit(unit), account.spending(unit)
        assert paid <= limit, f"{unit}: the account says {paid} of {limit}"
        assert spent[unit] <= limit, f"{unit}: the ledger says {spent[unit]} of {limit}"
        assert paid == spent[unit], f"{unit}: the account says {paid}, the ledger {spent[unit]}"
        assert not account.reservation(unit), f"{unit}: {account.reservation(unit)} are still held"
