"""Limits with units, and bounds of what rows may cost.

`Budget` has the caller's limits. `tts.budget.account` pays calls within them, and `tts.budget.ledger` records what was
spent.
"""

from __future__ import annotations

import functools
import math
import operator
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

from tts.budget.units import PRICED_UNITS, USD_UNIT, WHOLE_UNITS, format_plain
from tts.errors import ConfigError, quote, unknown_name

_WRITTEN = re.compile(
    r"(?P<dollar>\$?)\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<scale>[km]?)\s*(?P<usd>(?:usd|dollars?|\$)?)", re.IGNORECASE
)
_LEAST = {"flops": 1, "seconds": 0, "usd": 1 / USD_UNIT}  # the least limits: accounts count whole units


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Upper limits on the cost of one problem. The first limit that is reached ends the search.

    Args:
        tokens: Generated tokens plus verifier tokens. Prompts of the policy are not counted.
        generated_tokens: Tokens that the policy, and other models of the strategy, generate. Tokens of lookahead, and
            of discarded and cancelled rows, are included.
        verifier_tokens: Tokens that verifiers compute, a judge's prompts and replies included.
        verifier_calls: Sequences that verifiers score.
        samples: Branches from the root to a leaf. A row from the root costs 1. The first row that continues another
            path costs 0, and each further row after this path costs 1.
        requests: Calls to backends that write. The rows of one call after one path are one request, and so is each
            prompt to a model that judges, and each call of an agent. Calls that only read cost none.
        flops: Floating-point operations, prompts included.
        usd: Dollars, prompts included.
        seconds: Seconds by the clock; exceeded by at most one engine step or one network read.

    Raises:
        ConfigError: a limit is not positive, not finite or, for a count, not whole; a word is no unit; or there is no
            limit at all.

    Example:
        >>> import tts
        >>> limits = tts.Budget(tokens=400, samples=4)
        >>> found = tts.solve("3 + 4 - 2", limits, model="toy", strategy="best_of_n | majority")
        >>> found.usage.samples, found.remaining["samples"], found.stopped_by
        (4, 0, 'budget: samples')
    """

    tokens: int | None = None
    generated_tokens: int | None = None
    verifier_tokens: int | None = None
    verifier_calls: int | None = None
    samples: int | None = None
    requests: int | None = None
    flops: float | None = None
    seconds: float | None = None
    usd: float | None = None

    def __post_init__(self) -> None:
        for unit, value in self.limits.items():
            checked = _whole(unit, value) if unit in WHOLE_UNITS else _amount(unit, value)
            object.__setattr__(self, unit, checked)
        if not self.limits:
            raise ConfigError("the budget has no limit, but needs at least one", hint="for example Budget(tokens=4096)")

    @classmethod
    def of(cls, value: Budget | float | Mapping[str, float]) -> Budget:
        """Return the budget that a value stands for.

        A budget is unchanged, a plain number limits `tokens`, and a dict names limits by unit.
        """
        if isinstance(value, Mapping):
            check_units(value)
            return cls(**value)  # pyright: ignore[reportArgumentType]
        return value if isinstance(value, Budget) else cls(tokens=value)  # pyright: ignore[reportArgumentType]

    @property
    def limits(self) -> dict[str, float]:
        """The limits that are set, by unit."""
        values = {unit: getattr(self, unit) for unit in self.__dataclass_fields__}
        return {unit: value for unit, value in values.items() if value is not None}

    def whole_units(self) -> dict[str, int]:
        """Return the limits in the whole units of accounts, by unit.

        The limit `seconds` is left out, because it is no amount.
        """
        return {
            unit: int(value * USD_UNIT) if unit == "usd" else int(value)
            for unit, value in self.limits.items()
            if unit != "seconds"
        }

    def __str__(self) -> str:
        return format_limits(self.limits)


def _with_checked_words(make: Callable[..., None]) -> Callable[..., None]:
    """Return `Budget.__init__`, which refuses a wrong word as `Budget.of` does."""

    @functools.wraps(make)
    def check_and_make(self: Budget, *amounts: Any, **limits: Any) -> None:
        check_units((*amounts, *limits))
        make(self, **limits)

    return check_and_make


Budget.__init__ = _with_checked_words(Budget.__init__)


@dataclass(frozen=True, slots=True)
class Rates:
    """The prices of one token of a model, in the whole units of accounts.

    None stands for a rate that the model's record does not have.

    Args:
        flops: The floating-point operations of a computed token.
        usd_in: The price of a computed input token, in 1e-15 dollars.
        usd_reused: The price of a reused input token, in 1e-15 dollars; None: as `usd_in`.
        usd_out: The price of a generated token, in 1e-15 dollars.
    """

    flops: int | None = None
    usd_in: int | None = None
    usd_reused: int | None = None
    usd_out: int | None = None

    def cost(self, unit: str, *, computed: int = 0, reused: int = 0, generated: int = 0) -> int:
        """Return the cost of input tokens, computed and reused, and of generated tokens.

        The unit is `flops` or `usd`. Unknown rates count as 0.
        """
        if unit == "flops":
            return (computed + generated) * (self.flops or 0)
        usd_in = self.usd_in or 0
        usd_reused = usd_in if self.usd_reused is None else self.usd_reused
        return computed * usd_in + reused * usd_reused + generated * (self.usd_out or 0)

    def costs(self, *, computed: int = 0, reused: int = 0, generated: int = 0) -> dict[str, int]:
        """Return the cost of tokens in `flops` and in `usd`; see `cost`."""
        return {unit: self.cost(unit, computed=computed, reused=reused, generated=generated) for unit in PRICED_UNITS}


def format_limits(limits: Mapping[str, float]) -> str:
    """Return limits as a text, such as "tokens=400, usd=0.5"."""
    texts = {unit: f"{value:g}" if unit in _LEAST else f"{value}" for unit, value in limits.items()}
    texts |= {"usd": format_plain(limits["usd"])} if "usd" in limits else {}
    return ", ".join(f"{unit}={text}" for unit, text in texts.items())


def check_units(given: Iterable[str]) -> None:
    """Refuse an unknown unit.

    Raises:
        ConfigError: a unit is unknown; the error names the nearest one.
    """
    units = list(Budget.__dataclass_fields__)
    for unit in given:
        if unit not in units:
            raise unknown_name("budget unit", str(unit), units)


def amount_hint(written: Any) -> str:
    """Return the cure of an amount such as "$0.001" or "2k"; "" for anything else."""
    found = _WRITTEN.fullmatch(str(written).strip())
    if found is None:
        return ""
    number = float(found["number"]) * {"": 1, "k": 10**3, "m": 10**6}[found["scale"].lower()]
    return f"write {'usd=' if found['dollar'] or found['usd'] else ''}{format_plain(number, 15)}"


def _whole(unit: str, value: Any) -> int:
    """Return a limit as a whole number.

    Raises:
        ConfigError: the value is no whole number of at least 1.
    """
    number = _number(unit, value)
    is_finite = isinstance(number, int) or math.isfinite(number)
    if not is_finite or number != int(number) or number < 1:
        nearest = max(1, round(number)) if is_finite else 1
        raise ConfigError(
            f"budget {unit} is {quote(value)}, but must be a whole number of at least 1",
            hint=f"the nearest valid value is {nearest}",
        )
    return int(number)


def _amount(unit: str, value: Any) -> float:
    """Return a limit of flops, dollars or seconds as a number.

    Raises:
        ConfigError: the value is no finite number, or is below the least limit.
    """
    number, least = _number(unit, value), _LEAST[unit]
    if not (number > 0 and least <= number <= sys.float_info.max):
        rule = f"of at least {least:g}" if least else "above 0"
        raise ConfigError(
            f"budget {unit} is {quote(value)}, but must be a finite number {rule}",
            hint=f"for example Budget({unit}=1)",
        )
    return number


def _number(unit: str, value: Any) -> float:
    """Return a value as a number: a whole number stays whole.

    Raises:
        ConfigError: the value is no number.
    """
    if isinstance(value, bool) or not isinstance(value, Real | Decimal):  # numpy's booleans are no `Real` either
        raise ConfigError(
            f"budget {unit} is {quote(value)}, but must be a number",
            hint=amount_hint(value) or "give a number: without quotes, and in YAML with a point and a sign, as 1.0e+6",
        )
    number: Any = value
    try:
        return operator.index(number)
    except TypeError:
        return float(value)


def divide(total: Budget, parts: int) -> list[Budget]:
    """Return shares of a budget that sum to it.

    Whole numbers differ by at most one between shares. The limit `seconds` is not divided: it holds for all.

    Raises:
        ConfigError: a whole number is smaller than the number of parts.
    """
    shares: list[dict[str, float]] = [{} for _ in range(parts)]
    for unit, value in total.limits.items():
        is_count = isinstance(value, int) and unit in WHOLE_UNITS
        if is_count and value < parts:
            raise ConfigError(
                f"the total of {value} {unit} is too small for {parts} problems", hint=f"give at least {parts}"
            )
        for place, share in enumerate(shares):
            if is_count:
                share[unit] = value // parts + int(place < value % parts)
            else:
                share[unit] = value if unit == "seconds" else value / parts
    return [Budget(**share) for share in shares]  # type: ignore[arg-type]
