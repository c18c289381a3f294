"""The rule of an equation in one unknown.

Solutions are substituted, exactly, and there must be as many as its degree.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from fractions import Fraction

from tts.tasks.forms.rational import rational

_ASKED = re.compile(
    r"(?:please\s+)?(?:solve(?:\s+the\s+equation)?(?:\s+for\s+[a-z])?\s*[:,]?|find\s+(?:all\s+)?(?:real\s+)?solutions?\s+(?:of|to|for)\s*:?)"
    r"\s*\$?(?P<equation>[^=$]+=[^=$]+?)\$?\s*(?:for\s+[a-z]\s*)?[.?!]?",
    re.IGNORECASE,
)
_WRITTEN = re.compile(r"[0-9a-z\s.+*/^()-]+")
_UNKNOWN = re.compile(r"(?<![a-z])[a-z](?![a-z])")
_TIMES = re.compile(r"(?<=[0-9)])\s*(?=[a-z(])|(?<=[a-z])\s*(?=\()")  # 5x, 2(x + 1)
_SEPARATORS = re.compile(r",|;|\bor\b|\band\b")
_LONGEST, _HIGHEST = 200, 8

Polynomial = dict[int, Fraction]  # coefficients by power, none of them 0


def rule(text: str) -> Callable[[str], bool] | None:
    """Return a function that accepts the solutions of an equation.

    None: the text has no equation, or its equation is no polynomial in one unknown.
    """
    match = _ASKED.fullmatch(" ".join(text.split()))
    if match is None:
        return None
    left, right = match["equation"].lower().split("=")
    unknowns = set(_UNKNOWN.findall(match["equation"].lower()))
    name = unknowns.pop() if len(unknowns) == 1 else ""
    left_side, right_side = _polynomial(left, name), _polynomial(right, name)
    if not name or left_side is None or right_side is None:
        return None
    zero = _sum(left_side, right_side, -1)
    degree = max(zero, default=0)

    def accepts(answer: str) -> bool:
        roots = _roots(answer, name)
        return roots is not None and len(roots) == degree > 0 and all(_evaluate(zero, root) == 0 for root in roots)

    return accepts


def _roots(answer: str, name: str) -> set[Fraction] | None:
    """Return the numbers that an answer states; None: the answer states anything else.

    Answers are such as "x = 2 or x = 3" or "{2, 3}".
    """
    roots = set[Fraction]()
    for part in _SEPARATORS.split(answer.lower().strip().strip("{}\\ ")):
        root = rational(re.sub(rf"^\s*{name}\s*=\s*", "", part).replace(" ", ""))
        if root is None:
            return None
        roots.add(root)
    return roots


def _polynomial(side: str, name: str) -> Polynomial | None:
    if len(side) > _LONGEST or not _WRITTEN.fullmatch(side):
        return None
    try:
        return _value(ast.parse(_TIMES.sub("*", side.strip()).replace("^", "**"), mode="eval").body, name)
    except (SyntaxError, ValueError, ArithmeticError, RecursionError):
        return None


def _value(node: ast.expr, name: str) -> Polynomial:
    """Return the polynomial that a tree writes.

    Raises:
        ValueError: the tree is no polynomial, or has a power above 8.
    """
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return _sum({0: Fraction(str(node.value))}, {}, 1)
    if isinstance(node, ast.Name) and node.id == name:
        return {1: Fraction(1)}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        return _sum({}, _value(node.operand, name), -1 if isinstance(node.op, ast.USub) else 1)
    if not isinstance(node, ast.BinOp):
        raise ValueError("no polynomial")
    left, right = _value(node.left, name), _value(node.right, name)
    if isinstance(node.op, ast.Add | ast.Sub):
        return _sum(left, right, 1 if isinstance(node.op, ast.Add) else -1)
    if isinstance(node.op, ast.Mult):
        return _product(left, right)
    if set(right) <= {0} and isinstance(node.op, ast.Div):
        return {power: factor / right.get(0, Fraction(0)) for power, factor in left.items()}
    if (
        set(right) <= {0}
        and isinstance(node.op, ast.Pow)
        and (exponent := right.get(0, Fraction(0))) in range(_HIGHEST + 1)
    ):
        result: Polynomial = {0: Fraction(1)}
        for _ in range(int(exponent)):
            result = _product(result, left)
        return result
    raise ValueError("no polynomial")


def _sum(one: Polynomial, other: Polynomial, sign: int) -> Polynomial:
    total = {power: one.get(power, Fraction(0)) + sign * other.get(power, Fraction(0)) for power in {*one, *other}}
    return {power: factor for power, factor in total.items() if factor}


def _product(one: Polynomial, other: Polynomial) -> Polynomial:
    if max(one, default=0) + max(other, default=0) > _HIGHEST:
        raise ValueError("the power is above 8")
    products: Polynomial = {}
    for a, x in one.items():
        for b, y in other.items():
            products[a + b] = products.get(a + b, Fraction(0)) + x * y
    return _sum(products, {}, 1)


def _evaluate(polynomial: Polynomial, x: Fraction) -> Fraction:
    return sum((factor * x**power for power, factor in polynomial.items()), Fraction(0))
