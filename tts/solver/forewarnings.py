"""Warnings about a run that are known before it spends anything.

The warnings concern the task and the plan of a run, and scores that the run cannot pay or show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tts._core.logs import RepeatLimit, get_logger
from tts.backends.base import Backend
from tts.backends.capabilities import count_tokens
from tts.budget.account import Account
from tts.budget.budget import format_limits
from tts.search.costs import Costs
from tts.solver.setup import ProblemRun
from tts.tasks.looks import looks_like_math
from tts.types import Problem
from tts.verifiers.base import Verifier, members_of
from tts.verifiers.replying import ReplyingVerifier

LOG = get_logger("tts.runs")
_PERIOD_SECONDS = 60.0  # in which equal lines are written once: a loop over problems has one warning, not one a problem
LOG.addFilter(RepeatLimit(1, _PERIOD_SECONDS))


_LIKE_MATH = (
    "the problem looks like mathematics, but is taken as text: task='math' asks for a final answer and "
    "compares answers by value"
)


def forewarnings(run: ProblemRun) -> list[str]:
    """Return the warnings that are known before anything is spent, of a run that `check` lets pass."""
    setup = run.setup
    expected = run.expected_tokens or setup.task.typical_tokens("solve")
    scorers = {role: setup.verifiers[role] for role in setup.declared if role in setup.verifiers}
    scores: list[str] = []
    for scorer in scorers.values():
        for member in _leaves(scorer):
            scores += _unshown(run.problem, member, setup.backends[member.model], expected)
    scores += _unpaid(run, scorers, expected)
    return [*setup.notes, *task_warnings(run), *dict.fromkeys(scores)]  # without duplicates


def task_warnings(run: ProblemRun) -> list[str]:
    """Return the warning that the task may be another one."""
    is_free_text = not run.setup.task_given and run.setup.task.name == "text"
    return [_LIKE_MATH] if is_free_text and looks_like_math(run.problem.text) else []


def _leaves(verifier: Verifier) -> Iterator[Verifier]:
    """Yield the members of a composition, and of compositions in it; a verifier alone is its only member."""
    members = members_of(verifier)
    for member in members:
        yield from _leaves(member)
    if not members:
        yield verifier


def _unshown(problem: Problem, verifier: Verifier, backend: Backend, expected: int) -> Iterator[str]:
    """Yield the warning that prompts of a verifier are too long to be shown."""
    if not isinstance(verifier, ReplyingVerifier):
        return
    question_tokens = max((count_tokens(backend, prompt) for prompt in verifier.empty_prompts(problem)), default=0)
    if question_tokens + expected <= verifier.room:
        return
    prompt_size = f"the {verifier.name}'s question and the problem take {question_tokens:,} tokens"
    limit = f"its prompt may have {verifier.room:,}"
    needed = question_tokens + 2 * expected
    fits = backend.context is None or needed + verifier.behind_prompt <= backend.context
    cure = (
        f"give {verifier.name}(prompt_tokens={needed})"
        if fits
        else f"the model's context holds {backend.context:,}: judge by another model"
    )
    if question_tokens > verifier.room:
        yield f"no solution can be scored: {prompt_size}, and {limit}; {cure}"
    else:
        yield f"long solutions cannot be scored: {prompt_size}, a solution about {expected:,}, and {limit}; {cure}"


def _unpaid(run: ProblemRun, scorers: Mapping[str, Verifier], expected: int) -> Iterator[str]:
    """Yield the warning that the budget pays no score of a solution of the expected length.

    Scores that cost by the token are left out: their reserve shrinks with the lengths that a search learns.
    """
    setup, policy = run.setup, run.setup.backends["policy"]
    account = run.budget if isinstance(run.budget, Account) else Account(run.budget)
    costs = Costs(account, scorers, tuple(scorers), setup.token_rates, setup.compared_by)
    cost = costs.row_cost(policy, count_tokens(policy, run.problem.prompt))
    for unit in account.units:
        score_cost, limit = cost.reserve(unit, 1), account.limit(unit)
        solution_cost = min(cost.generation(unit, expected), limit // 2)
        if score_cost and solution_cost + score_cost > limit:
            names = ", ".join(sorted(scorer.name for scorer in scorers.values()))
            parts = (
                f"a solution takes about {expected:,} tokens, and a score by {names} up to "
                f"{cost.reserve('tokens', 1):,} more"
            )
            yield (
                f"scores may not be paid: {parts}, but the budget is {format_limits(run.limits)}; "
                f"give a larger one, or a cheaper verifier{_cheaper_example(scorers)}"
            )
            return


def _cheaper_example(scorers: Mapping[str, Verifier]) -> str:
    """Return an example of the parameters that bound what a verifier may cost."""
    members = [member for scorer in scorers.values() for member in _leaves(scorer)]
    replying = [member for member in members if isinstance(member, ReplyingVerifier)]
    if not replying:
        return ""
    example = replying[0]
    sizes = f"max_tokens={max(1, example.max_tokens // 2)}, prompt_tokens={example.room // 2}"
    return f", such as {example.name}(votes=1, {sizes})"
