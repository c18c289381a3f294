"""Reads a study's file, whose settings the command line or a call may replace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tts._common.yaml_text import read_yaml
from tts.checks import read_text
from tts.errors import ConfigError, quote
from tts.experiments.study.config import StudyConfig, as_list, study_config


def read_study(
    source: str | Path, overrides: Sequence[str] = (), settings: Mapping[str, Any] | None = None
) -> StudyConfig:
    """Return the study that a YAML file describes.

    Args:
        source: The path of the file, or the YAML itself: a text of several lines, or a text that begins with a brace.
        overrides: Texts such as "a.b=c", which set the key b below the key a to c, which is YAML. If a is a list, b is
            set in all members of the list.
        settings: Values by key, such as {"a.b": c}, which are set in the same way.

    Raises:
        ConfigError: the file cannot be read or is not YAML, a key is unknown (the hint has the nearest), or a value is
            not valid.
        MissingDependency: PyYAML is not installed.
    """
    is_text = isinstance(source, str) and ("\n" in source or source.lstrip().startswith("{"))
    text = str(source) if is_text else read_text("the study", source, "give the path of a YAML file")
    try:
        data = read_yaml(text)
        if not isinstance(data, dict):
            raise ConfigError("a study is a mapping of keys to values, such as name: first")
        for override in overrides:
            put(data, override)
        for key, value in (settings or {}).items():
            _set(data, key, value, f"the setting {key!r} is {quote(value)}")
        return study_config(data)
    except ConfigError as failure:
        place = "the study" if is_text else source
        raise ConfigError(f"{place}: {failure.cause}", hint=failure.hint) from None


def put(data: dict[str, Any], override: str) -> None:
    """Set the value that an override "a.b=c" names in plain values.

    Raises:
        ConfigError: the override has another form, or a has no keys below it.
    """
    path, equals, text = override.partition("=")
    if not equals or not all(path.strip().split(".")):
        raise ConfigError(f"--set is {override!r}, but must be KEY=VALUE", hint="for example --set problems.limit=20")
    _set(data, path.strip(), text, f"--set is {override!r}", read_yaml)


def _set(data: dict[str, Any], path: str, value: Any, setting: str, read: Callable[[str], Any] | None = None) -> None:
    """Set the value at a path of plain values, whether or not the path has a value.

    Args:
        data: The plain values, changed in place.
        path: The names of the keys that lead to the value, joined by dots.
        value: The value to set.
        setting: The beginning of the error: the setting and its value.
        read: A function that converts the value, once the path is known to be valid; None: no conversion.
    """
    *parent_keys, last_key = path.split(".")
    mappings: list[Any] = [data]  # the mappings at the path so far; a list on the path has several
    for name in parent_keys:
        mappings = [child for mapping in mappings for child in as_list(mapping.setdefault(name, {}))]
        if not all(isinstance(mapping, dict) for mapping in mappings):
            raise ConfigError(
                f"{setting}, but {name} has no keys below it",
                hint=f"set {name} as a whole, or write it as a mapping; --model-option KEY=VALUE sets one of the model",
            )
    for mapping in mappings:
        mapping[last_key] = value if read is None else read(value)
