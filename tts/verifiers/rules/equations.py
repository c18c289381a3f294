"""The rule of an equation in one unknown.

Solutions are substituted, exactly, and there must be as many as its degree.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.polynomial.polynomial import polyadd, polymul, polypow, polysub, polyval
from numpy.typing import NDArray

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
_LONGEST, _HIGHEST, _MOST_BITS = 200, 8, 4096

Polynomial = NDArray[np.object_]  # the coefficients by rising power, as fractions; the last is not 0 but of 0 itself


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
    difference = polysub(left_side, right_side)
    degree = len(difference) - 1

    def accepts(answer: str) -> bool:
        roots = _roots(answer, name)
        if roots is None or degree == 0 or len(roots) != degree:
            return False
        return all(polyval(root, difference) == 0 for root in roots)

    return accepts


def _roots(answer: str, name: str) -> set[Fraction] | None:
    """Return the numbers that an answer such as "x = 2 or x = 3" or "{2, 3}" states; None for other answers."""
    roots = set[Fraction]()
    for part in _SEPARATORS.split(answer.lower().strip().strip("{}\\ ")):
        root = rational(re.sub(rf"^\s*{name}\s*=\s*", "", part).replace(" ", ""))
        if root is None:
            return None
        roots.add(root)
    return roots


def _polynomial(side: str, name: str) -> Polynomial | None:
    """Return the polynomial in the unknown `name` that a side of an equation writes, or None."""
    if len(side) > _LONGEST or not _WRITTEN.fullmatch(side):
        return None
    source = _TIMES.sub("*", side.strip()).replace("^", "**")
    try:
        return _value(ast.parse(source, mode="eval").body, name)
    except (SyntaxError, ValueError, ArithmeticError, RecursionError):
        return None


def _value(node: ast.expr, name: str) -> Polynomial:
    """Return the polynomial that a tree writes.

    Raises:
        ValueError: the tree is no polynomial, or has a power above 8 or a number above 2**4096.
    """
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return np.array([Fraction(str(node.value))])
    if isinstance(node, ast.Name) and node.id == name:
        return np.array([Fraction(0), Fraction(1)])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        operand = _value(node.operand, name)
        return -operand if isinstance(node.op, ast.USub) else operand
    if not isinstance(node, ast.BinOp):
        raise ValueError("no polynomial")
    left, right = _value(node.left, name), _value(node.right, name)
    if isinstance(node.op, ast.Add | ast.Sub):
        return _check_size(polyadd(left, right if isinstance(node.op, ast.Add) else -right))
    if isinstance(node.op, ast.Mult):
        return _check_size(polymul(left, right))
    if len(right) == 1 and isinstance(node.op, ast.Div):
        return _check_size(left / right[0])
    if len(right) == 1 and isinstance(node.op, ast.Pow) and right[0] in range(_HIGHEST + 1):
        return _check_size(polypow(left, int(right[0])))
    raise ValueError("no polynomial")


def _check_size(polynomial: Polynomial) -> Polynomial:
    if len(polynomial) > _HIGHEST + 1:
        raise ValueError(f"the power is above {_HIGHEST}")
    if any(max(abs(number.numerator), number.denominator) >> _MOST_BITS for number in polynomial):
        raise ValueError("a number is too long")  # powers of powers grow without end
    return polynomial
