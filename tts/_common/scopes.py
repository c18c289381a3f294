"""Scopes for texts that another person wrote: stored results, recorded samples, performance models.

The gateway narrows them further.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tts.errors import ConfigError, quote
from tts.registry import EVERYTHING, Registry, Scope, calls_in

# environment variable: "1" lets files of data name places too; child processes inherit it
TRUST_PLACES: Final = "TTS_TRUST_PLACES"

# environment variable: "1" lets data sets run commands; child processes inherit it
ALLOW_COMMANDS: Final = "TTS_ALLOW_COMMANDS"

# Parameters whose texts are prompts, roles or choices of a part. A text for any other parameter may name a file, a
# server or code.
OPEN_TEXTS = frozenset(
    {
        "aggregate",
        "aggregator",
        "annealing",
        "aspects",
        "by",
        "checker",
        "choices",
        "cost",
        "credit",
        "cue",
        "division",
        "draft",
        "duplicates",
        "edge_cost",
        "effort",
        "efforts",
        "feedback",
        "frontier",
        "grade",
        "head",
        "how",
        "judge",
        "layers",
        "match",
        "measure",
        "message",
        "models",
        "no",
        "on",
        "over",
        "pair_question",
        "posterior",
        "preset",
        "prompt",
        "question",
        "resampling",
        "returned",
        "rule",
        "stop",
        "target",
        "truncated",
        "value",
        "verdict",
        "verifier",
        "vote",
        "wait",
        "writer",
        "writers",
        "yes",
    }
)
_SAFE_TEXTS: Mapping[str, tuple[str, ...]] = {"sandbox": ("landlock", "docker"), "embedder": ("ngrams", "sentences")}
# Texts of other registries' parts, by the kind and the parameter: choices, roles of models, and addresses that nothing
# reads until a search begins. No data file begins one: a store's study that calls servers is refused
# (`tts.experiments.study.stored.check_servers`).
_OPEN_BY_KIND: Final = frozenset(
    {
        ("data set", "difficulty"),
        ("data set", "operators"),
        ("data set", "split"),
        ("task", "answer_cue"),
        ("verifier", "device"),
        ("verifier", "model"),
        ("verifier", "served_as"),
        ("verifier", "url"),
        ("verifier", "weights"),
    }
)
# the records of reward models in this package; any other text is the path of a file or a folder
_RECORDS: Final = frozenset(
    path.stem for path in (Path(__file__).parents[1] / "verifiers/reward/records").glob("*.yaml")
)


@dataclass(frozen=True, slots=True)
class RegisteredNames(Scope):
    """Registered names alone, with parameters that reach no file, no server and no code.

    Numbers, truth values and None are open to every parameter, and texts to those of `OPEN_TEXTS`.
    """

    def check(self, table: Registry, name: str, parameters: dict[str, Any]) -> None:
        """Raise ConfigError where a call names a place, or a parameter has a value that is not allowed.

        Args:
            table: The registry of the kind of part that is called.
            name: The name of the part.
            parameters: The literal values of its parameters.

        Raises:
            ConfigError: The text may not name this part, or not with this value.
        """
        if ":" in name:
            raise ConfigError(
                f"the {table.kind} {name!r} is a place, but only registered names may stand here", hint=self.cure
            )
        for parameter, value in parameters.items():
            if (table.kind, parameter) == ("verifier", "members") and isinstance(value, tuple | list):
                for member in value:
                    check_calls(table, member, self)
            elif not (self.allows(parameter, value) or _is_open(table.kind, parameter, value)):
                raise ConfigError(
                    f"{parameter} of the {table.kind} {name} is {quote(value)}, but this text may not choose it",
                    hint=self.cure,
                )

    @property
    def cure(self) -> str:
        """The hint of an error."""
        return f"if you trust who wrote the file, say --trust-places, or set {TRUST_PLACES}=1: it then may run code"

    def allows(self, parameter: str, value: Any) -> bool:
        """Whether a value is open to a parameter."""
        if isinstance(value, tuple | list):
            return all(self.allows(parameter, one) for one in value)
        if isinstance(value, str):
            return parameter in OPEN_TEXTS or value in self.safe_texts.get(parameter, ())
        return value is None or isinstance(value, bool | int | float)

    @property
    def safe_texts(self) -> Mapping[str, tuple[str, ...]]:
        """The texts that are open to parameters outside of `OPEN_TEXTS`."""
        return _SAFE_TEXTS


def _is_open(kind: str, parameter: str, value: Any) -> bool:
    """Whether a value is open to a parameter of the parts of one kind."""
    if (kind, parameter) == ("task", "schema"):
        is_json = isinstance(value, str) and value.lstrip().startswith("{")  # any other text is a path
        return isinstance(value, Mapping) or is_json
    if (kind, parameter) == ("verifier", "record"):
        return isinstance(value, str) and value in _RECORDS
    return isinstance(value, str) and (kind, parameter) in _OPEN_BY_KIND


def check_calls(table: Registry, text: Any, scope: Scope) -> None:
    """Raise ConfigError unless a text may write its calls. Nothing is imported or made.

    Args:
        table: The registry of the parts that the text calls.
        text: The text to check.
        scope: What the text may name.

    Raises:
        ConfigError: The text is malformed, no text, or names what is outside of the scope.
    """
    if not isinstance(text, str):
        raise ConfigError(f"the {table.kind} is {quote(text)}, but must be a text")
    for call in calls_in(text):
        scope.check(table, call.name, call.parameters())


def file_scope() -> Scope:
    """Return the scope of texts in files that another person may have written.

    Such a file is a store, a pool, a performance model or a trace.

    Returns:
        Registered names; everything where the environment variable TTS_TRUST_PLACES is "1".
    """
    return EVERYTHING if os.environ.get(TRUST_PLACES) == "1" else RegisteredNames()


def allows_commands() -> bool:
    """Return whether commands of data sets may run: the environment variable TTS_ALLOW_COMMANDS is "1"."""
    return os.environ.get(ALLOW_COMMANDS) == "1"


def trust_places() -> AbstractContextManager[None]:
    """Let files of data name places for a block, here and in processes that are started within it."""
    return _setting(TRUST_PLACES)


def allow_commands() -> AbstractContextManager[None]:
    """Let data sets run commands for a block, here and in processes that are started within it."""
    return _setting(ALLOW_COMMANDS)


@contextmanager
def _setting(name: str) -> Generator[None]:
    """Set an environment variable to "1" for the block."""
    old_value = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if old_value is None:
            del os.environ[name]
        else:
            os.environ[name] = old_value
