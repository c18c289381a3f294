"""Reads a study's file, with settings of the command line or of a call in place of its own."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tts.checks import read_text
from tts.errors import ConfigError, missing_extra, shown
from tts.experiments.study.config import StudyConfig, as_list, study_config, without_duplicates


def read_study(source: str | Path, overrides: Sequence[str] = (), settings: Mapping[str, Any] | None = None) -> StudyConfig:
    """Return the study that a YAML file describes.

    Args:
        source: The path of the file, or the YAML itself: a text of several lines, or one that begins with a brace.
        overrides: "a.b=c" each: the value of b below a, in place of the file's; c is YAML. Below a list, all its members are set.
        settings: The same as values by key: {"a.b": c}.

    Raises:
        ConfigError: the file cannot be read or is not YAML, a key is unknown (the hint has the nearest), or a value is not valid.
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
            _set(data, key, value, f"the setting {key!r} is {shown(value)}")
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
    """Set a value in place of what plain values have at a path.

    Args:
        what: The setting, as the error begins.
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


_DEPTH, _VALUES = 20, 1_000_000  # of a text: levels, and values with all that aliases repeat


def read_yaml(text: str, what: str = "study") -> Any:
    """Return the value of a YAML text. Duplicate keys are refused, of which YAML would take the last.

    Args:
        what: It describes, for messages.

    Raises:
        ConfigError: it is not YAML, or too deep or too large for a file that people write.
    """
    try:
        import yaml
    except ImportError:
        raise missing_extra("pyyaml", "experiments" if what == "study" else "serve", f"reading a {what}") from None

    class Loader(yaml.SafeLoader):
        """The safe loader, which refuses duplicate keys."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001 - PyYAML's form
            keys = [self.construct_object(key, deep=True) for key, _ in node.value]
            without_duplicates(f"line {node.start_mark.line + 1}", keys)
            return super().construct_mapping(node, deep)

    load: Callable[..., Any] = yaml.load
    try:
        _check_extent(yaml.parse(text, Loader=yaml.SafeLoader), what)
        return load(text, Loader=Loader)
    except ConfigError:
        raise
    except yaml.MarkedYAMLError as failure:
        mark = failure.problem_mark
        place = "" if mark is None else f" at line {mark.line + 1}, column {mark.column + 1}"
        raise ConfigError(f"this is no YAML{place}: {failure.problem}", hint="texts with : or # need quotes") from None
    except yaml.YAMLError as failure:
        raise ConfigError(f"this is no YAML: {' '.join(str(failure).split())}") from None
    except ValueError as failure:  # a number or a date that does not exist, such as 2020-13-01
        raise ConfigError(f"this is no YAML: {failure}", hint="texts like numbers or dates need quotes") from None


def _check_extent(events: Iterable[Any], what: str) -> None:
    """Check how deep the values of a YAML text are nested, and how many they are, from its events alone.

    Raises:
        ConfigError: they are too deep or too many.
    """
    import yaml

    open_: list[tuple[str | None, int]] = []  # anchors of the collections around, and the values before each
    repeated: dict[str, int] = {}  # values after an anchor
    count = 0
    for event in events:
        if isinstance(event, yaml.AliasEvent):
            count += repeated.get(event.anchor, 1)
        elif isinstance(event, yaml.CollectionStartEvent):
            open_.append((event.anchor, count))
            count += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_.pop()
            if anchor is not None:
                repeated[anchor] = count - before
        elif isinstance(event, yaml.ScalarEvent):
            count += 1
        if len(open_) > _DEPTH:
            line = event.start_mark.line + 1
            raise ConfigError(f"the YAML is nested more than {_DEPTH} levels deep at line {line}, but a {what} has at most {_DEPTH}")
        if count > _VALUES:
            raise ConfigError(f"the YAML has more than {_VALUES:,} values, with those that aliases repeat", hint="leave the aliases out")
