"""The units of a budget. Every list of units in the library derives from this table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

USD_UNIT: Final = 10**15  # accounts count dollars in 1e-15


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit in which an account counts.

    Args:
        is_tokens: Whether it counts tokens.
        is_whole: Whether users give the limit as a whole number.
        is_generated: Whether each generated token spends one.
        is_by_place: Whether a row spends it by its place in a call, whatever its length. Scores may spend it too.
        is_verifiers: Whether only verifiers spend it.
        is_priced: Whether a model's rates determine it, prompts included.
    """

    is_tokens: bool = False
    is_whole: bool = True
    is_generated: bool = False
    is_by_place: bool = False
    is_verifiers: bool = False
    is_priced: bool = False


TABLE: Final[Mapping[str, Unit]] = {
    "tokens": Unit(is_tokens=True, is_generated=True),
    "generated_tokens": Unit(is_tokens=True, is_generated=True),
    "verifier_tokens": Unit(is_tokens=True, is_verifiers=True),
    "verifier_calls": Unit(is_verifiers=True),
    "samples": Unit(is_by_place=True),
    "requests": Unit(is_by_place=True),
    "flops": Unit(is_whole=False, is_priced=True),
    "usd": Unit(is_whole=False, is_priced=True),
}


def _select(has: Callable[[Unit], bool]) -> tuple[str, ...]:
    return tuple(name for name, unit in TABLE.items() if has(unit))


UNITS: Final = tuple(TABLE)
WHOLE_UNITS: Final = _select(lambda unit: unit.is_whole)
GENERATED_UNITS: Final = _select(lambda unit: unit.is_generated)
PLACE_UNITS: Final = _select(lambda unit: unit.is_by_place)
VERIFIER_UNITS: Final = _select(lambda unit: unit.is_verifiers)
PRICED_UNITS: Final = _select(lambda unit: unit.is_priced)
LENGTH_UNITS: Final = (*GENERATED_UNITS, *PRICED_UNITS)  # units of which a longer row spends more
TOKEN_UNITS: Final = _select(lambda unit: unit.is_tokens)
COUNT_UNITS: Final = tuple(name for name in UNITS if name not in LENGTH_UNITS)
FIXED_UNITS: Final = tuple(name for name in COUNT_UNITS if name not in TOKEN_UNITS)  # the same however long a row is


def format_plain(value: float, digits: int = 6) -> str:
    """Return a number with at most `digits` significant digits and without an exponent, such as "0.00005"."""
    return f"{Decimal(f'{value:.{digits}g}'):f}"


def format_usd(value: float) -> str:
    """Return dollars as people write them, such as "$12.50" or "$0.00005": without an exponent."""
    decimals = max(4, 2 - math.floor(math.log10(abs(value)))) if value else 2
    whole, _, cents = f"{value:,.{decimals}f}".partition(".")
    return f"${whole}.{cents.rstrip('0').ljust(2, '0')}"


def to_user_amount(unit: str, amount: int) -> float:
    """Return an amount in whole units in the units of `Budget`."""
    return amount / USD_UNIT if unit == "usd" else amount
