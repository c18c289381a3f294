r"""Matrices within expressions: sums, products, powers, transposes and determinants, entry by entry.

An expression is read with `\block{0}` in the place of its first matrix. Then each entry of the result is an expression
of its own.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections.abc import Sequence

from tts.tasks.algebra.syntax import ONE, Node, parse
from tts.tasks.algebra.tokens import UndecidedError

MATRIX = re.compile(
    r"\\begin\{([pbBvV]?)(?:(?:small)?matrix|array)\}(?:\{[lcr|]+\})?((?:(?!\\begin).)*?)\\end\{[pbBvV]?(?:(?:small)?matrix|array)\}",
    re.DOTALL,
)
LINE_BREAK = re.compile(r"\\\\(?:\[[^\]]*\])?")
_TRANSPOSED = re.compile(r"(\\block\{[0-9]+\}) ?\^(?:\{?(?:T|t|\\top|\\intercal|\\mathsf\{T\}|\\mathrm\{T\})\}?)")
_DETERMINANT = re.compile(r"\\(?:det|operatorname\{det\}) ?\(?(\\block\{[0-9]+\})\)?")
_LARGEST = 4  # rows of a determinant
_MOST_ENTRIES = 64
_MOST_TERMS = 1500

Matrix = tuple[tuple[Node, ...], ...]


def cells_of(body: str) -> list[list[str]]:
    """Return the entries of a matrix, row by row, as texts.

    Raises:
        UndecidedError: the matrix has no rows, or rows of different lengths.
    """
    rows = [[cell.strip() for cell in row.split("&")] for row in LINE_BREAK.split(body) if row.strip()]
    if not rows or len({len(row) for row in rows}) != 1:
        raise UndecidedError("rows of different lengths")
    return rows


def evaluate(text: str) -> Matrix | Node:
    r"""Return the value of an expression with matrices: a matrix, or a number.

    A matrix between single bars means its determinant.

    Raises:
        UndecidedError: the expression is not understood, its shapes do not fit, or it would take too much work.
    """
    blocks: list[Matrix | Node] = []

    def block(match: re.Match[str]) -> str:
        rows = tuple(tuple(parse(cell) for cell in row) for row in cells_of(match[2]))
        if len(rows) * len(rows[0]) > _MOST_ENTRIES or match[1] == "V":
            raise UndecidedError("a matrix too large, or its norm")
        blocks.append(determinant(rows) if match[1] == "v" else rows)
        return rf"\block{{{len(blocks) - 1}}}"

    bare = _DETERMINANT.sub(r"|\1|", MATRIX.sub(block, text))
    bare = re.sub(r"\[(\\block\{[0-9]+\})\]", r"\1", bare)
    return _value(parse(_TRANSPOSED.sub(r"\\transpose{\1}", bare)), blocks)


def determinant(rows: Matrix) -> Node:
    """Return the determinant as an expression.

    Raises:
        UndecidedError: the matrix is not square, or larger than 4 by 4.
    """
    n = len(rows)
    if n != len(rows[0]) or n > _LARGEST:
        raise UndecidedError("no determinant")
    terms: list[Node] = []
    for order in itertools.permutations(range(n)):
        swaps = sum(order[i] > order[j] for i in range(n) for j in range(i + 1, n))
        product = Node("*", tuple(rows[i][order[i]] for i in range(n))) if n > 1 else rows[0][0]
        terms.append(Node("-", (product,)) if swaps % 2 else product)
    return Node("+", tuple(terms)) if len(terms) > 1 else terms[0]


def _value(node: Node, blocks: Sequence[Matrix | Node]) -> Matrix | Node:
    if node.op == "block":
        return blocks[int(node.name)] if node.name.isdigit() and int(node.name) < len(blocks) else _fail("no matrix")
    values = [_value(argument, blocks) for argument in node.args]
    if all(isinstance(argument, Node) for argument in values):
        return dataclasses.replace(node, args=tuple(argument for argument in values if isinstance(argument, Node)))
    if node.op == "+":
        return _entrywise("+", values)
    if node.op == "-":
        return _scale(Node("-", (ONE,)), values[0])
    if node.op == "*":
        return functools.reduce(_times, values)
    if node.op == "/" and isinstance(values[1], Node):
        return _scale(Node("/", (ONE, values[1])), values[0])
    if node.op == "transpose" or (node.op == "call" and node.name == "abs"):
        matrix = _matrix(values[0])
        return tuple(zip(*matrix, strict=True)) if node.op == "transpose" else determinant(matrix)
    if node.op == "^" and isinstance(values[1], Node):
        return _power(_matrix(values[0]), values[1])
    return _fail("an operation on matrices")


def _fail(reason: str) -> Matrix | Node:
    raise UndecidedError(reason)


def _matrix(value: Matrix | Node) -> Matrix:
    if isinstance(value, Node):
        raise UndecidedError("a number in the place of a matrix")
    return value


def _entrywise(op: str, values: Sequence[Matrix | Node]) -> Matrix:
    matrices = [_matrix(matrix) for matrix in values]
    if len({(len(matrix), len(matrix[0])) for matrix in matrices}) != 1:
        raise UndecidedError("matrices of different shapes")
    return tuple(tuple(Node(op, cells) for cells in zip(*rows, strict=True)) for rows in zip(*matrices, strict=True))


def _scale(factor: Node, value: Matrix | Node) -> Matrix:
    return tuple(tuple(Node("*", (factor, cell)) for cell in row) for row in _matrix(value))


def _times(a: Matrix | Node, b: Matrix | Node) -> Matrix | Node:
    if isinstance(a, Node):
        return Node("*", (a, b)) if isinstance(b, Node) else _scale(a, b)
    if isinstance(b, Node):
        return _scale(b, a)
    if len(a[0]) != len(b):
        raise UndecidedError("matrices that have no product")
    columns = list(zip(*b, strict=True))
    product = tuple(
        tuple(Node("+", tuple(Node("*", pair) for pair in zip(row, column, strict=True))) for column in columns)
        for row in a
    )
    if sum(_size(cell) for row in product for cell in row) > _MOST_TERMS:
        raise UndecidedError("a product too large")
    return product


def _size(node: Node) -> int:
    return 1 + sum(map(_size, node.args))


def _power(matrix: Matrix, exponent: Node) -> Matrix | Node:
    negative = exponent.op == "-"
    exponent = exponent.args[0] if negative else exponent
    is_whole = exponent.op == "number" and exponent.value.denominator == 1
    if not is_whole or not 1 <= exponent.value <= 8 or len(matrix) != len(matrix[0]):
        raise UndecidedError("a power of a matrix")
    base = _inverse(matrix) if negative else matrix
    result: Matrix | Node = base
    for _ in range(int(exponent.value) - 1):
        result = _times(result, base)
    return result


def _inverse(matrix: Matrix) -> Matrix:
    n = len(matrix)
    reciprocal = Node("/", (ONE, determinant(matrix)))
    if n == 1:
        return ((reciprocal,),)

    def cofactor(i: int, j: int) -> Node:
        minor = determinant(
            tuple(tuple(cell for k, cell in enumerate(row) if k != i) for m, row in enumerate(matrix) if m != j)
        )
        return Node("*", (reciprocal, Node("-", (minor,)) if (i + j) % 2 else minor))

    return tuple(tuple(cofactor(i, j) for j in range(n)) for i in range(n))
