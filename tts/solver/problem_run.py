"""One problem from its budget to its solution.

A search's end, or a failure, becomes an outcome here.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial

from tts.backends.base import Backend, Draft, Sampling
from tts.backends.batching import search_turns
from tts.backends.capabilities import require, require_sampling
from tts.backends.metadata import metadata_of
from tts.budget.account import Account
from tts.budget.budget import Budget, format_limits
from tts.budget.ledger import Call
from tts.budget.units import VERIFIER_UNITS
from tts.errors import CapabilityError, ConfigError, EngineError, TTSError
from tts.randomness import hash64, problem_key
from tts.search.algorithms.embedding import NGRAMS, Embedder, refuse_unpriced
from tts.search.answers import Answers, votes_of
from tts.search.costs import Costs
from tts.search.ends import Notes, SearchEnded
from tts.search.families import RunSetting, has_prompt, lacking, nearest
from tts.search.needs import Needs, needs_of
from tts.search.parts import Plan, Selected, Selection, Strategy
from tts.search.prompts import Prompts
from tts.search.scoring import Scoring
from tts.search.search import Search, complete_best
from tts.search.selections._common import put_first
from tts.search.selections.majority import Majority
from tts.search.tree import Tree
from tts.solver.forewarnings import score_warnings
from tts.solver.outcome import (
    OnError,
    SearchOutcome,
    blame_context,
    candidates_of,
    cause_of,
    decision_of,
    select,
    truncated_tokens,
    warnings_of,
)
from tts.solver.telemetry import SearchFacts, Watched
from tts.tasks.base import Task
from tts.tasks.isolation import isolate
from tts.tasks.looks import looks_like_math
from tts.thoughts import THINK, ThoughtMarks
from tts.trace.nodes import RecordedNodes
from tts.trace.receipt import PartAnswers, part_answers
from tts.trace.trace import Trace, TraceNode
from tts.types import Candidate, Problem, Solution, Usage, pictures_in
from tts.verifiers.base import Verifier, bind, traits_of
from tts.verifiers.compatibility import GIVE_VERIFIER, RATED, check_fit, check_rates, token_rates
from tts.verifiers.ranges import check_scale

_LOOK_SECONDS = 0.1  # between two reports of rows under way
_AFTER_S = 1e-5  # seconds a candidate, for the work after the scores that a selection needs
_LIKE_MATH = (
    "the problem looks like mathematics, but is taken as text: task='math' asks for a final answer and "
    "compares answers by value"
)


@dataclass(frozen=True, slots=True)
class Event:
    """Progress of one problem after each call.

    A problem that is solved alone also has events while rows are written.

    Args:
        problem: The problem as given, without its answer and metadata.
        calls: The number of calls so far.
        tokens: The tokens spent so far, as the limit `tokens` counts them. Tokens of rows under way are included, where
            the backend shows them.
        candidates: The number of candidates so far.
        answer: The most frequent answer so far; None where there is none.
        texts: The texts of the candidates since the event before, whole.
        solution: The solution in the last event of `stream`.
        nodes: A function that returns the nodes of the tree; it may be called only in the loop that calls `on_event`.
            None in the events of `stream`.
        writing: The text so far of the leading row, with the path that the row continues. The leading row is the first
            in draw order that is under way. "": there is none, or the backend does not show its text. The engine and
            servers that stream show it.
        marks: The marks of the thought that this text may begin with (`ThoughtMarks.split_settled_text`).
    """

    problem: Problem
    calls: int
    tokens: int
    candidates: int
    answer: str | None
    texts: tuple[str, ...] = ()
    solution: Solution | None = None
    nodes: Callable[[], Sequence[TraceNode]] | None = field(default=None, compare=False, repr=False)
    writing: str = ""
    marks: ThoughtMarks = field(default=THINK, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class ProblemRun:
    """The run of one problem, with all its parts; `solve` may be called once.

    Args:
        problem: The problem as given.
        budget: The limits, or an account that pays.
        seed: The seed of this run.
        task: The task of this run.
        plan: The plan of this run.
        backends: The backends of this run by role.
        verifiers: The verifiers of this run by role.
        sampling: The sampling of this run.
        model: The policy's name.
        allow_oracle: Whether a verifier may see the reference answer.
        notes: Warnings from before the run.
        task_given: Whether the caller chose the task; if not, a text that looks like mathematics gets a warning.
        on_error: As in `Solver`.
        expected_tokens: The expected tokens of a solution; None: the task's constant.
        clock: The clock, in seconds.
        started: When the budget's seconds began; None: now.
        on_event: A function that is called with the progress after each call.
        scored_by: The roles that score all candidates after the choice, for a record of them.
        forewarn: A function that is called with each of `forewarnings` before anything is spent; None: no such
            warnings.
        live: Whether `on_event` also reports what rows under way have written, ten times a second.
        named: The names of the models by role, as calibrations state them.
        described: The verifiers by role, as text, as calibrations state them.
        refuses: A function that returns why an answer of a confidence is not given, or "" where it is given; None:
            every answer is given.
        sampling_logprobs: Whether the trace has the probabilities under the law that drew the tokens.
    """

    problem: Problem
    budget: Budget | Account
    seed: int
    task: Task
    plan: Plan
    backends: Mapping[str, Backend]
    verifiers: Mapping[str, Verifier]
    sampling: Sampling
    model: str
    clock: Callable[[], float]
    allow_oracle: bool = False
    expected_tokens: int | None = None
    notes: tuple[str, ...] = ()
    task_given: bool = True
    started: float | None = None
    embedder: Embedder | None = None
    on_event: Callable[[Event], None] | None = None
    open_account: Callable[[Callable[[Call], None]], Account] | None = None
    on_error: OnError = "raise"
    scored_by: tuple[str, ...] = ()
    forewarn: Callable[[str], None] | None = None
    live: bool = False
    named: Mapping[str, str] = field(default_factory=dict[str, str])
    described: Mapping[str, str] = field(default_factory=dict[str, str])
    refuses: Callable[[float], str] | None = None
    sampling_logprobs: bool = False

    @cached_property
    def selection(self) -> Selection:
        """The plan's selection, or its strategy's default."""
        return self.plan.selection or self.plan.strategy.default_selection(verified=bool(self.verifiers))

    @cached_property
    def declared(self) -> tuple[str, ...]:
        """The roles that strategy, stop rule, selection and record score with.

        Roles whose scores the strategy gives itself are left out.
        """
        stop_roles: list[str] = []
        if self._judged is not None:
            role, _aggregation = self._judged
            stop_roles.append(role)
        roles = [*self._needs.verifiers, *stop_roles, *self._chosen_by, *self.scored_by]
        return tuple(dict.fromkeys(roles))  # without duplicates

    @cached_property
    def given(self) -> tuple[str, ...]:
        """The roles of scores that the strategy gives its candidates itself."""
        return self._needs.scores

    @cached_property
    def _needs(self) -> Needs:
        return needs_of(self.plan.strategy)

    @cached_property
    def _stop_needs(self) -> Needs:
        return Needs() if self.plan.stopping is None else needs_of(self.plan.stopping)

    @cached_property
    def _selection_needs(self) -> Needs:
        return needs_of(self.selection)

    @cached_property
    def limits(self) -> Mapping[str, float]:
        """The limits of the budget, by unit."""
        return self.budget.limits

    @property
    def _judged(self) -> tuple[str, str] | None:
        """The role and the aggregation of the scores that the stop rule reads; None: it reads none."""
        needs = self._stop_needs
        return (needs.verifiers[0], needs.aggregate) if needs.verifiers else None

    @property
    def _chosen_by(self) -> list[str]:
        """The roles that the selection scores with."""
        return [role for role in self._selection_needs.verifiers if role not in self.given]

    @property
    def _compared_by(self) -> dict[str, int]:
        """The comparisons whose cost is reserved with every row, by role.

        Roles by which the strategy or the stop rule scores are left out.
        """
        scoring_roles = {*self._needs.verifiers, *self._stop_needs.verifiers}
        return {
            role: num_pairs
            for role, num_pairs in self._selection_needs.pairs.items()
            if num_pairs and role not in scoring_roles
        }

    def check(self) -> None:
        """Refuse a run that cannot succeed, before anything is spent.

        Raises:
            ConfigError: the account is closed or of another process; the prompt is empty; a role has no verifier; an
                oracle has no permission; a limit has no rates; or the task lacks the kind of prompt in which the
                strategy shows solutions.
            CapabilityError: the backend lacks a capability that the strategy, a verifier or the sampling needs; or a
                verifier reads other steps than those of the task.
            MissingDependency: the task needs a package that is not installed.
        """
        if isinstance(self.budget, Account):
            self.budget.check_usable()
        if not self.problem.text.strip():
            raise ConfigError("the prompt is empty, but must hold a problem", hint="give the problem's text")
        self.task.check(self.problem)
        _check_pictures(self.problem, self.backends, self.limits)
        self.check_plan()

    def check_plan(self) -> None:
        """Refuse a run that fails for every problem: the part of `check` that reads no problem.

        Raises:
            ConfigError: See `check`.
            CapabilityError: See `check`.
            MissingDependency: See `check`.
        """
        _check_strategy(self.plan.strategy, self._needs, self.backends["policy"], self.task, tuple(self.verifiers))
        _check_models(self.plan.strategy, self._needs, self.backends, self.limits)
        for role in ("policy", *self._needs.models):
            require_sampling(self.backends[role], self.sampling)
        self._check_roles()
        _check_pairs(self.selection, self._selection_needs, self.verifiers)
        vectors = self._selection_needs.vectors
        if vectors:
            embedder = (self.embedder or NGRAMS) if vectors is True else vectors
            refuse_unpriced(embedder, self.limits)
        _check_thoughts(self._needs, self.limits)
        bounding_limits = set(self.limits)
        if not self.declared:  # without a verifier, limits of verifiers bound nothing
            bounding_limits.difference_update(VERIFIER_UNITS)
        if not bounding_limits:
            self.plan.strategy.size(None)  # refuses a strategy that only a budget would end
        for role, verifier in self.verifiers.items():
            if verifier.model not in self.backends:
                raise ConfigError(
                    f"the verifier {role!r} calls the model {verifier.model!r}, but no model has that role"
                )
            check_fit(verifier, self.backends[verifier.model], self.task)
            if self._needs.scaled and role in self._needs.verifiers:
                check_scale(verifier)
            if verifier.oracle and not self.allow_oracle:
                raise ConfigError(
                    f"the verifier {verifier.name!r} sees the reference answer, but an oracle needs permission",
                    hint="pass allow_oracle=True (--allow-oracle); the result is marked as an oracle's",
                )
        names_and_rates = {role: (backend.name, backend.rates) for role, backend in self.backends.items()}
        check_rates(self.limits, names_and_rates, self.verifiers)

    def forewarnings(self) -> list[str]:
        """Return the warnings that are known before anything is spent, of a run that `check` lets pass."""
        expected = self.expected_tokens or self.task.typical_tokens("solve")
        scores = score_warnings(
            self.problem, self.budget, self.backends, self.verifiers, self.declared, self._compared_by, expected
        )
        return [*self.notes, *self._task_warnings(), *scores]

    def _task_warnings(self) -> list[str]:
        """Return the warning that the task may be another one."""
        return (
            [_LIKE_MATH]
            if not self.task_given and self.task.name == "text" and looks_like_math(self.problem.text)
            else []
        )

    def _check_roles(self) -> None:
        """Refuse roles without a verifier, and roles that both a verifier and the strategy would score."""
        for role in self.declared:
            if role not in self.verifiers:
                raise ConfigError(
                    f"{self.plan} scores with the role {role!r}, but no verifier has it",
                    hint=f"{GIVE_VERIFIER}; or choose a selection that needs none, such as majority",
                )
        for role in self.given:
            if role in self.verifiers:
                raise ConfigError(
                    f"{self.plan} gives scores of the role {role!r} itself, but a verifier has that role",
                    hint="name another role in Needs.scores, or give no verifier",
                )

    async def solve(self) -> Solution:
        """Search, choose, and return the solution.

        A failure in the middle is part of the solution, and the candidates found before are kept.

        Raises:
            ConfigError: the run cannot succeed (`check`).
        """
        watched = Watched(
            SearchFacts(
                problem=self.problem,
                strategy=self.plan,
                budget=format_limits(self.limits),
                model=self.model,
                task=self.task.name,
                seed=self.seed,
                temperature=self.sampling.temperature,
            )
        )
        try:
            with blame_context(), search_turns():
                solution = await self._solve_in_account(watched)
        except BaseException as failure:
            watched.fail(failure)
            raise
        watched.end(solution)
        return solution

    async def _solve_in_account(self, watched: Watched) -> Solution:
        self.check()
        if self.forewarn is not None:
            for line in self.forewarnings():
                self.forewarn(line)
        with self._account(watched.call) as account:
            return await self._run_search(account)

    async def _run_search(self, account: Account) -> Solution:
        """Search in an account, choose, and return the solution. All reservations and prompts are released."""
        rates = {
            role: token_rates(verifier, self.backends[verifier.model]) for role, verifier in self.verifiers.items()
        }
        stop_rule = self.plan.stopping
        notes, tree = Notes(), Tree()
        problem = dataclasses.replace(self.problem.without_answer(), task=self.task.name)
        task = isolate(self.task, notes.warn)
        costs = Costs(account, self.verifiers, self.declared, rates, self._compared_by)
        prompts = Prompts(self.backends, costs, tree, self.clock)
        seconds_left = None if account.deadline is None else lambda: costs.account.seconds_left
        search = Search(
            problem=problem,
            task=task,
            backends=self.backends,
            costs=costs,
            tree=tree,
            prompts=prompts,
            answers=Answers(task, seconds_left),
            scoring=self._scoring(problem, task, costs=costs, tree=tree, prompts=prompts),
            notes=notes,
            seed=self.seed,
            decide=None if stop_rule is None else partial(decision_of, stop_rule),
            judged=self._judged,
            order="drawn" if stop_rule is None else stop_rule.order,
            sampling=self.sampling,
            clock=self.clock,
            on_call=None if self.on_event is None else _reporter(self, self.on_event),
            may_score=self._may_score,
            asked_of_all=self._scoring_roles(),
            expected_tokens=self.expected_tokens,
            sampling_logprobs=self.sampling_logprobs or "sampling_logprobs" in self._needs.capabilities,
        )
        outcome = SearchOutcome()
        try:
            await self._explore(search, outcome)
            # amounts kept for the scores of the choice become available again where the scores cost less
            available_before = {unit: account.available(unit) for unit in costs.owed()}
            selected = self._abstain(await self._choose(search, outcome), outcome)
            if notes.timed_out and outcome.stopped_by == "done":
                outcome.stopped_by = "budget: seconds"
            outcome.held = costs.owed()
            outcome.cheaper = {
                unit: account.available(unit) - amount_before for unit, amount_before in available_before.items()
            }
        finally:
            costs.free_all()
            try:
                prompts.release_all()
            except EngineError as failure:
                outcome.fail(failure, search)
        return self._solution(search, outcome, selected)

    def _scoring(self, problem: Problem, task: Task, *, costs: Costs, tree: Tree, prompts: Prompts) -> Scoring:
        """Return the part of the search that calls the verifiers."""
        return Scoring(
            self.verifiers,
            {role: bind(verifier, self.problem) for role, verifier in self.verifiers.items()},
            task=task,
            backends=self.backends,
            costs=costs,
            tree=tree,
            prompts=prompts,
            stream=hash64("judge", self.seed, problem_key(problem, task.name)),
            clock=self.clock,
            gives_scores=self.given,
            embedder=self.embedder,
        )

    def _scoring_roles(self) -> Sequence[str]:
        """Return the roles that will score every candidate, whatever comes of the search."""
        return self._chosen_by if self._selection_needs.scores_all and not self._needs.verifiers else ()

    @property
    def _may_score(self) -> Callable[[Candidate, int], bool] | None:
        """The function that tells whether the selection may score a candidate; None: the strategy scores."""
        if self._needs.verifiers:
            return None
        return self.selection.may_score if self._selection_needs.verifiers else _never

    def _account(self, noted: Callable[[Call], None]) -> Account:
        """Return the account of the search: an account of its own budget, or a part of a shared account."""
        if self.open_account is not None:
            return self.open_account(noted)
        if isinstance(self.budget, Account):
            return self.budget.open_search(noted=noted)
        started = self.clock() if self.started is None else self.started
        return Account(self.budget, clock=self.clock, started=started, noted=noted)

    async def _explore(self, search: Search, outcome: SearchOutcome) -> None:
        """Run the strategy to its end, whichever way it ends.

        Then rows that are still open become candidates that were cut short.
        """
        num_before, mistake = 0, None
        try:
            with blame_context():
                async with _live_reports(self, search), search:
                    mistake = await self._attempt(search, outcome)
                    num_before = len(search.candidates)  # the end of the block adds those that were cut short
        except TTSError as failure:  # the boundary: a failed run is an outcome
            outcome.fail(failure, search)
        if mistake is not None:
            raise mistake
        if outcome.candidates is not search.candidates and len(search.candidates) > num_before:
            outcome.candidates = [*outcome.candidates, *search.candidates[num_before:]]
        if not outcome.candidates and search.rows.failures and outcome.error is None:
            written_nodes = [t for t in search.tree.nodes if t.parent is not None and t.status != "failed"]
            cause = "no path came to its end, and rows failed" if written_nodes else "every row failed"
            kind = next(iter(search.rows.failures))
            outcome.error = EngineError(
                f"{cause}: {cause_of(kind, search.rows.causes)}", kind=kind, retry_s=search.rows.retry_s
            )
            if outcome.stopped_by not in ("interrupted", "budget: seconds"):
                outcome.stopped_by = cause  # the failed rows are why there is nothing, however the strategy ended

    async def _attempt(self, search: Search, outcome: SearchOutcome) -> ConfigError | None:
        """Run the strategy, and note how it ended.

        Returns:
            A configuration error that came before anything was spent; None: there was none.
        """
        try:
            with blame_context():
                num_affordable = search.affordable_samples(stepwise="steps" in self._needs.capabilities)
                strategy = self.plan.strategy.size(num_affordable)
                await self._run(strategy, search, outcome)
        except asyncio.CancelledError:
            outcome.candidates, outcome.stopped_by = search.candidates, "interrupted"
        except TTSError as failure:  # the boundary: a failed strategy is an outcome
            if isinstance(failure, ConfigError) and not search.account.ledger.entries:
                return failure
            outcome.candidates = search.candidates
            outcome.fail(failure, search)
        return None

    async def _run(self, strategy: Strategy, search: Search, outcome: SearchOutcome) -> None:
        """Run the strategy, and complete a path if it found no answer."""
        try:
            await search.open("solve")
            outcome.candidates = await candidates_of(strategy, search)
            if search.notes.stop is not None:  # the strategy went on after a stop rule had fired
                raise SearchEnded(search.notes.stop.reason, search.notes.stop)
        except SearchEnded as end:
            outcome.candidates = search.candidates
            outcome.stopped_by, outcome.stop = end.reason, end.stop
        # without a root, not even the prompt could be paid
        if search.tree.nodes and self._lacks_an_answer(search, outcome):
            candidates = list(outcome.candidates)  # a copy, for the list may be the search's own, which grows
            num_before = len(search.candidates)
            with suppress(SearchEnded):
                await complete_best(search)
            outcome.candidates = [*candidates, *search.candidates[num_before:]]
            if search.notes.stop is not None:
                outcome.stopped_by, outcome.stop = search.notes.stop.reason, search.notes.stop

    def _lacks_an_answer(self, search: Search, outcome: SearchOutcome) -> bool:
        """Whether a path is to be completed from the reserve.

        It is so where there is no candidate, or where the budget ended the search before any candidate had an answer.
        """
        if not outcome.candidates:
            return True
        has_no_votes = not votes_of(search.candidates).total
        return outcome.stopped_by.startswith("budget") and has_no_votes

    async def _choose(self, search: Search, outcome: SearchOutcome) -> Selected:
        """Return the choice of the selection; if the selection fails, the choice of a majority vote."""
        candidates = list(outcome.candidates)
        if outcome.stop is not None:
            candidates = candidates[outcome.stop.used]
        search.account.keep_for_closing(_AFTER_S * len(search.candidates))
        selected: Selected | None = None
        try:
            takes_vote = outcome.stopped_by == "interrupted" or outcome.is_unjudged(self.on_error)
            selection = Majority() if takes_vote else self.selection
            with blame_context():
                selected = await select(selection, candidates, search)
                for role in self.scored_by:
                    await search.score([c.trajectory for c in candidates], role, required=False)
        except asyncio.CancelledError:
            outcome.stopped_by = "interrupted"
        except SearchEnded as end:
            outcome.stopped_by = end.reason
            if selected is None:
                search.notes.warn(
                    f"{end.reason} ended {self.selection} before it had chosen: the answer is that of a vote",
                    timed=True,
                )
        except TTSError as failure:  # the boundary: a failed selection is an outcome
            outcome.fail(failure, search)
        if selected is None:
            selected = await Majority().select(candidates, search)
        if outcome.is_unjudged(self.on_error):
            selected = dataclasses.replace(selected, confidence=math.nan)
        if outcome.stop is not None and outcome.stop.answer is not None and not selected.abstained:
            selected = put_first(selected, outcome.stop.answer)
        return selected

    def _abstain(self, selected: Selected, outcome: SearchOutcome) -> Selected:
        """Return a choice without its answers where its confidence is refused.

        A vote that stands in for the selection was not calibrated, so its confidence counts as unknown.
        """
        if self.refuses is None or not selected.answers:
            return selected
        is_vote_instead = outcome.error is not None or outcome.stopped_by == "interrupted"
        reason = self.refuses(math.nan if is_vote_instead else selected.confidence)
        return dataclasses.replace(selected, answers=(), abstained=reason) if reason else selected

    def _solution(self, search: Search, outcome: SearchOutcome, selected: Selected) -> Solution:
        """Return the solution of a search that has ended."""
        account, tree = search.account, search.tree
        usage = dataclasses.replace(
            account.ledger.total(),
            seconds=account.elapsed,
            truncated_tokens=truncated_tokens(search),
            peak_kv_tokens=tree.peak_live,
            saved_kv_tokens=tree.peak_logical - tree.peak_live,
            kv_bytes_per_token=self.backends["policy"].kv_bytes_per_token,
        )
        warnings = warnings_of(
            search,
            outcome,
            selected,
            usage=usage,
            selection=self.selection,
            capped=self.sampling.max_tokens is not None,
        )
        target = metadata_of(self.backends["policy"]).target
        faults: Sequence[str] = ()
        if target is not None and selected.answers:
            target, faults = target.judge(selected.answers[0], selected.ranked, self.verifiers)
        warnings = (*self.notes, *account.shortages, *self._task_warnings(), *warnings, *faults)
        warnings += (*self._backend_notes(usage),)
        return Solution(
            problem=self.problem,
            answer=selected.answers[0] if selected.answers else None,
            answers=selected.answers,
            abstained=selected.abstained,
            confidence=selected.confidence,
            candidates=selected.ranked,
            usage=usage,
            remaining=account.remainder(),
            stopped_by=outcome.stopped_by,
            strategy=self.plan_text,
            model=self.model,
            seed=self.seed,
            oracle=any(self.verifiers[role].oracle for role in {*self.declared, *search.scoring.asked}),
            failures=dict(search.rows.failures + search.scoring.notes.failures),
            warnings=warnings,
            reproducible=self._reproducible(search, outcome),
            trace=self._trace(search, outcome, selected, usage, warnings),
            error=outcome.error,
            target=target,
        )

    def _backend_notes(self, usage: Usage) -> list[str]:
        """Return the notes of the backends on a usage, each backend and each note once."""
        backends = {id(backend): backend for backend in self.backends.values()}
        notes: list[str] = []
        for backend in backends.values():
            notes += metadata_of(backend).notes(usage)
        return list(dict.fromkeys(notes))  # without duplicates

    @cached_property
    def plan_text(self) -> str:
        """The plan with its selection, as a text."""
        return str(dataclasses.replace(self.plan, selection=self.selection))

    def _reproducible(self, search: Search, outcome: SearchOutcome) -> bool:
        """Return whether the same call gives the same solution again."""
        depends_on_time = (
            search.notes.timed_out
            or search.notes.timed
            or outcome.stopped_by in ("budget: seconds", "interrupted", "failed")
            or search.account.is_contended
        )
        return not depends_on_time and all(backend.caps.streams for backend in self.backends.values())

    def _trace(
        self, search: Search, outcome: SearchOutcome, selected: Selected, usage: Usage, warnings: tuple[str, ...]
    ) -> Trace:
        """Return the record of a search that has ended."""
        tokenizer = metadata_of(self.backends["policy"]).tokenizer
        candidates = [*search.candidates, *selected.ranked]
        nodes = RecordedNodes(self.problem.text, search.tree, tuple(self.verifiers), candidates, tokenizer)
        return Trace(
            problem=self.problem.text,
            task=self.task.name,
            model=self.model,
            strategy=self.plan_text,
            seed=self.seed,
            budget=format_limits(self.limits),
            answer=selected.answers[0] if selected.answers else None,
            confidence=selected.confidence,
            stopped_by=outcome.stopped_by,
            nodes=nodes,
            calls=tuple(search.account.ledger.calls),
            usage=usage,
            warnings=warnings,
            kept_tokens=tuple(search.tree.kept),
            reasons=tuple(search.notes.reasons),
            judgements=tuple(search.scoring.notes.judgements),
            parts=self._parts(search, outcome),
            levels=tuple(search.notes.levels),
            temperature=self.sampling.temperature,
        )

    def _parts(self, search: Search, outcome: SearchOutcome) -> PartAnswers:
        """Return the answers that parts of the samples would have given; they are computed only when read."""
        if outcome.stopped_by == "interrupted":
            return PartAnswers("the search was interrupted")
        if outcome.error is not None or outcome.stopped_by == "failed":
            return PartAnswers("the search was ended by a failure")
        if self.refuses is not None:
            return PartAnswers("the threshold of the calibrated risk holds for all samples alone")
        candidates = list(outcome.candidates)
        return PartAnswers(partial(part_answers, self.plan, self.selection, candidates, search.tree, self.verifiers))


def _never(candidate: Candidate, agreeing: int) -> bool:
    del candidate, agreeing
    return False


def _reporter(run: ProblemRun, on_event: Callable[[Event], None]) -> Callable[[Search], None]:
    """Return a function that reports the progress of a search.

    Its events have no more of the problem than a strategy may read.
    """
    num_reported = 0  # candidates

    def report(search: Search) -> None:
        nonlocal num_reported
        texts = tuple(c.trajectory.full_text for c in search.candidates[num_reported:])
        num_reported = len(search.candidates)
        on_event(_event(run, search, Draft("", 0), texts))

    return report


def _event(run: ProblemRun, search: Search, draft: Draft, texts: tuple[str, ...] = ()) -> Event:
    """Return the progress of a search; the event has no more of the problem than a strategy may read.

    Args:
        run: The run.
        search: The search.
        draft: The text and tokens that rows under way have written.
        texts: The texts of new candidates.
    """
    problem, calls = run.problem.without_answer(), search.account.ledger.calls
    nodes = RecordedNodes(problem.text, search.tree, tuple(run.verifiers), search.candidates)
    return Event(
        problem=problem,
        calls=len(calls),
        tokens=sum(call.usage.tokens for call in calls) + draft.tokens,
        candidates=len(search.candidates),
        answer=votes_of(search.candidates).answer,
        texts=texts,
        nodes=lambda: nodes[:],
        writing=draft.text,
        marks=draft.marks,
    )


@asynccontextmanager
async def _live_reports(run: ProblemRun, search: Search) -> AsyncGenerator[None]:
    """Report the progress of rows under way while the block runs, if the run is live."""
    if run.on_event is None or not run.live:
        yield
        return
    task = asyncio.create_task(_report_drafts(run, search, run.on_event))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await task


async def _report_drafts(run: ProblemRun, search: Search, on_event: Callable[[Event], None]) -> None:
    """Report the text and tokens of rows under way, for ever, whenever they have changed."""
    last_draft = Draft("", 0)
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        draft = search.rows.draft()
        is_shown = bool(draft.text or draft.tokens)  # not every server shows its tokens
        if is_shown and draft != last_draft:
            last_draft = draft
            on_event(_event(run, search, draft))


# What a run refuses before anything is spent --------------------------------------------------------------------------


def _check_strategy(strategy: Strategy, needs: Needs, policy: Backend, task: Task, roles: Sequence[str]) -> None:
    """Refuse a strategy that cannot run; the hint names the nearest strategy that can.

    Args:
        strategy: The strategy.
        needs: The needs of the strategy.
        policy: The backend of the policy.
        task: The task.
        roles: The roles of the verifiers.

    Raises:
        CapabilityError: The backend, or this machine, lacks what the strategy needs.
        ConfigError: The task lacks a prompt that the strategy needs, or a role of the strategy has no verifier.
        MissingDependency: A package that the strategy needs is not installed.
    """
    shows_tokens = metadata_of(policy).text_of is not None
    setting = RunSetting(caps=policy.caps, shows_tokens=shows_tokens, task=task, roles=roles)
    if not lacking(strategy, setting):
        if needs.task is not None:
            needs.task(task)  # raises where the task does not fit
        if needs.machine is not None:
            needs.machine()  # raises where this machine lacks something
        return
    cure = f"the nearest strategy that can run here is {nearest(strategy, setting)}"
    try:
        require(policy, needs.capabilities, f"the strategy {strategy}")
    except CapabilityError as refusal:
        hint = f"{refusal.hint}; {cure}" if refusal.hint else cure
        raise CapabilityError(refusal.cause, hint=hint) from None
    if "token_ids" in needs.capabilities and not shows_tokens:
        raise CapabilityError(
            f"the strategy {strategy} forks at a token, but the backend {policy.name!r} does not show the text of "
            "single tokens",
            hint=cure,
        )
    for kind in needs.prompts:
        if not has_prompt(task, kind):
            may_revise = kind == "fuse" and has_prompt(task, "revise")
            raise ConfigError(
                f"the strategy {strategy} takes the prompt {kind!r}, which the task {task.name!r} lacks",
                hint=f"give prompt='revise', or {cure}" if may_revise else cure,
            )
    for role in needs.verifiers:
        if role not in roles:
            raise ConfigError(
                f"the strategy {strategy} scores with the role {role!r}, but no verifier has it",
                hint=f"{GIVE_VERIFIER}; or {cure}",
            )


def _check_models(
    strategy: Strategy, needs: Needs, backends: Mapping[str, Backend], limits: Mapping[str, float]
) -> None:
    """Refuse a strategy whose models beside the policy do not fit.

    A model may be missing, lack what the strategy uses, or not be comparable under the budget.

    Raises:
        ConfigError: A role has no model, or the budget does not limit the unit in which models are compared.
        CapabilityError: A model lacks a capability that the strategy uses.
    """
    for role, capabilities in needs.models.items():
        if role not in backends:
            raise ConfigError(
                f"the strategy {strategy} writes with the role {role!r}, but no model has it; those that have one: "
                f"{', '.join(backends)}",
                hint=f"Solver(models={{'policy': …, {role!r}: …}})",
            )
        require(backends[role], capabilities, f"the strategy {strategy}, of the role {role!r},")
    if needs.unit is not None and needs.unit not in limits:
        raise ConfigError(
            f"the strategy {strategy} compares models by their cost in {needs.unit}, but the budget limits "
            f"{', '.join(limits)}",
            hint=f"give {needs.unit}=…, or fit its performance model again, with tts fit --unit",
        )


def _check_pairs(selection: Selection, needs: Needs, verifiers: Mapping[str, Verifier]) -> None:
    """Raise ConfigError where a selection compares candidates, but its verifier cannot compare."""
    for role in needs.pairs:
        traits = traits_of(verifiers[role])
        if traits.comparison is None or (needs.lists and traits.choice is None):
            raise ConfigError(
                f"the selection {selection} compares candidates, but the verifier {verifiers[role].name!r} cannot",
                hint="give one that can, such as verifier='judge', or another selection",
            )


def _check_thoughts(needs: Needs, limits: Mapping[str, float]) -> None:
    """Raise ConfigError where a budget of thoughts leaves nothing for a response."""
    thought_tokens = needs.thought_tokens
    if thought_tokens is None:
        return
    for unit in ("tokens", "generated_tokens"):
        limit = limits.get(unit, math.inf)
        if thought_tokens >= limit:
            raise ConfigError(
                f"thought_tokens is {thought_tokens}, but must be below the budget of {limit:g} {unit}, which pays "
                "the response too",
                hint=f"for example thought_tokens={max(1, int(limit) // 2)}",
            )


def _check_pictures(problem: Problem, backends: Mapping[str, Backend], limits: Mapping[str, float]) -> None:
    """Refuse pictures where a model takes none, or where a limit counts their unknown tokens.

    Args:
        problem: The problem.
        backends: The backends by role.
        limits: The limits of the budget.

    Raises:
        CapabilityError: a model takes no pictures.
        ConfigError: a limit counts input tokens, and the tokens of a picture are not known.
    """
    if not pictures_in(problem.prompt):
        return
    rated_limits = sorted(RATED & limits.keys())  # they count input tokens
    for role, backend in backends.items():
        if not backend.caps.pictures:
            raise CapabilityError(
                f"the prompt has a picture, but the model of the role {role!r} on the backend {backend.name!r} reads "
                "text alone",
                hint="use a model on a server that takes pictures by chats (tts doctor --url; --model-option "
                "mode=chat), or leave them out",
            )
        if rated_limits and metadata_of(backend).picture_tokens is None:
            raise ConfigError(
                f"the budget limits {', '.join(rated_limits)}, but the tokens of a picture are not known",
                hint="give the model's record tokens_per_image, or limit other units",
            )
