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
    """Return a complex number without a part that differs from zero by rounding alone."""
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
    value = hash_text(f"{name} at {point}")
    code = (
        ord(name) - 64
        if len(name) == 1 and name.isascii()
        else hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()[0]
    )
    negative = point == 1 or (point > 1 and code >> (point - 2) & 1)
    return -value if negative else value


def digest(value: Value) -> str:
    """Return a text that equal values have in common.

    The text is "p/q" for a short rational, else a hash of the value's first bits.
    """
    if isinstance(value, Fraction):
        return rational_key(value)
    if is_real(value) and (exact := _rational(value)) is not None:
        return str(exact)
    parts = (value.real, value.imag) if isinstance(value, CONTEXT.mpc) else (value,)
    scale = KEY - max(CONTEXT.mag(part) for part in parts if part)
    rounded = [int(CONTEXT.nint(CONTEXT.ldexp(part, scale))) for part in parts]
    return "number " + hashlib.sha256(repr((rounded, scale)).encode()).hexdigest()[:40]


def _rational(value: Value) -> Fraction | None:
    """Return the short rational that a number equals, found by its continued fraction, or None."""
    sign, man, exp, length = value._mpf_
    if not man:
        return Fraction(0)
    if abs(exp + length) > SHORT:
        return None
    sign, man, exp, length = from_man_exp(MPZ(-man if sign else man), exp, KEY, "n")
    exact = Fraction(int(-man if sign else man)) * Fraction(2) ** exp
    candidate = exact.limit_denominator(1 << SHORT)
    if length_of(candidate) > SHORT or candidate == 0:
        return None
    return candidate if abs(candidate - exact) * 2 ** (KEY - 4) <= abs(exact) else None
