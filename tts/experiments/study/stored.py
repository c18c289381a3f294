"""Refuses parts that a store may not name (`tts._common.scopes`).

Another person may have written the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from tts._common.scopes import RegisteredNames, check_calls, file_scope
from tts.backends import BACKENDS
from tts.errors import ConfigError, quote
from tts.experiments import datasets
from tts.experiments.datasets import DATASETS
from tts.experiments.study.config import StudyConfig, as_list, study_config
from tts.registry import EVERYTHING, Registry, Scope, calls_in
from tts.search.parts import SELECTIONS, STRATEGIES
from tts.solver.model_cache import NO_VERIFIERS
from tts.tasks import TABLE
from tts.verifiers import VERIFIERS

# Settings of a model that a store may have: rates, sizes, words. `task` and `verifier` are checked as texts; `headers`
# and `query` go to servers, which a stored study may not choose.
_SETTINGS: Final = frozenset(
    (
        *(
            "usd_in",
            "usd_reused",
            "usd_out",
            "usd_cache_write",
            "usd_batch_in",
            "usd_batch_reused",
            "usd_batch_out",
            "batch",
            "rpm",
            "tpm",
            "probe",
            "capabilities",
            "headers",
            "query",
            "served_as",
            "extra_body",
        ),
        *("parameters", "context", "expected_tokens", "licence", "description", "step", "thought", "task", "verifier"),
    )
)


def stored_config(snapshot: Mapping[str, Any]) -> StudyConfig:
    """Return the study that the snapshot of a run describes.

    Args:
        snapshot: The snapshot, as the store has it.

    Raises:
        ConfigError: The snapshot names a part that a store may not name, or its configuration is not valid here.
    """
    if imported_settings(snapshot) is not None:
        raise ConfigError(
            "the study has imported samples, which no model of it draws",
            hint="name a study of tts run, or write one for tts sample",
        )
    configuration = _configuration(snapshot)
    if "concurrency" in snapshot:
        configuration = {**configuration, "concurrency": snapshot["concurrency"]}
    return study_config(configuration)


def imported_settings(snapshot: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the settings with which a study was imported, by the names of `ImportSettings`.

    Args:
        snapshot: The snapshot, as the store has it.

    Returns:
        The settings; None: the study was not imported.

    Raises:
        ConfigError: The snapshot has no configuration, or its configuration names a class or function that a store
            may not name.
    """
    settings = _configuration(snapshot).get("imported")
    return cast("dict[str, Any]", settings) if isinstance(settings, dict) else None


