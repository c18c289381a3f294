"""The table of data sets, resolved on use. A new data set is one file with a function `load(...) -> list[Problem]`, and one line here.

What `load` promises: keyword parameters with defaults (`limit`, `split` and `seed` where they make sense); problems with an id that no
other problem of the data set has, an answer and a task; none twice. `metadata["identity"]`, where it is set, says what makes two problems
the same although their texts differ.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence

from tts.errors import ConfigError, unknown_name
from tts.plugins import Table
from tts.types import Problem

# name -> function `load(**parameters) -> list[Problem]`
DATASETS = Table(
    "data set",
    "tts.datasets",
    {
        "arithmetic": "tts.experiments.datasets.arithmetic:load",
        "countdown": "tts.experiments.datasets.countdown:load",
    },
)


def load(name: str, **parameters: object) -> list[Problem]:
    """Return the problems of a data set.

    Args:
        name: of the data set. parameters: its own; those left out have its defaults.

    Raises:
        ConfigError: no data set, or no parameter of it, has such a name, a value is not valid, or what another package registered under
            the name breaks what every data set promises.
    """
    function = DATASETS.get(name)
    known = inspect.signature(function).parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
        for given in parameters:
            if given not in known:
                raise unknown_name(f"parameter of the data set {name!r}", given, known)
    problems = list(function(**parameters))
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
        ConfigError: a problem has no id or no answer, or is there already, within its part or in an earlier one; both are named.
    """
    ids: dict[str, str] = {}
    seen: dict[str, tuple[str, str]] = {}
    for part, problems in parts.items():
        for place, problem in enumerate(problems):
            if problem.id is None or problem.answer is None:
                missing = "id" if problem.id is None else "answer"
                raise ConfigError(f"problem {place} of {part} has no {missing}, but every problem of a data set must have one")
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
