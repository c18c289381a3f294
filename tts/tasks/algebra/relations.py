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
_TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!="}
_DEFINED = re.compile(r"([A-Za-z])\(([a-z])\)")
EMPTY = "set {}"
_ZERO = Node("number")
# values at which linear expressions are on the line through their values at 0 and 1; others, as with bars, are not
_ON_THE_LINE = (Fraction(3), Fraction(-5, 3), Fraction(10**9 + 1, 7), Fraction(-(10**9), 7))
_PLANE: frozenset[str] = frozenset("xy")


def split_relation(text: str) -> tuple[list[str], list[str]]:
    """Return the sides of a relation and the signs between them; a text that is no relation is one side.

    The signs are "=", "<", "<=", ">", ">=", "!=" and "in".
    """
    sides, signs = split_outside(text, _SIGN)
    return sides, [_SIGNS[sign] for sign in signs]


def fingerprint(node: Node, signs: int = 1, given: dict[str, Value] | None = None) -> str:
    """Return a text that equal expressions have in common.

    The text states the value of a constant, or the values of another expression at all points.

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
    at_0, at_1, *values = (
        Evaluator(point, given={name: value}).value(difference) for value in (Fraction(0), Fraction(1), *_ON_THE_LINE)
    )
    arithmetic = Evaluator(point)
    slope = arithmetic.plus(at_1, -at_0)
    on_line = (arithmetic.plus(at_0, arithmetic.times(value, slope)) for value in _ON_THE_LINE)
    if slope == 0 or any(arithmetic.plus(one, -other) != 0 for one, other in zip(values, on_line, strict=True)):
        return None
    return arithmetic.quotient(-at_0, slope), slope


def equation(sides: Sequence[str]) -> str:
    """Return the key of an equation.

    An equation that gives a value to a variable, or to y, has the key of that value. Other equations have a key of
    their solutions.

    Raises:
        UndecidedError: the equation is not understood.
    """
    trees = [parse(side) for side in sides]
    if len(sides) == 2 and _defines(sides[0], symbols_of(trees[1])):
        return fingerprint(trees[1])
    unknown = [tree for tree in trees if symbols_of(tree) or has(tree, "unknown")]
    constants = [tree for tree in trees if tree not in unknown]
    values = [fingerprint(tree) for tree in constants]
    if len(set(values)) > 1 and (len(unknown) != 1 or trees[0] is not unknown[0] or not _is_name(trees[0])):
        raise UndecidedError("sides that differ")
    if not unknown:
        return values[0]
    if len(constants) > 1 and trees[0] is unknown[0] and _is_name(trees[0]):
        return values[-1]  # in a chain of steps the last value counts, whether the steps are right or not
    if len(unknown) + bool(constants) != 2:
        raise UndecidedError("a chain of expressions")
    left, right = [*unknown, *constants][:2]
    return _equation_key(left, right)


def _defines(side: str, names: frozenset[str]) -> bool:
    """Whether a side such as `P(x)` is a function that the other side, of these variables, defines."""
    match = _DEFINED.fullmatch(side)
    return match is not None and match[1] not in names and match[2] in names


def _equation_key(left: Node, right: Node) -> str:
    names = symbols_of(left) | symbols_of(right)
    difference = _difference(left, right)
    plane = names == _PLANE
    dependent = "y" if plane else next(iter(names)) if len(names) == 1 and not has(difference, "unknown") else None
    if dependent is not None and (values := _linear(difference, dependent)) is not None:
        return values
    for side, other_side in ((left, right), (right, left)):
        if not plane and _is_name(side) and side.name not in (*symbols_of(other_side), *_call(other_side)):
            return fingerprint(other_side)
    return "equation " + _proportions(difference)


def _linear(difference: Node, name: str) -> str | None:
    """Return the fingerprint of the variable's value that solves a linear equation; None: it is not linear."""
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
    return node.op == "symbol" or (node.op == "unknown" and all(each.op == "symbol" for each in node.args))


def _call(node: Node) -> frozenset[str]:
    names: frozenset[str] = frozenset({node.name} if node.op == "unknown" else ())
    return names.union(*(_call(each) for each in node.args))


def _proportions(difference: Node, *, signed: bool = False) -> str:
    """Return a text that is equal for expressions that are multiples of each other.

    With `signed` only multiples by a positive number count.
    """
    values = [Evaluator(point).value(difference) for point in range(POINTS)]
    first = values[0]
    if first == 0:
        raise UndecidedError("an equation that always holds")
    maker = Evaluator()
    scale = abs(first) if signed else first
    return _join("multiple", [digest(maker.quotient(value, scale)) for value in values])


def assigned_name(text: str) -> str | None:
    """Return the variable on the left side to which an equation gives a value; None where there is none."""
    sides, signs = split_relation(text)
    if len(sides) != 2 or signs != ["="]:
        return None
    left = parse(sides[0])
    return left.name if left.op == "symbol" and left.name not in symbols_of(parse(sides[1])) else None


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
    """Return an infinite end: -1 below, 1 above."""
    return End(None, side, r"-\infty" if side < 0 else r"\infty", closed=False)


def _end(value: Value, *, closed: bool) -> End:
    try:
        _less(value, value)
    except TypeError as error:
        raise UndecidedError("an end that is not real") from error
    return End(value, 0, digest(value), closed)


Interval = tuple[End, End]


