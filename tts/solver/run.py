"""One problem from its budget to its solution.

A search's end, or a failure, becomes an outcome here.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from functools import partial
from typing import Any

from tts._common.blame import Blame
from tts.backends.batching import search_turns
from tts.backends.metadata import metadata_of
from tts.budget.account import Account, Exhausted
from tts.budget.budget import format_limits
from tts.budget.ledger import Call
from tts.errors import ConfigError, EngineError, TTSError, quote
from tts.randomness import hash64, problem_key
from tts.search.answers import Answers, votes_of
from tts.search.completion import complete_best
from tts.search.context import SearchContext
from tts.search.costs import Costs
from tts.search.ends import Notes, SearchEnded, StopDecision
from tts.search.parts import Selected, Selection, StopRule, Strategy
from tts.search.prompts import Prompts
from tts.search.scoring import Scoring
from tts.search.search import Search
from tts.search.selections._common import put_first
from tts.search.selections.majority import Majority
from tts.search.tree import Tree
from tts.solver.checks import LOG, check, forewarnings, score_warnings, task_warnings
from tts.solver.setup import ProblemRun, Setup
from tts.solver.telemetry import Watched
from tts.solver.warnings import SearchOutcome, cause_of, solution_warnings
from tts.tasks.isolation import isolate
from tts.trace.nodes import LateSequence, RecordedNodes
from tts.trace.receipt import PartAnswers, part_answers
from tts.trace.trace import Trace
from tts.types import Candidate, Solution, Usage
from tts.verifiers.base import bind

_AFTER_S = 1e-5  # seconds a candidate, for the work after the scores that a selection needs


async def solve_problem(run: ProblemRun, *, forewarn: bool = False) -> Solution:
    """Search, choose, and return the solution.

    A failure in the middle is part of the solution, and the candidates found before are kept.

    Args:
        run: The run.
        forewarn: Whether the log gets each of `forewarnings` before anything is spent.

    Raises:
        ConfigError: The run cannot succeed (`check`).
    """
    watched = Watched(run)
    try:
        with _blame(), search_turns():
            check(run)
            if forewarn:
                for line in forewarnings(run):
                    LOG.warning(line)
            with _open_account(run, watched.noted) as account:
                solution = await _solve_in(run, account)
            scores = [score for candidate in solution.candidates for score in candidate.scores.values()]
            if forewarn and run.setup.declared and all(map(math.isnan, scores)):
                lines = [line for line in score_warnings(run) if line not in solution.warnings]
                solution = dataclasses.replace(solution, warnings=(*lines, *solution.warnings))
    except BaseException as failure:
        watched.fail(failure)
        raise
    watched.end(solution)
    return solution


def _open_account(run: ProblemRun, noted: Callable[[Call], None] | None) -> Account:
    """Return the account of the search: an account of its own budget, or a part of a shared account."""
    if run.share is not None:
        return run.share.shared.open_account(noted)
    if isinstance(run.budget, Account):
        return run.budget.open_search(noted=noted)
    clock = run.setup.clock
    return Account(run.budget, clock=clock, started=clock() if run.started is None else run.started, noted=noted)


async def _solve_in(run: ProblemRun, account: Account) -> Solution:
    """Search in an account, choose, and return the solution. All reservations and prompts are released."""
    reporter = None
    if run.on_event is not None:
        from tts.solver.live import Reporter

        reporter = Reporter(run.problem.without_answer(), tuple(run.setup.verifiers), run.on_event)
    context = _make_context(run, account)
    prompts, costs = Prompts(context), context.costs
    search = _make_search(run, context, prompts, None if reporter is None else reporter.report)
    outcome = SearchOutcome()
    try:
        reports = nullcontext() if reporter is None or not run.live else reporter.report_drafts(search)
        await _explore(run, search, outcome, reports)
        # amounts kept for the scores of the choice become available again where the scores cost less
        available_before = {unit: account.available(unit) for unit in costs.reserves()}
        selected = _abstain(run, await _choose(run, search, outcome), outcome)
        if search.notes.timed_out and outcome.stopped_by == "done":
            outcome.stopped_by = "budget: seconds"
        outcome.held = costs.reserves()
        outcome.cheaper = {unit: account.available(unit) - before for unit, before in available_before.items()}
    finally:
        costs.free_all()
        try:
            prompts.release_all()
        except EngineError as failure:
            outcome.fail(failure, search)
    return _solution(run, search, outcome, selected)


def _make_context(run: ProblemRun, account: Account) -> SearchContext:
    """Return what the parts of a run's search share."""
    setup, notes = run.setup, Notes()
    return SearchContext(
        problem=dataclasses.replace(run.problem.without_answer(), task=setup.task.name),
        task=isolate(setup.task, notes.warn),
        backends=setup.backends,
        verifiers=setup.verifiers,
        costs=Costs(account, setup.verifiers, setup.declared, setup.token_rates, setup.compared_by),
        tree=Tree(),
        notes=notes,
        clock=setup.clock,
    )


