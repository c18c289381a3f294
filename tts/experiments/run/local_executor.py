"""Runs cells in this process.

Cells run concurrently on the same models, so that backends batch the work of many problems.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tts.budget.account import Account
from tts.budget.budget import USD_UNIT, Budget, format_limits
from tts.errors import ConfigError, EngineError, TTSError
from tts.experiments.run.candidates import candidate_texts, judge_answer, record_candidates
from tts.experiments.run.cell_payer import CellPayer
from tts.experiments.run.executors import CellResult, NotReached, Unpaid
from tts.experiments.run.forecast import cost_by_budget, scoring_of
from tts.experiments.store.rows import to_json
from tts.experiments.study.config import StudyConfig
from tts.experiments.study.grid import Problems, ScoringCost, Setting, Settings
from tts.experiments.study.record import Cell, Result
from tts.registry import EVERYTHING
from tts.scopes import file_scope
from tts.search.parts import Plan
from tts.search.plan import parse, stored_text
from tts.solver.forewarnings import LOG
from tts.solver.model_cache import ModelCache, own_verifier
from tts.solver.problem_run import ProblemRun
from tts.solver.solver import Solver
from tts.tasks.base import Task
from tts.tasks.isolation import isolate
from tts.threads import run_in_thread
from tts.trace.trace import plain_values
from tts.types import Problem, Solution, Usage

_NOTHING = Usage()
# kinds of failures of requests that cost nothing
_NOT_TAKEN = ("ConnectionFailed", "Unavailable", "RateLimited", "QuotaExceeded")


class LocalExecutor:
    """Runs cells with one solver for each model of the study, or one for each of its servers.

    Args:
        config: The settings of the study.
        problems: The problems of the study.
        clock: Seconds since the epoch, for results.
        account: The account that pays all cells, each by a part with the cell's budget; None: each cell has its budget.

    Raises:
        ConfigError: a model is not available, or a strategy, budget or verifier does not fit it. Nothing has been
            spent.
    """

    def __init__(
        self,
        config: StudyConfig,
        problems: Problems,
        *,
        clock: Callable[[], float] = time.time,
        account: Account | None = None,
    ) -> None:
        self._config, self._problems, self._clock = config, problems, clock
        self._payer = None if account is None else CellPayer(account, self._expected_cost)
        self._settings_by_digest: dict[tuple[str, str], Setting] = {}
        self._cache = ModelCache()
        self._forewarned: dict[str, str] = {}  # the first row of each warning
        self._plan = functools.cache(self._parse_plan)
        self._spent: dict[str, int] = {}
        self._traced = {(data, name) for data, of in problems.items() for name in list(of)[: config.record.traces]}
        self.slots = config.concurrency
        try:
            self._solvers = {name: self._servers(name) for name in config.models}
            self.settings: Settings = self._resolve()
            for line, row in self._forewarned.items():
                LOG.warning("%s (%s)", line, row)
        except BaseException:
            self._cache.close()
            raise

    def _servers(self, name: str) -> list[_Server]:
        """Return the solvers of a model, one for each url, or a single one without url."""
        spec, config = self._config.models[name], self._config
        return [
            _Server(
                Solver(
                    spec.records(),
                    config.verifiers_of(name),
                    backend=spec.backend,
                    url=url,
                    task=config.task,
                    sampling=config.sampling_of(name),
                    allow_oracle=config.allow_oracle,
                    keep=self._cache,
                    expected_tokens=spec.expected_tokens,
                )
            )
            for url in spec.url or [None]
        ]

    def _resolve(self) -> Settings:
        """Return the settings of every model and task. Each strategy is checked with each budget."""
        first_problems: dict[str | None, Problem] = {}
        for problems in self._problems.values():
            for problem in problems.values():
                first_problems.setdefault(problem.task, problem)
        return {
            (name, task): self._setting(name, problem)
            for name in self._solvers
            for task, problem in first_problems.items()
        }

    def _setting(self, name: str, problem: Problem) -> Setting:
        """Return the setting of a model for the task of a problem.

        Raises:
            ConfigError: as the class, or two strategies have the same canonical text.
        """
        solver, strategies, scoring = self._solvers[name][0].solver, dict[str, str](), dict[str, ScoringCost | None]()
        run = None
        for text in self._config.strategies:
            for budget in self._config.budgets:
                run = self._score(solver.prepare(problem, _budget(budget), strategy=text))
                self._check(name, run)
                for line in run.forewarnings():
                    self._forewarned.setdefault(line, f"{text} under {format_limits(budget)}")
                strategies[text] = stored_text(dataclasses.replace(run.plan, selection=run.selection))
                scoring[strategies[text]] = scoring_of(run)
        assert run is not None, "a study has a strategy and a budget"
        for text in strategies:
            if (first_text := next(other for other, plan in strategies.items() if plan == strategies[text])) != text:
                raise ConfigError(
                    f"the strategies {first_text!r} and {text!r} are both {strategies[text]!r} here",
                    hint="leave one out",
                )
        usd, backend = run.backends["policy"].rates.usd_out, self._config.models[name].backend or ""
        place = (
            f"{backend} " if ":" in backend else ""
        )  # all functions have one identity, and so have classes of the same name: the place tells them apart
        return Setting(
            task=run.task.name,
            typical_tokens=run.expected_tokens or run.task.typical_tokens(),
            identity={role: f"{place}{backend.identity}" for role, backend in run.backends.items()},
            sampling=run.sampling.members(),
            verifiers=self._verifiers(name, run),
            strategies=strategies,
            scoring=scoring,
            usd_per_token=None if usd is None else usd / USD_UNIT,
        )

    def _check(self, name: str, run: ProblemRun) -> None:
        """Refuse a run that a model of the study cannot make, before anything is spent."""
        del name
        run.check()

    def _verifiers(self, name: str, run: ProblemRun) -> dict[str, str]:
        """Return the verifiers of a run as texts, from the study, else from the model's record."""
        verifiers = self._config.verifiers_of(name)
        if verifiers is None:
            verifiers = {"main": own_verifier(self._config.models[name].records()["policy"], run.task.name)}
        return {role: verifiers[role] for role in run.verifiers}

    def _parse_plan(self, text: str) -> Plan:
        """Return the plan of a cell.

        Only texts that this study writes may name anything: another person may have written the store.
        """
        is_own = any(text in setting.strategies.values() for setting in self.settings.values())
        return parse(text, EVERYTHING if is_own else file_scope())

    def _expected_cost(self, cell: Cell) -> Mapping[str, float]:
        """Return the expected cost of a cell by unit, without units of unknown cost."""
        if not self._settings_by_digest:
            self._settings_by_digest = {(name, setting.digest): setting for (name, _), setting in self.settings.items()}
        setting = self._settings_by_digest[cell.model, cell.setting]
        return cost_by_budget(cell.budget, setting, setting.scoring[cell.strategy])

    async def run(self, cell: Cell) -> CellResult:
        """Run a cell; see `Executor`."""
        if self._payer is None:
            return await self._run(cell, _budget(cell.budget))
        async with self._payer.part(cell) as part:
            return await self._run(cell, part)

    async def _run(self, cell: Cell, payer: Budget | Account) -> CellResult:
        problem = self._problems[cell.dataset][cell.problem]
        server = min(self._solvers[cell.model], key=lambda candidate_server: candidate_server.busy)
        server.busy += 1
        self._spent[cell.key], spent = 0, Usage()
        try:
            run = server.solver.prepare(problem, payer, strategy=self._plan(cell.strategy), seed=cell.seed)
            run = dataclasses.replace(
                self._score(run), on_event=lambda event: self._spent.update({cell.key: event.tokens})
            )
            solution = await run.solve()
            spent = solution.usage
            self._spent[cell.key] = spent.tokens
            if solution.stopped_by == "interrupted":
                raise asyncio.CancelledError
            if self._waits(solution):
                self._spent[cell.key] = 0
                raise Unpaid(cell.key)
            if isinstance(solution.error, EngineError) and solution.error.kind in _NOT_TAKEN and not spent.tokens:
                raise NotReached(one_line(solution.error))
            if (
                self._payer is not None
                and isinstance(payer, Account)
                and self._payer.may_have_cut(cell, payer, solution)
            ):
                raise Unpaid(cell.key)
            notes: list[str] = []
            task = isolate(run.task, notes.append)
            judge_cell = functools.partial(self._result_of_cell, cell, solution, task, notes)
            cell_result = await run_in_thread(judge_cell) if self._takes_long(solution, task) else judge_cell()
        except (Unpaid, NotReached):
            raise
        except Exception as failure:  # noqa: BLE001 - the boundary: one cell's failure is its result
            cell_result = CellResult(failed_result(cell, failure, self._clock(), spent))
        finally:
            server.busy -= 1
        del self._spent[cell.key]  # the result has this cost now; a cancelled cell keeps its entry
        return cell_result

    async def draw_again(self, cell: Cell) -> tuple[Solution, Task]:
        """Draw the search of a cell again from its seed, and return it with the cell's task.

        The search has the probabilities of its tokens. Nothing is stored.
        """
        solver = self._solvers[cell.model][0].solver
        problem = self._problems[cell.dataset][cell.problem]
        run = solver.prepare(problem, _budget(cell.budget), strategy=self._plan(cell.strategy), seed=cell.seed)
        return await dataclasses.replace(self._score(run), sampling_logprobs=True).solve(), run.task

    def _waits(self, solution: Solution) -> bool:
        """Return whether a search lacks replies that are yet to come. Its cell then stays open."""
        del solution
        return False

    def _score(self, run: ProblemRun) -> ProblemRun:
        """Return a run in which every verifier scores all candidates, where the study records such scores."""
        return dataclasses.replace(run, scored_by=tuple(run.verifiers)) if self._config.record.scores else run

    def _takes_long(self, solution: Solution, task: Task) -> bool:
        """Return whether the task's fast rules leave an answer undecided, so that judging may take seconds."""
        reference, candidates = solution.problem.answer, solution.candidates if self._config.record.candidates else ()
        answers = {
            answer
            for answer in (solution.answer, *(candidate.answer for candidate in candidates))
            if answer is not None
        }
        return reference is not None and any(task.decide(answer, reference) is None for answer in answers)

    def _result_of_cell(self, cell: Cell, solution: Solution, task: Task, notes: Sequence[str]) -> CellResult:
        """Return the result of a cell; `notes` are warnings of the task, and judging may add some."""
        drawn = record_candidates(solution, task, solution.problem) if self._config.record.candidates else None
        result = Result(
            cell=cell,
            answer=solution.answer,
            right=None if solution.error is not None else judge_answer(solution.answer, task, solution.problem),
            confidence=solution.confidence,
            stopped_by=solution.stopped_by,
            usage=solution.usage,
            error=None if solution.error is None else one_line(solution.error),
            failures=solution.failures,
            warnings=(*solution.warnings, *(line for line in notes if line not in solution.warnings)),
            reproducible=solution.reproducible,
            oracle=solution.oracle,
            seconds_at=self._clock(),
            drawn=drawn,
        )
        keeps_trace = (cell.dataset, cell.problem) in self._traced and cell.seed == self._config.seeds[0]
        texts = None
        if self._config.record.texts and solution.candidates:
            texts = to_json(plain_values(candidate_texts(solution, task, drawn, right=result.right))).encode("ascii")
        return CellResult(result, solution.trace.to_json().encode() if keeps_trace else None, texts)

    async def tokens_spent_by_key(self) -> Mapping[str, int]:
        """Return tokens by key; see `Executor`."""
        return self._spent

    def close(self) -> None:
        """Free the models."""
        self._cache.close()


@dataclasses.dataclass(slots=True)
class _Server:
    """A solver, and the number of cells that it runs."""

    solver: Solver
    busy: int = 0


def failed_result(cell: Cell, failure: Exception, now: float, spent: Usage = _NOTHING) -> Result:
    """Return the result of a cell that failed.

    A cell also fails where its answer could not be judged after tokens were spent.
    """
    return Result(
        cell=cell,
        answer=None,
        right=None,
        confidence=math.nan,
        stopped_by="failed",
        usage=spent,
        error=one_line(failure),
        seconds_at=now,
    )


def one_line(failure: Exception) -> str:
    """Return the class and the cause of a failure on one line."""
    cause = failure.cause if isinstance(failure, TTSError) else str(failure)
    return " ".join(f"{type(failure).__name__}: {cause}".split())


def _budget(limits: Mapping[str, float]) -> Budget:
    return Budget(**dict[str, Any](limits))
