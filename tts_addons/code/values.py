"""Plain data: the values of expressions of literals.

Plain data is compared with the values that a program sends.

The values come from an untrusted process, as `program.wire` writes them: texts and lists, in a form that equal values
have in common. So no method of the program and no crafted hash takes part. Anything malformed equals nothing.
"""

from __future__ import annotations

import ast
import builtins
import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from tts_addons.code import program
from tts_addons.code.program import Wire

_MOST_BITS, _MOST_ITEMS, _MOST_DIGITS = 1 << 20, 10**6, 1 << 13
_ROOM = 1 << 26  # of expected data, in characters
_OPERATIONS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.LShift: operator.lshift,
    ast.RShift: operator.rshift, ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
}  # fmt: skip
_SIGNS: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.UAdd: operator.pos, ast.USub: operator.neg, ast.Invert: operator.invert, ast.Not: operator.not_,
}  # fmt: skip
PURE = {  # builtin functions that change none of their arguments, and whose value is data
    "abs", "bool", "complex", "dict", "enumerate", "float", "frozenset", "int", "len", "list", "max", "min", "range",
    "reversed", "round", "set", "sorted", "str", "sum", "tuple", "zip",
}  # fmt: skip
_CONSTANTS = {f"math.{name}": getattr(math, name) for name in ("pi", "e", "inf", "nan", "tau")}
_ORDERS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
MALFORMED = (KeyError, TypeError, ValueError, ArithmeticError, RecursionError, AttributeError, IndexError)


class NotDataError(Exception):
    """An expression is no plain data, or too much of it."""


def data_of(node: ast.expr) -> Any:
    """Return the value of an expression of literals, and of arithmetic and builtin functions on them.

    Raises:
        NotDataError: the expression has other names or calls, or its value is too large.
    """
    try:
        return _fold(node)
    except (TypeError, ValueError, ArithmeticError, LookupError, RecursionError, AttributeError) as failure:
        raise NotDataError(str(failure)) from failure


def is_data(node: ast.expr) -> bool:
    """Whether an expression has a value for `data_of`."""
    try:
        data_of(node)
    except NotDataError:
        return False
    return True


def _fold(node: ast.expr) -> Any:
    """Return the value of an expression; what an operation raises is raised as it is."""
    match node:
        case ast.Constant():
            return node.value
        case ast.Tuple() | ast.List() | ast.Set():
            return {ast.Tuple: tuple, ast.List: list, ast.Set: set}[type(node)](map(_fold, node.elts))
        case ast.Dict() if all(key is not None for key in node.keys):
            return dict(zip(map(_fold, node.keys), map(_fold, node.values), strict=True))  # pyright: ignore[reportArgumentType]
        case ast.UnaryOp():
            return _SIGNS[type(node.op)](_fold(node.operand))
        case ast.BinOp():
            left, right = _fold(node.left), _fold(node.right)
            _check_operation(node.op, left, right)
            return _OPERATIONS[type(node.op)](left, right)
        case ast.Subscript(value=owner, slice=index) if not isinstance(index, ast.Slice):
            return _fold(owner)[_fold(index)]
        case ast.Attribute(value=ast.Name()) if ast.unparse(node) in _CONSTANTS:
            return _CONSTANTS[ast.unparse(node)]
        case ast.Call(func=ast.Name(id=name)) if name in PURE and not node.keywords:
            return _call(name, list(map(_fold, node.args)))
        case ast.Call(func=ast.Attribute(attr="items", value=owner), args=[], keywords=[]):
            return list(dict.items(_fold(owner)))
        case _:
            raise NotDataError(f"{type(node).__name__} is no data")


def _call(name: str, arguments: list[Any]) -> Any:
    if name == "range" and len(range(*arguments)) > _MOST_ITEMS:
        raise NotDataError("a range of too many numbers")
    value = getattr(builtins, name)(*arguments)
    return list(value) if name in ("enumerate", "reversed", "zip") else value


