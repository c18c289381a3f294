"""Strategies of which a test writes the body, and their runs on the toy and on the embedded policy, with their books
checked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import tts
from tests.support.runs import Solved, check_books, make_run, solve_and_show
from tts.backends.base import Backend
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.search.search import Search
from tts.types import Candidate, Solution, Usage
from tts.verifiers.base import Verifier

Body = Callable[[Search], Awaitable[Sequence[Candidate] | None]]
PROBLEM = "3 + 4 - 2"


class Written(tts.Strategy):
    """A strategy whose body is a function."""

    def __init__(self, body: Body, gives: Sequence[str] = ()) -> None:
        self.body = body
        self.gives = tuple(gives)

    def needs(self) -> tts.Needs:
        return tts.Needs(scores=self.gives)

    async def run(self, search: Search) -> Sequence[Candidate]:
        made = await self.body(search)
        return search.candidates if made is None else made


def toy(accuracy: float = 0.5) -> ToyBackend:
    return ToyBackend(ToyLanguage(accuracy=accuracy))


def run(
    body: Body,
    backend: Backend | None = None,
    *,
    budget: Budget | float = 4000,
    selection: Any = None,
    gives: Sequence[str] = (),
    verifiers: dict[str, Verifier] | None = None,
    **more: Any,
) -> Solved:
    plan: Any = Written(body, gives)
    if selection is not None:
        plan = tts.Plan(plan, selection=selection)
    backend = backend or toy()
    before = (backend.counters.prompt_tokens, backend.counters.generated_tokens)
    end = solve_and_show(make_run(PROBLEM, budget, plan, backend, verifiers=verifiers, **more))
    if isinstance(end.solution, Exception):
        raise end.solution
    solution: Solution = end.solution
    if solution.error is not None:
        raise solution.error
    check_books(end.search)  # type: ignore[arg-type]
    usage = solution.usage
    if not verifiers and "models" not in more:
        computed = (usage.prompt_tokens + usage.verifier_tokens, usage.generated_tokens + usage.cancelled_tokens)
        assert computed == (backend.counters.prompt_tokens - before[0], backend.counters.generated_tokens - before[1])
    return end


def on_pocket(body: Body, *, verifier: Any = "none", budget: Budget | float = 4000) -> Solved:
    with tts.Solver("pocket", verifier) as solver:
        made = solver.prepare("What is 12 + 7 * 3?", budget, strategy=Written(body), seed=1)
        backend = made.setup.backends["policy"]
        before = (backend.counters.prompt_tokens, backend.counters.generated_tokens)
        end = solve_and_show(made)
        if isinstance(end.solution, Exception):
            raise end.solution
        if end.solution.error is not None:
            raise end.solution.error
        check_books(end.search)  # type: ignore[arg-type]
        usage: Usage = end.solution.usage
        assert usage.generated_tokens == backend.counters.generated_tokens - before[1]
        assert usage.prompt_tokens + usage.verifier_tokens == backend.counters.prompt_tokens - before[0]
        return end
