"""Rules of parameters that strategies and selections share, for the annotations of their fields."""

from __future__ import annotations

import functools
from typing import Annotated, Any

from tts.backends.base import Sampling
from tts.checks import Rule, check_number, choice
from tts.errors import ConfigError, quote
from tts.search.algorithms.aggregation import check_aggregate


def _check_temperature(name: str, value: Any) -> None:
    """Raise ConfigError unless a model can be sampled at this temperature."""
    check_number(name, value, optional=False)
    try:
        Sampling(temperature=value)
    except ConfigError as refusal:
        raise ConfigError(f"{name}{refusal.cause.removeprefix('temperature')}", hint=refusal.hint) from None


def _check_aggregate(name: str, value: Any) -> None:
    del name
    check_aggregate(value)


def check_roles(name: str, given: Any, *, once: bool = False) -> tuple[str, ...]:
    """Return a list of roles of models as a tuple, once it is checked.

    Args:
        name: The name of the parameter, for errors.
        given: The list of roles.
        once: Whether each role may occur only once.

    Raises:
        ConfigError: the value is no such list.
    """
    if not isinstance(given, list | tuple) or not given or not all(isinstance(role, str) and role for role in given):
        raise ConfigError(
            f"{name} is {quote(given)}, but must be a list of roles of models",
            hint="for example ['policy', 'second']",
        )
    if once and len(set(given)) < len(given):
        raise ConfigError(f"{name} is {quote(given)}, but must name each role once")
    return tuple(given)


Temperature = Annotated[float, Rule(_check_temperature)]
Aggregate = Annotated[str, Rule(_check_aggregate)]
Writers = Annotated[tuple[str, ...], Rule(functools.partial(check_roles, once=True))]
Shown = Annotated[str, choice("fuse", "revise")]  # the kind of prompt for earlier solutions
Truncated = Annotated[str, choice("vote", "drop")]