def _check_operation(op: ast.operator, left: Any, right: Any) -> None:
    """Refuse operations whose result may be large."""
    if not all(isinstance(operand, int | float | complex) for operand in (left, right)):
        is_set_operation = isinstance(op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor) and isinstance(left, set)
        is_allowed = is_set_operation or isinstance(op, ast.Add)
        if isinstance(op, ast.Mult):
            factor, collection = (left, right) if isinstance(left, int) else (right, left)
            is_allowed = isinstance(factor, int) and factor * max(len(collection), 1) <= _MOST_ITEMS
        if not is_allowed:
            raise NotDataError("an operation that is no arithmetic")
    elif isinstance(left, int) and isinstance(right, int):
        num_bits = left.bit_length() + right.bit_length()
        if isinstance(op, ast.Pow):
            num_bits = left.bit_length() * max(right, 1)
        elif isinstance(op, ast.LShift):
            num_bits = left.bit_length() + right
        if num_bits > _MOST_BITS:
            raise NotDataError("a number of too many digits")


def wire(value: Any) -> Wire:
    """Return a value of this process as the program's process would send it."""
    return program.wire(value, [_ROOM])


def _tree(value: Wire) -> Wire:
    return wire(int(value)) if isinstance(value, bool) else "z" if value is None else value


def _equals_nothing(tree: Wire) -> bool:
    """Whether a value has NaN or an object, which equal not even themselves."""
    return tree.startswith("o") if isinstance(tree, str) else any(map(_equals_nothing, tree))


def equal(left: Wire, right: Wire) -> bool:
    """Whether two values are equal; False where one is malformed."""
    try:
        return _tree(left) == _tree(right) and not _equals_nothing(_tree(left))
    except MALFORMED:
        return False


def plain(value: Wire) -> Any:
    """Return a value as a Python value with an order: a number, text, bytes, or list or tuple of these.

    Raises:
        TypeError, ValueError, …: the value is of another kind, or malformed.
    """
    if value is None or isinstance(value, bool):
        return value
    kind, content = value[0], value[1:]
    if kind == "s":
        return content
    if kind == "n":
        return _number(content)
    if kind == "b":
        return bytes.fromhex(content)
    if kind == "z":
        return None
    if kind == "c":
        return complex(*map(plain, content))
    if kind in ("l", "t"):
        return (list if kind == "l" else tuple)(map(plain, content))
    raise TypeError(f"{kind} has no order")


def _number(text: str) -> float | Fraction:
    """Return the number of a ratio in base 16."""
    if text.endswith("inf"):
        return float(text)
    numerator, _, denominator = text.partition("/")
    if not denominator:
        return int(numerator, 16)
    if len(text) > _MOST_DIGITS:
        raise ValueError("a fraction of too many digits")
    return Fraction(int(numerator, 16), int(denominator, 16))


def holds(left: Wire, op: ast.cmpop, right: Wire) -> bool:
    """Return whether a comparison of two values holds; False where it cannot be made."""
    try:
        if isinstance(op, ast.Eq | ast.NotEq):
            return equal(left, right) is isinstance(op, ast.Eq)
        if isinstance(op, ast.Is | ast.IsNot):  # one side is None, True or False
            return (left is right) is isinstance(op, ast.Is)
        if isinstance(op, ast.In | ast.NotIn):
            return _is_member(left, right) is isinstance(op, ast.In)
        return bool(_ORDERS[type(op)](plain(left), plain(right)))
    except MALFORMED:
        return False


def _is_member(item: Wire, container: Wire) -> bool:
    """Whether a value is in a collection or text of the tests."""
    if isinstance(container, str):
        return isinstance(item, str) and item[0] == container[0] and item[1:] in container[1:]
    kind, *members = container
    return any(equal(item, member[1] if kind == "d" else member) for member in members)


def shown_wire(value: Wire) -> str:
    """Return a value as Python writes it, cut to 80 characters."""
    try:
        if value is not None and not isinstance(value, bool) and value[0] in ("o", "S", "d"):
            collection = "a set" if value[0] == "S" else "a dict"
            return f"a {value[1:]}"[:80] if value[0] == "o" else f"{collection} of {len(value) - 1}"
        return repr(_replace_fractions(plain(value)))[:80]
    except MALFORMED:
        return "no plain data"


def _replace_fractions(value: Any) -> Any:
    """Return a value with floats in place of fractions."""
    if isinstance(value, list | tuple):
        return type(value)(map(_replace_fractions, value))
    return float(value) if isinstance(value, Fraction) else value
