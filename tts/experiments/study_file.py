"""A study's file: YAML in, with what the command line sets in place of it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any

from tts.errors import ConfigError, missing_extra
from tts.experiments.config import StudyConfig, no_two, study


def read(path: str | Path, overrides: Sequence[str] = ()) -> StudyConfig:
    """Return the study that a YAML file describes.

    Args:
        overrides: "a.b=c" each: what the file says at a.b, in place of it; c is YAML. A name below a list is meant for each of it.

    Raises:
        ConfigError: the file cannot be read or is no YAML, a key is unknown (the nearest are named), or a value is not valid.
        MissingDependency: PyYAML is not installed.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        why = failure.strerror if isinstance(failure, OSError) else "it is not UTF-8"
        raise ConfigError(f"the study is {str(path)!r}, but it cannot be read: {why}", hint="give the path of a YAML file") from None
    try:
        data = _yaml(text)
        if not isinstance(data, dict):
            raise ConfigError("a study is a mapping of keys to values, such as name: first")
        for override in overrides:
            put(data, override)
        return study(data)
    except ConfigError as failure:
        raise ConfigError(f"{path}: {failure.cause}", hint=failure.hint) from None


def put(data: dict[str, Any], override: str) -> None:
    """Put what "a.b=c" says in place of what plain values have at a.b.

    Raises:
        ConfigError: it is not of that form, or there is nothing below a.
    """
    path, equals, text = override.partition("=")
    *parents, last = names = path.strip().split(".")
    if not equals or not all(names):
        raise ConfigError(f"--set is {override!r}, but must be KEY=VALUE", hint="for example --set problems.limit=20")
    places: list[Any] = [data]
    for name in parents:
        places = [below for place in places for below in _members(place.setdefault(name, {}))]
        if not all(isinstance(place, dict) for place in places):
            raise ConfigError(f"--set is {override!r}, but {name} has no keys below it", hint=f"set {name} as a whole")
    value = _yaml(text)
    for place in places:
        place[last] = value


def _members(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _yaml(text: str) -> Any:
    """Return what a YAML says; a key that is given twice is refused, where YAML would take the last."""
    try:
        import yaml
    except ImportError:
        raise missing_extra("pyyaml", "experiments", "reading a study") from None

    class Loader(yaml.SafeLoader):
        """The safe loader, with one more rule."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001 - PyYAML's form
            keys = [self.construct_object(key, deep=True) for key, _ in node.value]
            no_two(f"line {node.start_mark.line + 1}", keys)
            return super().construct_mapping(node, deep)

    load: Callable[..., Any] = yaml.load
    try:
        return load(text, Loader=Loader)
    except yaml.MarkedYAMLError as failure:
        mark = failure.problem_mark
        place = "" if mark is None else f" at line {mark.line + 1}, column {mark.column + 1}"
        raise ConfigError(f"this is no YAML{place}: {failure.problem}", hint="texts with : or # need quotes") from None
    except yaml.YAMLError as failure:
        raise ConfigError(f"this is no YAML: {' '.join(str(failure).split())}") from None
