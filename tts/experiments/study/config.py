"""The configuration of a study: one YAML file of at most thirty lines.

Unknown keys are refused with the nearest name.

    name: selections
    models: pocket
    problems: {dataset: arithmetic, limit: 200, split: validation, group_by: operations}
    strategies: [best_of_n | majority, best_of_n | weighted]
    budgets: {samples: [1, 2, 4, 8]}
    seeds: 3

Lists are sweeps: every combination of model, problem, strategy, budget and seed is a cell of the study.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping
from inspect import isfunction
from pathlib import Path
from typing import Annotated, Any, Self, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from tts._common.sections import Section
from tts.backends.base import Sampling
from tts.budget.budget import Budget, check_units
from tts.checks import USUAL_FIELDS, columns_in, without_duplicates
from tts.errors import ConfigError, quote, unknown_name
from tts.experiments import datasets
from tts.experiments.datasets.rows import hold
from tts.models import registry
from tts.models.registry import ModelRecord
from tts.registry import is_at_its_place, place_of
from tts.search.parts import Plan
from tts.search.plan import parse, stored_text
from tts.solver.model_cache import NO_VERIFIERS
from tts.tasks.base import Task
from tts.types import Problem
from tts.verifiers.base import Verifier

_MOST = 1_000_000  # bound of the seeds, and of the problems of a data set
_MOST_BUDGETS = 10_000  # bound of the combinations of limits of a budget
_MOST_CELLS = 10_000_000


# fields of a record that a study names differently, or does not set
_NOT_KEYS = ("name", "backend", "url", "options", "expected_tokens")
_NO_PART_OF_RESULTS = ("rpm", "tpm", "probe")  # settings that a resumed study may change
_RECORD_KEYS = tuple(field.name for field in dataclasses.fields(ModelRecord) if field.name not in _NOT_KEYS)


def as_list(given: Any) -> list[Any]:
    """Return a list unchanged, and any other value as a list of one."""
    return given if isinstance(given, list) else [given]


def _parse_roles(verifiers: Any) -> Any:
    """Return verifiers by role as texts, from texts and functions."""
    if verifiers == NO_VERIFIERS:
        return {}
    if verifiers is None or isinstance(verifiers, dict):
        return verifiers and {role: _place(verifier, "the verifier") for role, verifier in verifiers.items()}
    return {"main": _place(verifiers, "the verifier")}


def _place(given: Any, what: str) -> Any:
    """Return the place of a function or class, by which results are stored; a text or a mapping unchanged.

    Raises:
        ConfigError: No name leads to the object.
    """
    if given is None or isinstance(given, str | Mapping | list | int | float):
        return given
    if (isinstance(given, type) or isfunction(given)) and is_at_its_place(given):  # type: ignore[arg-type]
        return place_of(given)  # type: ignore[arg-type]
    cls: type = type(given)
    if isinstance(given, Task | Verifier) and is_at_its_place(cls) and not cls.__module__.startswith("tts."):
        key = "task" if isinstance(given, Task) else "verifiers"
        raise ConfigError(
            f"{what} is an object of {cls.__name__}, but results are stored by the name of its class",
            hint=f"give the class, {key}={cls.__name__}, or with parameters as text, '{place_of(cls)}(…)'",
        )
    raise ConfigError(
        f"{what} is {quote(given)}, but results are stored by its name, and no name leads to it",
        hint="define a function at the top of a module or of the script, and give it or its place, 'module:name'",
    )


def _check_sampling(values: dict[str, Any]) -> dict[str, Any]:
    parameters = [field.name for field in dataclasses.fields(Sampling)]
    for name in values:
        if name not in parameters:
            raise unknown_name("parameter of the sampling", name, parameters)
    Sampling(**values)
    return values


Verifiers = Annotated[dict[str, str] | None, BeforeValidator(_parse_roles)]
SamplingParameters = Annotated[dict[str, Any], AfterValidator(_check_sampling)]


class ModelConfig(Section):
    """A model of a study, and how it runs.

    Args:
        model: The model of each role, as `--model` takes it; "policy" is required. A single name is the policy. The
            name may be left out where `backend` is a place, and where `url` names a server with one model.
        backend: The backend that runs the model, by name or by place ("package.module:name", of a class or a
            function); None: the model's own.
        url: The servers that run the model. Cells are distributed among several servers.
        options: The options of the backend, such as {device: cpu, precision: int8}; see its `from_record`.
        verifiers: The verifiers by role; None: the study's. A single text is the role "main"; "none": no verifier.
        sampling: Parameters of `Sampling`, which replace the study's parameters of the same name.
        expected_tokens: The expected tokens of a solution; None: as the model's record, or the task, states.
        settings: Other fields of the policy's record, such as {usd_in: 0.15/M, parameters: 8B}. A file may have these
            fields beside the other keys.
    """

    more_keys = _RECORD_KEYS

    model: Annotated[
        dict[str, str], BeforeValidator(lambda given: {"policy": given} if isinstance(given, str) else given)
    ]
    backend: str | None = None
    url: Annotated[list[str], BeforeValidator(lambda given: [given] if isinstance(given, str) else given)] = Field(
        default_factory=list[str]
    )
    options: dict[str, str | int | float] = Field(default_factory=dict[str, str | int | float])
    verifiers: Verifiers = None
    sampling: SamplingParameters = Field(default_factory=dict[str, Any])
    expected_tokens: int | None = Field(default=None, ge=1)
    settings: dict[str, Any] = Field(default_factory=dict[str, Any])

    @model_validator(mode="before")
    @classmethod
    def _parse_backend(cls, section: Any) -> Any:
        """Return keys with fields of the policy's record under the key `settings`, and with the key `model`."""
        if not isinstance(section, dict):
            return section
        keys = cast("dict[str, Any]", section)
        if "backend" in keys:
            keys = {**keys, "backend": _place(keys["backend"], "the backend")}
        record_settings = {name: value for name, value in keys.items() if name in _RECORD_KEYS}
        if record_settings:
            keys = {name: value for name, value in keys.items() if name not in record_settings}
            keys["settings"] = {**keys.get("settings", {}), **record_settings}
        may_lack_model = ":" in str(keys.get("backend")) or keys.get("url")
        return {"model": {}, **keys} if may_lack_model else keys

    @field_validator("settings")
    @classmethod
    def _settings(cls, settings: dict[str, Any]) -> dict[str, Any]:
        registry.with_settings(ModelRecord(name="of the study", backend=""), settings)
        return settings

    def records(self) -> dict[str, ModelRecord]:
        """Return the record of each role's model, with the backend's options.

        The policy's record also has the policy's settings.

        Raises:
            ConfigError: a model is unknown.
        """
        url = self.url[0] if self.url else None
        if not self.model and self.backend is not None and ":" in self.backend:
            records = {"policy": ModelRecord(name=self.backend, backend=self.backend, task="text")}
        else:
            records = {role: registry.resolve(name, url) for role, name in (self.model or {"policy": ""}).items()}
        records = {role: registry.with_settings(record, {"options": self.options}) for role, record in records.items()}
        if len(self.url) > 1:
            records = {role: dataclasses.replace(record, replicas=tuple(self.url)) for role, record in records.items()}
        if "policy" in records:
            records["policy"] = registry.with_settings(records["policy"], self.settings)
        return records


