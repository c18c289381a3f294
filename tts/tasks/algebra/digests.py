"""Numbers of the working precision, values of variables, and the text that equal numbers share."""

from __future__ import annotations

import hashlib
from fractions import Fraction
from typing import Any, cast

import mpmath
from mpmath.libmp import MPZ, from_man_exp

from tts.tasks.forms.rational import SHORT, length_of, rational_key

# In bits: a value is computed with PRECISION, and two values are equal if they agree in KEY bits. A sum that is smaller
# than its terms by NOTHING bits is zero.
PRECISION = 4400
KEY = 2000
NOTHING = 4150

Value = Any  # Fraction, mpf or mpc
CONTEXT = cast("Any", mpmath.MPContext())
CONTEXT.prec = PRECISION


def is_real(value: Value) -> bool:
    """Whether a number is real."""
    return isinstance(value, Fraction | CONTEXT.mpf)


def tidy(value: Value) -> Value:
    """Return a number; a complex number loses a part that differs from zero by rounding alone."""
    if not isinstance(value, CONTEXT.mpc):
        return value
    if value.imag == 0 or (value.real != 0 and CONTEXT.mag(value.real) - CONTEXT.mag(value.imag) > NOTHING):
        return value.real
    if value.real != 0 and CONTEXT.mag(value.imag) - CONTEXT.mag(value.real) > NOTHING:
        return CONTEXT.mpc(0, value.imag)
    return value


def hash_text(text: str) -> Value:
    """Return a number between 1/2 and 3 that represents a text."""
    seed = int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16], "big")
    return CONTEXT.mpf(5 * seed) / 2**129 + CONTEXT.mpf(1) / 2


def variable(name: str, point: int) -> Value:
    """Return the value of a variable at a point.

    At point 0 all values are positive, and at point 1 negative. At later points the bits of the name decide.
    """
    size = hash_text(f"{name} at {point}")
    if len(name) == 1 and name.isascii():
        name_bits = ord(name) - 64
    else:
        name_bits = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()[0]
    is_negative = point == 1 or (point > 1 and name_bits >> (point - 2) & 1)
    return -size if is_negative else size


def digest(value: Value) -> str:
    """Return a text that equal values have in common.

    The text is "p/q" for a short rational, else a hash of the value's first bits.
    """
    if isinstance(value, Fraction):
        return rational_key(value)
    if is_real(value) and (exact := _rational(value)) is not None:
        return str(exact)
    parts = (value.real, value.imag) if isinstance(value, CONTEXT.mpc) else (value,)
    # a scale by which the larger part gets KEY bits before the point
    scale_bits = KEY - max(CONTEXT.mag(part) for part in parts if part)
    rounded_parts = [int(CONTEXT.nint(CONTEXT.ldexp(part, scale_bits))) for part in parts]
    return "number " + hashlib.sha256(repr((rounded_parts, scale_bits)).encode()).hexdigest()[:40]


def _rational(value: Value) -> Fraction | None:
    """Return the short rational that a number equals, found by its continued fraction, or None."""
    is_negative, mantissa, exponent, num_bits = value._mpf_
    if not mantissa:
        return Fraction(0)
    if abs(exponent + num_bits) > SHORT:
        return None
    signed_mantissa = MPZ(-mantissa if is_negative else mantissa)
    is_negative, mantissa, exponent, _num_bits = from_man_exp(signed_mantissa, exponent, KEY, "n")
    exact = Fraction(int(-mantissa if is_negative else mantissa)) * Fraction(2) ** exponent
    candidate = exact.limit_denominator(1 << SHORT)
    if length_of(candidate) > SHORT or candidate == 0:
        return None
    is_equal = abs(candidate - exact) * 2 ** (KEY - 4) <= abs(exact)
    return candidate if is_equal else None