def _make_search(
    run: ProblemRun, context: SearchContext, prompts: Prompts, on_call: Callable[[Search], None] | None
) -> Search:
    """Return the search of a run."""
    setup, stop_rule, task, costs = run.setup, run.setup.plan.stopping, context.task, context.costs
    scoring = Scoring(
        context,
        prompts,
        {role: bind(verifier, run.problem) for role, verifier in setup.verifiers.items()},
        stream=hash64("judge", run.seed, problem_key(context.problem, task.name)),
        gives_scores=setup.needs.scores,
        embedder=setup.embedder,
    )
    return Search(
        context,
        prompts,
        scoring,
        Answers(task, None if costs.whole.deadline is None else lambda: costs.account.seconds_left),
        seed=run.seed,
        sampling=setup.sampling,
        decide=None if stop_rule is None else partial(_decide, stop_rule),
        order="drawn" if stop_rule is None else stop_rule.order,
        judged=setup.judged,
        on_call=on_call,
        may_score=setup.may_score,
        asked_of_all=setup.asked_of_all,
        expected_tokens=run.expected_tokens,
        sampling_logprobs=setup.sampling_logprobs or "sampling_logprobs" in setup.needs.capabilities,
    )


def _blame() -> Blame:
    """Return the context in which unnamed parts of a run are called; ends of a search pass through it."""
    return Blame("something that the run called", passes=(SearchEnded,))


# The strategy ---------------------------------------------------------------------------------------------------------


async def _explore(
    run: ProblemRun, search: Search, outcome: SearchOutcome, reports: AbstractAsyncContextManager[None]
) -> None:
    """Run the strategy to its end, whichever way it ends.

    Then rows that are still open become candidates that were cut short.

    Args:
        run: The run.
        search: Its search.
        outcome: The outcome, which is filled in.
        reports: The context that reports what rows under way have written.

    Raises:
        ConfigError: The run cannot succeed, and nothing was spent.
    """
    num_before, mistake = 0, None
    try:
        with _blame():
            async with reports, search:
                try:
                    with _blame():
                        await _run_strategy(run, search, outcome)
                except asyncio.CancelledError:
                    outcome.candidates, outcome.stopped_by = search.candidates, "interrupted"
                except TTSError as failure:  # the boundary: a failed strategy is an outcome
                    outcome.candidates = search.candidates
                    if isinstance(failure, ConfigError) and not search.account.ledger.entries:
                        mistake = failure
                    outcome.fail(failure, search)
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


async def _run_strategy(run: ProblemRun, search: Search, outcome: SearchOutcome) -> None:
    """Run the strategy, and complete a path if it found no answer."""
    num_affordable = search.affordable_samples(stepwise="steps" in run.setup.needs.capabilities)
    strategy = (run.share or run.setup.plan.strategy).size(num_affordable)
    try:
        await search.open("solve")
        outcome.candidates = await _candidates_of(strategy, search)
        if search.notes.stop is not None:  # the strategy went on after a stop rule had fired
            raise SearchEnded(search.notes.stop.reason, search.notes.stop)
    except SearchEnded as end:
        outcome.candidates = search.candidates
        outcome.stopped_by, outcome.stop = end.reason, end.stop
    # a path is completed from the reserve where there is no candidate, or where the budget ended the search before any
    # candidate had an answer
    has_no_votes = outcome.stopped_by.startswith("budget") and not votes_of(search.candidates).total
    # without a root, not even the prompt could be paid
    if search.tree.nodes and (not outcome.candidates or has_no_votes):
        candidates = list(outcome.candidates)  # a copy, for the list may be the search's own, which grows
        num_before = len(search.candidates)
        with suppress(SearchEnded):
            await complete_best(search)
        outcome.candidates = [*candidates, *search.candidates[num_before:]]
        if search.notes.stop is not None:
            outcome.stopped_by, outcome.stop = search.notes.stop.reason, search.notes.stop


async def _candidates_of(strategy: Strategy, search: Search) -> Sequence[Candidate]:
    """Run a strategy and return its candidates.

    Where the strategy returns None, they are all candidates of the search.

    Raises:
        ConfigError: the strategy returned something other than candidates.
    """
    result: Any = await _await_part(lambda: strategy.run(search), lambda: f"the strategy {strategy}", search, 1.0)
    if result is None:
        return search.candidates
    listed: list[Any] = list(result) if isinstance(result, Iterable) else [result]
    for item in listed:
        if not isinstance(item, Candidate):
            raise ConfigError(
                f"the strategy {strategy} returned {quote(item)}, but must return candidates",
                hint="search.finish(t) makes them",
            )
    return result if isinstance(result, Sequence) else listed  # not a copy: the search's own list may still grow


