"""Reads a study's file, with settings of the command line or of a call in place of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tts.checks import read_text
from tts.errors import ConfigError, quote
from tts.experiments.study.config import StudyConfig, as_list, study_config
from tts.yaml_text import read_yaml


def read_study(
    source: str | Path, overrides: Sequence[str] = (), settings: Mapping[str, Any] | None = None
) -> StudyConfig:
    """Return the study that a YAML file describes.

    Args:
        source: The path of the file, or the YAML itself: a text of several lines, or one that begins with a brace.
        overrides: "a.b=c" each: the value of b below a, in place of the file's; c is YAML. Below a list, all its
            members are set.
        settings: The same as values by key: {"a.b": c}.

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
        raise ConfigError(f"{'the study' if is_text else source}: {failure.cause}", hint=failure.hint) from None


def put(data: dict[str, Any], override: str) -> None:
    """Set what "a.b=c" names in plain values.

    Raises:
        ConfigError: it is not of that form, or a has no keys below it.
    """
    path, equals, text = override.partition("=")
    if not equals or not all(path.strip().split(".")):
        raise ConfigError(f"--set is {override!r}, but must be KEY=VALUE", hint="for example --set problems.limit=20")
    _set(data, path.strip(), text, f"--set is {override!r}", read_yaml)


def _set(data: dict[str, Any], path: str, value: Any, what: str, read: Callable[[str], Any] | None = None) -> None:
    """Set the value at a path of plain values, in place of the one that they have there.

    Args:
        data: The plain values, changed in place.
        path: The names of the keys that lead to the value, joined by dots.
        value: The value to set.
        what: The beginning of the error: the setting and its value.
        read: Converts the value, once the path is known to be valid; None: it is used as it is.
    """
    *parents, last = path.split(".")
    places: list[Any] = [data]
    for name in parents:
        places = [below for place in places for below in as_list(place.setdefault(name, {}))]
        if not all(isinstance(place, dict) for place in places):
            raise ConfigError(
                f"{what}, but {name} has no keys below it",
                hint=f"set {name} as a whole, or write it as a mapping; --model-option KEY=VALUE sets one of the model",
            )
    for place in places:
        place[last] = value if read is None else read(value)