class ProblemsConfig(BaseModel):
    """The problems of a study: a data set, and parameters of the data set as further keys.

    Args:
        dataset: The data set's name in the registry, the path of a file (problems.jsonl), or the data set's place,
            "package.module:name".
        name: The name in the study; "": the data set's name, or the file's without its ending.
        limit: The number of first problems to take; None: all that the data set returns.
        group_by: The key of a problem's metadata by which figures are divided into panels.
    """

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    dataset: str
    name: str = ""
    limit: int | None = Field(default=None, ge=1, le=_MOST)
    group_by: str | None = None

    @property
    def title(self) -> str:
        """The name in the study."""
        return self.name or (Path(self.dataset).stem if datasets.is_file(self.dataset) else self.dataset)

    @property
    def parameters(self) -> dict[str, Any]:
        """The data set's own parameters."""
        return dict(self.model_extra or {})


class RecordConfig(Section):
    """The data that is stored of every run beside its result.

    Args:
        candidates: Whether to store every candidate with its answer and scores, for replay.
        scores: Whether every verifier of the study scores, and not only the strategy's verifiers; `tts sample` sets it.
        traces: The number of problems of each data set whose whole searches are stored, for every strategy and budget
            with the first seed.
        texts: Whether to store the text of every candidate, for `tts show --samples` and exports. Results do not
            depend on it.
    """

    candidates: bool = False
    scores: bool = False
    traces: int = Field(default=0, ge=0)
    texts: bool = True


