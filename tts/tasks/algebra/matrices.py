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

    def replace_matrix(match: re.Match[str]) -> str:
        rows = tuple(tuple(parse(cell) for cell in row) for row in cells_of(match[2]))
        if len(rows) * len(rows[0]) > _MOST_ENTRIES or match[1] == "V":
            raise UndecidedError("a matrix too large, or its norm")
        blocks.append(determinant(rows) if match[1] == "v" else rows)
        return rf"\block{{{len(blocks) - 1}}}"

    with_blocks = _DETERMINANT.sub(r"|\1|", MATRIX.sub(replace_matrix, text))
    with_blocks = re.sub(r"\[(\\block\{[0-9]+\})\]", r"\1", with_blocks)
    tree = parse(_TRANSPOSED.sub(r"\\transpose{\1}", with_blocks))
    return _value(tree, blocks)


def determinant(rows: Matrix) -> Node:
    """Return the determinant as an expression.

    Raises:
        UndecidedError: the matrix is not square, or larger than 4 by 4.
    """
    n = len(rows)
    if n != len(rows[0]) or n > _LARGEST:
        raise UndecidedError("no determinant")
    terms: list[Node] = []
    for columns in itertools.permutations(range(n)):
        num_inversions = sum(a > b for a, b in itertools.combinations(columns, 2))
        entries = tuple(row[column] for row, column in zip(rows, columns, strict=True))
        product = Node("*", entries) if n > 1 else entries[0]
        terms.append(Node("-", (product,)) if num_inversions % 2 else product)
    return Node("+", tuple(terms)) if len(terms) > 1 else terms[0]


def _value(node: Node, blocks: Sequence[Matrix | Node]) -> Matrix | Node:
    """Return the value of a tree in which a node "block" stands for the matrix of its number."""
    if node.op == "block":
        if not node.name.isdigit() or int(node.name) >= len(blocks):
            return _fail("no matrix")
        return blocks[int(node.name)]
    values = [_value(argument, blocks) for argument in node.args]
    numbers = [value for value in values if isinstance(value, Node)]
    if len(numbers) == len(values):
        return dataclasses.replace(node, args=tuple(numbers))
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
    rows_at_once = list(zip(*matrices, strict=True))  # of each index the rows of all matrices
    return tuple(tuple(Node(op, cells) for cells in zip(*rows, strict=True)) for rows in rows_at_once)


def _scale(factor: Node, value: Matrix | Node) -> Matrix:
    return tuple(tuple(Node("*", (factor, cell)) for cell in row) for row in _matrix(value))


def _times(a: Matrix | Node, b: Matrix | Node) -> Matrix | Node:
    """Return the product of two values, each a matrix or a number."""
    if isinstance(a, Node):
        return Node("*", (a, b)) if isinstance(b, Node) else _scale(a, b)
    if isinstance(b, Node):
        return _scale(b, a)
    if len(a[0]) != len(b):
        raise UndecidedError("matrices that have no product")
    columns = list(zip(*b, strict=True))
    product = tuple(tuple(_dot_product(row, column) for column in columns) for row in a)
    if sum(_size(cell) for row in product for cell in row) > _MOST_TERMS:
        raise UndecidedError("a product too large")
    return product


def _dot_product(row: Sequence[Node], column: Sequence[Node]) -> Node:
    return Node("+", tuple(Node("*", pair) for pair in zip(row, column, strict=True)))


def _size(node: Node) -> int:
    return 1 + sum(map(_size, node.args))


def _power(matrix: Matrix, exponent: Node) -> Matrix | Node:
    """Return a square matrix to a whole power from -8 to 8 that is not 0."""
    is_negative = exponent.op == "-"
    size = exponent.args[0] if is_negative else exponent
    is_whole = size.op == "number" and size.value.denominator == 1
    if not is_whole or not 1 <= size.value <= 8 or len(matrix) != len(matrix[0]):
        raise UndecidedError("a power of a matrix")
    base = _inverse(matrix) if is_negative else matrix
    result: Matrix | Node = base
    for _ in range(int(size.value) - 1):
        result = _times(result, base)
    return result


def _inverse(matrix: Matrix) -> Matrix:
    """Return the inverse as the cofactors of the matrix, transposed, times the reciprocal of the determinant."""
    n = len(matrix)
    reciprocal = Node("/", (ONE, determinant(matrix)))
    if n == 1:
        return ((reciprocal,),)

    def entry(i: int, j: int) -> Node:
        """Return the inverse's entry in row i and column j, from the matrix without row j and column i."""
        remaining_rows = matrix[:j] + matrix[j + 1 :]
        minor = determinant(tuple(row[:i] + row[i + 1 :] for row in remaining_rows))
        cofactor = Node("-", (minor,)) if (i + j) % 2 else minor
        return Node("*", (reciprocal, cofactor))

    return tuple(tuple(entry(i, j) for j in range(n)) for i in range(n))
