r"""Computation of expressions: exact if they are rational, else to a fixed high precision.

Different answers cannot have so many digits in common.

At each of several points a variable has a fixed value, and two expressions are equal if their values are equal at all
points. The points have every combination of signs for any two letters: `\sqrt{x^2}` is `|x|`, not `x`. Roots of odd
order of negative numbers are real. A degree sign matters only within a trigonometric function. The work is bounded by
the sizes of numbers and the count of operations, not by a clock.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from fractions import Fraction

from mpmath.libmp import mpf_cos_sin

from tts.tasks.algebra.digests import CONTEXT, NOTHING, PRECISION, Value, digest, hash_text, is_real, tidy, variable
from tts.tasks.algebra.syntax import Node
from tts.tasks.algebra.tokens import ANGLES, UndecidedError
from tts.tasks.forms.rational import length_of

_LOSS = 2000  # most bits of precision that cancellation may cost
_EXACT = 400_000  # most bits of an exact number
_CONVERTED = 1800  # most bits of all exact numbers that are combined with irrational numbers
_MOST_CALLS = 80  # most calls of functions that are not arithmetic, for one answer
_LARGEST = 10**6  # the largest exponent, and the largest argument of exp
POINTS = 8


_CALLS: ContextVar[list[int]] = ContextVar("calls")


@contextmanager
def bounded_work() -> Generator[None]:
    """Count the functions that are computed within the block; too many raise `UndecidedError`."""
    reset_token = _CALLS.set([0])
    try:
        yield
    finally:
        _CALLS.reset(reset_token)


class Evaluator:
    """The value of trees at one point.

    Args:
        point: The point from 0 to POINTS - 1.
        signs: The meaning of a plus-minus sign, 1 or -1.
        given: Values of variables by name; any other variable has its value at the point.
    """

    def __init__(self, point: int = 0, signs: int = 1, given: Mapping[str, Value] | None = None) -> None:
        self._point = point
        self._signs = signs
        self._given = dict(given or {})
        self._lost_bits = 0
        self._converted_bits = 0

    def value(self, node: Node, *, angle: bool = False) -> Value:
        """Return the value of a tree; `angle`: the tree is within a trigonometric function.

        Raises:
            UndecidedError: the value is not finite, not defined, or would take too much work.
        """
        try:
            return self._value(node, angle=angle)
        except (ZeroDivisionError, OverflowError, ValueError, ArithmeticError) as error:
            raise UndecidedError(str(error)) from error

    def _value(self, node: Node, *, angle: bool) -> Value:
        if node.op == "number":
            return node.value
        if node.op == "symbol":
            return self._given[node.name] if node.name in self._given else variable(node.name, self._point)
        if node.op == "constant":
            return self._constant(node.name)
        if node.op == "call":
            return self._call(node)
        if node.op == "^" and node.args[0] == Node("constant", name="e"):
            return self._exp(self._value(node.args[1], angle=angle))
        values = [self._value(argument, angle=angle) for argument in node.args]
        if node.op == "degree":
            return self._radians(values[0]) if angle else values[0]
        if node.op in ("-", "pm", "mp"):
            sign = {"-": -1, "pm": self._signs, "mp": -self._signs}[node.op]
            return -values[0] if sign < 0 else values[0]
        if node.op == "unknown":
            argument_digests = "; ".join(map(digest, values))
            return hash_text(f"{node.name} of {argument_digests}")
        if node.op in ("!", "!!"):
            return self._factorial(values[0], step=len(node.op))
        return self._combine(node.op, values)

    def _radians(self, degrees: Value) -> Value:
        return self.times(degrees, self.quotient(self._constant("pi"), Fraction(180)))

    def _combine(self, op: str, values: list[Value]) -> Value:
        if op in ("+", "*"):
            return functools.reduce(self.plus if op == "+" else self.times, values)
        if op not in ("/", "^"):
            raise UndecidedError("a matrix within a number")
        return (self.quotient if op == "/" else self._power)(*values)

    def _constant(self, name: str) -> Value:
        if name == "pi":
            return +CONTEXT.pi
        if name == "e":
            return CONTEXT.exp(1)
        if name == "i":
            return CONTEXT.mpc(0, 1)
        raise UndecidedError("infinity within an expression")

    # Arithmetic -------------------------------------------------------------------------------------------------------

    def real(self, value: Value) -> Value:
        """Return an exact value as a number of the working precision.

        Raises:
            UndecidedError: the exact numbers of this expression are too long for the working precision.
        """
        if not isinstance(value, Fraction):
            return value
        self._converted_bits += length_of(value)
        if self._converted_bits > _CONVERTED:
            raise UndecidedError("numbers too long for irrational ones")
        return CONTEXT.mpf(value.numerator) / value.denominator

    def plus(self, a: Value, b: Value) -> Value:
        """Return a sum; a sum that differs from zero by rounding alone is exactly zero."""
        if isinstance(a, Fraction) and isinstance(b, Fraction):
            return small(a + b)
        a, b = self.real(a), self.real(b)
        total = a + b
        if not a or not b:
            return total
        largest = max(CONTEXT.mag(a), CONTEXT.mag(b))
        lost_bits = largest - CONTEXT.mag(total) if total else NOTHING
        if lost_bits >= NOTHING:
            return Fraction(0)
        self._lose_bits(lost_bits)
        return tidy(total)

    def times(self, a: Value, b: Value) -> Value:
        """Return a product."""
        if isinstance(a, Fraction) and isinstance(b, Fraction):
            return small(a * b)
        if a == 0 or b == 0:
            return Fraction(0)
        return tidy(self.real(a) * self.real(b))

    def quotient(self, a: Value, b: Value) -> Value:
        """Return a quotient.

        Raises:
            UndecidedError: the divisor is zero.
        """
        if b == 0:
            raise UndecidedError("division by zero")
        if isinstance(a, Fraction) and isinstance(b, Fraction):
            return small(a / b)
        return Fraction(0) if a == 0 else tidy(self.real(a) / self.real(b))

    def _power(self, base: Value, exponent: Value) -> Value:
        """Return a power, exactly where base and exponent are rational and the result is short enough."""
        if base == 0:
            if isinstance(exponent, Fraction) and exponent > 0:
                return Fraction(0)
            raise UndecidedError("a power of zero")
        if not isinstance(exponent, Fraction):
            return self._exp(self.times(exponent, self._log(base)))
        if exponent.denominator != 1:
            return self._root(self._power(base, Fraction(exponent.numerator)), exponent.denominator)
        whole_exponent = exponent.numerator
        if abs(whole_exponent) > _LARGEST:
            if isinstance(base, Fraction) and abs(base) == 1:
                return base if whole_exponent % 2 else Fraction(1)
            raise UndecidedError("an exponent too large")
        if isinstance(base, Fraction):
            if length_of(base) * abs(whole_exponent) > _EXACT:
                raise UndecidedError("a power too large")
            return base**whole_exponent
        self._lose_bits(abs(whole_exponent).bit_length())
        return tidy(base**whole_exponent)

    def _root(self, value: Value, degree: int) -> Value:
        """Return the real root if there is one, else the principal root."""
        if degree < 1 or degree > 1000:
            raise UndecidedError("the degree of a root")
        if isinstance(value, Fraction):
            if value < 0 and degree % 2:
                return -self._root(-value, degree)
            if value >= 0:
                numerator_root = _whole_root(value.numerator, degree)
                denominator_root = _whole_root(value.denominator, degree)
                if numerator_root is not None and denominator_root is not None:
                    return Fraction(numerator_root, denominator_root)
            elif degree == 2:
                return self.times(CONTEXT.mpc(0, 1), self._root(-value, 2))
        value = self.real(value)
        self._count(value)
        if is_real(value) and value < 0 and degree % 2:
            return -CONTEXT.root(-value, degree)
        return tidy(CONTEXT.sqrt(value) if degree == 2 else CONTEXT.root(value, degree))

    def _exp(self, value: Value) -> Value:
        if value == 0:
            return Fraction(1)
        value = self.real(value)
        if abs(value) > _LARGEST:
            raise UndecidedError("an exponent too large")
        self._count(value)
        self._lose_bits(max(0, CONTEXT.mag(value)))
        return tidy(CONTEXT.exp(value))

    def _log(self, value: Value) -> Value:
        if value == 1:
            return Fraction(0)
        if value == 0:
            raise UndecidedError("the logarithm of zero")
        self._count(value)
        logarithm = CONTEXT.log(self.real(value))
        return self._round_to_zero(logarithm, lose=True)

    def _round_to_zero(self, value: Value, *, lose: bool = False) -> Value:
        """Return a function's value; a value that differs from zero by rounding alone becomes zero.

        With `lose` the bits that a small value has lost to cancellation are counted.
        """
        if value == 0 or CONTEXT.mag(value) < -NOTHING:
            return Fraction(0)
        if lose:
            self._lose_bits(max(0, -CONTEXT.mag(value)))
        return tidy(value)

    def _lose_bits(self, bits: int) -> None:
        """Count bits of precision that a step of the computation loses."""
        self._lost_bits += max(0, bits)
        if self._lost_bits > _LOSS:
            raise UndecidedError("too much cancels")

    def _count(self, value: Value) -> None:
        """Count a computed function; a function of a complex number counts four times."""
        calls = _CALLS.get()
        calls[0] += 1 if is_real(value) else 4
        if calls[0] > _MOST_CALLS:
            raise UndecidedError("too many functions")

    # Functions --------------------------------------------------------------------------------------------------------

    def _call(self, node: Node) -> Value:
        """Return the value of a call of a known function."""
        name = node.name
        values = [self._value(argument, angle=name in ANGLES or name == "cis") for argument in node.args]
        if name in ANGLES:
            return self._angle(name, values[0])
        if name in ("root", "ln", "lg", "log", "exp", "cis"):
            return self._power_or_log(name, values)
        if name in ("floor", "ceil"):
            return self._round(values[0], up=name == "ceil")
        if name == "binom" and not all(isinstance(argument, Fraction) for argument in values):
            n, k = values
            lower = self.times(self._factorial(k, step=1), self._factorial(self.plus(n, -k), step=1))
            return self.quotient(self._factorial(n, step=1), lower)
        if name in ("gcd", "lcm", "binom"):
            return _whole_function(name, [_whole(argument) for argument in values])
        if name in ("max", "min"):
            if not all(is_real(argument) for argument in values):
                raise UndecidedError("an extremum of complex numbers")
            return (max if name == "max" else min)(values, key=self.real)
        return abs(values[0]) if name == "abs" else self._inverse_or_hyperbolic(name, values[0])

    def _power_or_log(self, name: str, values: list[Value]) -> Value:
        if name == "exp":
            return self._exp(values[0])
        if name == "cis":
            return self._exp(self.times(self._constant("i"), values[0]))
        if name == "root":
            radicand, degree = values
            if isinstance(degree, Fraction) and degree.denominator == 1:
                return self._root(radicand, degree.numerator)
            return self._power(radicand, self.quotient(Fraction(1), degree))
        logarithm = self._log(values[0])
        if name == "ln":
            return logarithm
        base = values[1] if name == "log" else Fraction(10)
        return self.quotient(logarithm, self._log(base))

    def _angle(self, name: str, value: Value) -> Value:
        """Return the value of a trigonometric function, computed from the sine and the cosine."""
        self._count(value)
        value = self.real(value)
        self._lose_bits(max(0, CONTEXT.mag(value)) if value else 0)
        if not is_real(value) and abs(value.imag) > 1000:
            raise UndecidedError("an angle too large")
        is_tiny = value != 0 and CONTEXT.mag(value) < -1000
        sine, cosine = _sine_and_cosine(value)
        sine = tidy(sine) if is_tiny else self._round_to_zero(sine)  # the sine of a tiny angle is not zero
        cosine = self._round_to_zero(cosine)
        quotients = {
            "tan": (sine, cosine),
            "cot": (cosine, sine),
            "sec": (Fraction(1), cosine),
            "csc": (Fraction(1), sine),
        }
        if name in quotients:
            return self.quotient(*quotients[name])
        return sine if name == "sin" else cosine

    def _inverse_or_hyperbolic(self, name: str, value: Value) -> Value:
        self._count(value)
        value = self.real(value)
        if name in ("sinh", "cosh", "tanh") and abs(value) > 1000:
            raise UndecidedError("an argument too large")
        function = getattr(CONTEXT, name.replace("arc", "a", 1))  # mpmath writes acos for arccos
        return self._round_to_zero(function(value))

    def _round(self, value: Value, *, up: bool) -> Value:
        """Return the floor of a real number, or with `up` its ceiling."""
        if isinstance(value, Fraction):
            return Fraction(math.ceil(value) if up else math.floor(value))
        if not is_real(value):  # of a variable whose value does not suit
            return hash_text(f"{'ceil' if up else 'floor'} of {digest(value)}")
        if CONTEXT.mag(value) > 1000:
            raise UndecidedError("rounding of a number that is too large")
        nearest = int(CONTEXT.nint(value))
        if self.plus(value, Fraction(-nearest)) == 0:
            return Fraction(nearest)
        return Fraction(int(CONTEXT.ceil(value) if up else CONTEXT.floor(value)))

    def _factorial(self, value: Value, *, step: int) -> Value:
        if not isinstance(value, Fraction):
            # a function with f(v) = v f(v - step), which is all that is known of the factorial of a variable
            count = int(CONTEXT.floor(value / step)) if is_real(value) and abs(value) < _MOST_CALLS else 0
            total = hash_text(f"{step} factorial of {digest(self.plus(value, Fraction(-step * count)))}")
            for shift in range(min(0, count), max(0, count)):
                factor = self.plus(value, Fraction(-step * shift))
                total = self.times(total, factor) if count > 0 else self.quotient(total, factor)
            return total
        n = _whole(value)
        if not 0 <= n <= 5000:
            raise UndecidedError("a factorial")
        return Fraction(math.prod(range(n, 0, -step)))


def _sine_and_cosine(value: Value) -> tuple[Value, Value]:
    if not is_real(value):
        return CONTEXT.sin(value), CONTEXT.cos(value)
    cosine, sine = mpf_cos_sin(value._mpf_, PRECISION, "n")
    return CONTEXT.make_mpf(sine), CONTEXT.make_mpf(cosine)


def small(value: Fraction) -> Fraction:
    """Return an exact number if it is not too long.

    Raises:
        UndecidedError: the number is too long.
    """
    if length_of(value) > _EXACT:
        raise UndecidedError("a number too long")
    return value


def _whole(value: Value) -> int:
    if not isinstance(value, Fraction) or value.denominator != 1:
        raise UndecidedError("a number that is not whole")
    return value.numerator


def _whole_function(name: str, values: list[int]) -> Fraction:
    if name != "binom":
        return Fraction({"gcd": math.gcd, "lcm": math.lcm}[name](*values))
    n, k = values
    if not 0 <= k <= 5000 or n < 0 or n.bit_length() * k > _EXACT:
        raise UndecidedError("a binomial")
    return Fraction(math.comb(n, k))


def _whole_root(value: int, degree: int) -> int | None:
    """Return the root of a whole number if the root is whole, else None."""
    if value < 2:
        return value
    if degree == 2:
        root = math.isqrt(value)
    else:
        num_bits = -(-value.bit_length() // degree)  # rounded up
        root = 1 << num_bits  # at least the root; Newton's method then goes down to it
        while (next_root := ((degree - 1) * root + value // root ** (degree - 1)) // degree) < root:
            root = next_root
    return root if root**degree == value else None
