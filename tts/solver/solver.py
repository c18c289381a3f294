"""The class `Solver`, where concrete models, verifiers and tasks meet a search.

The calls `solve`, `asolve` and `solve_many` are in `tts.solver.api`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import math
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast, get_args

from tts._core.logs import get_logger
from tts.backends.base import OpenTemperature, Sampling, sampling_with
from tts.backends.loading.expected import expecting
from tts.backends.metadata import metadata_of
from tts.budget.account import Account
from tts.budget.budget import Budget, divide
from tts.checks import check_int, check_problem, read_problem, read_problems
from tts.errors import ConfigError, TTSError, VerifierError, quote
from tts.models import registry
from tts.models.registry import ModelRecord
from tts.search.algorithms.embedding import Embedder
from tts.search.parts import Plan, Strategy
from tts.search.plan import parse
from tts.solver.checks import LOG, check, forewarnings
from tts.solver.model_cache import (
    DEFAULT_MODEL,
    LOOP,
    Model,
    ModelCache,
    VerifierLike,
    VerifierRoles,
    loaded_records,
    make_verifiers,
    own_verifier,
    resolve,
    with_prices,
)
from tts.solver.run import solve_problem
from tts.solver.setup import OnError, ProblemRun, Setup, divide_account, read_limits
from tts.tasks import make_task
from tts.tasks.base import Task
from tts.types import Message, Problem, Solution, Usage
from tts.verifiers.compatibility import check_rates
from tts.verifiers.making import describe_verifier

if TYPE_CHECKING:
    from tts.allocator.auto import Auto
    from tts.solver.live import Event
    from tts.solver.thresholds import Thresholds

ProblemLike = str | Problem | Sequence[Message | Mapping[str, str]]
BudgetLike = Budget | Account | float | Mapping[str, float]
ExpectedTokens = int | Callable[[Problem], int]


class Solver:
    """Models, verifiers and a task, kept ready to solve problems; a context manager.

    Args:
        models: The models by role; "policy" is required. Each is a name, a record, a backend, or a plain or async
            function (`FunctionBackend`). None: "pocket"; with `url`, the only model on the server.
        verifiers: The verifiers by role; strategies and selections use "main" by default. Each is a name ("process",
            "toy(error=0.1)"), a verifier, or a function of (problem, text). None: the verifier that the policy's record
            names, if any; it is left out, with a warning, if the backend or the task does not support it. "none" or {}:
            no verifier.
        backend: Name of the backend that runs models given by name; None: their records' own.
        task: A name, a task or its class, for problems that name none; None: that of the policy's record. Where each
            problem names another, a warning is logged.
        strategy: A plan or its text; None: `auto`, with the performance model that ships for this policy, task and
            verifiers, if any. Free text without a verifier gets one sample, and a warning. It is greedy, unless a
            temperature is named or the model takes its own alone.
        sampling: Sampling parameters of all rows, except where the strategy sets its own.
        temperature: The temperature in place of that of `sampling`; None: its own.
        max_tokens: The most tokens of one row, in place of those of `sampling`; None: its own.
        usd_in: The price of a policy's computed tokens, such as "0.15/M", in place of its record's; None: the record's.
        usd_out: The price of its generated tokens, in the same form.
        allow_oracle: Whether verifiers may see reference answers.
        concurrency: Problems that `solve_many` has in flight at once.
        expected_tokens: Usual length of a solution, at least 1, or a function of the problem that returns it, such as a
            `tts.LengthForecast`; None: that of the policy's record, otherwise the task's constant. It determines the
            first token limits; later ones follow from the lengths seen.
        on_error: What happens if a verifier raises, or breaks its contract. "raise": `solve` and `asolve` raise the
            `VerifierError`, whose `partial` is the solution so far; `solve_many` returns it in `Solution.error`.
            Nothing more is spent, and the confidence is NaN. "keep": the answer and the confidence are those of a
            majority vote, and `Solution.error` has the error. In both cases a failed call of a verifier's model is an
            unknown score.
        budget: The budget of the first problem, or the account that pays it. Making a solver on servers counts against
            the `seconds` of a budget, and probes of the servers take at most half of them. A limit in FLOPs or dollars
            without rates of the servers' models is refused before a probe. None: making the solver counts against no
            budget.
        clock: A function that returns seconds.
        embedder: The embedder for strategies that cluster.
        on_event: A function that is called after each call, in another thread.
        url: The url of a server that runs the models.
        keep: A cache that keeps models and tasks after `close`; None: `close` frees them.
        risk: The share of given answers that may be wrong, above 0 and below 1; a less sure answer is not given, and
            `Solution.abstained` says so. It needs `calibration`. None: each answer is given.
        calibration: A file of `tts calibrate`, or what it contains, made with this model, strategy, budget, task,
            verifiers and sampling.

    Raises:
        ConfigError: a name is unknown, or a part does not fit.

    Example:
        >>> import tts
        >>> with tts.Solver("toy", "toy(error=0.1)", task="arithmetic", strategy="beam(n=4) | best") as solver:
        ...     answers = [solver.solve(sum_, 400).answer for sum_ in ("3 + 4", "5 - 2 + 1")]
        >>> answers
        ['7', '4']
    """

    def __init__(  # noqa: PLR0913 - the parts, by name
        self,
        models: Mapping[str, Model] | Model | None = None,
        verifiers: Mapping[str, VerifierLike] | VerifierLike | None = None,
        *,
        backend: str | None = None,
        url: str | None = None,
        task: str | Task | None = None,
        strategy: str | Plan | Strategy | None = None,
        sampling: Sampling | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        usd_in: str | None = None,
        usd_out: str | None = None,
        allow_oracle: bool = False,
        expected_tokens: ExpectedTokens | None = None,
        on_error: OnError = "raise",
        concurrency: int = 1024,
        budget: BudgetLike | None = None,
        clock: Callable[[], float] = time.perf_counter,
        embedder: Embedder | None = None,
        on_event: Callable[[Event], None] | None = None,
        keep: ModelCache | None = None,
        risk: float | None = None,
        calibration: str | Path | Thresholds | None = None,
    ) -> None:
        _check_settings(concurrency, expected_tokens, on_error)
        self._risk, self._thresholds = risk, _thresholds(risk, calibration)
        if models is None:
            models = DEFAULT_MODEL if url is None else ""
        roles: Mapping[str, Model] = models if isinstance(models, Mapping) else {"policy": models}
        _check_roles(roles, backend=backend, url=url)
        self._strategy = None if strategy is None else _plan(strategy)
        scorers = make_verifiers(verifiers)
        self._cache = ModelCache() if keep is None else keep
        self._task = task if task is None or isinstance(task, str) else make_task(task)
        self._owned = keep is None
        started = clock()
        self._models = {role: resolve(model, backend, url) for role, model in roles.items()}
        self._models["policy"] = with_prices(self._models["policy"], usd_in=usd_in, usd_out=usd_out)
        policy = self._models["policy"]
        self._record = policy if isinstance(policy, ModelRecord) else None
        self._task_of(None)  # made now, so that a mistake shows here, before servers are probed for the backends
        servers = {
            role: model
            for role, model in self._models.items()
            if isinstance(model, ModelRecord) and model.backend == registry.SERVER
        }
        limits = None if budget is None else read_limits(budget)
        seconds = None if limits is None else _first_seconds(limits, servers)
        probe_seconds = None if seconds is None else seconds / 2 / len(roles)
        with expecting(loaded_records(self._models, scorers)):
            backends = self._cache.backends(self._models, probe_seconds)
            self._scorers = VerifierRoles(scorers, self._models, backends)
        # when the seconds of the first budget began, if making this solver counts against them
        counts_time = bool(servers) and seconds is not None and not isinstance(limits, Account)
        self._started = started if counts_time else None
        self._described = (
            None if scorers is None else {role: describe_verifier(verifier) for role, verifier in scorers.items()}
        )
        self._expected = expected_tokens
        if expected_tokens is None and self._record is not None:
            self._expected = self._record.expected_tokens
        self._sampling = sampling_with(sampling or Sampling(), temperature=temperature, max_tokens=max_tokens)
        self._on_error: OnError = on_error
        self._allow_oracle = allow_oracle
        self._concurrency = concurrency
        self._clock = clock
        self._embedder = embedder
        self._on_event = on_event

    def solve(
        self, problem: ProblemLike, budget: BudgetLike, *, strategy: str | Plan | Strategy | None = None, seed: int = 0
    ) -> Solution:
        """Return the solution of a problem; works in a script, in a notebook and inside a running event loop.

        Raises:
            ConfigError: an argument is not valid, and nothing has been spent; or the caller is in the library's own
                thread, where `asolve` must be awaited.
            VerifierError: a verifier failed, unless `on_error="keep"`; its `partial` is the solution so far.
            TTSError: the run failed before it had a single candidate; with one, the solution is returned with its
                `error` set.
            Interrupted: Ctrl-C; its `partial` is the solution so far.
        """
        return LOOP.run(_solve_alone(self.prepare(problem, budget, strategy=strategy, seed=seed)))

    async def asolve(
        self, problem: ProblemLike, budget: BudgetLike, *, strategy: str | Plan | Strategy | None = None, seed: int = 0
    ) -> Solution:
        """`solve`, awaited, in any event loop; cancelled, it cancels the search."""
        return await LOOP.wait(_solve_alone(self.prepare(problem, budget, strategy=strategy, seed=seed)))

    def prepare(
        self, problem: ProblemLike, budget: BudgetLike, *, strategy: str | Plan | Strategy | None = None, seed: int = 0
    ) -> ProblemRun:
        """Return the run that `solve` would make, without starting it.

        `tts.solver.checks.check` refuses a run that cannot succeed. `tts.solver.run.solve_problem` must be awaited in
        the library's own loop (`tts.solver.model_cache.LOOP`).

        Raises:
            ConfigError: as `solve`, except for the mistakes that `check` finds.
        """
        given, limits, started = read_problem(problem), read_limits(budget), self._first_start()
        self._tell_unused_task([given])
        return self._run(self._setup(given.task, strategy), given, limits, seed, started)

    def _first_start(self) -> float | None:
        """Return when the seconds of the first budget began, if this solver was made within them."""
        started, self._started = self._started, None
        return started

    def solve_many(
        self,
        problems: Iterable[ProblemLike],
        budget: BudgetLike | None = None,
        *,
        each: Budget | float | Mapping[str, float] | None = None,
        strategy: str | Plan | Strategy | None = None,
        seed: int = 0,
    ) -> list[Solution]:
        """Return the solutions of many problems, solved at once on one backend.

        Problems are independent of each other, except under a total with `auto`, where they share the budget.
        Failures are returned in `Solution.error`; other problems continue.

        Args:
            problems: The problems.
            budget: The total; its `seconds` hold for all problems together. `auto` gives each sample to the problem
                where it gains most. Other strategies get equal shares; a remainder goes to the first problems. An
                account gives all that it has left when the problems begin, and gets the unspent amounts back.
            each: A budget for every problem, in place of a total. It is no account, because an account is a total.
            strategy: The strategy or plan, as in `solve`.
            seed: The seed of the run, below 2**64.

        Raises:
            ConfigError: neither or both of `budget` and `each`, a total too small to divide, or whatever is wrong for
                all problems.
            Interrupted: Ctrl-C; its `partial` is the list of solutions so far. A problem that had not begun has a
                solution without candidates.
        """
        run = self._many(problems, budget, each, strategy, seed)
        return [] if run is None else LOOP.run(run)

    def solve_for_training(
        self, problems: Sequence[Problem], total: Account, strategy: Plan, seed: int
    ) -> list[Solution]:
        """Solve many problems with all that is left of an account, as `solve_many` does.

        Where the backend shows them, traces have the log-probabilities under the law (the probability distribution)
        that drew each token.

        Args:
            problems: The problems.
            total: The account.
            strategy: The plan of each problem.
            seed: The seed.

        Raises:
            ConfigError: As `solve_many`.
        """
        run = self._many(problems, total, None, strategy, seed, with_laws=True)
        return [] if run is None else LOOP.run(run)

    async def asolve_many(
        self,
        problems: Iterable[ProblemLike],
        budget: BudgetLike | None = None,
        *,
        each: Budget | float | Mapping[str, float] | None = None,
        strategy: str | Plan | Strategy | None = None,
        seed: int = 0,
    ) -> list[Solution]:
        """`solve_many`, awaited, in any event loop; cancelled, it cancels all searches."""
        run = self._many(problems, budget, each, strategy, seed)
        return [] if run is None else await LOOP.wait(run)

    def stream(
        self, problem: ProblemLike, budget: BudgetLike, *, strategy: str | Plan | Strategy | None = None, seed: int = 0
    ) -> AsyncGenerator[Event]:
        """Return the events of a search, for `async for event in solver.stream(…)`.

        The last event has the solution. A stream that is closed cancels its search.
        """
        from tts.solver.live import stream_events

        run = self.prepare(problem, budget, strategy=strategy, seed=seed)
        return stream_events(
            run.problem,
            run.on_event,
            lambda tell: LOOP.wait(_solve_alone(dataclasses.replace(run, on_event=tell))),
        )

    def _many(
        self,
        problems: Iterable[ProblemLike],
        budget: BudgetLike | None,
        each: Budget | float | Mapping[str, float] | None,
        strategy: Any,
        seed: int,
        *,
        with_laws: bool = False,
    ) -> Coroutine[Any, Any, list[Solution]] | None:
        """Return the coroutine that solves many problems; None: there are no problems.

        Args:
            problems: As in `solve_many`.
            budget: As in `solve_many`.
            each: As in `solve_many`.
            strategy: As in `solve_many`.
            seed: As in `solve_many`.
            with_laws: Whether traces have the probabilities under the law that drew the tokens.
        """
        problem_list = self._with_task(read_problems(problems))
        _check_one_budget(budget, each)
        total = Budget.of(each) if budget is None else read_limits(budget)  # type: ignore[arg-type]
        setup = self._setup(None, strategy, with_laws=with_laws)
        self._run(setup, _PLACEHOLDER, total, seed)  # refuses what fits no problem
        divides = budget is not None and setup.plan.strategy.divides_total
        auto = cast("Auto", setup.plan.strategy) if divides else None
        shares: Sequence[Budget | Account] = [total] * len(problem_list)
        if budget is not None and isinstance(total, Budget) and auto is None:
            shares = divide(total, len(problem_list))
        if not problem_list:
            return None
        started = self._first_start()
        if budget is None:
            started = None
        elif started is None:
            started = self._clock()
        template = self._run(setup, _PLACEHOLDER, shares[0], seed, started)
        check(template)
        for line in forewarnings(template):
            LOG.warning(line)

        @functools.cache
        def setup_of(task_name: str) -> Setup:
            own = self._setup(task_name, strategy, with_laws=with_laws)  # perhaps with other verifiers
            return own if auto is None else dataclasses.replace(own, plan=dataclasses.replace(own.plan, strategy=auto))

        def run(problem: Problem, share: Budget | Account) -> ProblemRun:
            check_problem(problem)
            if problem.task is not None:
                return self._run(setup_of(problem.task), problem, share, seed, started)
            expected_tokens = _expected_tokens_of(self._expected, problem)
            return dataclasses.replace(template, problem=problem, budget=share, expected_tokens=expected_tokens)

        return self._solve_all(template, run, problem_list, shares, auto)

    def _with_task(self, problems: list[Problem]) -> list[Problem]:
        """Return problems with the task that their reference answers call for, where nobody named one.

        References that are worked solutions become their final answers.

        Raises:
            ConfigError: the references fit no task.
        """
        from tts.tasks.by_references import choose_task, with_final_answers  # as is what reads references

        model_task = self._own_task
        own_name = self._tell_unused_task(problems)
        task_name = own_name or (None if model_task == "text" else model_task)
        problems = with_final_answers(problems, task_name, "the list of problems")
        names_task = self._task is not None or model_task not in (None, "text")
        if names_task or any(problem.task is not None for problem in problems):
            return problems
        choice = choose_task((problem.answer for problem in problems), "the list of problems")
        if choice is None or choice.task == "text":
            return problems
        get_logger("tts.tasks").warning("%s; task=%r says so", choice.line("the list of problems"), choice.task)
        return [dataclasses.replace(problem, task=choice.task) for problem in problems]

    def _tell_unused_task(self, problems: Sequence[Problem]) -> str | None:
        """Return the name of the task that was given; a warning says where each problem names another."""
        own_name = self._task.name if isinstance(self._task, Task) else self._task
        named = {problem.task for problem in problems}
        if own_name is not None and named and not named & {None, own_name}:
            get_logger("tts.tasks").warning("task=%r is not used: problems name %r", own_name, named.pop())
        return own_name

    async def _solve_all(
        self,
        template: ProblemRun,
        make: Callable[[Problem, Budget | Account], ProblemRun],
        problems: Sequence[Problem],
        shares: Sequence[Budget | Account],
        auto: Auto | None,
    ) -> list[Solution]:
        """Solve problems at once.

        Args:
            template: The run of any problem.
            make: A function that returns the run of a problem with its budget.
            problems: The problems.
            shares: The budget of each problem, or the total, once for each.
            auto: The strategy that divides the total among the problems; None: each problem has its share.
        """
        gate, total, shared = asyncio.Semaphore(self._concurrency), template.budget, None
        with ExitStack() as open_parts:
            if isinstance(total, Account):
                total = open_parts.enter_context(total.take_all())
                parts = [] if auto is not None else divide_account(total, len(problems))
                shares = [open_parts.enter_context(part) for part in parts] or [total] * len(problems)
            if auto is not None:
                from tts.solver.shared_budget import SharedBudget  # which searches alone do without

                if isinstance(total, Budget):
                    total = Account(total, clock=self._clock, started=template.started)
                shared = SharedBudget(auto, total, len(problems), gate)

            async def solve_job(place: int, problem: Problem, budget: Budget | Account) -> Solution:
                async with gate:
                    try:
                        run = make(problem, budget)
                        share = None if shared is None else shared.share(place)
                        return await solve_problem(dataclasses.replace(run, share=share))
                    except Exception as failure:  # noqa: BLE001 - problems fail independently
                        return _failed_solution(template, problem, budget, failure)
                    finally:
                        if shared is not None:
                            shared.leave(place)

            jobs = list(zip(problems, shares, strict=True))
            tasks = [asyncio.create_task(solve_job(place, *job)) for place, job in enumerate(jobs)]
            try:
                await asyncio.wait(tasks)
            except asyncio.CancelledError:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
            return [
                _failed_solution(template, *job) if task.cancelled() else task.result()
                for job, task in zip(jobs, tasks, strict=True)
            ]

    def _setup(self, task_name: str | None, strategy: Any, *, with_laws: bool = False) -> Setup:
        """Return the setup that solves the problems of a task.

        Args:
            task_name: The name of the problems' own task; None: they have none.
            strategy: As in `solve`.
            with_laws: Whether traces have the probabilities under the law that drew the tokens.
        """
        plan = self._strategy if strategy is None else _plan(strategy)
        task, backends = self._task_of(task_name), self._cache.backends(self._models)
        verifiers, notes = self._scorers.fitting(task, backends, plan)
        verifier_texts = {"main": own_verifier(self._record, task.name)} if self._described is None else self._described
        verifier_texts = {role: verifier_texts[role] for role in verifiers}
        verifier_models = {verifier.model for verifier in verifiers.values()}
        model_names = {role: model.name for role, model in self._models.items()}
        sampling = self._sampling
        is_open = isinstance(sampling.temperature, OpenTemperature)
        fixed_names = dict.fromkeys(model_names[role] for role in backends if not backends[role].caps.tempers)
        if is_open and not backends["policy"].caps.tempers:
            sampling = dataclasses.replace(sampling, temperature=1.0)
        if plan is None or plan.strategy.divides_total:
            from tts.allocator.default import choose_plan  # the allocator is loaded where it decides

            others = {role: name for role, name in model_names.items() if role != "policy"}
            plan, plan_notes = choose_plan(
                plan,
                model_names["policy"],
                task.name,
                verifier_texts,
                others,
                verifier_models,
                greedy=is_open and backends["policy"].caps.tempers,
            )
            notes += plan_notes
        if is_open and fixed_names:
            notes += (f"no temperature is sent to {', '.join(fixed_names)}: the server takes its own alone, mostly 1",)
        return Setup(
            plan=plan,
            task=task,
            backends=backends,
            verifiers=verifiers,
            sampling=sampling,
            clock=self._clock,
            model_names=model_names,
            verifier_texts=verifier_texts,
            allow_oracle=self._allow_oracle,
            notes=notes,
            task_given=self._task is not None or task_name is not None or self._record is None,
            embedder=self._embedder,
            on_error=self._on_error,
            sampling_logprobs=with_laws and backends["policy"].caps.sampling_logprobs,
        )

    def _run(
        self, setup: Setup, problem: Problem, budget: Budget | Account, seed: int, started: float | None = None
    ) -> ProblemRun:
        """Return the run of a problem; `started`: when its seconds began, None: when the run begins."""
        if type(seed) is not int:
            raise ConfigError(f"seed is {seed!r}, but must be a whole number")
        run = ProblemRun(
            setup=setup,
            problem=problem,
            budget=budget,
            seed=seed,
            expected_tokens=_expected_tokens_of(self._expected, problem),
            started=started,
            on_event=self._on_event,
        )
        if self._thresholds is None or self._risk is None:
            return run
        from tts.solver.risk import RiskLimit, use_of  # as `_thresholds`

        limit = RiskLimit(self._risk, self._thresholds.threshold(use_of(run)))
        return dataclasses.replace(run, refuses=limit.refusal)

    @property
    def _own_task(self) -> str | None:
        """The name of the task of problems that name none: that of the policy's record, or of its backend."""
        policy = self._models["policy"]
        return policy.task if isinstance(policy, ModelRecord) else metadata_of(policy).task

    def _task_of(self, name: str | None) -> Task:
        """Return the task of problems that name this task, or none."""
        chosen = self._task if name is None else name
        if chosen is None:
            chosen = self._own_task or "text"
        return self._cache.task(chosen) if isinstance(chosen, str) else chosen

    def close(self) -> None:
        """Free the models and tasks that this solver made; the next use makes them anew.

        Raises:
            ConfigError: the caller is in the library's own thread.
        """
        if self._owned:
            self._cache.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_settings(concurrency: Any, expected_tokens: Any, on_error: Any) -> None:
    """Raise ConfigError for a setting that is not valid."""
    if type(concurrency) is not int or concurrency < 1:
        raise ConfigError(f"concurrency is {concurrency!r}, but must be a whole number of at least 1")
    if not callable(expected_tokens):
        check_int("expected_tokens", expected_tokens, 1)
    if on_error not in get_args(OnError):
        raise ConfigError(f"on_error is {on_error!r}, but must be 'raise' or 'keep'")