def _decide(rule: StopRule, candidates: Sequence[Candidate]) -> StopDecision | None:
    """Return the decision of a stop rule; None: the search goes on.

    Raises:
        TTSError: the rule returned something else.
    """
    decision: Any = rule.should_stop(candidates)
    if decision is not None and not isinstance(decision, StopDecision):
        raise TTSError(
            f"the stop rule {type(rule).__qualname__} returned {quote(decision)}, but must return a tts.StopDecision "
            "or None",
            hint="for example tts.StopDecision('why')",
        )
    return decision


async def _await_part(call: Callable[[], Any], what: Callable[[], str], search: Search, grace_s: float) -> Any:
    """Call a part's method and await its result.

    An exception is a failure of the part, except one that ends the search.

    Args:
        call: A function that calls the method.
        what: A function that returns the name of the part in errors.
        search: The search, whose `seconds` end the part.
        grace_s: The seconds after that end in which the part may return.

    Raises:
        SearchEnded: The time is over, and the part awaits something else than the search.
    """
    with Blame(what, passes=(SearchEnded, Exhausted)):
        result = call()
        if not inspect.isawaitable(result):
            raise ConfigError(
                f"{what()} returned {quote(result)} without being awaited, but must be async", hint="write async def"
            )
        if search.account.seconds_left is None:
            return await result
        task = asyncio.ensure_future(result)
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # seen if nobody waits any more
        try:
            while not task.done():
                seconds_left = search.account.seconds_left or 0.0
                await asyncio.wait({task}, timeout=seconds_left + grace_s)
                if not task.done() and search.account.seconds_left == 0 and not search.is_busy:
                    raise SearchEnded("budget: seconds")
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=grace_s)


# The choice -----------------------------------------------------------------------------------------------------------


async def _choose(run: ProblemRun, search: Search, outcome: SearchOutcome) -> Selected:
    """Return the choice of the selection; if the selection fails, the choice of a majority vote."""
    setup, candidates = run.setup, list(outcome.candidates)
    if outcome.stop is not None:
        candidates = candidates[outcome.stop.used]
    search.account.keep_for_closing(_AFTER_S * len(search.candidates))
    selected: Selected | None = None
    try:
        takes_vote = outcome.stopped_by == "interrupted" or outcome.is_unjudged(setup.on_error)
        with _blame():
            selected = await _select(Majority() if takes_vote else setup.selection, candidates, search)
            for role in setup.scored_by:
                await search.score([c.trajectory for c in candidates], role, required=False)
    except asyncio.CancelledError:
        outcome.stopped_by = "interrupted"
    except SearchEnded as end:
        outcome.stopped_by = end.reason
        if selected is None:
            search.notes.warn(
                f"{end.reason} ended {setup.selection} before it had chosen: the answer is that of a vote", timed=True
            )
    except TTSError as failure:  # the boundary: a failed selection is an outcome
        outcome.fail(failure, search)
    if selected is None:
        selected = await Majority().select(candidates, search)
    if outcome.is_unjudged(setup.on_error):
        selected = dataclasses.replace(selected, confidence=math.nan)
    if outcome.stop is not None and outcome.stop.answer is not None and not selected.abstained:
        selected = put_first(selected, outcome.stop.answer)
    return selected


async def _select(selection: Selection, candidates: Sequence[Candidate], search: Search) -> Selected:
    """Return the choice of a selection.

    Raises:
        TTSError: the selection returned no `Selected`, or one whose answers are no texts.
    """
    result = await _await_part(
        lambda: selection.select(candidates, search), lambda: f"the selection {selection}", search, 5.0
    )
    if not isinstance(result, Selected):
        raise TTSError(f"the selection {selection} returned {quote(result)}, but must return a tts.Selected")
    answers: Any = result.answers
    if isinstance(answers, str) or not all(isinstance(answer, str) for answer in answers):
        raise TTSError(
            f"the selection {selection} chose the answers {quote(answers)}, but they must be a tuple of texts"
        )
    return result


def _abstain(run: ProblemRun, selected: Selected, outcome: SearchOutcome) -> Selected:
    """Return a choice without its answers where its confidence is refused.

    A vote that stands in for the selection was not calibrated, so its confidence counts as unknown.
    """
    if run.refuses is None or not selected.answers:
        return selected
    is_vote_instead = outcome.error is not None or outcome.stopped_by == "interrupted"
    reason = run.refuses(math.nan if is_vote_instead else selected.confidence)
    return dataclasses.replace(selected, answers=(), abstained=reason) if reason else selected


# The solution ---------------------------------------------------------------------------------------------------------