def _model_keys(model: Any) -> Any:
    """Return the settings of a model that is a name or a function; any other value unchanged."""
    if isinstance(model, str):
        return {"model": model}
    place = _place(model, "the model")
    return {"backend": place} if isinstance(place, str) else place


def _as_problems(sections: Any) -> Any:
    """Return data sets as a list of settings.

    A text is the name or the file of a data set, and a function a data set at its place. Tables and lists of problems
    are held by this process.
    """
    if not isinstance(sections, list) or any(map(_is_row, cast("list[Any]", sections))):
        sections = [sections]
    return [_as_section(section) for section in sections]


def _as_section(section: Any) -> Any:
    if isinstance(section, dict) and not _is_row(section) and columns_in(section) is None:
        keys = cast("dict[str, Any]", section)
        return {**keys, **_as_section(keys["dataset"])} if "dataset" in keys else keys
    if isinstance(section, str):
        return {"dataset": section}
    if isfunction(section):
        return {"dataset": _place(section, "the data set")}
    is_held = isinstance(section, Iterable) or columns_in(section) is not None
    return {"dataset": hold(section), "name": "problems"} if is_held else section


def _is_row(member: Any) -> bool:
    """Return whether a member of a list is a problem or a row, and not the settings of a data set."""
    if isinstance(member, dict):
        return "dataset" not in member and any(name in member for name in USUAL_FIELDS["problem"])
    return isinstance(member, Problem)


