"""The calls `solve`, `asolve`, `solve_many`, `asolve_many` and `stream`.

Their models stay loaded until `close`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

from tts.backends.base import Backend, Sampling
from tts.backends.function import WriteFunction
from tts.budget.budget import Budget
from tts.errors import ConfigError, quote, unknown_name
from tts.search.parts import Plan, Strategy
from tts.solver.model_cache import LOOP, Model, ModelCache, VerifierLike
from tts.solver.setup import OnError
from tts.solver.solver import BudgetLike, ExpectedTokens, ProblemLike, Solver
from tts.tasks.base import Task
from tts.types import Solution

if TYPE_CHECKING:
    from tts.solver.live import Event
    from tts.solver.thresholds import Thresholds

Function = TypeVar("Function", bound=Callable[..., Any])

_SHARED = ModelCache()


class SolveOptions(TypedDict, total=False):
    """The options that all functions of this module have; see `solve`."""

    model: Model | None
    verifier: VerifierLike | Mapping[str, VerifierLike] | None
    backend: str | WriteFunction | Backend | None
    url: str | None
    task: str | Task | None
    sampling: Sampling | None
    temperature: float | None
    max_tokens: int | None
    usd_in: str | None
    usd_out: str | None
    allow_oracle: bool
    expected_tokens: ExpectedTokens | None
    on_error: OnError
    on_event: Callable[[Event], None] | None
    risk: float | None
    calibration: str | Path | Thresholds | None


def _with_options(function: Function) -> Function:
    """Put each option of `SolveOptions`, with its default, into a function's signature.

    `help` and notebooks print the signature.
    """
    defaults = {"allow_oracle": False, "on_error": "raise"}
    signature = inspect.signature(function)
    own_parameters = [
        parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD
    ]
    options = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=defaults.get(name), annotation=annotation.__forward_arg__
        )
        for name, annotation in SolveOptions.__annotations__.items()
    ]
    function.__signature__ = signature.replace(parameters=[*own_parameters, *options])
    return function


@_with_options
def solve(
    problem: ProblemLike,
    budget: BudgetLike,
    *,
    strategy: str | Plan | Strategy | None = None,
    seed: int = 0,
    **options: Unpack[SolveOptions],
) -> Solution:
    """Return the solution of a problem within a hard budget. Models stay loaded until `close`.

    Args:
        problem: Text, chat messages or a `Problem`.
        budget: Tokens, a `Budget`, a dict of limits by unit, or an `Account`, whose total several calls share.
        strategy: A plan as text, such as "best_of_n(n=8) | majority", or an object; None: the default of `Solver`.
        seed: The same seed gives the same solution, unless `Solution.reproducible` is False.
        model: As in `Solver`.
        verifier: As in `Solver`.
        task: As in `Solver`.
        sampling: As in `Solver`.
        allow_oracle: As in `Solver`.
        expected_tokens: As in `Solver`.
        on_error: As in `Solver`.
        on_event: As in `Solver`.
        risk: As in `Solver`: the share of given answers that may be wrong.
        calibration: As in `Solver`: the file of `tts calibrate` that keeps this share.
        temperature: As in `Solver`, and as the option of `tts solve`.
        max_tokens: As in `Solver`, and as the option of `tts solve`.
        usd_in: As in `Solver`.
        usd_out: As in `Solver`.
        backend: The name of a backend, a backend, or a function (`FunctionBackend`) that serves as the model.
        url: The url of a server with the model; None: the url in the model's record. Without any url the model runs in
            this process.

    Raises:
        ConfigError: an argument is not valid, and nothing has been spent.
        VerifierError: a verifier failed, unless `on_error="keep"`; its `partial` is the solution so far.
        TTSError: the run failed before it had a single candidate.
        Interrupted: Ctrl-C; its `partial` is the solution so far.

    Example:
        >>> import tts
        >>> tts.solve("3 + 4 - 2", budget=400, model="toy", strategy="best_of_n(n=8) | majority").answer
        '5'
    """
    LOOP.refuse_inside()
    return make_solver(budget, options).solve(problem, budget, strategy=strategy, seed=seed)


@_with_options
async def asolve(
    problem: ProblemLike,
    budget: BudgetLike,
    *,
    strategy: str | Plan | Strategy | None = None,
    seed: int = 0,
    **options: Unpack[SolveOptions],
) -> Solution:
    """`solve`, awaited, in any event loop. Options and errors are those of `solve`.

    Example:
        >>> import asyncio, tts
        >>> asyncio.run(tts.asolve("3 + 4 - 2", 400, model="toy", strategy="best_of_n(n=8) | majority")).answer
        '5'
    """
    solver = await asyncio.to_thread(make_solver, budget, options)
    return await solver.asolve(problem, budget, strategy=strategy, seed=seed)


@_with_options
def solve_many(
    problems: Iterable[ProblemLike],
    budget: BudgetLike | None = None,
    *,
    each: Budget | float | Mapping[str, float] | None = None,
    strategy: str | Plan | Strategy | None = None,
    seed: int = 0,
    **options: Unpack[SolveOptions],
) -> list[Solution]:
    """Return the solutions of many problems, solved at once on one model, as `Solver.solve_many` does.

    `budget` is the total for all problems; an account gives all that is left. `each` is a budget for every problem, in
    place of a total. Failed problems have `Solution.error` set, and the others continue. Other options and errors are
    those of `solve`.

    Example:
        >>> import tts
        >>> found = tts.solve_many(["3 + 4", "5 - 2 + 1"], 400, model="toy", strategy="best_of_n(n=4) | majority")
        >>> [each.answer for each in found]
        ['7', '4']
    """
    LOOP.refuse_inside()
    return make_solver(budget, options).solve_many(problems, budget, each=each, strategy=strategy, seed=seed)


@_with_options
async def asolve_many(
    problems: Iterable[ProblemLike],
    budget: BudgetLike | None = None,
    *,
    each: Budget | float | Mapping[str, float] | None = None,
    strategy: str | Plan | Strategy | None = None,
    seed: int = 0,
    **options: Unpack[SolveOptions],
) -> list[Solution]:
    """`solve_many`, awaited, in any event loop. Options and errors are those of `solve_many`.

    Example:
        >>> import asyncio, tts
        >>> sums = ["3 + 4", "5 - 2 + 1"]
        >>> [
        ...     each.answer
        ...     for each in asyncio.run(tts.asolve_many(sums, 400, model="toy", strategy="best_of_n(n=4) | majority"))
        ... ]
        ['7', '4']
    """
    solver = await asyncio.to_thread(make_solver, budget, options)
    return await solver.asolve_many(problems, budget, each=each, strategy=strategy, seed=seed)


@_with_options
async def stream(
    problem: ProblemLike,
    budget: BudgetLike,
    *,
    strategy: str | Plan | Strategy | None = None,
    seed: int = 0,
    **options: Unpack[SolveOptions],
) -> AsyncGenerator[Event]:
    """Yield the events of a search as they come; the last one has the solution.

        async for event in tts.stream("3 + 4 - 2", 400, model="toy"):
            print(event.candidates, event.texts)

    `Event.texts` has the candidates that are new since the last event. Closing the generator early cancels the search.
    Options and errors are those of `solve`.

    Example:
        >>> import asyncio, tts
        >>> async def last():
        ...     async for event in tts.stream("3 + 4 - 2", 400, model="toy", strategy="best_of_n(n=4) | majority"):
        ...         found = event.solution
        ...     return found.answer
        >>> asyncio.run(last())
        '5'
    """
    solver = await asyncio.to_thread(make_solver, budget, options)
    async with aclosing(solver.stream(problem, budget, strategy=strategy, seed=seed)) as events:
        async for event in events:
            yield event


def make_solver(budget: BudgetLike | None, options: SolveOptions) -> Solver:
    """Return a solver with options, on the models that stay loaded between calls."""
    settings: dict[str, Any] = {**options}
    unknown = settings.keys() - SolveOptions.__annotations__
    if unknown:
        raise _unknown_option(min(unknown))
    backend, model = settings.get("backend"), settings.get("model")
    if backend is not None and not isinstance(backend, str):
        if model is not None:
            raise ConfigError(
                f"model is {quote(model)}, but the backend that was given stands for a model",
                hint="give one of them",
            )
        settings["model"], settings["backend"] = backend, None
    return Solver(settings.pop("model", None), settings.pop("verifier", None), budget=budget, keep=_SHARED, **settings)


def _unknown_option(name: str) -> ConfigError:
    """Return the error for an unknown option; its hint has the nearest options, or says where it belongs."""
    if name in {field.name for field in dataclasses.fields(Sampling)}:
        return ConfigError(f"{name} is no option of its own", hint=f"write sampling=tts.Sampling({name}=…)")
    if name in Budget.__dataclass_fields__:
        return ConfigError(
            f"{name} is no option of its own", hint=f"it is a unit of the budget: write budget={{{name!r}: …}}"
        )
    return unknown_name("option", name, {"problem", "budget", "strategy", "seed", *SolveOptions.__annotations__})


def close() -> None:
    """Free the models that `solve`, `asolve` and `solve_many` keep loaded.

    Example:
        >>> import tts
        >>> tts.solve("3 + 4 - 2", 400, model="toy", strategy="single").model
        'toy'
        >>> tts.close()
    """
    _SHARED.close()
