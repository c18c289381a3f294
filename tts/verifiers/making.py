"""Makes a verifier from what a caller gives: a name, a place, a function or an object."""

from __future__ import annotations

import dataclasses
import inspect
import math
from typing import Any, cast

from tts.checks import check_complete, check_part
from tts.errors import ConfigError, quote
from tts.registry import parse_call, place_of
from tts.verifiers import VERIFIERS
from tts.verifiers.base import Verifier, traits_of
from tts.verifiers.function import FunctionVerifier, ScoreFunction

VerifierLike = str | Verifier | ScoreFunction


def make_verifier(given: Any) -> Verifier:
    """Return the verifier that is given.

    Args:
        given: A name with its parameters, a place, a verifier, or a function of (problem, text).

    Raises:
        ConfigError: the value is no verifier, or its name is unknown.
    """
    is_place = isinstance(given, str) and ":" in given and "(" not in given
    if is_place:
        placed = VERIFIERS.get(given.strip())
        if not isinstance(placed, type):
            given = placed  # a function that scores
    if isinstance(given, str):
        return _complete(parse_call(VERIFIERS, given), repr(given))
    check_complete(given)
    if not isinstance(given, type):  # a class may look like its objects
        if callable(given) and not isinstance(given, Verifier):
            _check_signature(given)
            return FunctionVerifier(cast("ScoreFunction", given), range=(-math.inf, math.inf), inferred=True)
        if isinstance(given, Verifier) or hasattr(given, "score"):
            return _complete(given, type(given).__name__)
    raise ConfigError(
        f"the verifier is {quote(given)}, but must be a name, a verifier or a function",
        hint="make an object of the class" if isinstance(given, type) else "for example a function of (problem, text)",
    )


def _check_signature(function: Any) -> None:
    """Refuse a function that cannot be called with a problem and a text.

    Raises:
        ConfigError: the function takes other parameters than these two.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some builtins have none
        return
    try:
        signature.bind(None, "")
    except TypeError as failure:
        name = getattr(function, "__name__", type(function).__name__)
        raise ConfigError(
            f"the verifier {name}{signature} cannot be called with (problem, text): {failure}",
            hint="define it as: def score(problem, text)",
        ) from None


def _complete(verifier: Any, what: str) -> Verifier:
    """Return a verifier; refuse other objects, and traits of the wrong type."""
    check_part(verifier, Verifier, f"the verifier {what}", "score")
    traits_of(verifier)
    return verifier


def describe_verifier(verifier: Verifier) -> str:
    """Return a verifier as the command line writes it.

    The text has the name of the verifier, and the parameters that differ from their defaults. If a class of another
    author has the name of a registered verifier, the text has the place of the class.
    """
    name = verifier.name
    if name in VERIFIERS.entries and not VERIFIERS.is_name_of(name, type(verifier)):
        name = place_of(type(verifier))
    fields = dataclasses.fields(verifier) if dataclasses.is_dataclass(verifier) else ()
    values = [(field, getattr(verifier, field.name)) for field in fields if field.init]
    arguments = [f"{field.name}={value!r}" for field, value in values if value != field.default]
    return f"{name}({', '.join(arguments)})" if arguments else name
