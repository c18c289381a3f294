"""Sections of settings that users write, as pydantic models.

An invalid setting becomes one line with its place, rule and cure.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from tts._common.files import read_small
from tts._common.yaml_text import read_yaml
from tts.errors import ConfigError, quote, unknown_name

_ALTERNATIVES = ("int", "str", "float", "bool", "list", "dict")  # pydantic's names of them, in places
_MOST_TEXT = 1 << 20  # characters of a file that people write
_LONGEST = 80  # characters of a name in a place


class Section(BaseModel):
    """Keys with values. Unknown keys are refused, and values are not converted.

    Attributes:
        more_keys: Keys that it takes beside its fields, for errors.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    more_keys: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def of(cls, data: Any, whole: str = "") -> Self:
        """Return the section that plain values describe.

        Args:
            data: The values as a parsed file has them: mappings, lists, texts and numbers.
            whole: The name of the section in errors, such as "the study".

        Raises:
            ConfigError: a key is unknown (the hint names the nearest known key), or a value is not valid.
        """
        try:
            return cls.model_validate(data)
        except ValidationError as failure:
            raise refusal(main_fault(failure), cls, whole) from None

    @classmethod
    def read_file(cls, path: Path, what: str, extra: str = "experiments") -> Self:
        """Return the section in a YAML file of at most 1 MiB.

        Args:
            path: The path of the file.
            what: The name of the section in errors, such as "record of a harness".
            extra: The optional extra that installs PyYAML, for messages.

        Raises:
            ConfigError: The file cannot be read, a key is unknown, or a value is not valid. The text names the file.
            MissingDependency: PyYAML is not installed.
        """
        try:
            text = read_small(path)
            if len(text) > _MOST_TEXT:
                raise ConfigError(f"the {what} has more than {_MOST_TEXT >> 20} MiB", hint="give the path of another")
            data = read_yaml(text, what, extra)
            if not isinstance(data, dict):
                raise ConfigError(f"the {what} is {quote(data)}, but must be keys with values")
            return cls.of(data)
        except ConfigError as failure:
            raise ConfigError(f"{path}: {failure.cause}", hint=failure.hint) from None
        except (OSError, ValueError) as failure:
            raise ConfigError(
                f"{path}: the {what} cannot be read: {getattr(failure, 'strerror', None) or failure}",
                hint="give the path of a YAML file",
            ) from None


def main_fault(failure: ValidationError) -> Any:
    """Return the main fault: an unknown key, since a missing one may be misspelled so; else the first."""
    faults = failure.errors(include_url=False)
    return next((one for one in faults if one["type"] == "extra_forbidden"), faults[0])


def refusal(fault: Any, model: type[BaseModel], whole: str = "") -> ConfigError:
    """Return one line for a fault that pydantic found in a model.

    The text `whole` says what the model is, such as "the study".
    """
    place = field_path(fault["loc"])
    parent = field_path(fault["loc"][:-1]) or whole
    cause = fault.get("ctx", {}).get("error")
    if isinstance(cause, ConfigError):
        return ConfigError(": ".join(filter(None, (place or whole, cause.cause))), hint=cause.hint)
    if fault["type"] == "extra_forbidden":
        return unknown_name(
            f"key of {parent}" if parent else "key", str(fault["loc"][-1]), _keys(model, fault["loc"][:-1])
        )
    if fault["type"] == "missing":
        return ConfigError(
            f"{place} is missing, but must be given", hint=f"keys: {', '.join(_keys(model, fault['loc'][:-1]))}"
        )
    rule = re.sub("^(Input|Value|List|Dictionary|String) should", "must", fault["msg"])
    rule = rule.removesuffix(" after validation, not 0").removeprefix("Value error, ")
    return ConfigError(f"{place or whole} is {quote(fault['input'])}, but {rule[:1].lower()}{rule[1:]}")


def field_path(loc: tuple[str | int, ...]) -> str:
    """Return the place of a field as clients of the API write it, "messages[0].content".

    Pydantic's names of alternatives are left out.
    """
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part in _ALTERNATIVES or re.fullmatch(r"[\w-]*\[.*\]", part, re.DOTALL):
            continue
        elif re.fullmatch(r"[\w./ -]+", part):
            name = part if len(part) <= _LONGEST else f"{part[: _LONGEST - 1]}…"
            text += f".{name}" if text else name
        else:
            text += f"[{quote(part)}]"
    return text


def _keys(model: type[BaseModel], loc: tuple[str | int, ...]) -> tuple[str, ...]:
    """Return the keys of what lies at a place in a model."""
    kind: Any = model
    for part in loc:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            field = kind.model_fields.get(str(part))
            kind = None if field is None else field.annotation
        else:  # a list or a dict of sections
            kind = _section_in(kind)
        if get_origin(kind) not in (list, dict):
            kind = _section_in(kind)
    if kind is None or not hasattr(kind, "model_fields"):
        return ()
    return (*kind.model_fields, *getattr(kind, "more_keys", ()))


def _section_in(annotation: Any) -> type[BaseModel] | None:
    """Return the first model in an annotation such as `dict[str, Model] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _section_in(part)) is not None), None)
