"""Reading of YAML files that people write.

They are read as plain values alone, and refused before aliases or depth make them large.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from tts.checks import without_duplicates
from tts.errors import ConfigError, require_extra

_DEPTH, _VALUES = 20, 1_000_000  # of a text: levels, and values with all that aliases repeat


def read_yaml(text: str, what: str = "study", extra: str = "experiments") -> Any:
    """Return the value of a YAML text; duplicate keys are refused.

    Args:
        text: The text.
        what: The name of the text in messages.
        extra: The optional extra that installs PyYAML, for messages.

    Raises:
        ConfigError: The text is not YAML, has duplicate keys, or is too deep or too large for a file that people write.
        MissingDependency: PyYAML is not installed.
    """
    with require_extra("pyyaml", extra, f"reading a {what}"):
        import yaml

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
    """Check the depth and the number of a YAML text's values.

    Only its events are read, so aliases are counted without being copied.

    Raises:
        ConfigError: the values are nested too deep, or are too many.
    """
    import yaml

    # the open collections, outermost first: the anchor of each, and the number of values before it
    open_collections: list[tuple[str | None, int]] = []
    anchor_sizes: dict[str, int] = {}  # the number of values of the collection with an anchor
    count = 0  # values so far
    for event in events:
        if isinstance(event, yaml.AliasEvent):
            count += anchor_sizes.get(event.anchor, 1)
        elif isinstance(event, yaml.CollectionStartEvent):
            open_collections.append((event.anchor, count))
            count += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, count_before = open_collections.pop()
            if anchor is not None:
                anchor_sizes[anchor] = count - count_before
        elif isinstance(event, yaml.ScalarEvent):
            count += 1
        if len(open_collections) > _DEPTH:
            line = event.start_mark.line + 1
            raise ConfigError(
                f"the YAML is nested more than {_DEPTH} levels deep at line {line}, but a {what} has at most {_DEPTH}"
            )
        if count > _VALUES:
            raise ConfigError(
                f"the YAML has more than {_VALUES:,} values, with those that aliases repeat",
                hint="leave the aliases out",
            )