def _configuration(snapshot: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration in a snapshot, after a check that a store may name all its parts."""
    configuration = snapshot.get("configuration")
    if not isinstance(configuration, dict):
        raise ConfigError(
            f"the configuration of the study is {quote(configuration)}, but must be settings by name",
            hint="tts runs --check",
        )
    for fault in configuration_faults(configuration, file_scope()):
        raise fault
    return cast("dict[str, Any]", configuration)


def check_servers(config: StudyConfig) -> None:
    """Refuse to run a store's study that calls servers, since they would get the user's keys.

    Args:
        config: The study, as a store describes it.

    Raises:
        ConfigError: A model has an address.
    """
    if file_scope() is EVERYTHING:
        return
    for name, model in config.models.items():
        if model.url:
            raise _server(model.url[0])
        for text in (config.verifiers_of(name) or {}).values():
            check_calls(VERIFIERS, text, _WithoutServers())


@dataclass(frozen=True, slots=True)
class _WithoutServers(RegisteredNames):
    """Registered names without the address of a server."""

    def check(self, table: Registry, name: str, parameters: dict[str, Any]) -> None:
        super(_WithoutServers, self).check(table, name, parameters)
        if parameters.get("url") is not None:
            raise _server(parameters["url"])


def _server(url: str) -> ConfigError:
    return ConfigError(
        f"the store names the server {url!r}, but a store may not choose servers",
        hint="run the study from its own file, or set TTS_TRUST_PLACES=1 if you trust who wrote the store",
    )


def condition_faults(condition: Any, scope: Scope) -> Iterator[ConfigError]:
    """Yield the faults of the texts that the cells of a store share.

    Args:
        condition: The body of a condition, parsed.
        scope: The scope of names that texts may use.
    """
    if isinstance(condition, dict) and scope is not EVERYTHING:
        yield from _faults(condition.get("strategy"), lambda text: _check_plan(text, scope))
        for text in _values(condition.get("verifiers")):
            yield from _faults(text, lambda verifier: check_calls(VERIFIERS, verifier, scope))


def configuration_faults(configuration: Any, scope: Scope) -> Iterator[ConfigError]:
    """Yield the faults of the texts of a study's configuration.

    Args:
        configuration: The configuration as plain values. An import has a task, and no other parts.
        scope: The scope of names that texts may use.
    """
    if scope is EVERYTHING or not isinstance(configuration, dict):
        return

    def find_faults(table: Registry, calls: Any) -> Iterator[ConfigError]:
        yield from _faults(calls, lambda text: check_calls(table, text, scope))

    for strategy in as_list(configuration.get("strategies")):
        yield from _faults(strategy, lambda text: _check_plan(text, scope))
    yield from find_faults(TABLE, configuration.get("task"))
    yield from find_faults(TABLE, _mapping(configuration.get("imported")).get("task"))
    models = [model for model in _values(configuration.get("models")) if isinstance(model, dict)]
    for model in models:
        settings = _mapping(model.get("settings"))
        yield from find_faults(BACKENDS, model.get("backend"))
        yield from find_faults(TABLE, settings.get("task"))
        yield from find_faults(VERIFIERS, settings.get("verifier") or None)
        yield from _faults(settings, _check_settings)
    for section in (configuration, *models):
        for verifier in _values(section.get("verifiers")):
            if verifier != NO_VERIFIERS:
                yield from find_faults(VERIFIERS, verifier)
    for dataset in as_list(configuration.get("problems")):
        if isinstance(dataset, dict):
            yield from _faults(dataset, lambda parameters: _check_problems(parameters, scope))


def _check_settings(settings: Mapping[str, Any]) -> None:
    """Refuse settings of a model that may name code, files or servers."""
    for name, value in settings.items():
        if name not in _SETTINGS:
            raise ConfigError(
                f"the setting {name} of a model is {quote(value)}, but a store may not choose it",
                hint=RegisteredNames().cure,
            )


def _check_plan(text: Any, scope: Scope) -> None:
    """Refuse a plan with a part outside of a scope, without making the plan.

    The first part of a plan is its strategy. The others are checked as selections.
    """
    if not isinstance(text, str):
        raise ConfigError(f"the strategy is {text!r}, but must be a text")
    for i, call in enumerate(calls_in(text)):
        scope.check(STRATEGIES if i == 0 else SELECTIONS, call.name, call.parameters())


def _check_problems(settings: Mapping[str, Any], scope: Scope) -> None:
    """Refuse a data set outside of a scope, and parameters that name code. The path of a file of rows is allowed.

    Args:
        settings: The settings of the data set.
        scope: The scope of names that texts may use.
    """
    plain_names = ("dataset", "name", "limit", "group_by", "fields")
    parameters = {name: value for name, value in settings.items() if name not in plain_names}
    task = parameters.pop("task", None)
    if task is not None:
        check_calls(TABLE, task, scope)
    name = settings.get("dataset")
    if not isinstance(name, str):
        raise ConfigError(f"the data set is {name!r}, but must be a text")
    if name == "file":
        parameters.pop("path", None)
    if not datasets.is_file(name):
        scope.check(DATASETS, name, parameters)


def _faults(value: Any, check: Callable[[Any], object]) -> Iterator[ConfigError]:
    """Yield the error that a check raises. None is not checked."""
    if value is not None:
        try:
            check(value)
        except ConfigError as failure:
            yield failure


def _mapping(value: Any) -> dict[str, Any]:
    """Return a mapping unchanged; an empty one for any other value."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _values(value: Any) -> list[Any]:
    """Return the values of a mapping, the members of a list, or any other value alone. None has no values."""
    if value is None:
        return []
    return list(value.values()) if isinstance(value, dict) else as_list(value)
