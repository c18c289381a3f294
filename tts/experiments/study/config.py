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
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from tts.backends.base import Sampling
from tts.budget.budget import Budget, check_units
from tts.checks import without_duplicates
from tts.errors import ConfigError, quote, unknown_name
from tts.experiments import datasets
from tts.models import registry
from tts.models.registry import ModelRecord
from tts.search.parts import Plan
from tts.search.plan import parse, stored_text
from tts.sections import Section
from tts.solver.model_cache import NO_VERIFIERS

_MOST, _MOST_BUDGETS = 1_000_000, 10_000  # seeds, problems of a data set; combinations of limits
_MOST_CELLS = 10_000_000


# fields of a record that a study names in another way, or not at all
_NOT_KEYS = ("name", "backend", "url", "options", "expected_tokens")
_NO_PART_OF_RESULTS = ("rpm", "tpm", "probe")  # settings that a resumed study may have otherwise
_RECORD_KEYS = tuple(field.name for field in dataclasses.fields(ModelRecord) if field.name not in _NOT_KEYS)


def as_list(given: Any) -> list[Any]:
    """Return a list unchanged, and any other value as its only member."""
    return given if isinstance(given, list) else [given]


def _parse_roles(given: Any) -> Any:
    if isinstance(given, str):
        return {} if given == NO_VERIFIERS else {"main": given}
    return given


def _check_sampling(given: dict[str, Any]) -> dict[str, Any]:
    known = [f.name for f in dataclasses.fields(Sampling)]
    for name in given:
        if name not in known:
            raise unknown_name("parameter of the sampling", name, known)
    Sampling(**given)
    return given


Verifiers = Annotated[dict[str, str] | None, BeforeValidator(_parse_roles)]
SamplingParameters = Annotated[dict[str, Any], AfterValidator(_check_sampling)]


class ModelConfig(Section):
    """A model of a study, and how it runs.

    Args:
        model: The model of each role, as `--model` takes it; "policy" is required. A single name is the policy. It may
            be left out where `backend` is a place, and where `url` names a server with one model.
        backend: The backend that runs it, by name or by place ("package.module:name", of a class or a function); None:
            its own.
        url: Servers that run it. Cells are distributed among several.
        options: The options of the backend, such as {device: cpu, precision: int8}; see its `from_record`.
        verifiers: The verifiers by role; None: the study's. A single text is "main"; "none": none.
        sampling: Parameters of `Sampling`, in place of the study's of the same name.
        expected_tokens: The expected tokens of a solution; None: as the model's record, or the task, states.
        settings: Other fields of the policy's record, such as {usd_in: 0.15/M, parameters: 8B}. They may be given
            beside the other keys.
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
    def _parse_backend(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        told = cast("dict[str, Any]", given)
        own = {name: value for name, value in told.items() if name in _RECORD_KEYS}
        if own:
            told = {
                **{name: value for name, value in told.items() if name not in own},
                "settings": {**told.get("settings", {}), **own},
            }
        nameless = ":" in str(told.get("backend")) or told.get("url")
        return {"model": {}, **told} if nameless else told

    @field_validator("settings")
    @classmethod
    def _settings(cls, given: dict[str, Any]) -> dict[str, Any]:
        registry.with_settings(ModelRecord(name="of the study", backend=""), given)
        return given

    def records(self) -> dict[str, ModelRecord]:
        """Return the record of each role's model, with the backend's options.

        The policy's record also has the policy's settings.

        Raises:
            ConfigError: a model is unknown.
        """
        url = self.url[0] if self.url else None
        if not self.model and self.backend is not None and ":" in self.backend:
            found = {"policy": ModelRecord(name=self.backend, backend=self.backend, task="text")}
        else:
            found = {role: registry.resolve(name, url) for role, name in (self.model or {"policy": ""}).items()}
        found = {role: registry.with_settings(record, {"options": self.options}) for role, record in found.items()}
        if len(self.url) > 1:
            found = {role: dataclasses.replace(record, replicas=tuple(self.url)) for role, record in found.items()}
        if "policy" in found:
            found["policy"] = registry.with_settings(found["policy"], self.settings)
        return found


class ProblemsConfig(BaseModel):
    """The problems of a study: a data set, and any of its own parameters beside these.

    Args:
        dataset: Its name in the registry of data sets, the path of a file (problems.jsonl), or its place,
            "package.module:name".
        name: The name in the study; "": the data set's, or the file's without its ending.
        limit: The most problems, the first ones; None: all that the data set returns.
        group_by: The metadata of a problem by which figures are divided into panels.
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
    """What is stored of every run beside its result.

    Args:
        candidates: Every candidate with its answer and scores, for replay.
        scores: The scores by every verifier of the study, and not only by those that the strategy uses; `tts sample`
            sets it.
        traces: The problems of each data set whose whole searches are stored, for every strategy and budget with the
            first seed.
        texts: What the model wrote, of every candidate, for `tts show --samples` and exports. Results do not depend on
            it.
    """

    candidates: bool = False
    scores: bool = False
    traces: int = Field(default=0, ge=0)
    texts: bool = True


def _as_problems(given: Any) -> Any:
    """Return data sets as a list of settings; a text is the name or the file of one."""
    return [{"dataset": one} if isinstance(one, str) else one for one in as_list(given)]


