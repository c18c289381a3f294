"""The cells of a study, each with a content key.

Every combination of model, problem, strategy, budget and seed is one cell. The key is a hash of everything that a
result depends on, and of nothing else. The names of study, data set, model and group are only shown. Renamed studies
therefore find their results again, and any other change runs new cells.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import itertools
import json
import marshal
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, reduce
from types import FunctionType, NoneType
from typing import Any

from tts.errors import ConfigError, unknown_name
from tts.experiments import datasets
from tts.experiments.study.config import ProblemsConfig, StudyConfig
from tts.experiments.study.record import RESULT_VERSION, Cell
from tts.types import Problem

# Problems by their id, by the name of their data set in the study.
Problems = Mapping[str, Mapping[str, Problem]]


@dataclass(frozen=True, slots=True)
class ScoringCost:
    """The cost of scoring one sample of typical length, in verifier tokens and dollars.

    Without prices, the dollars are None.
    """

    tokens: int = 0
    usd: float | None = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The settings of a study's model for the problems of one task, as far as results depend on them.

    Args:
        task: The name of the task.
        typical_tokens: The expected tokens of a solution, by the model's record or the task.
        identity: The identity of the model of each role: weights, precision, kind of device, and the place of a
            backend.
        sampling: The sampling parameters.
        verifiers: The verifiers by role, as texts.
        strategies: Canonical texts, which name the selection, by their texts in the study.
        scoring: The cost of scores by canonical text; None: unknown before a run.
        usd_per_token: Dollars for a generated token; None: the model has no prices.
    """

    task: str
    typical_tokens: int
    identity: Mapping[str, str]
    sampling: Mapping[str, Any]
    verifiers: Mapping[str, str]
    strategies: Mapping[str, str]
    scoring: Mapping[str, ScoringCost | None]
    usd_per_token: float | None

    @property
    def digest(self) -> str:
        """A hash of the settings of models and verifiers. Only results with the same hash are averaged."""
        return digest(
            identity=dict(self.identity),
            sampling=dict(self.sampling),
            verifiers=dict(self.verifiers),
            tokens=self.typical_tokens,
        )[:16]


_VERSIONED = ("tts", "tts_addons", "builtins")  # packages whose changes raise `RESULT_VERSION`

# Settings by the model's name in the study and the task that a problem names.
Settings = Mapping[tuple[str, str | None], Setting]


def load_problems(config: StudyConfig) -> Problems:
    """Return the problems of a study by data set and id.

    Raises:
        ConfigError: a data set is empty or unknown, or `tts.experiments.datasets.load` refuses it.
    """
    return {section.title: _load_problems(section) for section in config.problems}


def _load_problems(section: ProblemsConfig) -> dict[str, Problem]:
    """Return the problems of one data set by id."""
    parameters = section.parameters
    if section.limit is not None and "limit" in inspect.signature(datasets.get(section.dataset)).parameters:
        parameters["limit"] = section.limit
    problems = datasets.load(section.dataset, **parameters)[: section.limit]
    if not problems:
        raise ConfigError(
            f"the data set {section.title!r} has no problems, but a study needs at least one", hint="see its parameters"
        )
    if section.group_by is not None and section.group_by not in problems[0].metadata:
        raise unknown_name(
            f"metadata of the data set {section.title!r}", section.group_by, map(str, problems[0].metadata)
        )
    return {str(problem.id): problem for problem in problems}


