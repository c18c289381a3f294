"""`solve`, `asolve`, `solve_many` and `Solver`: where concrete models, verifiers and tasks meet a search."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from tts.backends.base import Backend, Sampling
from tts.backends.callable import WriteFunction
from tts.budget import Budget
from tts.errors import ConfigError, TTSError
from tts.kept import LOOP, Kept, Model
from tts.run import Event, Run
from tts.search.base import Plan, Strategy
from tts.search.embedding import Embedder
from tts.search.registry import parse, parse_call
from tts.tasks.base import Task
from tts.types import Problem, Solution, Usage
from tts.verifiers import VERIFIERS
from tts.verifiers.base import Verifier
from tts.verifiers.callable import CallableVerifier, ScoreFunction

DEFAULT_MODEL = "smollm2"

VerifierLike = str | Verifier | ScoreFunction
ProblemLike = str | Problem | Sequence[Mapping[str, str]]


class Solver:
    """Models, verifiers and a task, kept ready to solve problems; a context manager.

    Args:
        models: by role; "policy" is needed. A name, a record, a backend, or a (plain or async) function (`CallableBackend`).
        verifiers: by role; "main" is what strategies and selections ask unless told otherwise. A name ("checker",
            "toy(error=0.1)"), a verifier, or a function of (problem, text).
        backend: name of the backend that runs models given by name; None: their records' own.
        task: a name or a task; None: the problem's own, else the policy's record's.
        strategy: a plan or its text; None: chosen for you, and said in the warnings.
        sampling: of every row that a strategy does not sample otherwise.
        allow_oracle: whether verifiers may see reference answers. concurrency: problems in flight at once.
        clock: seconds. embedder: for strategies that cluster. on_event: called, in another thread, after each call.
        url: of a server that runs the models. keep: where models and tasks stay after `close`; None: they are this solver's own.

    Raises:
        ConfigError: a name is unknown, or a part does not fit.
    """

    def __init__(  # noqa: PLR0913 - the parts, by name
        self,
        models: Mapping[str, Model] | Model = DEFAULT_MODEL,
        verifiers: Mapping[str, VerifierLike] | VerifierLike | None = None,
        *,
        backend: str | None = None,
        url: str | None = None,
        task: str | Task | None = None,
        strategy: str | Plan | Strategy | None = None,
        sampling: Sampling | None = None,
        allow_oracle: bool = False,
        concurrency: int = 1024,
        clock: Callable[[], float] = time.perf_counter,
        embedder: Embedder | None = None,
        on_event: Callable[[Event], None] | None = None,
        keep: Kept | None = None,
    ) -> None:
        if concurrency < 1:
            raise ConfigError(f"concurrency is {concurrency}, but must be at least 1")
        roles: Mapping[str, Model] = models if isinstance(models, Mapping) else {"policy": models}
        if "policy" not in roles:
            raise ConfigError(f"models has the roles {sorted(roles)}, but needs 'policy'")
        self._strategy = None if strategy is None else _plan(strategy)
        given: Mapping[str, VerifierLike] = (
            verifiers if isinstance(verifiers, Mapping) else {} if verifiers is None else {"main": verifiers}
        )
        self._verifiers = {role: _verifier(verifier) for role, verifier in given.items()}
        self._kept = Kept() if keep is None else keep
        self._task = self._kept.task(task) if isinstance(task, str) else task
        self._owned = keep is None
        made = {role: self._kept.backend(model, backend, url) for role, model in roles.items()}
        self._backends = {role: one for role, (one, _) in made.items()}
        self._records = {role: record for role, (_, record) in made.items()}
        self._sampling = sampling or Sampling()
        self._allow_oracle = allow_oracle
        self._concurrency = concurrency
        self._clock = clock
        self._embedder = embedder
        self._on_event = on_event

    def solve(
        self, problem: ProblemLike, budget: Budget | float, *, strategy: str | Plan | Strategy | None = None, seed: int = 0
    ) -> Solution:
        """Return the solution of a problem; works in a script, in a notebook and inside a running event loop.

        Raises:
            ConfigError: something is wrong with what was asked; nothing has been spent.
            TTSError: the run failed before it had a single candidate; with one, the solution is returned with its `error` set.
        """
        return LOOP.run(self._solve(problem, budget, strategy, seed))

    async def asolve(
        self, problem: ProblemLike, budget: Budget | float, *, strategy: str | Plan | Strategy | None = None, seed: int = 0
    ) -> Solution:
        """`solve`, awaited."""
        return await asyncio.wrap_future(LOOP.submit(self._solve(problem, budget, strategy, seed)))

    def solve_many(
        self,
        problems: Sequence[ProblemLike],
        budget: Budget | float | None = None,
        *,
        each: Budget | float | None = None,
        strategy: str | Plan | Strategy | None = None,
        seed: int = 0,
    ) -> list[Solution]:
        """Return the solutions of many problems, solved at once on one backend; none depends on the others.

        A problem that fails is a solution with its `error` set, and never a reason for the others to.

        Args:
            budget: the total, divided evenly (what does not divide goes to the first); `seconds` holds for all together.
            each: a budget a problem, instead.

        Raises:
            ConfigError: neither or both of `budget` and `each`, or a total too small to divide.
        """
        return LOOP.run(self._solve_many(problems, budget, each, strategy, seed))

    async def _solve(self, problem: ProblemLike, budget: Budget | float, strategy: Any, seed: int) -> Solution:
        solution = await self._run(_problem(problem), Budget.of(budget), strategy, seed).solve()
        if solution.error is not None and not solution.candidates:
            raise solution.error
        return solution

    async def _solve_many(self, problems: Sequence[ProblemLike], budget: Any, each: Any, strategy: Any, seed: int) -> list[Solution]:
        if (budget is None) == (each is None):
            raise ConfigError("solve_many takes either budget (a total) or each (a budget a problem)")
        shares = [Budget.of(each)] * len(problems) if budget is None else divide(Budget.of(budget), len(problems))
        plan = None if strategy is None else _plan(strategy)
        gate, started = asyncio.Semaphore(self._concurrency), self._clock()

        async def one(given: ProblemLike, share: Budget) -> Solution:
            async with gate:
                problem = _problem(given)
                run = self._run(problem, share, plan, seed, started if budget is not None else None)
                try:
                    return await run.solve()
                except TTSError as failure:
                    return _failed(problem, run, failure)

        return list(await asyncio.gather(*(one(given, share) for given, share in zip(problems, shares, strict=True))))

    def _run(self, problem: Problem, budget: Budget, strategy: Any, seed: int, started: float | None = None) -> Run:
        plan = self._strategy if strategy is None else _plan(strategy)
        notes: tuple[str, ...] = ()
        if plan is None:
            plan = parse("best_of_n | weighted" if self._verifiers else "best_of_n | majority")
            notes = (f"no strategy was given and no performance model is there to choose one: {plan} was used",)
        if type(seed) is not int:
            raise ConfigError(f"seed is {seed!r}, but must be a whole number")
        return Run(
            problem=problem,
            budget=budget,
            seed=seed,
            task=self._task_of(problem),
            plan=plan,
            backends=self._backends,
            verifiers=self._verifiers,
            sampling=self._sampling,
            model=self._records["policy"].name if self._records["policy"] else self._backends["policy"].name,
            clock=self._clock,
            allow_oracle=self._allow_oracle,
            notes=notes,
            started=started,
            embedder=self._embedder,
            on_event=self._on_event,
        )

    def _task_of(self, problem: Problem) -> Task:
        if problem.task is not None:
            return self._kept.task(problem.task)
        if self._task is not None:
            return self._task
        record = self._records["policy"]
        return self._kept.task(record.task if record is not None and record.task else "text")

    def close(self) -> None:
        """Free the models that this solver made."""
        if self._owned:
            self._kept.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def divide(total: Budget, parts: int) -> list[Budget]:
    """Return shares of a budget that sum to it: counts differ by at most one; `seconds` is not divided, it holds for all.

    Raises:
        ConfigError: a count is smaller than the number of parts.
    """
    shares: list[dict[str, float]] = [{} for _ in range(parts)]
    for unit, value in total.limits.items():
        if isinstance(value, int) and unit not in ("flops", "seconds", "usd"):
            if value < parts:
                raise ConfigError(f"the total of {value} {unit} is too small for {parts} problems", hint=f"give at least {parts}")
            for i in range(parts):
                shares[i][unit] = value // parts + (1 if i < value % parts else 0)
        else:
            for share in shares:
                share[unit] = value if unit == "seconds" else value / parts
    return [Budget(**share) for share in shares]  # type: ignore[arg-type]


def _failed(problem: Problem, run: Run, failure: TTSError) -> Solution:
    return Solution(
        problem=problem, answer=None, confidence=math.nan, candidates=(), usage=Usage(), remaining=run.budget.limits,
        stopped_by="failed", strategy=str(run.plan), model=run.model, seed=run.seed, failures={}, warnings=(failure.cause,),
        error=failure,
    )  # fmt: skip


def _problem(given: ProblemLike) -> Problem:
    if isinstance(given, Problem):
        return given
    return Problem(given) if isinstance(given, str) else Problem(tuple(given))  # type: ignore[arg-type]


def _plan(given: str | Plan | Strategy) -> Plan:
    return parse(given) if isinstance(given, str) else Plan.of(given)


def _verifier(given: VerifierLike) -> Verifier:
    if isinstance(given, str):
        return parse_call(VERIFIERS, given)
    return given if isinstance(given, Verifier) else CallableVerifier(given)


_SHARED = Kept()


def solve(  # noqa: PLR0913 - every option by name
    problem: ProblemLike,
    budget: Budget | float,
    *,
    strategy: str | Plan | Strategy | None = None,
    model: Model = DEFAULT_MODEL,
    verifier: VerifierLike | Mapping[str, VerifierLike] | None = None,
    backend: str | WriteFunction | Backend | None = None,
    url: str | None = None,
    task: str | Task | None = None,
    seed: int = 0,
    sampling: Sampling | None = None,
    allow_oracle: bool = False,
    on_event: Callable[[Event], None] | None = None,
) -> Solution:
    """Return the solution of a problem within a hard budget. Models stay loaded until `close`.

    Args:
        problem: text, chat messages or a `Problem`. budget: tokens, or a `Budget`.
        strategy: "best_of_n(n=8) | majority", or an object; None: chosen for you. seed: the same seed gives the same solution.
        model, verifier, task, sampling, allow_oracle, on_event: as in `Solver`.
        backend: the name of a backend, a backend, or a function (`CallableBackend`) that stands for the model.

    Raises:
        ConfigError: something is wrong with what was asked; nothing has been spent.
        TTSError: the run failed before it had a single candidate.

    Example:
        >>> import tts
        >>> tts.solve("3 + 4 - 2", budget=400, model="toy", strategy="best_of_n(n=8) | majority").answer
        '5'
    """
    solver = _quick(model, verifier, backend, url, task, sampling, allow_oracle, on_event)
    return solver.solve(problem, budget, strategy=strategy, seed=seed)


async def asolve(  # noqa: PLR0913 - every option by name
    problem: ProblemLike,
    budget: Budget | float,
    *,
    strategy: str | Plan | Strategy | None = None,
    model: Model = DEFAULT_MODEL,
    verifier: VerifierLike | Mapping[str, VerifierLike] | None = None,
    backend: str | WriteFunction | Backend | None = None,
    url: str | None = None,
    task: str | Task | None = None,
    seed: int = 0,
    sampling: Sampling | None = None,
    allow_oracle: bool = False,
    on_event: Callable[[Event], None] | None = None,
) -> Solution:
    """`solve`, awaited, in any event loop."""
    solver = await asyncio.to_thread(_quick, model, verifier, backend, url, task, sampling, allow_oracle, on_event)
    return await solver.asolve(problem, budget, strategy=strategy, seed=seed)


def solve_many(  # noqa: PLR0913 - every option by name
    problems: Sequence[ProblemLike],
    budget: Budget | float | None = None,
    *,
    each: Budget | float | None = None,
    strategy: str | Plan | Strategy | None = None,
    model: Model = DEFAULT_MODEL,
    verifier: VerifierLike | Mapping[str, VerifierLike] | None = None,
    backend: str | WriteFunction | Backend | None = None,
    url: str | None = None,
    task: str | Task | None = None,
    seed: int = 0,
    sampling: Sampling | None = None,
    allow_oracle: bool = False,
    on_event: Callable[[Event], None] | None = None,
) -> list[Solution]:
    """`Solver.solve_many` with the options of `solve`."""
    solver = _quick(model, verifier, backend, url, task, sampling, allow_oracle, on_event)
    return solver.solve_many(problems, budget, each=each, strategy=strategy, seed=seed)


def _quick(
    model: Model,
    verifier: Any,
    backend: Any,
    url: str | None,
    task: Any,
    sampling: Any,
    allow_oracle: bool,  # noqa: FBT001 - handed on
    on_event: Any,
) -> Solver:
    if backend is not None and not isinstance(backend, str):
        model, backend = backend, None
    return Solver(
        model, verifier, backend=backend, url=url, task=task, sampling=sampling, allow_oracle=allow_oracle, on_event=on_event,
        keep=_SHARED,
    )  # fmt: skip


def close() -> None:
    """Free the models that `solve`, `asolve` and `solve_many` keep loaded."""
    _SHARED.close()
