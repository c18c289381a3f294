"""The registry of data sets, resolved on use.

A new data set is one file with a function `load(...) -> list[Problem]`, a `DataSet` with its source and licence, and
one line here. A data set of your own needs no line: name the place, "package.module:name", of a `DataSet` or of a
function.

`load` must have keyword parameters with defaults (`limit`, `split` and `seed` where they make sense). `load` must
return each problem once, with an id of its own. The accuracy of a problem whose answer is None is unknown. Problems
with different texts count as the same if their `metadata["identity"]` is equal.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os.path import isdir
from typing import Any, Final, cast

from tts.checks import DATA_FILES
from tts.errors import ConfigError, TTSError, quote, unknown_name
from tts.registry import Registry
from tts.types import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """A data set: the function that loads its problems, and their source. A call returns the problems.

    Args:
        load: The function that returns the problems; all its parameters have names and defaults.
        source: The source of the problems.
        licence: The licence of the problems, or "not stated".
        note: Other conditions of use, such as a registration; "": none.
        splits: The values of the parameter `split`; (): unknown, or the data set has no splits.
    """

    load: Callable[..., list[Problem]]
    source: str
    licence: str
    note: str = ""
    splits: Sequence[str] = ()

    @property
    def __signature__(self) -> inspect.Signature:
        """The parameters of `load`, for `inspect.signature`."""
        return inspect.signature(self.load)

    def __call__(self, **parameters: Any) -> list[Problem]:
        """Return the problems of the data set."""
        return self.load(**parameters)


# name -> a DataSet
DATASETS = Registry(
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
        "math500": "tts.experiments.datasets.hub:MATH500",
        "repositories": "tts_addons.agents.dataset:DATASET",
        "reasoning_gym": "tts_addons.zoo.reasoning_gym_problems:DATASET",
    },
)


GIVEN: dict[str, DataSet] = {}  # data sets that this process got as objects (`rows.hold`), by name
GIVEN_PREFIX: Final = "given-"


def is_file(name: str) -> bool:
    """Return whether the name of a data set is a file, or a folder of repositories."""
    return (name.endswith(DATA_FILES) or isdir(name)) and name not in DATASETS  # noqa: PTH112 - a path may be refused


def get(name: str) -> DataSet:
    """Return the data set of a name, a file, a folder, or a place ("package.module:name").

    At a place there may be a `DataSet`, or a function that returns problems.

    Raises:
        ConfigError: there is no such data set, another package registered something else under the name, or the place
            has neither a `DataSet` nor a function.
        MissingDependency: the module of another package cannot be imported.
    """
    if name in GIVEN:
        return GIVEN[name]
    if name.startswith(GIVEN_PREFIX):
        raise ConfigError(
            f"the data set {name!r} was given as an object to another process, and no store has its rows",
            hint="make the study again with the same problems: tts.Study(…, problems=…)",
        )
    if is_file(name):
        return _file_dataset(name)
    entry = DATASETS.get(name)
    if isinstance(entry, DataSet):
        return entry
    if ":" in name and not isinstance(entry, type):
        return DataSet(load=entry, source=f"the function {name}", licence="not stated")
    kind = f"the class {entry.__name__}" if isinstance(entry, type) else f"a {type(entry).__name__}"
    rule = "a tts.experiments.datasets.DataSet"
    if ":" in name:
        rule += " or a function that returns problems"
    raise ConfigError(f"the data set {name!r} is {kind}, but must be {rule}")


def _file_dataset(path: str) -> DataSet:
    """Return the data set "file" with its path, or the data set of a folder of repositories."""
    if isdir(path):  # noqa: PTH112 - a path may be refused
        folder = DATASETS.get("repositories")
        return DataSet(
            load=lambda *, limit=None, seed=None: folder.load(path=path, limit=limit, seed=seed),
            source=f"{folder.source}: {path}",
            licence=folder.licence,
        )
    file = DATASETS.get("file")

    def load(
        *,
        limit: int | None = None,
        seed: int | None = None,
        task: str | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> list[Problem]:
        return file.load(path=path, limit=limit, seed=seed, task=task, fields=fields)

    return DataSet(load=load, source=f"{file.source}: {path}", licence=file.licence)


def load(name: str, **parameters: object) -> list[Problem]:
    """Return the problems of a data set.

    Args:
        name: The name of the data set, or its place.
        parameters: Parameters of the data set, in place of its defaults.

    Raises:
        ConfigError: there is no such data set or parameter; a value is missing or not valid; or the data set breaks a
            rule of this module.
    """
    dataset = get(name)
    check_names(dataset, parameters, f"parameter of the data set {name!r}")
    try:
        inspect.signature(dataset).bind(**parameters)
    except TypeError as failure:
        raise ConfigError(
            f"the data set {name!r} cannot be loaded: {failure}", hint="give it beside `dataset`"
        ) from None
    try:
        problems: Any = dataset(**parameters)
        if isinstance(problems, str) or not isinstance(problems, Iterable):
            raise ConfigError(
                f"the data set {name!r} gave a {type(problems).__name__}, but must give problems",
                hint="return a list of them",
            )
        problems = list(cast("Iterable[Any]", problems))
    except TTSError:
        raise
    except (Exception, SystemExit) as failure:  # the boundary: other people's functions may raise anything
        raise ConfigError(
            f"the data set {name!r} cannot be loaded: {quote(failure)}", hint="see its parameters"
        ) from failure
    for problem in problems:
        if not isinstance(problem, Problem):
            raise ConfigError(
                f"the data set {name!r} gave a {type(problem).__name__}, but must give problems",
                hint="make each a tts.Problem",
            )
    check({name: problems})
    return problems


def check_names(dataset: DataSet, parameters: Iterable[str], kind: str, others: Iterable[str] = ()) -> None:
    """Refuse a parameter that a data set does not have.

    Args:
        dataset: The data set.
        parameters: The names of the parameters to check.
        kind: The kind of the name, for the error.
        others: Names that may be meant instead.

    Raises:
        ConfigError: the data set lacks a parameter; the hint has the nearest names.
    """
    own_parameters = inspect.signature(dataset).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in own_parameters.values()):
        return  # the data set takes parameters of any name
    for name in parameters:
        if name not in own_parameters:
            raise unknown_name(kind, name, {*others, *own_parameters})


def check(parts: Mapping[str, Sequence[Problem]]) -> None:
    """Refuse parts of a data set, such as splits, that share or repeat a problem or an id.

    Args:
        parts: Problems by the name of the part.

    Raises:
        ConfigError: a problem has no id, or is a duplicate; the error names both problems.
    """
    part_of_id: dict[str, str] = {}
    first_problems: dict[str, tuple[str, str]] = {}  # by identity, the part and the id
    for part, problems in parts.items():
        for i, problem in enumerate(problems):
            if problem.id is None:
                raise ConfigError(f"problem {i} of {part} has no id, but every problem of a data set must have one")
            if problem.id in part_of_id:
                raise ConfigError(
                    f"the id {problem.id!r} of {part} is in {part_of_id[problem.id]} already, but must be unique"
                )
            problem_identity = identity(problem)
            if problem_identity in first_problems:
                first_part, first_id = first_problems[problem_identity]
                raise ConfigError(
                    f"the problem {problem.id!r} of {part} is {first_id!r} of {first_part} again, but each problem "
                    "may be there once"
                )
            part_of_id[problem.id] = part
            first_problems[problem_identity] = (part, problem.id)


def identity(problem: Problem) -> str:
    """Return the identity of a problem: `metadata["identity"]`, else its text with spaces and case folded."""
    identity_ = problem.metadata.get("identity")
    return " ".join(problem.text.split()).casefold() if identity_ is None else str(identity_)