def _check_one_budget(budget: Any, each: Any) -> None:
    """Raise ConfigError unless exactly one of a total and a budget for every problem is given."""
    if (budget is None) == (each is None):
        raise ConfigError("solve_many takes either budget (a total) or each (a budget a problem)")
    if isinstance(each, Account):
        raise ConfigError(
            f"each is {quote(each)}, but an account is a total, not a budget a problem", hint="give it as budget=…"
        )


def _check_roles(roles: Mapping[str, Model], **given: str | None) -> None:
    """Raise ConfigError without a policy, or where a backend or url has no model to run.

    A backend or url runs only models that are given by name or record.

    Args:
        roles: The models by role.
        given: The backend and the url, by the name of the argument.
    """
    if "policy" not in roles:
        raise ConfigError(f"models has the roles {sorted(roles)}, but needs 'policy'")
    if any(isinstance(model, str | ModelRecord) for model in roles.values()):
        return
    for name, value in given.items():
        if value is not None:
            raise ConfigError(
                f"{name} is {value!r}, but runs models given by name, and here are none", hint=f"leave {name} out"
            )


def _thresholds(risk: float | None, calibration: Any) -> Thresholds | None:
    """Return the thresholds of a calibration.

    Raises:
        ConfigError: Only one of risk and calibration is given, or the calibration does not keep the risk.
    """
    if risk is None and calibration is None:
        return None
    if calibration is None:
        raise ConfigError(
            f"risk is {quote(risk)}, but needs a calibration",
            hint="make one: tts calibrate; and give calibration=FILE",
        )
    if risk is None:
        raise ConfigError(
            "a calibration is given, but no risk", hint="give risk=…, the share of given answers that may be wrong"
        )
    from tts.solver.thresholds import Thresholds  # with pydantic and scipy, which other solvers do without

    thresholds = calibration if isinstance(calibration, Thresholds) else Thresholds.read(calibration)
    thresholds.check_risk(risk)
    return thresholds