class StudyConfig(Section):
    """A whole study.

    Args:
        name: The name of the study.
        models: The models by the names that tables show; a name, a list of names, or `ModelConfig` by name.
        problems: One data set or several, each by its settings, or by its name or file alone.
        task: The task of problems that name none, by name or place; None: the model's.
        strategies: Plans, as texts, or as objects that a text gives again.
        budgets: Numbers of tokens, or limits by unit; a limit may be a list.
        seeds: A list, or a number of seeds, from 0.
        verifiers: The verifiers of models without their own; see `ModelConfig`.
        sampling: The sampling parameters of models without their own; see `ModelConfig`.
        allow_oracle: Whether verifiers may see reference answers.
        record: What is stored beside results.
        concurrency: Cells in flight at once. Results do not depend on it.
    """

    name: str = Field(min_length=1)
    models: dict[str, ModelConfig] = Field(min_length=1)
    problems: Annotated[list[ProblemsConfig], BeforeValidator(_as_problems)] = Field(min_length=1)
    task: str | None = None
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
    def _models(cls, given: Any) -> Any:
        if isinstance(given, str):
            given = [given]
        if isinstance(given, list):
            if not all(isinstance(name, str) for name in given):
                raise ConfigError(
                    f"models is {quote(given)}, but must be a name, names, or settings by name",
                    hint="for example {small: {model: pocket}}",
                )
            without_duplicates("models", given)
            return {name: {"model": name} for name in given}
        if isinstance(given, dict):
            return {name: {"model": model} if isinstance(model, str) else model for name, model in given.items()}
        return given

    @field_validator("problems")
    @classmethod
    def _problems(cls, given: list[ProblemsConfig]) -> list[ProblemsConfig]:
        for one in given:
            known = datasets.get(one.dataset)
            datasets.check_names(
                known, one.parameters, f"key of the problems of {one.dataset!r}", ProblemsConfig.model_fields
            )
        without_duplicates(
            "the names of problems", [one.title for one in given], hint="give one of them another `name`"
        )
        return given

    @field_validator("strategies", mode="before")
    @classmethod
    def _strategies(cls, given: Any) -> Any:
        return without_duplicates("strategies", [_strategy(one) for one in as_list(given)])

    @field_validator("budgets", mode="before")
    @classmethod
    def _budgets(cls, given: Any) -> Any:
        return without_duplicates("budgets", [limits for one in as_list(given) for limits in _budget_grid(one)])

    @field_validator("seeds", mode="before")
    @classmethod
    def _seeds(cls, given: Any) -> Any:
        if type(given) is int and not 1 <= given <= _MOST:
            raise ConfigError(
                f"seeds is {quote(given)}, but must be from 1 to {_MOST:,}",
                hint="give how many, from 0, or a list of them",
            )
        return (
            list(range(given))
            if type(given) is int
            else without_duplicates("seeds", given)
            if isinstance(given, list)
            else given
        )

    def with_settings(self, settings: Mapping[str, Any]) -> StudyConfig:
        """Return the study with settings of every model's policy in place of its own.

        See `tts.models.registry.with_settings`.

        Raises:
            ConfigError: a setting is not valid.
        """
        if not settings:
            return self
        plain = {name: one.model_dump() for name, one in self.models.items()}
        plain = {name: {**one, "settings": {**one["settings"], **settings}} for name, one in plain.items()}
        return study_config({**self.model_dump(), "models": plain})

    @model_validator(mode="after")
    def _size(self) -> Self:
        self.check_size(len(self.problems))
        return self

    def check_size(self, problems: int) -> None:
        """Check the number of cells, before any is made.

        Args:
            problems: How many there are.

        Raises:
            ConfigError: they are too many.
        """
        sizes = {"problems": problems} | {
            name: len(getattr(self, name)) for name in ("models", "strategies", "budgets", "seeds")
        }
        if (count := math.prod(sizes.values())) > _MOST_CELLS:
            told = " x ".join(f"{size:,} {name}" for name, size in sizes.items())
            raise ConfigError(
                f"the study has {count:,} cells ({told}), but may have {_MOST_CELLS:,}", hint="sweep fewer values"
            )

    def sampling_of(self, model: str) -> Sampling:
        """Return the sampling parameters of a model of the study."""
        return Sampling(**{**self.sampling, **self.models[model].sampling})

    def verifiers_of(self, model: str) -> dict[str, str] | None:
        """Return the verifiers of a model of the study by role; None: the one in its record, if any."""
        own = self.models[model].verifiers
        return self.verifiers if own is None else own

    def plain_settings(self) -> dict[str, Any]:
        """Return all settings that results depend on as plain values, defaults included."""
        plain = self.model_dump(mode="json", exclude={"concurrency": True, "record": {"texts"}})
        for model in plain["models"].values():
            model["settings"] = {
                name: value for name, value in model["settings"].items() if name not in _NO_PART_OF_RESULTS
            }
            if not model["settings"]:  # a study without them is the same as before there were any
                del model["settings"]
        return plain


def study_config(data: Mapping[str, Any]) -> StudyConfig:
    """Return the study that plain values describe.

    Raises:
        ConfigError: a key is unknown (the hint has the nearest), or a value is not valid.
    """
    return StudyConfig.of(dict(data), "the study")


def _strategy(given: Any) -> str:
    return stored_text(parse(given)) if isinstance(given, str) else stored_text(Plan.of(given), equal=True)


def _budget_grid(budget: Any) -> list[dict[str, float]]:
    """Return the limits of a number of tokens, or every combination of limits by unit."""
    if not isinstance(budget, dict):
        return [Budget.of(budget).limits]
    check_units(budget)
    sweeps = [as_list(value) for value in budget.values()]
    if (count := math.prod(map(len, sweeps))) > _MOST_BUDGETS:
        raise ConfigError(
            f"a budget has {count:,} combinations of limits, but may have {_MOST_BUDGETS:,}", hint="sweep fewer values"
        )
    return [Budget(**dict(zip(budget, values, strict=True))).limits for values in itertools.product(*sweeps)]
