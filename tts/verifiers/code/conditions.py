"""Conditions on the values that a program's process sends.

That process evaluates some parts of an assertion, and the others are decided here.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tts.verifiers.code.program import Wire
from tts.verifiers.code.values import MALFORMED, NotDataError, data_of, holds, is_data, plain, shown_wire, wire

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
        got = f"; it is {shown_wire(values[self.of[0]])}" if len(self.of) == 1 else ""
        return f"AssertionError: {self.text}{got}"


@dataclass
class AskedParts:
    """The expressions that the program's process evaluates in a step, and the clauses so far."""

    number: int
    # source, the name that keeps it, whether truth is asked
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
            inner = [condition_of(operand, parts) for operand in operands]
            joined = all if isinstance(op, ast.And) else any
            return lambda values: joined(condition(values) for condition in inner)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            negated = condition_of(operand, parts)
            return lambda values: not negated(values)
        case ast.Compare():
            if (compared := _comparison(node, parts)) is not None:
                return compared
        case ast.Call(
            func=ast.Name(id="isclose") | ast.Attribute(attr="isclose", value=ast.Name(id="math")), args=[left, right]
        ):
            if (near := _near_condition([left, right], _tolerances(node), parts)) is not None:
                return near
        case _:
            pass
    try:
        constant = bool(data_of(node))
    except NotDataError:
        index = parts.ask(node, truth=True)
        return lambda values: read_value(values, index) is True
    return lambda _: constant


def _comparison(node: ast.Compare, parts: AskedParts) -> Condition | None:
    """Return the condition of a comparison in which each pair has data; None: a pair has no data."""
    operands = [node.left, *node.comparators]
    if len(operands) == 2 and isinstance(node.ops[0], ast.Eq) and (approximate := _approximate(operands)) is not None:
        other, value, tolerances = approximate
        return _near_condition([other, value], tolerances, parts)
    has_data = [is_data(operand) for operand in operands]
    for i, op in enumerate(node.ops):
        pair = [operands[j] for j in (i, i + 1) if has_data[j]]
        if isinstance(op, ast.In | ast.NotIn) and not has_data[i + 1]:
            return None  # objects may contain without being a collection
        if not pair or (isinstance(op, ast.Is | ast.IsNot) and not any(_is_single(operand) for operand in pair)):
            return None
    reads = [_operand(operand, parts) for operand in operands]
    pairs = [(reads[i], op, reads[i + 1]) for i, op in enumerate(node.ops)]
    return lambda values: all(holds(left(values), op, right(values)) for left, op, right in pairs)


def _is_single(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, bool))


def _operand(node: ast.expr, parts: AskedParts) -> Callable[[Sequence[Wire]], Wire]:
    """Return a function that reads the value of an operand.

    The distance of a value and data, `abs(f(x) - 2)`, is computed here.
    """
    if is_data(node):
        constant = wire(data_of(node))
        return lambda _: constant
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "abs" and len(node.args) == 1:
        inner = node.args[0]
        if (
            isinstance(inner, ast.BinOp)
            and isinstance(inner.op, ast.Sub)
            and is_data(inner.left) is not is_data(inner.right)
        ):
            left, right = _operand(inner.left, parts), _operand(inner.right, parts)
            return lambda values: _distance(left(values), right(values))
    index = parts.ask(node)
    return lambda values: read_value(values, index)


def _distance(left: Wire, right: Wire) -> Wire:
    try:
        return wire(abs(plain(left) - plain(right)))
    except MALFORMED as failure:
        raise EvaluationError(f"{type(failure).__name__}: {failure}") from failure


def _tolerances(call: ast.Call) -> dict[str, float]:
    try:
        return {str(keyword.arg): float(data_of(keyword.value)) for keyword in call.keywords}
    except (NotDataError, TypeError, ValueError):
        return {"?": 0.0}


def _approximate(operands: list[ast.expr]) -> tuple[ast.expr, ast.expr, dict[str, float]] | None:
    """Return the other operand, the value and the tolerances of a comparison with `pytest.approx(value)`."""
    for other, node in (operands, operands[::-1]):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("pytest.approx", "approx") and len(node.args) == 1:
            tolerances = {"rel": 1e-6, "abs": 1e-12} | _tolerances(node)
            return other, node.args[0], {f"{name}_tol": value for name, value in tolerances.items()}
    return None


def _near_condition(pair: list[ast.expr], tolerances: dict[str, float], parts: AskedParts) -> Condition | None:
    """Return the condition that two numbers are near; None: not exactly one of the two is data."""
    if not (tolerances.keys() <= {"rel_tol", "abs_tol"} and is_data(pair[0]) is not is_data(pair[1])):
        return None
    left, right = (_operand(operand, parts) for operand in pair)

    def condition(values: Sequence[Wire]) -> bool:
        left_value, right_value = left(values), right(values)
        try:
            return math.isclose(plain(left_value), plain(right_value), **tolerances)
        except MALFORMED:
            return False

    return condition
