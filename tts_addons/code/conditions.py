"""Conditions on the values that a program's process sends.

That process evaluates some parts of an assertion, and the others are decided here.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tts_addons.code.program import Wire
from tts_addons.code.values import MALFORMED, NotDataError, data_of, holds, is_data, plain, shown_wire, wire

MOST_PARTS = 5000
Condition = Callable[[Sequence[Wire]], bool]


class EvaluationError(Exception):
    """The program raised where a value was asked for."""


class NotPlainError(Exception):
    """A statement is not of the form that can be decided here."""


@dataclass(frozen=True, slots=True)
class Clause:
    """A condition on the values of a step, and its text for a fault."""

    condition: Condition
    text: str
    of: tuple[int, ...] = ()

    def fault(self, values: Sequence[Wire]) -> str:
        """Return why the clause does not hold; "" if it does."""
        try:
            if self.condition(values):
                return ""
        except EvaluationError as failure:
            return str(failure)
        actual = f"; it is {shown_wire(values[self.of[0]])}" if len(self.of) == 1 else ""
        return f"AssertionError: {self.text}{actual}"


@dataclass
class AskedParts:
    """The expressions that the program's process evaluates in a step, and the clauses so far."""

    number: int
    # of each expression: its source, the name that keeps its value, and whether only its truth is asked
    values: list[tuple[str, str | None, bool]] = field(default_factory=list)
    clauses: list[Clause] = field(default_factory=list)
    asserts: int = 0

    def ask(self, node: ast.expr, *, name: str | None = None, truth: bool = False) -> int:
        """Ask the program's process for the value of an expression; return the index of the value."""
        if len(self.values) >= MOST_PARTS:
            raise NotPlainError
        self.values.append((ast.unparse(node), name, truth))
        return len(self.values) - 1


def read_value(values: Sequence[Wire], index: int) -> Wire:
    """Return a value that the program's process sent.

    Raises:
        EvaluationError: the program raised an error in place of the value.
    """
    value = values[index]
    if isinstance(value, dict) and "e" in value:
        raise EvaluationError(str(value["e"]))
    return value


def condition_of(node: ast.expr, parts: AskedParts) -> Condition:
    """Return a condition on the values of a step.

    Each expression that is no data is asked of the program's process.
    """
    match node:
        case ast.BoolOp(op=op, values=operands):
            conditions = [condition_of(operand, parts) for operand in operands]
            join = all if isinstance(op, ast.And) else any
            return lambda values: join(condition(values) for condition in conditions)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            negated = condition_of(operand, parts)
            return lambda values: not negated(values)
        case ast.Compare(left=near, ops=[ast.Eq()], comparators=[other]) if _is_approx(near) and not _is_approx(other):
            return condition_of(ast.Compare(other, [ast.Eq()], [near]), parts)
        case ast.Compare(
            left=left, ops=[ast.Eq()], comparators=[ast.Call(args=[right], keywords=keywords) as near]
        ) if _is_approx(near):
            tolerances = {"rel": 1e-6, "abs": 1e-12} | _tolerances(keywords)
            split = _near_condition(left, right, {f"{name}_tol": value for name, value in tolerances.items()}, parts)
        case ast.Call(func=func, args=[left, right], keywords=keywords) if ast.unparse(func) in (
            "isclose",
            "math.isclose",
        ):
            split = _near_condition(left, right, _tolerances(keywords), parts)
        case ast.Compare():
            split = _comparison(node, parts)
        case _:
            split = None
    if split is not None:
        return split
    try:
        constant = bool(data_of(node))
    except NotDataError:
        index = parts.ask(node, truth=True)
        return lambda values: read_value(values, index) is True
    return lambda _: constant


def _is_approx(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("pytest.approx", "approx")


def _comparison(node: ast.Compare, parts: AskedParts) -> Condition | None:
    """Return the condition of a comparison in which each pair has data; None: a pair has no data."""
    operands = [node.left, *node.comparators]
    has_data = [is_data(operand) for operand in operands]
    for i, op in enumerate(node.ops):
        if isinstance(op, ast.In | ast.NotIn) and not has_data[i + 1]:
            return None  # an object of the program may define `in` in a way of its own
        data_operands = [operands[j] for j in (i, i + 1) if has_data[j]]
        is_identity = isinstance(op, ast.Is | ast.IsNot)
        if not data_operands or (is_identity and not any(map(_is_singleton, data_operands))):
            return None
    readers = [_operand(operand, parts) for operand in operands]
    comparisons = list(zip(readers, node.ops, readers[1:], strict=False))
    return lambda values: all(holds(left(values), op, right(values)) for left, op, right in comparisons)


def _is_singleton(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, bool))


def _operand(node: ast.expr, parts: AskedParts) -> Callable[[Sequence[Wire]], Wire]:
    """Return a function that reads the value of an operand.

    The distance of a value and data, `abs(f(x) - 2)`, is computed here.
    """
    if is_data(node):
        constant = wire(data_of(node))
        return lambda _: constant
    match node:
        case ast.Call(func=ast.Name(id="abs"), args=[ast.BinOp(left=minuend, op=ast.Sub(), right=subtrahend)]) if (
            is_data(minuend) is not is_data(subtrahend)
        ):
            left, right = _operand(minuend, parts), _operand(subtrahend, parts)
            return lambda values: _distance(left(values), right(values))
        case _:
            index = parts.ask(node)
            return lambda values: read_value(values, index)


def _distance(left: Wire, right: Wire) -> Wire:
    try:
        return wire(abs(plain(left) - plain(right)))
    except MALFORMED as failure:
        raise EvaluationError(f"{type(failure).__name__}: {failure}") from failure


def _tolerances(keywords: Sequence[ast.keyword]) -> dict[str, float]:
    try:
        return {str(keyword.arg): float(data_of(keyword.value)) for keyword in keywords}
    except (NotDataError, TypeError, ValueError):
        return {"?": 0.0}


def _near_condition(
    left: ast.expr, right: ast.expr, tolerances: dict[str, float], parts: AskedParts
) -> Condition | None:
    """Return the condition that two numbers are near; None: not exactly one of the two is data."""
    if is_data(left) is is_data(right) or not tolerances.keys() <= {"rel_tol", "abs_tol"}:
        return None
    readers = _operand(left, parts), _operand(right, parts)

    def is_near(values: Sequence[Wire]) -> bool:
        pair = [reader(values) for reader in readers]
        try:
            return math.isclose(*map(plain, pair), **tolerances)
        except MALFORMED:
            return False

    return is_near
