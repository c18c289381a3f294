"""Checks of parameters that strategies share."""

from __future__ import annotations

from typing import Any

from tts.backends.base import Sampling
from tts.checks import check_int, check_number, check_text
from tts.errors import ConfigError, shown
from tts.search.algorithms.aggregation import check_aggregate


def check_counts(part: object, *names: str) -> None:
    """Raise ConfigError where one of these parameters is not a whole number of at least 1."""
    for name in names:
        check_int(name, getattr(part, name), 1, optional=False)


def check_verifier(role: Any, aggregate: str, *, optional: bool = False) -> None:
    """Raise ConfigError where the role of a verifier is not a text, or `aggregate` is no aggregation; `optional`: None is let through."""
    check_text("verifier", role, optional=optional)
    check_aggregate(aggregate)


def check_temperature(value: Any) -> None:
    """Raise ConfigError where a strategy's temperature (None is let through: the run's) is none that a model can be sampled at."""
    check_number("temperature", value)
    if value is not None:
        Sampling(temperature=value)


def check_roles(name: str, given: Any, *, once: bool = False) -> tuple[str, ...]:
    """Return a list of roles of models; `once`: whether each may be named once only.

    Raises:
        ConfigError: it is none.
    """
    if not isinstance(given, list | tuple) or not given or not all(isinstance(role, str) and role for role in given):
        raise ConfigError(f"{name} is {shown(given)}, but must be a list of roles of models", hint="for example ['policy', 'second']")
    if once and len(set(given)) < len(given):
        raise ConfigError(f"{name} is {shown(given)}, but must name each role once")
    return tuple(given)
