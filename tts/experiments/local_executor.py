"""Cells run in this process, all at once on the same models, so that a backend has the work of many problems to batch."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from tts.background import in_thread
from tts.budget import USD_UNIT, Budget
from tts.errors import ConfigError, TTSError
from tts.experiments.config import StudyConfig
from tts.experiments.executors import Done
from tts.experiments.forecast import scoring_of
from tts.experiments.grid import Problems, Scoring, Setting, Settings
from tts.experiments.pool import drawn_of, right_of
from tts.experiments.record import Cell, Result
from tts.kept import Kept
from tts.models import registry
from tts.run import Run
from tts.search.base import Plan
from tts.search.registry import parse
from tts.solver import Solver
from tts.tasks.base import Task
from tts.types import Problem, Solution, Usage

_NOTHING = Usage()


class LocalExecutor:
    """Solvers by the names that a study gives their models: one each, or one for each server.

    Args:
        config: of the study. problems: of it. clock: seconds since the epoch, for results.

    Raises:
        ConfigError: a model cannot be had, or a strategy, budget or verifier does not go with it. Nothing has been spent.
    """

    def __init__(self, config: StudyConfig, problems: Problems, *, clock: Callable[[], float] = time.time) -> None:
        self._config, self._problems, self._clock = config, problems, clock
        self._kept = Kept()
        self._plans: dict[str, Plan] = {}
        self._spent: dict[str, int] = {}
        self._traced = {(data, name) for data, of in problems.items() for name in list(of)[: config.record.traces]}
        self.slots = config.concurrency
        try:
            self._solvers = {name: self._servers(name) for name in config.models}
            self.settings: Settings = self._resolved()
        except BaseException:
            self._kept.close()
            raise

    def _servers(self, name: str) -> list[_Server]:
        """Return the solvers of a model: one, or one for each url."""
        spec, config = self._config.models[name], self._config
        options = tuple(sorted(spec.options.items()))
        models = {role: dataclasses.replace(registry.get(model), options=options) for role, model in spec.model.items()}
        return [
            _Server(
                Solver(
                    models, config.verifiers_of(name), backend=spec.backend, url=url, task=config.task,
                    sampling=config.sampling_of(name), allow_oracle=config.allow_oracle, keep=self._kept,
                )
            )
            for url in spec.url or [None]
        ]  # fmt: skip

    def _resolved(self) -> Settings:
        """Return the settings of every model and task; each strategy has been checked with each budget."""
        first: dict[str | None, Problem] = {}
        for of in self._problems.values():
            for problem in of.values():
                first.setdefault(problem.task, problem)
        return {(name, task): self._setting(name, problem) for name in self._solvers for task, problem in first.items()}

    def _setting(self, name: str, problem: Problem) -> Setting:
        """Return how a model runs the task of a problem.

        Raises:
            ConfigError: as the class has it, or two strategies turn out to be the same.
        """
        solver, strategies, scoring = self._solvers[name][0].solver, dict[str, str](), dict[str, Scoring | None]()
        run = None
        for text in self._config.strategies:
            for budget in self._config.budgets:
                run = solver.prepared(problem, _budget(budget), strategy=text)
                run.check()
                strategies[text] = str(dataclasses.replace(run.plan, selection=run.selection))
                scoring[strategies[text]] = scoring_of(run)
        assert run is not None, "a study has a strategy and a budget"
        for text in strategies:
            if (same := next(other for other, plan in strategies.items() if plan == strategies[text])) != text:
                raise ConfigError(f"the strategies {same!r} and {text!r} are both {strategies[text]!r} here", hint="leave one out")
        usd = run.backends["policy"].rates.usd_out
        return Setting(
            task=run.task.name,
            typical_tokens=run.task.typical_tokens(),
            identity={role: backend.identity for role, backend in run.backends.items()},
            sampling=dataclasses.asdict(run.sampling),
            verifiers=self._verifiers(name, run),
            strategies=strategies,
            scoring=scoring,
            usd_per_token=None if usd is None else usd / USD_UNIT,
        )

    def _verifiers(self, name: str, run: Run) -> dict[str, str]:
        """Return the verifiers of a run as texts: those of the study, or the one that the model's record names."""
        given = self._config.verifiers_of(name)
        if given is None:
            given = {"main": registry.get(self._config.models[name].model["policy"]).verifier}
        return {role: given[role] for role in run.verifiers}

    async def run(self, cell: Cell) -> Done:
        """Run a cell; see `Executor`."""
        problem = self._problems[cell.dataset][cell.problem]
        server = min(self._solvers[cell.model], key=lambda one: one.busy)
        server.busy += 1
        self._spent[cell.key], spent = 0, Usage()
        try:
            run = server.solver.prepared(problem, _budget(cell.budget), strategy=self._plan(cell.strategy), seed=cell.seed)
            run = dataclasses.replace(run, on_event=lambda event: self._spent.update({cell.key: event.tokens}))
            solution = await run.solve()
            spent = solution.usage
            self._spent[cell.key] = spent.tokens
            if solution.stopped_by == "interrupted":
                raise asyncio.CancelledError
            judge = functools.partial(self._done, cell, solution, run.task)
            done = await in_thread(judge) if self._takes_long(solution, run.task) else judge()
        except Exception as failure:  # noqa: BLE001 - the boundary: one cell's failure is its result
            done = Done(failed(cell, failure, self._clock(), spent))
        finally:
            server.busy -= 1
        del self._spent[cell.key]  # from here on its result says it; of a cell that was cancelled it stays
        return done

    def _plan(self, text: str) -> Plan:
        if text not in self._plans:
            self._plans[text] = parse(text)
        return self._plans[text]

    def _takes_long(self, solution: Solution, task: Task) -> bool:
        """Whether the task's cheap rules leave an answer open that is to be judged: then it may take seconds."""
        reference, candidates = solution.problem.answer, solution.candidates if self._config.record.candidates else ()
        answers = {answer for answer in (solution.answer, *(candidate.answer for candidate in candidates)) if answer is not None}
        return reference is not None and any(task.decide(answer, reference) is None for answer in answers)

    def _done(self, cell: Cell, solution: Solution, task: Task) -> Done:
        result = Result(
            cell=cell,
            answer=solution.answer,
            right=None if solution.error is not None else right_of(solution.answer, task, solution.problem),
            confidence=solution.confidence,
            stopped_by=solution.stopped_by,
            usage=solution.usage,
            error=None if solution.error is None else one_line(solution.error),
            failures=solution.failures,
            warnings=solution.warnings,
            reproducible=solution.reproducible,
            oracle=solution.oracle,
            seconds_at=self._clock(),
            drawn=drawn_of(solution, task, solution.problem) if self._config.record.candidates else None,
        )
        kept = (cell.dataset, cell.problem) in self._traced and cell.seed == self._config.seeds[0]
        return Done(result, solution.trace.to_json().encode() if kept else None)

    async def spent(self) -> Mapping[str, int]:
        """Return tokens by key; see `Executor`."""
        return self._spent

    def close(self) -> None:
        """Free the models."""
        self._kept.close()


@dataclasses.dataclass(slots=True)
class _Server:
    """A solver, and how many cells it is at."""

    solver: Solver
    busy: int = 0


def failed(cell: Cell, failure: Exception, now: float, spent: Usage = _NOTHING) -> Result:
    """Return the result of a cell that came to nothing, or whose answer could not be judged after something was spent."""
    return Result(
        cell=cell, answer=None, right=None, confidence=math.nan, stopped_by="failed", usage=spent, error=one_line(failure), seconds_at=now
    )


def one_line(failure: Exception) -> str:
    """Return a failure as its kind and its cause."""
    cause = failure.cause if isinstance(failure, TTSError) else str(failure)
    return " ".join(f"{type(failure).__name__}: {cause}".split())


def _budget(limits: Mapping[str, float]) -> Budget:
    return Budget(**dict[str, Any](limits))