def _solution(run: ProblemRun, search: Search, outcome: SearchOutcome, selected: Selected) -> Solution:
    """Return the solution of a search that has ended."""
    setup, account, tree = run.setup, search.account, search.tree
    usage = dataclasses.replace(
        account.ledger.total(),
        seconds=account.elapsed,
        truncated_tokens=_truncated_tokens(search),
        peak_kv_tokens=tree.peak_live,
        saved_kv_tokens=tree.peak_logical - tree.peak_live,
        kv_bytes_per_token=setup.backends["policy"].kv_bytes_per_token,
    )
    warnings = [*setup.notes, *account.shortages, *task_warnings(run)]
    warnings += solution_warnings(setup, search, outcome, selected, usage)
    target = metadata_of(setup.backends["policy"]).target
    if target is not None and selected.answers:
        target, faults = target.judge(selected.answers[0], selected.ranked, setup.verifiers)
        warnings += faults
    notes = [note for backend in setup.backends.values() for note in metadata_of(backend).notes(usage)]
    warnings += dict.fromkeys(notes)  # without duplicates
    trace = _trace(run, search, outcome, selected, usage, tuple(warnings))
    return Solution(
        problem=run.problem,
        answer=trace.answer,
        answers=selected.answers,
        abstained=selected.abstained,
        confidence=selected.confidence,
        candidates=selected.ranked,
        usage=usage,
        remaining=account.remainder(),
        stopped_by=outcome.stopped_by,
        strategy=setup.text,
        model=setup.model,
        seed=run.seed,
        oracle=any(setup.verifiers[role].oracle for role in {*setup.declared, *search.scoring.asked}),
        failures=dict(search.rows.failures + search.scoring.notes.failures),
        warnings=trace.warnings,
        reproducible=_is_reproducible(setup, search, outcome),
        trace=trace,
        error=outcome.error,
        target=target,
    )


def _is_reproducible(setup: Setup, search: Search, outcome: SearchOutcome) -> bool:
    """Return whether the same call gives the same solution again."""
    depends_on_time = (
        search.notes.timed_out
        or search.notes.timed
        or outcome.stopped_by in ("budget: seconds", "interrupted", "failed")
        or search.account.is_contended
    )
    return not depends_on_time and all(backend.caps.streams for backend in setup.backends.values())


def _trace(
    run: ProblemRun,
    search: Search,
    outcome: SearchOutcome,
    selected: Selected,
    usage: Usage,
    warnings: tuple[str, ...],
) -> Trace:
    """Return the record of a search that has ended."""
    setup, tree, prompt = run.setup, search.tree, run.problem.text
    candidates, tokenizer = [*search.candidates, *selected.ranked], metadata_of(setup.backends["policy"]).tokenizer
    return Trace(
        problem=prompt,
        task=setup.task.name,
        model=setup.model,
        strategy=setup.text,
        seed=run.seed,
        budget=format_limits(run.limits),
        answer=selected.answers[0] if selected.answers else None,
        confidence=selected.confidence,
        stopped_by=outcome.stopped_by,
        nodes=RecordedNodes(prompt, tree, tuple(setup.verifiers), candidates, tokenizer),
        calls=LateSequence(lambda entries=tuple(search.account.ledger.entries): [entry.call() for entry in entries]),
        usage=usage,
        warnings=warnings,
        kept_tokens=tuple(tree.kept),
        reasons=tuple(search.notes.reasons),
        judgements=tuple(search.scoring.notes.judgements),
        parts=_part_answers(run, search, outcome),
        levels=tuple(search.notes.levels),
        temperature=setup.sampling.temperature,
    )


def _part_answers(run: ProblemRun, search: Search, outcome: SearchOutcome) -> PartAnswers:
    """Return the answers that parts of the samples would have given; they are computed only when read."""
    if outcome.stopped_by == "interrupted":
        return PartAnswers("the search was interrupted")
    if outcome.error is not None or outcome.stopped_by == "failed":
        return PartAnswers("the search was ended by a failure")
    if run.refuses is not None:
        return PartAnswers("the threshold of the calibrated risk holds for all samples alone")
    setup, candidates = run.setup, list(outcome.candidates)
    return PartAnswers(partial(part_answers, setup.plan, setup.selection, candidates, search.tree, setup.verifiers))


def _truncated_tokens(search: Search) -> int:
    """Return the tokens that belong only to candidates that were cut short without an answer."""
    cut_paths = [c.trajectory for c in search.candidates if c.truncated and c.answer is None]
    if not cut_paths:
        return 0
    other_paths = [c.trajectory for c in search.candidates if not c.truncated or c.answer is not None]
    tree = search.tree
    lost_numbers = tree.path_nodes(cut_paths) - tree.path_nodes(other_paths)
    lost_nodes = [tree.nodes[number] for number in lost_numbers]
    return sum(tree.own_tokens(node) for node in lost_nodes if node.parent is not None)