def _less(a: Value, b: Value) -> bool:
    maker = Evaluator()
    return bool(maker.real(a) < maker.real(b)) if not (isinstance(a, Fraction) and isinstance(b, Fraction)) else a < b


def _compare(a: End, b: End) -> int:
    if a.key == b.key:
        return 0
    if a.side or b.side:
        return a.side - b.side
    return -1 if _less(a.value, b.value) else 1


def unite(parts: Iterable[Interval]) -> list[Interval]:
    """Return disjoint intervals with the same union, in order and without empty intervals."""
    real = [
        (low, high)
        for low, high in parts
        if (order := _compare(low, high)) < 0 or (order == 0 and low.closed and high.closed)
    ]
    real.sort(key=functools.cmp_to_key(lambda a, b: _compare(a[0], b[0]) or b[0].closed - a[0].closed))
    united: list[Interval] = []
    for low, high in real:
        if united and (
            (order := _compare(low, united[-1][1])) < 0 or (order == 0 and (low.closed or united[-1][1].closed))
        ):
            last_low, last_high = united[-1]
            order_of_ends = _compare(high, last_high)
            if order_of_ends > 0 or (order_of_ends == 0 and high.closed):
                united[-1] = (last_low, high)
        else:
            united.append((low, high))
    return united


def common(a: Iterable[Interval], b: Sequence[Interval]) -> list[Interval]:
    """Return the intersection of two unions of intervals."""
    parts: list[Interval] = []
    for low, high in a:
        for other_low, other_high in b:
            begin = _compare(low, other_low)
            end = _compare(high, other_high)
            later_low = low if begin > 0 or (begin == 0 and not low.closed) else other_low
            earlier_high = high if end < 0 or (end == 0 and not high.closed) else other_high
            parts.append((later_low, earlier_high))
    return unite(parts)


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

    One interval is written as a pair in its brackets.
    """
    if not parts:
        return EMPTY
    if all(low.key == high.key for low, high in parts):
        return f"set {{{', '.join(sorted(low.key for low, _ in parts))}}}" if len(parts) > 1 else parts[0][0].key
    return " u ".join(
        f"{'[' if low.closed else '('}{low.key}, {high.key}{']' if high.closed else ')'}" for low, high in parts
    )


def inequality(sides: Sequence[str], signs: Sequence[str]) -> list[Interval] | str:
    """Return the intervals where linear inequalities in one variable hold; else the key of an inequality.

    Raises:
        UndecidedError: the inequality is not understood, or is a chain that is not linear.
    """
    trees = _with_one_variable([parse(side) for side in sides])
    names = frozenset[str]().union(*(symbols_of(tree) for tree in trees))
    solutions: list[Interval] | None = None
    for left, right, sign in zip(trees, trees[1:], signs, strict=False):
        solution = _solution(left, right, sign, next(iter(names))) if len(names) == 1 else None
        if solution is None:
            if len(trees) > 2:
                raise UndecidedError("a chain of inequalities that are not linear")
            return _relation(_difference(left, right), sign)
        solutions = solution if solutions is None else common(solutions, solution)
    return solutions or []


def _with_one_variable(trees: list[Node]) -> list[Node]:
    """Return trees with a variable in the place of f(x), if the trees have no other variable."""
    calls = {call for tree in trees for call in _calls(tree)}
    if len(calls) != 1 or any(symbols_of(_replace(tree, calls)) for tree in trees):
        return trees
    return [_replace(tree, calls, Node("symbol", name="x")) for tree in trees]


def _calls(node: Node) -> frozenset[Node]:
    return frozenset({node}) if node.op == "unknown" else frozenset[Node]().union(*(_calls(each) for each in node.args))


def _replace(node: Node, calls: set[Node], variable: Node = _ZERO) -> Node:
    if node in calls:
        return variable
    return (
        dataclasses.replace(node, args=tuple(_replace(each, calls, variable) for each in node.args))
        if node.args
        else node
    )


def _solution(left: Node, right: Node, sign: str, name: str) -> list[Interval] | None:
    """Return the intervals where a linear inequality holds, or one of an absolute value and a constant."""
    for side, other_side, side_sign in ((left, right, sign), (right, left, _TURNED[sign])):
        if (
            side.op == "call"
            and side.name == "abs"
            and not symbols_of(other_side)
            and symbols_of(side)
            and not has(other_side, "unknown")
        ):
            if_positive = _half_line(_difference(side.args[0], other_side), side_sign, name)
            if_negative = _half_line(_difference(Node("-", (side.args[0],)), other_side), side_sign, name)
            if if_positive is None or if_negative is None:
                return None
            return common(if_positive, if_negative) if side_sign[0] in "<!" else unite([*if_positive, *if_negative])
    return _half_line(_difference(left, right), sign, name)


def _half_line(difference: Node, sign: str, name: str) -> list[Interval] | None:
    if has(difference, "unknown") or (solution := _solve(difference, name, 0)) is None:
        return None
    zero, slope = solution
    if _less(slope, Fraction(0)):
        sign = _TURNED[sign]
    end = _end(zero, closed=sign.endswith("=") and sign != "!=")
    below, above = (infinite(-1), end), (end, infinite(1))
    return {"<": [below], ">": [above], "!": [below, above]}[sign[0]]


def _relation(difference: Node, sign: str) -> str:
    if sign == "!=":
        return "unequal " + _proportions(difference)
    if sign[0] == ">":
        difference, sign = Node("-", (difference,)), _TURNED[sign]
    return f"inequality {sign} {_proportions(difference, signed=True)}"
