"""Plain data: the values of expressions of literals.

Plain data is compared with the values that a program sends.

The values come from an untrusted process, as `program.encode` writes them. Equal values share a text, by which they are
compared. So no method of the program and no crafted hash takes part. Anything malformed equals nothing.
"""

from __future__ import annotations

import ast
import json
import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from tts_addons.code.program import Wire, encode

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
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        abs,
        bool,
        complex,
        dict,
        enumerate,
        float,
        frozenset,
        int,
        len,
        list,
        max,
        min,
        range,
        reversed,
        round,
        set,
        sorted,
        str,
        sum,
        tuple,
        zip,
    )
}
_CONSTANTS = {"math.pi": math.pi, "math.e": math.e, "math.inf": math.inf, "math.nan": math.nan, "math.tau": math.tau}
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


def _fold(node: ast.expr) -> Any:  # noqa: C901 - a case for each kind
    """Return the value of an expression; what an operation raises is raised as it is."""
    match node:
        case ast.Constant():
            return node.value
        case ast.Tuple():
            return tuple(map(_fold, node.elts))
        case ast.List():
            return list(map(_fold, node.elts))
        case ast.Set():
            return set(map(_fold, node.elts))
        case ast.Dict() if all(key is not None for key in node.keys):
            return {
                _fold(key): _fold(value) for key, value in zip(node.keys, node.values, strict=True) if key is not None
            }
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
        case ast.Call(func=ast.Name(id=name)) if name in _FUNCTIONS and not node.keywords:
            return _call(name, list(map(_fold, node.args)))
        case ast.Call(func=ast.Attribute(attr="items", value=owner), args=[], keywords=[]):
            return list(dict.items(_fold(owner)))
        case _:
            raise NotDataError(f"{type(node).__name__} is no data")


def _call(name: str, arguments: list[Any]) -> Any:
    if name == "range" and len(range(*arguments)) > _MOST_ITEMS:
        raise NotDataError("a range of too many numbers")
    value = _FUNCTIONS[name](*arguments)
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
    return encode(value, [_ROOM])


def key(value: Wire, mark: str = "sent") -> str:
    """Return a text that two values share exactly where `==` holds for them as plain data.

    NaN and objects equal nothing: their texts contain `mark`, which differs for the two sides of a comparison.

    Raises:
        ValueError, TypeError, …: the value is malformed.
    """
    if value is None:
        return "none"
    if isinstance(value, bool | int):
        return f"n{int(value):x}"
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, list):
        return "[" + ",".join(key(item, mark) for item in value) + "]"
    [(kind, content)] = value.items()
    if kind in ("i", "f", "q", "c"):
        return _number_key(_number(kind, content), mark)
    if kind == "b":
        return "b" + bytes.fromhex(content).hex()
    if kind == "t":
        return "(" + ",".join(key(item, mark) for item in content) + ")"
    if kind == "S":
        return "{" + ",".join(sorted({key(item, mark) for item in content})) + "}"
    if kind == "d":
        entries = sorted(f"{key(name, mark)}:{key(item, mark)}" for name, item in content)
        return "d{" + ",".join(entries) + "}"
    return f"o {mark}"


def _number(kind: str, content: Any) -> Any:
    """Return the number that `program.encode` wrote: "i" an integer, "f" a float, "q" a fraction, "c" complex."""
    if kind == "i":
        return int(content, 16)
    if kind == "f":
        return float.fromhex(content)
    if kind == "q":
        numerator, denominator = content[0], content[1]
        if len(numerator) + len(denominator) > _MOST_DIGITS:
            raise ValueError("a fraction of too many digits")
        return Fraction(int(numerator, 16), int(denominator, 16))
    real, imaginary = content[0], content[1]
    return complex(float.fromhex(real), float.fromhex(imaginary))


def _number_key(number: Any, mark: str) -> str:
    if isinstance(number, complex):
        if number.imag != 0:
            return f"c{_number_key(number.real, mark)},{_number_key(number.imag, mark)}"
        number = number.real
    if isinstance(number, float) and not math.isfinite(number):
        return f"n{number}" if math.isinf(number) else f"nan {mark}"
    numerator, denominator = number.as_integer_ratio()
    return f"n{numerator:x}" if denominator == 1 else f"n{numerator:x}/{denominator:x}"


def equal(left: Wire, right: Wire) -> bool:
    """Whether two values are equal; False where one is malformed."""
    try:
        return key(left, "left") == key(right, "right")
    except MALFORMED:
        return False


def plain(value: Wire) -> Any:
    """Return a value as a Python value with an order: a number, text, bytes, or list or tuple of these.

    Raises:
        TypeError: the value is of another kind.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, list):
        return [plain(item) for item in value]
    [(kind, content)] = value.items()
    if kind in ("i", "f", "q", "c"):
        return _number(kind, content)
    if kind == "b":
        return bytes.fromhex(content)
    if kind == "t":
        return tuple(plain(item) for item in content)
    raise TypeError(f"{kind} has no order")


def holds(left: Wire, op: ast.cmpop, right: Wire) -> bool:
    """Return whether a comparison of two values holds; False where it cannot be made."""
    try:
        if isinstance(op, ast.Eq | ast.NotEq):
            return equal(left, right) is isinstance(op, ast.Eq)
        if isinstance(op, ast.Is | ast.IsNot):  # one side is None, True or False, which JSON keeps
            return (left is right) is isinstance(op, ast.Is)
        if isinstance(op, ast.In | ast.NotIn):
            return _is_member(left, right) is isinstance(op, ast.In)
        return bool(_ORDERS[type(op)](plain(left), plain(right)))
    except MALFORMED:
        return False


def _is_member(item: Wire, container: Wire) -> bool:
    """Whether a value is in a collection or text of the tests."""
    if isinstance(container, str):
        return isinstance(item, str) and item in container
    members = container
    if not isinstance(container, list):
        [(kind, content)] = container.items()
        members = [name for name, _item in content] if kind == "d" else content
    item_key = key(item, "left")
    return any(key(member, "right") == item_key for member in members)


def shown_wire(value: Wire) -> str:
    """Return a value as Python writes it, cut to 80 characters."""
    try:
        if isinstance(value, dict):
            [(kind, content)] = value.items()
            if kind == "o":
                return f"a {content}"[:80]
            if kind in ("S", "d"):
                collection = "a set" if kind == "S" else "a dict"
                return f"{collection} of {len(content)}"
        return repr(plain(value))[:80]
    except MALFORMED:
        return "no plain data"