class StudyConfig(Section):
    """A whole study.

    Args:
        name: The name of the study.
        models: The models by the names that tables show. A name or a list of names is enough for models without keys.
            In Python, a function at the top of a module or script is a model, a verifier or a data set too.
        problems: The data sets, each as its settings, or as its name or file alone. In Python, a data set may also be
            a table, or a list of rows or `Problem`s.
        task: The task of problems that name none, by name or place; None: the model's.
        strategies: Plans, as texts, or as objects that can be written as texts.
        budgets: Numbers of tokens, or limits by unit; a limit may be a list.
        seeds: A list of seeds, or the number of seeds, which then begin at 0.
        verifiers: The verifiers of models without their own; see `ModelConfig`.
        sampling: The sampling parameters of models without their own; see `ModelConfig`.
        allow_oracle: Whether verifiers may see reference answers.
        record: The data that is stored beside results.
        concurrency: The number of cells that run at once. Results do not depend on it.
    """

    name: str = Field(min_length=1)
    models: dict[str, ModelConfig] = Field(min_length=1)
    problems: Annotated[list[ProblemsConfig], BeforeValidator(_as_problems)] = Field(min_length=1)
    task: Annotated[str | None, BeforeValidator(lambda given: _place(given, "the task"))] = None
    strategies: list[str] = Field(min_length=1)
    budgets: list[dict[str, int | float]] = Field(min_length=1)
    seeds: list[int] = Field(default=[0], min_length=1)
    verifiers: Verifiers = None
    sampling: SamplingParameters = Field(default_factory=dict[str, Any])
    allow_oracle: bool = False
    record: RecordConfig = RecordConfig()
    concurrency: int = Field(default=64, ge=1)

    @field_validator("models", mode="before")
    @classmethod
    def _models(cls, models: Any) -> Any:
        """Return models as settings by name, from a name, a list of names, or a mapping."""
        if not isinstance(models, dict):
            texts = [_place(model, "the model") for model in as_list(models)]
            if not all(isinstance(name, str) for name in texts):
                raise ConfigError(
                    f"models is {quote(models)}, but must be a name, names, or settings by name",
                    hint="for example {small: {model: pocket}}",
                )
            without_duplicates("models", texts)
            models = {
                text.rpartition(":")[2] if isfunction(model) else text: model
                for text, model in zip(texts, as_list(models), strict=True)
            }
        return {name: _model_keys(model) for name, model in models.items()}

    @field_validator("problems")
    @classmethod
    def _problems(cls, sections: list[ProblemsConfig]) -> list[ProblemsConfig]:
        """Refuse parameters that a data set does not have, and data sets of the same name."""
        for section in sections:
            dataset = datasets.get(section.dataset)
            datasets.check_names(
                dataset, section.parameters, f"key of the problems of {section.dataset!r}", ProblemsConfig.model_fields
            )
        without_duplicates(
            "the names of problems", [section.title for section in sections], hint="give one of them another `name`"
        )
        return sections

    @field_validator("strategies", mode="before")
    @classmethod
    def _strategies(cls, strategies: Any) -> Any:
        return without_duplicates("strategies", [_strategy(strategy) for strategy in as_list(strategies)])

    @field_validator("budgets", mode="before")
    @classmethod
    def _budgets(cls, budgets: Any) -> Any:
        return without_duplicates("budgets", [limits for budget in as_list(budgets) for limits in _budget_grid(budget)])

    @field_validator("seeds", mode="before")
    @classmethod
    def _seeds(cls, seeds: Any) -> Any:
        """Return a list of seeds from a number of seeds, or check a list for duplicates."""
        if isinstance(seeds, list):
            return without_duplicates("seeds", seeds)
        if type(seeds) is not int:
            return seeds  # which the type of the field refuses
        if not 1 <= seeds <= _MOST:
            raise ConfigError(
                f"seeds is {quote(seeds)}, but must be from 1 to {_MOST:,}",
                hint="give how many, from 0, or a list of them",
            )
        return list(range(seeds))

    def with_settings(self, settings: Mapping[str, Any]) -> StudyConfig:
        """Return the study with these settings of every model's policy; see `registry.with_settings`.

        Raises:
            ConfigError: a setting is not valid.
        """
        if not settings:
            return self
        plain = self.model_dump()
        for model in plain["models"].values():
            model["settings"] = {**model["settings"], **settings}
        return study_config(plain)

    @model_validator(mode="after")
    def _size(self) -> Self:
        self.check_size(len(self.problems))
        return self

    def check_size(self, problems: int) -> None:
        """Check the number of cells, before any cell is made.

        Args:
            problems: The number of problems.

        Raises:
            ConfigError: the cells are too many.
        """
        axes = ("models", "strategies", "budgets", "seeds")
        sizes = {"problems": problems, **{name: len(getattr(self, name)) for name in axes}}
        num_cells = math.prod(sizes.values())
        if num_cells > _MOST_CELLS:
            product = " x ".join(f"{size:,} {name}" for name, size in sizes.items())
            raise ConfigError(
                f"the study has {num_cells:,} cells ({product}), but may have {_MOST_CELLS:,}",
                hint="sweep fewer values",
            )

    def sampling_of(self, model: str) -> Sampling:
        """Return the sampling parameters of a model of the study."""
        return Sampling(**{**self.sampling, **self.models[model].sampling})

    def verifiers_of(self, model: str) -> dict[str, str] | None:
        """Return the verifiers of a model of the study by role; None: the model's record may name one."""
        own_verifiers = self.models[model].verifiers
        return self.verifiers if own_verifiers is None else own_verifiers

    def plain_settings(self) -> dict[str, Any]:
        """Return all settings that results depend on as plain values, defaults included."""
        plain = self.model_dump(mode="json", exclude={"concurrency": True, "record": {"texts"}})
        for model in plain["models"].values():
            settings = model.pop("settings")
            settings = {name: value for name, value in settings.items() if name not in _NO_PART_OF_RESULTS}
            if settings:  # without settings, a study has the same identity as in older revisions, which had none
                model["settings"] = settings
        return plain


def study_config(data: Mapping[str, Any]) -> StudyConfig:
    """Return the study that plain values describe.

    Raises:
        ConfigError: a key is unknown (the hint has the nearest), or a value is not valid.
    """
    return StudyConfig.of(dict(data), "the study")


def _strategy(strategy: Any) -> str:
    """Return the text of a strategy, which is strategy as a text or as an object."""
    if isinstance(strategy, str):
        return stored_text(parse(strategy))
    return stored_text(Plan.of(strategy), equal=True)


def _budget_grid(budget: Any) -> list[dict[str, float]]:
    """Return the combinations of a budget's limits. A number alone is a limit of tokens."""
    if not isinstance(budget, dict):
        return [Budget.of(budget).limits]
    check_units(budget)
    limits_by_unit = {unit: as_list(limits) for unit, limits in budget.items()}
    num_combinations = math.prod(map(len, limits_by_unit.values()))
    if num_combinations > _MOST_BUDGETS:
        raise ConfigError(
            f"a budget has {num_combinations:,} combinations of limits, but may have {_MOST_BUDGETS:,}",
            hint="sweep fewer values",
        )
    combinations = itertools.product(*limits_by_unit.values())
    return [Budget(**dict(zip(limits_by_unit, limits, strict=True))).limits for limits in combinations]
