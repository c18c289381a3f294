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

from tts._common.scopes import file_scope
from tts._core.threads import run_in_thread
from tts.budget.account import Account
from tts.budget.budget import Budget, format_limits
from tts.budget.units import USD_UNIT
from tts.errors import ConfigError, EngineError, TTSError
from tts.experiments.run.candidates import candidate_texts, judge_answer, record_candidates
from tts.experiments.run.cell_payer import CellPayer
from tts.experiments.run.executors import CellResult, NotReached, Unpaid
from tts.experiments.run.forecast import cost_by_budget, scoring_of
from tts.experiments.store.rows import to_json
from tts.experiments.study.config import StudyConfig
from tts.experiments.study.grid import Problems, ScoringCost, Setting, Settings, part_sources
from tts.experiments.study.record import Cell, Result
from tts.registry import EVERYTHING
from tts.search.plan import parse, stored_text
from tts.solver.checks import LOG, check, forewarnings
from tts.solver.live import Event
from tts.solver.model_cache import ModelCache, own_verifier
from tts.solver.run import solve_problem
from tts.solver.setup import ProblemRun
from tts.solver.solver import Solver
from tts.tasks.base import Task
from tts.tasks.isolation import isolate
from tts.trace.trace import plain_values
from tts.types import Problem, Solution, Usage

