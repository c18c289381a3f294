"""Scopes for texts that another person wrote: stored results, recorded samples and performance models. The gateway narrows them further."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tts.errors import ConfigError, shown
from tts.registry import Registry
from tts.text_form import Scope

# Parameters whose texts are prompts, roles or choices of a part. A text for any other parameter may name a file, a server or code.
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
        "draft",
        "duplicates",
        "edge_cost",
        "effort",
        "frontier",
        "grade",
        "head",
        "how",
        "judge",
        "layers",
        "measure",
        "message",
        "models",
        "no",
        "on",
        "over",
        "pair_question",
        "posterior",
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
        "wait",
        "writer",
        "writers",
        "yes",
    }
)
_SAFE_TEXTS: Mapping[str, tuple[str, ...]] = {"sandbox": ("landlock", "docker"), "embedder": ("ngrams", "sentences")}


@dataclass(frozen=True, slots=True)
class RegisteredNames(Scope):
    """Registered names alone, with parameters that reach no file, no server and no code.

    Numbers, truth values and None are open to every parameter, and texts to those of `OPEN_TEXTS`.
    """

    def check(self, table: Registry, name: str, parameters: dict[str, Any]) -> None:
        """Raise ConfigError where a call names a place, or gives a parameter a text that is not open to it.

        Args:
            table: The registry of the kind of part that is called.
            name: The name of the part.
            parameters: The literal values of its parameters.

        Raises:
            ConfigError: The text may not name this part, or not with this value.
        """
        if ":" in name:
            raise ConfigError(f"the {table.kind} {name!r} is a place, but only registered names may stand here", hint=self.cure)
        for parameter, value in parameters.items():
            if not self.allows(parameter, value):
                raise ConfigError(
                    f"{parameter} of the {table.kind} {name} is {shown(value)}, but this text may not choose it", hint=self.cure
                )

    @property
    def cure(self) -> str:
        """The hint of an error."""
        return "leave it out, or write it in a command, a Python program or a YAML file of your own"

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
