"""Settings of a model as files and command lines write them: numbers with units, lists and mappings.

They become fields of a record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
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
    """Return the values of "KEY=VALUE" texts, as `--model-option` takes them.

    A value is JSON where it can be read as such, else text.

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
        given[name] = value if _hints().get(name) is str else _value(value)
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
    return {name: _convert(_hints()[name], f"{name} of model {owner!r}", name, value) for name, value in given.items()}


@cache
def _hints() -> dict[str, Any]:
    return get_type_hints(ModelRecord)


def _convert(hint: Any, what: str, name: str, value: Any) -> Any:
    from pydantic import TypeAdapter, ValidationError

    if name in (*PRICES, *BATCH_PRICES) and value is not None:
        return _price(what, value)
    if name == "parameters" and isinstance(value, str):
        return _count(what, value)
    if isinstance(value, Mapping) and "tuple[tuple" in str(hint):
        value = tuple(sorted((str(key), option_value(one)) for key, one in value.items()))
    try:
        found = TypeAdapter(hint).validate_python(value)
    except ValidationError as failure:
        rule = re.sub("^(Input|Value) should", "must", failure.errors(include_url=False)[0]["msg"])
        raise ConfigError(f"{what} is {quote(value)}, but {rule[:1].lower()}{rule[1:]}") from None
    if name in _POSITIVE and isinstance(found, int) and found < 1:
        raise ConfigError(f"{what} is {found}, but must be at least 1")
    return found


def option_value(value: Any) -> Any:
    """Return the value of a backend's option: mappings, lists and None as the text of their JSON."""
    return json.dumps(value, sort_keys=True) if isinstance(value, Mapping | list | tuple) or value is None else value


def _price(what: str, value: Any) -> Decimal:
    """Return dollars per million tokens."""
    example = "write for how many tokens, such as 0.15/M for 0.15 dollars per million tokens, or 0.00015/K"
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise ConfigError(f"{what} is {quote(value)}, but must be a price", hint=example)
    found = _PRICE.fullmatch(str(value))
    try:
        if found is not None:
            return Decimal(found["number"]) * _PER_MILLION[found["unit"].lower()]
        Decimal(str(value))
    except InvalidOperation:
        raise ConfigError(f"{what} is {quote(value)}, but must be a price", hint=example) from None
    raise ConfigError(f"{what} is {quote(value)}, a price without a unit", hint=example)


def _count(what: str, value: str) -> int:
    """Return a count that may be written with a unit: "8B"."""
    found = _COUNT.fullmatch(value)
    try:
        count = Decimal(found[1]) * _SCALE[found[2].lower()] if found is not None else None
    except InvalidOperation:
        count = None
    if count is None or count != int(count) or count < 1:
        raise ConfigError(
            f"{what} is {value!r}, but must be a whole number of weights", hint="for example 8B or 8000000000"
        )
    return int(count)
