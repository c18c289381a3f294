r"""Exact rationals as people write them.

Examples are `-3`, `0.50`, `7/4`, `\frac{7}{4}`, `1\frac{3}{4}`, `0.\overline{3}`, `0.(3)` and `1.5\times10^3`.
"""

from __future__ import annotations

import re
from fractions import Fraction

# Longer texts are refused: to read them in base ten takes quadratic time.
_MAX_CHARACTERS = 1000

# In bits: a rational of at most so many is its own key in base ten.
SHORT = 900

_DIGITS = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_QUOTIENT = re.compile(rf"([+-]?)({_DIGITS})(?:/([+-]?{_DIGITS}))?")
_FRACTION = re.compile(rf"([+-]?)\\frac\{{([+-]?{_DIGITS})\}}\{{([+-]?{_DIGITS})\}}")
_MIXED = re.compile(r"([+-]?)([0-9]+)(?: ?\\frac\{([0-9]+)\}\{([0-9]+)\}| ([0-9]+)/([0-9]+))")
_REPEATING = re.compile(r"([+-]?)([0-9]*)\.([0-9]*)(?:\\overline\{([0-9]+)\}|\(([0-9]+)\))")
_SCIENTIFIC = re.compile(
    rf"([+-]?{_DIGITS})(?:[eE]|(?:\\times|\\cdot|\*) ?10\^)(?:\{{([+-]?[0-9]{{1,3}})\}}|([+-]?[0-9]{{1,3}}))"
)


def rational(text: str) -> Fraction | None:
    """Return the exact value of a finite number written in digits; None for any other text."""
    if not text or len(text) > _MAX_CHARACTERS:
        return None
    try:
        for pattern, read_value in _READERS:
            match = pattern.fullmatch(text)
            if match is not None:
                return read_value(match)
    except ZeroDivisionError:
        return None
    return None


def length_of(value: Fraction) -> int:
    """Return the number of bits of a rational's numerator and denominator together, at least 1."""
    return max(1, value.numerator.bit_length() + value.denominator.bit_length() - 1)


def rational_key(value: Fraction) -> str:
    """Return the one text of a rational.

    A short rational is "p/q" or "p". A longer one is in base sixteen, which takes linear time.
    """
    return str(value) if length_of(value) <= SHORT else f"rational {value.numerator:x}/{value.denominator:x}"


def _sign(sign: str) -> int:
    return -1 if sign == "-" else 1


def _quotient(match: re.Match[str]) -> Fraction:
    sign, numerator, denominator = match.groups()
    return _sign(sign) * Fraction(numerator) / Fraction(denominator or 1)


def _mix(match: re.Match[str]) -> Fraction:
    sign, integer_digits, *fraction_digits = match.groups()
    numerator, denominator = (int(digits) for digits in fraction_digits if digits is not None)
    if numerator >= denominator:  # no mixed number
        raise ZeroDivisionError
    return _sign(sign) * (int(integer_digits) + Fraction(numerator, denominator))


def _repeating(match: re.Match[str]) -> Fraction:
    sign, integer_digits, fixed_digits, *periods = match.groups()
    period = next(digits for digits in periods if digits is not None)
    scale = 10 ** len(fixed_digits)
    fixed_value = Fraction(int(integer_digits + fixed_digits or "0"), scale)
    repeating_value = Fraction(int(period), scale * (10 ** len(period) - 1))
    return _sign(sign) * (fixed_value + repeating_value)


def _scientific(match: re.Match[str]) -> Fraction:
    mantissa, braced, bare = match.groups()
    return Fraction(mantissa) * Fraction(10) ** int(braced or bare)


_READERS = (
    (_QUOTIENT, _quotient),
    (_FRACTION, _quotient),
    (_MIXED, _mix),
    (_REPEATING, _repeating),
    (_SCIENTIFIC, _scientific),
)
