"""Settings of a model as files and command lines write them: numbers with units, lists and mappings.

They become fields of a record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any, get_type_hints

from tts.errors import ConfigError, quote
from tts.models.record import ModelRecord

PRICES = ("usd_in", "usd_reused", "usd_out", "usd_cache_write")
BATCH_PRICES = ("usd_batch_in", "usd_batch_reused", "usd_batch_out")
_PRICE = re.compile(
    r"\s*(?:\$|usd)?\s*(?P<number>[0-9.]+(?:e-?[0-9]+)?)\s*(?:\$|usd)?\s*/\s*1?\s*(?P<unit>k|m|token)\s*(?:tokens?)?\s*",
    re.IGNORECASE,
)
_POSITIVE = ("parameters", "context", "expected_tokens")
_PER_MILLION = {"token": 10**6, "k": 10**3, "m": 1}
_COUNT = re.compile(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([kmbt]?)\s*", re.IGNORECASE)
_SCALE = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}


def from_texts(texts: Sequence[str]) -> dict[str, Any]:
    """Return the values of "KEY=VALUE" texts by key, as `--model-option` takes them.

    A value that is valid JSON is parsed, unless its key is a field of texts. Any other value stays a text.

    Raises:
        ConfigError: a text has another form, or a key is given twice.
    """
    given: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise ConfigError(
                f"--model-option is {text!r}, but must be KEY=VALUE", hint="for example --model-option usd_out=0.60/M"
            )
        if name in given:
            raise ConfigError(f"--model-option gives {name} twice, but each may be there once", hint="leave one out")
        is_text_field = _hints().get(name) is str
        given[name] = value if is_text_field else _value(value)
    return given


def _value(text: str) -> Any:
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return text


def fields_from(owner: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of a record, converted to their types.

    Args:
        owner: The model's name, for errors.
        given: Plain values by field.

    Raises:
        ConfigError: a value is not valid for its field, or a price without a number of tokens.
    """
    hints = _hints()
    return {name: _convert(hints[name], f"{name} of model {owner!r}", name, value) for name, value in given.items()}


@cache
def _hints() -> dict[str, Any]:
    return get_type_hints(ModelRecord)


def _convert(hint: Any, what: str, name: str, value: Any) -> Any:
    """Return a plain value, converted to the type of its field.

    Args:
        hint: The type of the field.
        what: The description of the setting, for errors.
        name: The name of the field.
        value: The plain value.

    Raises:
        ConfigError: the value is not valid for the field.
    """
    from pydantic import TypeAdapter, ValidationError

    if name in (*PRICES, *BATCH_PRICES) and value is not None:
        return _price(what, value)
    if name == "parameters" and isinstance(value, str):
        return _count(what, value)
    if isinstance(value, Mapping) and "tuple[tuple" in str(hint):
        value = tuple(sorted((str(key), option_value(option)) for key, option in value.items()))
    try:
        converted = TypeAdapter(hint).validate_python(value)
    except ValidationError as failure:
        first_error = failure.errors(include_url=False)[0]
        rule = re.sub("^(Input|Value) should", "must", first_error["msg"])
        raise ConfigError(f"{what} is {quote(value)}, but {rule[:1].lower()}{rule[1:]}") from None
    if name in _POSITIVE and isinstance(converted, int) and converted < 1:
        raise ConfigError(f"{what} is {converted}, but must be at least 1")
    return converted


def option_value(value: Any) -> Any:
    """Return the value of a backend's option: mappings, lists and None as the text of their JSON."""
    return json.dumps(value, sort_keys=True) if isinstance(value, Mapping | list | tuple) or value is None else value


def _price(what: str, value: Any) -> Decimal:
    """Return a price in dollars per million tokens, from a text such as "0.15/M".

    Args:
        what: The description of the setting, for errors.
        value: The price as it was given.

    Raises:
        ConfigError: the value is no price, or has no number of tokens.
    """
    example = "write for how many tokens, such as 0.15/M for 0.15 dollars per million tokens, or 0.00015/K"
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise ConfigError(f"{what} is {quote(value)}, but must be a price", hint=example)
    match = _PRICE.fullmatch(str(value))
    try:
        if match is not None:
            return Decimal(match["number"]) * _PER_MILLION[match["unit"].lower()]
        Decimal(str(value))  # raises if the value is not even a number
    except InvalidOperation:
        raise ConfigError(f"{what} is {quote(value)}, but must be a price", hint=example) from None
    raise ConfigError(f"{what} is {quote(value)}, a price without a unit", hint=example)


def _count(what: str, value: str) -> int:
    """Return a count of weights that may be written with a unit, such as "8B".

    Raises:
        ConfigError: the text is no whole number of at least 1.
    """
    match = _COUNT.fullmatch(value)
    count = None
    if match is not None:
        number, unit = match.groups()
        with suppress(InvalidOperation):
            count = Decimal(number) * _SCALE[unit.lower()]
    if count is None or count != int(count) or count < 1:
        raise ConfigError(
            f"{what} is {value!r}, but must be a whole number of weights", hint="for example 8B or 8000000000"
        )
    return int(count)