def digest(**parts: Any) -> str:
    """Return the SHA-256 of plain values by name, in hexadecimal. The order of names does not matter."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def part_sources(*texts: str) -> dict[str, str]:
    """Return the digest of each class and function of a user's module that texts name, by its place.

    The digest covers the source of a part, and of the functions, classes and constants of its module that the source
    names. Of other modules the names count alone. Only modules that are loaded are looked at.

    Raises:
        ConfigError: The source of a part of the main module is unknown.
    """
    digests: dict[str, str] = {}
    for place in sorted({place for text in texts for place in re.findall(r"[^\W\d][\w.]*:[^\W\d][\w.]*", text)}):
        name, _, path = place.partition(":")
        part: Any = reduce(lambda owner, member: getattr(owner, member, None), path.split("."), sys.modules.get(name))
        if isinstance(part, type | FunctionType) and part.__module__.partition(".")[0] not in _VERSIONED:
            digests[f"source of {place}"] = digest(sources=_sources(part, {}))[:16]
    return digests


def _sources(part: Any, sources: dict[str, str]) -> dict[str, str]:
    """Return sources by name, with those of a part of a module and of what it names there."""
    name, code = part.__qualname__, getattr(part, "__code__", None)
    try:
        source = inspect.getsource(part)
    except (OSError, TypeError):  # of a program without a file
        if code is None and part.__module__ == "__main__":
            raise ConfigError(
                f"the source of {name} is unknown, so that results of another {name} cannot be told apart",
                hint="write it into a file: 'module:name'",
            ) from None
        plain_code = None if code is None else code.replace(co_filename="", co_firstlineno=1)
        source = name if code is None else f"{' '.join(code.co_names)} {marshal.dumps(plain_code, 2).hex()}"
    sources[name] = source
    members = vars(sys.modules[part.__module__])
    for word in sorted(set(re.findall(r"[^\W\d]\w*", source)) & members.keys() - sources.keys()):
        value = members[word]
        if isinstance(value, type | FunctionType) and value.__module__ == part.__module__:
            _sources(value, sources)
        elif isinstance(value, str | int | float | tuple | NoneType):
            sources[word] = repr(value)
    return sources


def key(problem: str, run: str) -> str:
    """Return the key of a cell from the digest of its problem and the digest of all else."""
    return hashlib.sha256(f"{problem} {run}".encode("ascii")).hexdigest()


def problem_digest(problem: Problem) -> str:
    """Return the hash of a problem's parts that a run or its checker reads."""
    prompt = problem.prompt
    turns = prompt if isinstance(prompt, str) else [[turn.role, turn.content] for turn in prompt]
    return digest(id=problem.id, prompt=turns, answer=problem.answer)


def cells(config: StudyConfig, problems: Problems, settings: Settings) -> Iterator[Cell]:
    """Yield the cells of a study: by seed, model and problem, then by strategy and budget.

    In this order, an interrupted study has run all strategies on the same problems.
    """

    @cache
    def prototypes(
        dataset: str, group: str | None, model: str, task: str | None, seed: int, *, is_traced: bool
    ) -> list[Cell]:
        """Return a prototype for every strategy and budget: a cell without a problem.

        The key of a prototype is the digest of everything but the problem.
        """
        setting, record = settings[model, task], config.record
        setting_digest = setting.digest
        # the data that the results of these cells have
        kept_data = [record.candidates, is_traced]
        if record.scores and len(setting.verifiers) > 1:
            kept_data.append(True)
        prototype_cells: list[Cell] = []
        for strategy in config.strategies:
            canonical_text = setting.strategies[strategy]
            sources = part_sources(canonical_text)
            for budget in config.budgets:
                run_digest = digest(
                    version=RESULT_VERSION,
                    setting=setting_digest,
                    task=setting.task,
                    strategy=canonical_text,
                    budget=dict(budget),
                    seed=seed,
                    kept=kept_data,
                    **({"sources": sources} if sources else {}),
                )
                prototype_cells.append(
                    Cell(
                        key=run_digest,
                        dataset=dataset,
                        problem="",
                        group=group,
                        model=model,
                        setting=setting_digest,
                        verifiers=setting.verifiers,
                        strategy=canonical_text,
                        budget=budget,
                        seed=seed,
                    )
                )
        return prototype_cells

    for seed, model, section in itertools.product(config.seeds, config.models, config.problems):
        for i, problem in enumerate(problems[section.title].values()):
            is_traced = i < config.record.traces and seed == config.seeds[0]
            digest_of_problem = problem_digest(problem)
            group = _group(section, problem)
            for prototype in prototypes(section.title, group, model, problem.task, seed, is_traced=is_traced):
                cell_key = key(digest_of_problem, prototype.key)
                yield dataclasses.replace(prototype, key=cell_key, problem=str(problem.id))


def _group(section: ProblemsConfig, problem: Problem) -> str | None:
    """Return the group of a problem, such as "4 operations" or "level hard"; None: it has no group."""
    value = None if section.group_by is None else problem.metadata.get(section.group_by)
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value} {section.group_by}"
    return f"{section.group_by} {value}"


def shard(every: Iterable[Cell], index: int, count: int) -> Iterator[Cell]:
    """Yield the cells of one of several parts.

    The key of a cell decides its part, so that parts are disjoint on every machine.

    Args:
        every: All cells of the study.
        index: The number of the part, from 1.
        count: The number of parts.
    """
    return (cell for cell in every if int(cell.key[:16], 16) % count == index - 1)
