"""What files of performance models and their readers have in common; `performance_schema` has their fields, and the rules of these."""

from __future__ import annotations

from typing import Final, Literal, get_args

from tts.search.needs import needs_of
from tts.search.parts import Strategy

FORMAT: Final = 1
PLAIN: Final = "best_of_n"  # the strategy that draws plain samples
REFIT: Final = "make it again with tts fit"
Unit = Literal["tokens", "flops", "usd"]  # of cost, in which strategies and models may be compared
UNITS: Final = get_args(Unit)


def other_models(strategy: Strategy) -> tuple[str, ...]:
    """Return the roles of the models beside the policy that a strategy uses."""
    return tuple(needs_of(strategy).models)


def draws_plain(strategy: Strategy) -> bool:
    """Whether a strategy draws plain samples of the policy."""
    return strategy.registered_as == PLAIN and not other_models(strategy)