def _first_seconds(budget: Budget | Account, servers: Mapping[str, ModelRecord]) -> float | None:
    """Return the seconds of the first budget.

    Raises:
        ConfigError: models on servers lack the rates that a limit needs.
    """
    names_and_rates = {role: (record.backend, registry.rates(record)) for role, record in servers.items()}
    check_rates(budget.limits, names_and_rates, {})
    seconds_left = budget.seconds_left if isinstance(budget, Account) else None
    return seconds_left or budget.limits.get("seconds")


async def _solve_alone(run: ProblemRun) -> Solution:
    """Return the solution of a run that is solved alone.

    Raises:
        TTSError: The run failed, and its error is one that the caller shall see.
    """
    solution = await solve_problem(dataclasses.replace(run, live=True), forewarn=True)
    error = solution.error
    if error is None:
        return solution
    is_kept = run.setup.on_error == "keep" if isinstance(error, VerifierError) else bool(solution.candidates)
    if is_kept:
        return solution
    if isinstance(error, TTSError):
        error.partial = solution
    raise error


def _failed_solution(
    template: ProblemRun, problem: Problem, share: Budget | Account, failure: Exception | None = None
) -> Solution:
    """Return the solution of a problem that failed; no failure: it was interrupted before it began.

    Args:
        template: The run of any problem.
        problem: The problem.
        share: The budget of the problem.
        failure: The failure; None: there was none.
    """
    cause = failure.cause if isinstance(failure, TTSError) else repr(failure)
    remaining = share.limits if isinstance(share, Budget) else share.remainder()
    return Solution(
        problem=problem,
        answer=None,
        confidence=math.nan,
        candidates=(),
        usage=Usage(),
        remaining=remaining,
        stopped_by="failed" if failure else "interrupted",
        strategy=str(template.setup.plan),
        model=template.setup.model,
        seed=template.seed,
        failures={},
        warnings=(cause,) if failure else (),
        reproducible=failure is not None,
        error=failure,
    )


_PLACEHOLDER = Problem("any problem")  # stands for all of them where only the rest of a run is checked


def _expected_tokens_of(given: ExpectedTokens | None, problem: Problem) -> int | None:
    """Return the expected tokens of a problem's solution.

    Raises:
        ConfigError: a function returned no whole number of at least 1.
    """
    if not callable(given):
        return given
    tokens = given(problem)
    check_int("expected_tokens of a problem", tokens, 1, optional=False)
    return tokens


def _plan(given: str | Plan | Strategy) -> Plan:
    return parse(given) if isinstance(given, str) else Plan.of(given)
