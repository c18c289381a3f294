"""Expressions of whole numbers with +, - and *: their text, their reader, and their steps in order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tts.errors import ConfigError, quote

OPERATORS = ("+", "-", "*")
_PRECEDENCE = {"+": 1, "-": 1, "*": 2}
_LEXEME = re.compile(r"\s*(?:([0-9]+)|([-+*()]))")
_SIGNS = str.maketrans("−–×·⋅∗", "--****")
_DEEPEST = 64  # parentheses within each other
_LONGEST = 100  # operations
_WIDEST = 18  # digits of a number


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator, "+", "-" or "*", and its two operands."""

    operator: str
    left: Expression
    right: Expression


Expression = int | Operation


@dataclass(frozen=True, slots=True)
class Step:
    """One operation on two numbers, and its result."""

    left: int
    operator: str
    right: int
    result: int

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right} = {self.result}"


def apply(operator: str, left: int, right: int) -> int:
    """Return the result of one operation."""
    if operator == "+":
        return left + right
    return left - right if operator == "-" else left * right


def text(expression: Expression) -> str:
    """Return the text of an expression with the fewest parentheses: "12 + 7 * 3", "8 - (3 + 4)"."""
    if isinstance(expression, int):
        return str(expression)
    precedence = _PRECEDENCE[expression.operator]
    left, right = text(expression.left), text(expression.right)
    if isinstance(expression.left, Operation) and _PRECEDENCE[expression.left.operator] < precedence:
        left = f"({left})"
    if isinstance(expression.right, Operation) and _PRECEDENCE[expression.right.operator] <= precedence:
        right = f"({right})"
    return f"{left} {expression.operator} {right}"


def numbers(expression: Expression) -> Iterator[int]:
    """Yield the numbers of an expression from left to right."""
    if isinstance(expression, int):
        yield expression
    else:
        yield from numbers(expression.left)
        yield from numbers(expression.right)


def steps(expression: Expression) -> list[Step]:
    """Return the steps of an expression, one for each operation; none for a number.

    The steps of the left operand come first, then those of the right operand, then the operation's own step.
    """
    worked_steps: list[Step] = []

    def work(part: Expression) -> int:
        """Append the steps of a part, and return the value of the part."""
        if isinstance(part, int):
            return part
        left, right = work(part.left), work(part.right)
        result = apply(part.operator, left, right)
        worked_steps.append(Step(left, part.operator, right, result))
        return result

    work(expression)
    return worked_steps


def value(expression: Expression) -> int:
    """Return the value of an expression."""
    if isinstance(expression, int):
        return expression
    return apply(expression.operator, value(expression.left), value(expression.right))


def parse(written: str) -> Expression:
    """Return the expression that a text writes; typographic minus and multiplication signs are read too.

    Raises:
        ConfigError: the text is no expression of whole numbers with + - * and parentheses, or is too large; the message
            names the place.
    """
    # messages show the text with single spaces, and count places in that form
    return _ExpressionReader(" ".join(written.translate(_SIGNS).split())).read()


def parse_expression(written: str) -> Expression | None:
    """Return the expression that a text writes; None where it writes none."""
    try:
        return parse(written)
    except ConfigError:
        return None


class _ExpressionReader:
    """Reads one expression by recursive descent: sums of products of signed numbers and parentheses."""

    def __init__(self, written: str) -> None:
        self._written = written
        self._position = 0
        self._depth = 0
        self._num_operations = 0

    def read(self) -> Expression:
        """Return the expression that the whole text writes."""
        expression = self._chain(1)
        if self._peek() or self._written[self._position :].strip():
            raise self._refuse("an operator or the end belongs here")
        return expression

    def _chain(self, precedence: int) -> Expression:
        """Return a chain of operations of one precedence: 1 for sums of products, 2 for products of operands."""
        expression = self._chain(2) if precedence == 1 else self._operand()
        while (operator := self._peek()) in OPERATORS and _PRECEDENCE[operator] == precedence:
            self._next()
            self._num_operations += 1
            if self._num_operations > _LONGEST:
                raise self._refuse(f"there are more than {_LONGEST} operations")
            right = self._chain(2) if precedence == 1 else self._operand()
            expression = Operation(operator, expression, right)
        return expression

    def _operand(self) -> Expression:
        lexeme = self._peek()
        if lexeme.isdigit():
            return self._number()
        if lexeme == "(":
            self._next()
            self._change_depth(1)
            expression = self._chain(1)
            if self._peek() != ")":
                raise self._refuse("a closing parenthesis belongs here")
            self._next()
            self._change_depth(-1)
            return expression
        if lexeme == "-":
            self._next()
            if self._peek().isdigit():
                return -self._number()
        raise self._refuse("a number belongs here")

    def _number(self) -> int:
        if len(self._peek()) > _WIDEST:
            raise self._refuse(f"the number has more than {_WIDEST} digits")
        return int(self._next())

    def _change_depth(self, change: int) -> None:
        self._depth += change
        if self._depth > _DEEPEST:
            raise self._refuse(f"there are more than {_DEEPEST} parentheses within each other")

    def _peek(self) -> str:
        match = _LEXEME.match(self._written, self._position)
        return "" if match is None else match[1] or match[2]

    def _next(self) -> str:
        match = _LEXEME.match(self._written, self._position)
        assert match is not None, "only what was peeked is taken"
        self._position = match.end()
        return match[1] or match[2]

    def _refuse(self, why: str) -> ConfigError:
        return ConfigError(
            f"the expression {quote(self._written)} cannot be read at character {self._position + 1}: {why}"
        )
