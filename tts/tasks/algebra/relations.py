"""Equations, inequalities and sets of real numbers."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from tts.tasks.algebra.digests import Value
from tts.tasks.algebra.syntax import Node, has, parse, symbols_of
from tts.tasks.algebra.tokens import UndecidedError
from tts.tasks.algebra.values import POINTS, Evaluator, digest
from tts.tasks.forms.structure import split_outside

_SIGNS = {
    "=": "=", r"\approx": "=", "<": "<", ">": ">", r"\leq": "<=", r"\geq": ">=", r"\neq": "!=", r"\lt": "<",
    r"\gt": ">", r"\in": "in",
}  # fmt: skip
_SIGN = re.compile(r"\\(?:approx|leq|geq|neq|lt|gt|in)(?![A-Za-z])|[=<>]")
_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!="}
_DEFINED = re.compile(r"([A-Za-z])\(([a-z])\)")
EMPTY = "set {}"
_ZERO = Node("number")
# Values of a variable at which an expression is compared with the line through its values at 0 and 1. A linear
# expression is on the line, and an expression such as |x| is not.
_TEST_POINTS = (Fraction(3), Fraction(-5, 3), Fraction(10**9 + 1, 7), Fraction(-(10**9), 7))
_PLANE: frozenset[str] = frozenset("xy")


def split_relation(text: str) -> tuple[list[str], list[str]]:
    """Return the sides of a relation and the signs between them; a text without signs is one side.

    The signs are "=", "<", "<=", ">", ">=", "!=" and "in".
    """
    sides, signs = split_outside(text, _SIGN)
    return sides, [_SIGNS[sign] for sign in signs]


def fingerprint(node: Node, signs: int = 1, given: dict[str, Value] | None = None) -> str:
    """Return a text that equal expressions have in common.

    The text states the value of a constant, or of another expression its values at all points.

    Args:
        node: The tree of the expression.
        signs: The meaning of a plus-minus sign, 1 or -1.
        given: Values of variables by name.

    Raises:
        UndecidedError: the expression has no value, or would take too much work.
    """
    is_variable = symbols_of(node) or has(node, "unknown")
    digests = [digest(Evaluator(point, signs, given).value(node)) for point in range(POINTS if is_variable else 1)]
    return digests[0] if len(set(digests)) == 1 else _join("expression", digests)


def _join(kind: str, keys: Sequence[str]) -> str:
    return f"{kind} {hashlib.sha256(' '.join(keys).encode()).hexdigest()[:40]}"


def _difference(left: Node, right: Node) -> Node:
    return Node("+", (left, Node("-", (right,))))


def _solve(difference: Node, name: str, point: int) -> tuple[Value, Value] | None:
    """Return the zero and the slope of an expression that is linear in a variable; None for any other expression.

    Args:
        difference: The expression.
        name: The variable.
        point: The point, which gives the values of other variables.
    """
    value_at_0, value_at_1, *values = (
        Evaluator(point, given={name: x}).value(difference) for x in (Fraction(0), Fraction(1), *_TEST_POINTS)
    )
    arithmetic = Evaluator(point)
    slope = arithmetic.plus(value_at_1, -value_at_0)
    if slope == 0:
        return None
    for x, value in zip(_TEST_POINTS, values, strict=True):
        value_on_line = arithmetic.plus(value_at_0, arithmetic.times(x, slope))
        if arithmetic.plus(value, -value_on_line) != 0:
            return None
    return arithmetic.quotient(-value_at_0, slope), slope


def equation(sides: Sequence[str]) -> str:
    """Return the key of an equation.

    An equation that gives a value to a name, such as `y = 2x` or `f(x) = 2x`, has the key of that value. Other
    equations have a key of their solutions.

    Raises:
        UndecidedError: the equation is not understood.
    """
    trees = [parse(side) for side in sides]
    if len(sides) == 2 and _defines(sides[0], symbols_of(trees[1])):
        return fingerprint(trees[1])
    variables = [tree for tree in trees if symbols_of(tree) or has(tree, "unknown")]
    constants = [tree for tree in trees if tree not in variables]
    constant_keys = [fingerprint(tree) for tree in constants]
    begins_with_name = bool(variables) and trees[0] is variables[0] and _is_name(trees[0])
    if len(set(constant_keys)) > 1 and (len(variables) != 1 or not begins_with_name):
        raise UndecidedError("sides that differ")
    if not variables:
        return constant_keys[0]
    if len(constants) > 1 and begins_with_name:
        return constant_keys[-1]  # in a chain of steps the last value counts, whether the steps are right or not
    if len(variables) + bool(constants) != 2:
        raise UndecidedError("a chain of expressions")
    left, right = [*variables, *constants][:2]
    return _equation_key(left, right)


def _defines(side: str, names: frozenset[str]) -> bool:
    """Whether a side such as `P(x)` is a function that the other side defines, whose variables are `names`."""
    match = _DEFINED.fullmatch(side)
    return match is not None and match[1] not in names and match[2] in names


def _equation_key(left: Node, right: Node) -> str:
    """Return the key of the value that an equation gives to a variable or a name, else a key of its solutions.

    A linear equation in one variable gives it a value, and a linear equation in x and y gives a value to y.
    """
    names = symbols_of(left) | symbols_of(right)
    difference = _difference(left, right)
    is_plane = names == _PLANE
    if is_plane:
        solved_name = "y"
    elif len(names) == 1 and not has(difference, "unknown"):
        [solved_name] = names
    else:
        solved_name = None
    if solved_name is not None and (value_key := _linear(difference, solved_name)) is not None:
        return value_key
    for side, other_side in ((left, right), (right, left)):
        if not is_plane and _is_name(side) and side.name not in (*symbols_of(other_side), *_function_names(other_side)):
            return fingerprint(other_side)
    return "equation " + _proportions(difference)


def _linear(difference: Node, name: str) -> str | None:
    """Return the fingerprint of the value of `name` that solves an equation; None: the equation is not linear."""
    digests: list[str] = []
    is_constant = symbols_of(difference) <= frozenset({name}) and not has(difference, "unknown")
    for point in range(1 if is_constant else POINTS):
        solution = _solve(difference, name, point)
        if solution is None:
            return None
        digests.append(digest(solution[0]))
    return digests[0] if len(set(digests)) == 1 else _join("expression", digests)


def _is_name(node: Node) -> bool:
    """Whether a side of an equation is a name that gets a value: a variable, or f(x)."""
    return node.op == "symbol" or (node.op == "unknown" and all(argument.op == "symbol" for argument in node.args))


def _function_names(node: Node) -> frozenset[str]:
    names: frozenset[str] = frozenset({node.name} if node.op == "unknown" else ())
    return names.union(*map(_function_names, node.args))


def _proportions(difference: Node, *, signed: bool = False) -> str:
    """Return a text that is equal for expressions that are multiples of each other.

    With `signed` only multiples by a positive number count.
    """
    values = [Evaluator(point).value(difference) for point in range(POINTS)]
    if values[0] == 0:
        raise UndecidedError("an equation that always holds")
    arithmetic = Evaluator()
    scale = abs(values[0]) if signed else values[0]
    return _join("multiple", [digest(arithmetic.quotient(value, scale)) for value in values])


def assigned_name(text: str) -> str | None:
    """Return the variable on the left side of an equation that gives it a value; None for any other text."""
    sides, signs = split_relation(text)
    if len(sides) != 2 or signs != ["="]:
        return None
    left = parse(sides[0])
    is_assigned = left.op == "symbol" and left.name not in symbols_of(parse(sides[1]))
    return left.name if is_assigned else None


# Sets of real numbers -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class End:
    """An end of an interval: a number or an infinity.

    `key` is the text of the end in keys, and `closed` whether the end belongs to the interval.
    """

    value: Value  # a real number; None: infinite
    side: int  # -1 and 1 for the infinities
    key: str
    closed: bool


def end_of(text: str, *, closed: bool) -> End:
    r"""Return an end of an interval as it is written: `-\infty`, or a real constant.

    Raises:
        UndecidedError: the end is no infinity and no real constant.
    """
    if text in (r"\infty", r"+\infty", r"-\infty"):
        return infinite(-1 if text.startswith("-") else 1)
    node = parse(text)
    if symbols_of(node) or has(node, "pm", "mp", "unknown"):
        raise UndecidedError("an end that is no constant")
    return _end(Evaluator().value(node), closed=closed)


def infinite(side: int) -> End:
    """Return an infinite end of an interval; `side` is -1 for minus infinity, and 1 for infinity."""
    return End(None, side, r"-\infty" if side < 0 else r"\infty", closed=False)


def _end(value: Value, *, closed: bool) -> End:
    """Return a finite end of an interval."""
    try:
        _less(value, value)  # complex numbers have no order
    except TypeError as error:
        raise UndecidedError("an end that is not real") from error
    return End(value, 0, digest(value), closed)


Interval = tuple[End, End]


def _less(a: Value, b: Value) -> bool:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a < b
    arithmetic = Evaluator()
    return bool(arithmetic.real(a) < arithmetic.real(b))


def _compare(a: End, b: End) -> int:
    """Return a negative number, 0 or a positive number where end `a` is below, at or above end `b`."""
    if a.key == b.key:
        return 0
    if a.side or b.side:
        return a.side - b.side
    return -1 if _less(a.value, b.value) else 1


def unite(parts: Iterable[Interval]) -> list[Interval]:
    """Return disjoint intervals with the same union, in order and without empty intervals."""
    filled = [interval for interval in parts if not _is_empty(interval)]
    filled.sort(key=functools.cmp_to_key(_compare_starts))
    united: list[Interval] = []
    for low, high in filled:
        if not united or not _reaches(united[-1], low):
            united.append((low, high))
            continue
        last_low, last_high = united[-1]
        order = _compare(high, last_high)
        if order > 0 or (order == 0 and high.closed):
            united[-1] = (last_low, high)
    return united


def _is_empty(interval: Interval) -> bool:
    low, high = interval
    order = _compare(low, high)
    return order > 0 or (order == 0 and not (low.closed and high.closed))


def _compare_starts(a: Interval, b: Interval) -> int:
    """Compare the lower ends of two intervals; at the same number a closed end comes first."""
    a_low, b_low = a[0], b[0]
    return _compare(a_low, b_low) or b_low.closed - a_low.closed


def _reaches(interval: Interval, low: End) -> bool:
    """Whether an interval overlaps or touches a later interval that begins at `low`, without a gap."""
    high = interval[1]
    order = _compare(low, high)
    return order < 0 or (order == 0 and (low.closed or high.closed))


def common(a: Iterable[Interval], b: Sequence[Interval]) -> list[Interval]:
    """Return the intersection of two unions of intervals."""
    overlaps: list[Interval] = []
    for low, high in a:
        for other_low, other_high in b:
            low_order = _compare(low, other_low)
            high_order = _compare(high, other_high)
            later_low = low if low_order > 0 or (low_order == 0 and not low.closed) else other_low
            earlier_high = high if high_order < 0 or (high_order == 0 and not high.closed) else other_high
            overlaps.append((later_low, earlier_high))
    return unite(overlaps)


def remove_points(parts: Iterable[Interval], removed: Sequence[Interval]) -> list[Interval]:
    """Return a union of intervals without the points of the intervals `removed`."""
    remaining = list(parts)
    for low, high in removed:
        outside: list[Interval] = []
        if not low.side:
            outside.append((infinite(-1), End(low.value, 0, low.key, not low.closed)))
        if not high.side:
            outside.append((End(high.value, 0, high.key, not high.closed), infinite(1)))
        remaining = common(remaining, outside)
    return remaining


def key_of(parts: Sequence[Interval]) -> str:
    """Return the key of a union of disjoint intervals in order.

    An interval is written as a pair in its brackets, and a point as a number.
    """
    if not parts:
        return EMPTY
    if all(low.key == high.key for low, high in parts):  # every interval is a point
        point_keys = sorted(low.key for low, _high in parts)
        return f"set {{{', '.join(point_keys)}}}" if len(point_keys) > 1 else point_keys[0]
    return " u ".join(
        f"{'[' if low.closed else '('}{low.key}, {high.key}{']' if high.closed else ')'}" for low, high in parts
    )


def inequality(sides: Sequence[str], signs: Sequence[str]) -> list[Interval] | str:
    """Return the intervals where linear inequalities in one variable hold; else the key of an inequality.

    Raises:
        UndecidedError: the inequality is not understood, or is a chain that is not linear.
    """
    trees = _with_one_variable([parse(side) for side in sides])
    names = frozenset[str]().union(*map(symbols_of, trees))
    variable = next(iter(names)) if len(names) == 1 else None
    solutions: list[Interval] | None = None
    for left, right, sign in zip(trees, trees[1:], signs, strict=False):
        solution = None if variable is None else _solution(left, right, sign, variable)
        if solution is None:
            if len(trees) > 2:
                raise UndecidedError("a chain of inequalities that are not linear")
            return _inequality_key(_difference(left, right), sign)
        solutions = solution if solutions is None else common(solutions, solution)
    return solutions or []


def _with_one_variable(trees: list[Node]) -> list[Node]:
    """Return trees with a variable in the place of f(x), if the trees have no other variable."""
    calls = {call for tree in trees for call in _calls(tree)}
    if len(calls) != 1 or any(symbols_of(_replace(tree, calls)) for tree in trees):
        return trees
    return [_replace(tree, calls, Node("symbol", name="x")) for tree in trees]


def _calls(node: Node) -> frozenset[Node]:
    """Return the calls of unknown functions, such as f(x), in a tree."""
    return frozenset({node}) if node.op == "unknown" else frozenset[Node]().union(*map(_calls, node.args))


def _replace(node: Node, calls: set[Node], variable: Node = _ZERO) -> Node:
    """Return a tree with `variable` in the place of each of the calls."""
    if node in calls:
        return variable
    if not node.args:
        return node
    return dataclasses.replace(node, args=tuple(_replace(argument, calls, variable) for argument in node.args))


def _solution(left: Node, right: Node, sign: str, name: str) -> list[Interval] | None:
    """Return the intervals where an inequality in one variable holds; None where no rule solves it.

    The inequality is linear, or compares an absolute value of a linear expression with a constant.
    """
    for side, other_side, side_sign in ((left, right, sign), (right, left, _MIRRORED[sign])):
        is_constant = not symbols_of(other_side) and not has(other_side, "unknown")
        if side.op == "call" and side.name == "abs" and symbols_of(side) and is_constant:
            if_positive = _half_line(_difference(side.args[0], other_side), side_sign, name)
            if_negative = _half_line(_difference(Node("-", (side.args[0],)), other_side), side_sign, name)
            if if_positive is None or if_negative is None:
                return None
            return common(if_positive, if_negative) if side_sign[0] in "<!" else unite([*if_positive, *if_negative])
    return _half_line(_difference(left, right), sign, name)


def _half_line(difference: Node, sign: str, name: str) -> list[Interval] | None:
    """Return the intervals where a linear expression has the relation to 0 that the sign names."""
    solution = None if has(difference, "unknown") else _solve(difference, name, 0)
    if solution is None:
        return None
    zero, slope = solution
    if _less(slope, Fraction(0)):
        sign = _MIRRORED[sign]
    boundary = _end(zero, closed=sign in ("<=", ">=", "="))
    below, above = (infinite(-1), boundary), (boundary, infinite(1))
    return {"<": [below], ">": [above], "!": [below, above], "=": [(boundary, boundary)]}[sign[0]]


def _inequality_key(difference: Node, sign: str) -> str:
    """Return the key of an inequality between `difference` and 0, written with <, <= or !=."""
    if sign == "!=":
        return "unequal " + _proportions(difference)
    if sign[0] == ">":
        difference, sign = Node("-", (difference,)), _MIRRORED[sign]
    return f"inequality {sign} {_proportions(difference, signed=True)}"
