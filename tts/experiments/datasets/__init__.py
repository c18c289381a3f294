"""The table of data sets, resolved on use. A new data set is one file with a function `load(...) -> list[Problem]`, a `DataSet` that says
where it comes from, and one line here.

What `load` promises: keyword parameters with defaults (`limit`, `split` and `seed` where they make sense); problems with an id that no
other problem of the data set has; none twice. An answer that is None is unknown: nothing can be said about accuracy then.
`metadata["identity"]`, where it is set, says what makes two problems the same although their texts differ.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tts.errors import ConfigError, unknown_name
from tts.plugins import Table
from tts.types import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """A data set: how its problems are got, and what is to be known about them. To call it is to load it.

    Args:
        load: returns its problems; all its parameters have names and defaults.
        source: where the problems come from. licence: of the problems, or "not stated".
        note: what else decides whether it can be used, such as a registration; "": nothing.
    """

    load: Callable[..., list[Problem]]
    source: str
    licence: str
    note: str = ""

    @property
    def __signature__(self) -> inspect.Signature:
        """The parameters of `load`, where Python looks for what can be passed to a call."""
        return inspect.signature(self.load)

    def __call__(self, **parameters: Any) -> list[Problem]:
        """Return its problems."""
        return self.load(**parameters)


# name -> a DataSet
DATASETS = Table(
    "data set",
    "tts.datasets",
    {
        "aime24": "tts.experiments.datasets.hub:AIME24",
        "amc23": "tts.experiments.datasets.hub:AMC23",
        "arithmetic": "tts.experiments.datasets.arithmetic:DATASET",
        "countdown": "tts.experiments.datasets.countdown:DATASET",
        "file": "tts.experiments.datasets.files:DATASET",
        "gpqa_diamond": "tts.experiments.datasets.hub:GPQA_DIAMOND",
        "gsm8k": "tts.experiments.datasets.hub:GSM8K",
        "hub": "tts.experiments.datasets.hub:DATASET",
        "humaneval": "tts.experiments.datasets.hub:HUMANEVAL",
        "math500": "tts.experiments.datasets.hub:MATH500",
        "reasoning_gym": "tts.experiments.datasets.reasoning_gym:DATASET",
    },
)


def get(name: str) -> DataSet:
    """Return the data set of a name.

    Raises:
        ConfigError: there is none, or what another package registered under the name is no `DataSet`.
    """
    found = DATASETS.get(name)
    if not isinstance(found, DataSet):
        raise ConfigError(f"the data set {name!r} is a {type(found).__name__}, but must be a tts.experiments.datasets.DataSet")
    return found


def load(name: str, **parameters: object) -> list[Problem]:
    """Return the problems of a data set.

    Args:
        name: of the data set. parameters: its own; those left out have its defaults.

    Raises:
        ConfigError: no data set, or no parameter of it, has such a name, a value is not valid, or what another package registered under
            the name breaks what every data set promises.
    """
    dataset = get(name)
    known = inspect.signature(dataset).parameters
    for given in parameters:
        if given not in known:
            raise unknown_name(f"parameter of the data set {name!r}", given, known)
    problems: list[Any] = dataset(**parameters)
    for problem in problems:
        if not isinstance(problem, Problem):
            raise ConfigError(f"the data set {name!r} gave a {type(problem).__name__}, but must give problems")
    check({name: problems})
    return problems


def check(parts: Mapping[str, Sequence[Problem]]) -> None:
    """Refuse parts of a data set, such as its splits, that share a problem or an id, or that have either twice.

    Args:
        parts: by the names to call them by.

    Raises:
        ConfigError: a problem has no id, or is there already, within its part or in an earlier one; both are named.
    """
    ids: dict[str, str] = {}
    seen: dict[str, tuple[str, str]] = {}
    for part, problems in parts.items():
        for place, problem in enumerate(problems):
            if problem.id is None:
                raise ConfigError(f"problem {place} of {part} has no id, but every problem of a data set must have one")
            if problem.id in ids:
                raise ConfigError(f"the id {problem.id!r} of {part} is in {ids[problem.id]} already, but must be unique")
            if (other := seen.get(identity(problem))) is not None:
                raise ConfigError(f"the problem {problem.id!r} of {part} is {other[1]!r} of {other[0]} again, but none may come twice")
            ids[problem.id] = part
            seen[identity(problem)] = (part, problem.id)


def identity(problem: Problem) -> str:
    """Return what makes two problems the same: what their data set says, else their text with its spaces and case folded."""
    stated = problem.metadata.get("identity")
    return " ".join(problem.text.split()).casefold() if stated is None else str(stated)