_NO_USAGE = Usage()
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
        self._forewarnings: dict[str, str] = {}  # each warning with the first strategy and budget that cause it
        self._run_of_cell = functools.cache(self._prepare)
        self._tokens_by_key: dict[str, int] = {}  # tokens spent so far on running cells
        self._traced_problems: set[tuple[str, str]] = set()  # data sets and ids
        for dataset, dataset_problems in problems.items():
            traced_ids = list(dataset_problems)[: config.record.traces]
            self._traced_problems.update((dataset, problem_id) for problem_id in traced_ids)
        self.slots = config.concurrency
        try:
            self._solvers = {name: self._servers(name) for name in config.models}
            self.settings: Settings = self._resolve()
            for warning, cause in self._forewarnings.items():
                LOG.warning("%s (%s)", warning, cause)
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
        """Return the setting of every model and task. Each strategy is checked with each budget."""
        first_problems: dict[str | None, Problem] = {}  # by task
        for problems in self._problems.values():
            for problem in problems.values():
                first_problems.setdefault(problem.task, problem)
        settings: dict[tuple[str, str | None], Setting] = {}
        for name in self._solvers:
            for task, problem in first_problems.items():
                settings[name, task] = self._setting(name, problem)
        return settings

    def _setting(self, name: str, problem: Problem) -> Setting:
        """Return the setting of a model for the task of a problem.

        Raises:
            ConfigError: a strategy, budget or verifier does not fit the model, or two strategies have the same
                canonical text.
        """
        solver = self._solvers[name][0].solver  # the solvers of a model differ in their servers alone
        canonical_texts: dict[str, str] = {}  # by the strategy's text in the study
        scoring_costs: dict[str, ScoringCost | None] = {}  # by the strategy's canonical text
        run: ProblemRun | None = None
        for text in self._config.strategies:
            for budget in self._config.budgets:
                run = self._score(solver.prepare(problem, _budget(budget), strategy=text))
                self._check(name, run)
                for warning in forewarnings(run):
                    self._forewarnings.setdefault(warning, f"{text} under {format_limits(budget)}")
                canonical_texts[text] = stored_text(dataclasses.replace(run.setup.plan, selection=run.setup.selection))
                scoring_costs[canonical_texts[text]] = scoring_of(run)
        assert run is not None, "a study has a strategy and a budget"
        first_texts: dict[str, str] = {}  # by the strategy's canonical text: the first such text in the study
        for text, canonical_text in canonical_texts.items():
            first_text = first_texts.setdefault(canonical_text, text)
            if first_text != text:
                raise ConfigError(
                    f"the strategies {first_text!r} and {text!r} are both {canonical_text!r} here",
                    hint="leave one out",
                )
        # what follows is the same in the runs of all strategies and budgets, and is taken from the last run
        setup = run.setup
        usd = setup.backends["policy"].rates.usd_out
        backend_name = self._config.models[name].backend or ""
        # two backends "package.module:name" may have equal identities, so each identity begins with that name
        prefix = f"{backend_name} " if ":" in backend_name else ""
        verifiers = self._verifiers(name, run)
        identity = {role: f"{prefix}{backend.identity}" for role, backend in setup.backends.items()}
        task_name = self._config.task or problem.task or ""
        return Setting(
            task=setup.task.name,
            typical_tokens=run.expected_tokens or setup.task.typical_tokens(),
            identity={**identity, **part_sources(backend_name, task_name, *verifiers.values())},
            sampling=setup.sampling.members(),
            verifiers=verifiers,
            strategies=canonical_texts,
            scoring=scoring_costs,
            usd_per_token=None if usd is None else usd / USD_UNIT,
        )

    def _check(self, name: str, run: ProblemRun) -> None:
        """Refuse a run that a model of the study cannot make, before anything is spent."""
        del name
        check(run)

    def _verifiers(self, name: str, run: ProblemRun) -> dict[str, str]:
        """Return the verifiers of a run as texts, from the study, else from the model's record."""
        verifiers = self._config.verifiers_of(name)
        if verifiers is None:
            verifiers = {"main": own_verifier(self._config.models[name].records()["policy"], run.setup.task.name)}
        return {role: verifiers[role] for role in run.setup.verifiers}

    def _prepare(self, solver: Solver, strategy: str, task: str | None) -> ProblemRun:
        """Return the run of any cell of a strategy and task, by a solver; problem, budget and seed are the cell's.

        Only a text of a strategy that this study writes may name any function or class, as another person may have
        written the store.
        """
        is_own = any(strategy in setting.strategies.values() for setting in self.settings.values())
        plan = parse(strategy, EVERYTHING if is_own else file_scope())
        return self._score(solver.prepare(Problem("any problem", task=task), Budget(samples=1), strategy=plan))

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
        """Run a cell on the least busy server of its model.

        Args:
            cell: The cell.
            payer: The budget of the cell, or the part of an account.

        Raises:
            Unpaid, NotReached, CancelledError: as `Executor.run`.
        """
        problem = self._problems[cell.dataset][cell.problem]
        server = min(self._solvers[cell.model], key=lambda model_server: model_server.busy)
        server.busy += 1
        self._tokens_by_key[cell.key] = 0
        spent = Usage()
        try:

            def note_tokens(event: Event) -> None:
                self._tokens_by_key[cell.key] = event.tokens

            run = self._run_of_cell(server.solver, cell.strategy, problem.task)
            run = dataclasses.replace(run, problem=problem, budget=payer, seed=cell.seed, on_event=note_tokens)
            solution = await solve_problem(run)
            spent = solution.usage
            self._tokens_by_key[cell.key] = spent.tokens
            if solution.stopped_by == "interrupted":
                raise asyncio.CancelledError
            if self._waits(solution):
                self._tokens_by_key[cell.key] = 0
                raise Unpaid(cell.key)
            if isinstance(solution.error, EngineError) and solution.error.kind in _NOT_TAKEN and not spent.tokens:
                raise NotReached(one_line(solution.error))
            if (
                self._payer is not None
                and isinstance(payer, Account)
                and self._payer.may_have_cut(cell, payer, solution)
            ):
                raise Unpaid(cell.key)
            task_warnings: list[str] = []
            task = isolate(run.setup.task, task_warnings.append)
            judge_cell = functools.partial(self._result_of_cell, cell, solution, task, task_warnings)
            if self._takes_long(solution, task):
                cell_result = await run_in_thread(judge_cell)
            else:
                cell_result = judge_cell()
        except (Unpaid, NotReached):
            raise
        except Exception as failure:  # noqa: BLE001 - the boundary: one cell's failure is its result
            cell_result = CellResult(failed_result(cell, failure, self._clock(), spent))
        finally:
            server.busy -= 1
        # the result has these tokens, which are therefore not booked as lost; a cancelled cell keeps its entry
        del self._tokens_by_key[cell.key]
        return cell_result

    async def draw_again(self, cell: Cell) -> tuple[Solution, Task]:
        """Draw the search of a cell again from its seed, and return it with the cell's task.

        The search has the probabilities of its tokens. Nothing is stored.
        """
        solver = self._solvers[cell.model][0].solver
        problem = self._problems[cell.dataset][cell.problem]
        run = self._run_of_cell(solver, cell.strategy, problem.task)
        setup = dataclasses.replace(run.setup, sampling_logprobs=True)
        run = dataclasses.replace(run, setup=setup, problem=problem, budget=_budget(cell.budget), seed=cell.seed)
        return await solve_problem(run), setup.task

    def _waits(self, solution: Solution) -> bool:
        """Return whether a search lacks replies that are yet to come. Its cell then stays open."""
        del solution
        return False

    def _score(self, run: ProblemRun) -> ProblemRun:
        """Return a run in which every verifier scores all candidates, if the study records scores."""
        scored_by = tuple(run.setup.verifiers) if self._config.record.scores else ()
        return dataclasses.replace(run, setup=dataclasses.replace(run.setup, scored_by=scored_by))

    def _takes_long(self, solution: Solution, task: Task) -> bool:
        """Return whether the task's fast rules leave an answer undecided, so that judging may take seconds."""
        reference = solution.problem.answer
        if reference is None:
            return False
        answers = {solution.answer}
        if self._config.record.candidates:
            answers.update(candidate.answer for candidate in solution.candidates)
        return any(task.accepts(answer, reference) is None for answer in answers if answer is not None)

    def _result_of_cell(self, cell: Cell, solution: Solution, task: Task, task_warnings: Sequence[str]) -> CellResult:
        """Return the result of a cell, with its answer judged.

        Args:
            cell: The cell.
            solution: The solution of the cell's search.
            task: The task that judges.
            task_warnings: The warnings of the task so far. The task adds warnings to this list while it judges.
        """
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
            warnings=(*solution.warnings, *(line for line in task_warnings if line not in solution.warnings)),
            reproducible=solution.reproducible,
            oracle=solution.oracle,
            seconds_at=self._clock(),
            drawn=drawn,
        )
        trace: bytes | None = None
        if (cell.dataset, cell.problem) in self._traced_problems and cell.seed == self._config.seeds[0]:
            trace = solution.trace.to_json().encode()
        texts: bytes | None = None
        if self._config.record.texts and solution.candidates:
            candidates = candidate_texts(solution, task, drawn, right=result.right)
            texts = to_json(plain_values(candidates)).encode("ascii")
        return CellResult(result=result, trace=trace, texts=texts)

    async def tokens_spent_by_key(self) -> Mapping[str, int]:
        """Return tokens by key; see `Executor`."""
        return self._tokens_by_key

    def close(self) -> None:
        """Free the models."""
        self._cache.close()


@dataclasses.dataclass(slots=True)
class _Server:
    """A solver, and the number of cells that it runs."""

    solver: Solver
    busy: int = 0


def failed_result(cell: Cell, failure: Exception, now: float, spent: Usage = _NO_USAGE) -> Result:
    """Return the result of a cell that failed.

    Args:
        cell: The cell.
        failure: The error of the cell.
        now: The time in seconds since the epoch.
        spent: The cost of the cell, if it failed after its search, when its answer was judged.
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
    """Return the class and the message of a failure on one line, without the hint of our errors."""
    cause = failure.cause if isinstance(failure, TTSError) else str(failure)
    return " ".join(f"{type(failure).__name__}: {cause}".split())


def _budget(limits: Mapping[str, float]) -> Budget:
    return Budget(**dict[str, Any](limits))
