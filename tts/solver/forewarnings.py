"""Warnings about a run that are known before it spends anything.

The warnings concern the task and the plan of a run, and scores that the run cannot pay or show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tts._core.logs import RepeatLimit, get_logger
from tts.backends.base import Backend
from tts.backends.capabilities import count_tokens
from tts.budget.account import Account
from tts.budget.budget import Budget, format_limits
from tts.search.costs import Costs
from tts.types import Problem
from tts.verifiers.base import Verifier, members_of
from tts.verifiers.compatibility import token_rates
from tts.verifiers.replying import ReplyingVerifier

LOG = get_logger("tts.runs")
_PERIOD_SECONDS = 60.0  # in which equal lines are written once: a loop over problems has one warning, not one a problem
LOG.addFilter(RepeatLimit(1, _PERIOD_SECONDS))


def score_warnings(
    problem: Problem,
    budget: Budget | Account,
    backends: Mapping[str, Backend],
    verifiers: Mapping[str, Verifier],
    declared: Sequence[str],
    pairs: Mapping[str, int],
    expected: int,
) -> list[str]:
    """Return the warnings of scores that cannot be computed or paid.

    Args:
        problem: The problem.
        budget: The limits, or the account that pays.
        backends: The backends by role.
        verifiers: The verifiers by role.
        declared: The roles whose scores are paid with every row.
        pairs: The comparisons that are paid with every row in place of a score, by role.
        expected: The tokens that a solution is expected to have.
    """
    scorers = {role: verifiers[role] for role in declared if role in verifiers}
    lines: list[str] = []
    for scorer in scorers.values():
        for member in _leaves(scorer):
            lines += _unshown(problem, member, backends[member.model], expected)
    lines += _unpaid(problem, budget, backends, scorers, pairs, expected)
    return list(dict.fromkeys(lines))  # without duplicates


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


def _unpaid(
    problem: Problem,
    budget: Budget | Account,
    backends: Mapping[str, Backend],
    scorers: Mapping[str, Verifier],
    pairs: Mapping[str, int],
    expected: int,
) -> Iterator[str]:
    """Yield the warning that the budget pays no score of a solution of the expected length.

    Scores that cost by the token are left out: their reserve shrinks with the lengths that a search learns.
    """
    rates = {role: token_rates(scorer, backends[scorer.model]) for role, scorer in scorers.items()}
    account = budget if isinstance(budget, Account) else Account(budget)
    policy = backends["policy"]
    price = Costs(account, scorers, tuple(scorers), rates, pairs).price(policy, count_tokens(policy, problem.prompt))
    for unit in account.units:
        score_cost, limit = price.reserve(unit, 1), account.limit(unit)
        solution_cost = min(price.generation(unit, expected), limit // 2)
        if score_cost and solution_cost + score_cost > limit:
            names = ", ".join(sorted(scorer.name for scorer in scorers.values()))
            parts = (
                f"a solution takes about {expected:,} tokens, and a score by {names} up to "
                f"{price.reserve('tokens', 1):,} more"
            )
            yield (
                f"scores may not be paid: {parts}, but the budget is {format_limits(budget.limits)}; "
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
