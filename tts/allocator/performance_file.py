"""Functions that files of performance models and their readers have in common.

The module `performance_schema` has the files' fields, and the rules of these.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from tts.search.needs import needs_of
from tts.search.parts import Plan, Strategy

FORMAT: Final = 1
PLAIN: Final = "best_of_n"  # the strategy that draws plain samples
REFIT: Final = "make it again with tts fit"
Unit = Literal["tokens", "flops", "usd"]  # of cost, in which strategies and models may be compared
UNITS: Final = get_args(Unit)


def other_models(strategy: Strategy) -> tuple[str, ...]:
    """Return the roles of the models beside the policy that a strategy uses."""
    return tuple(needs_of(strategy).models)


def draws_plain(plan: Plan) -> bool:
    """Whether a plan draws plain samples of the policy, and takes all of them."""
    return plan.strategy.registered_as == PLAIN and not other_models(plan.strategy) and plan.stopping is None


def answers_alone(plan: Plan) -> bool:
    """Return whether a plan answers by its own candidates alone; the samples before it have no vote.

    It does so where other models than the policy write, and where a stop rule chooses its solutions.
    """
    return bool(other_models(plan.strategy)) or plan.stopping is not None
