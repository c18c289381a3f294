"""Small matrix products held in vector registers, for the CPU kernels: written as LLVM code, called from compiled functions.

Every sum runs over depth in ascending order by fused
multiply-adds, whatever `rows` is, so a row's bits are its own. A compiler would not keep the sums in registers by itself, since
it cannot know that c does not overlap a or b.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tts.backends.kernels.host import compiled

LANES = 16  # floats of a vector
VECTOR = ir.VectorType(ir.FloatType(), LANES)
INT = ir.IntType(64)
ADDRESS, COUNT = types.uintp, types.intp


def _product(rows: int, vectors: int) -> Any:
    """c[rows, 16 * vectors] += a[rows, depth] @ b[depth, 16 * vectors]."""

    @intrinsic
    def product(context: Any, c: Any, c_stride: Any, a: Any, a_stride: Any, b: Any, b_stride: Any, depth: Any) -> Any:
        del context, c, c_stride, a, a_stride, b, b_stride, depth
        signature = types.void(ADDRESS, COUNT, ADDRESS, COUNT, ADDRESS, COUNT, COUNT)

        def emit(ctx: Any, builder: Any, _: Any, args: Sequence[Any]) -> Any:
            c, c_stride, a, a_stride, b, b_stride, depth = args
            starts = [at(builder, b, INT(LANES * vector)) for vector in range(vectors)]
            write_loop(builder, (c, c_stride), (a, a_stride), (starts, b_stride), rows, depth, add=True)
            return ctx.get_dummy_value()

        return signature, emit

    return product


def _scores(rows: int, blocks: int) -> Any:
    """c[rows, 16 * blocks] = a[rows, depth] @ [b of each block], where a block lies at `b + step * number` and is [depth, 16]."""

    @intrinsic
    def product(context: Any, c: Any, c_stride: Any, a: Any, a_stride: Any, b: Any, step: Any, numbers: Any, apart: Any, depth: Any) -> Any:
        del context, c, c_stride, a, a_stride, b, step, numbers, apart, depth
        signature = types.void(ADDRESS, COUNT, ADDRESS, COUNT, ADDRESS, COUNT, ADDRESS, COUNT, COUNT)

        def emit(ctx: Any, builder: Any, _: Any, args: Sequence[Any]) -> Any:
            c, c_stride, a, a_stride, b, step, numbers, apart, depth = args
            table = builder.inttoptr(numbers, INT.as_pointer())
            chosen = [builder.load(builder.gep(table, [builder.mul(apart, INT(block))])) for block in range(blocks)]
            starts = [at(builder, b, builder.mul(step, number)) for number in chosen]
            write_loop(builder, (c, c_stride), (a, a_stride), (starts, INT(LANES)), rows, depth, add=False)
            return ctx.get_dummy_value()

        return signature, emit

    return product


def at(builder: Any, address: Any, floats: Any) -> Any:
    """Return a pointer so many floats behind an address."""
    return builder.gep(builder.inttoptr(address, ir.FloatType().as_pointer()), [floats])


def write_loop(
    builder: Any, c: Any, a: Any, b: Any, rows: int, depth: Any, *, add: bool, each: Callable[[Any], None] | None = None
) -> None:
    """Write the loop over depth: one load of each vector of b serves all rows, and every sum stays in a register.

    Args:
        builder: of LLVM code. c, a: address and row stride in floats. b: pointers to its vectors at depth 0, and their stride.
        rows: of a and c. depth: at least 1. add: whether c is added to, else overwritten.
        each: writes what else is to be done at a depth, which it is given.
    """
    (to, to_stride), (of, of_stride), (starts, stride) = c, a, b
    fma = cgutils.get_or_insert_function(builder.module, ir.FunctionType(VECTOR, [VECTOR] * 3), "llvm.fma.v16f32")
    pointer = VECTOR.as_pointer()
    cells = [(row, vector) for row in range(rows) for vector in range(len(starts))]
    places = {
        (row, vector): builder.bitcast(at(builder, to, builder.add(builder.mul(to_stride, INT(row)), INT(LANES * vector))), pointer)
        for row, vector in cells
    }
    zero = ir.Constant(VECTOR, [0.0] * LANES)
    begin = {cell: builder.load(places[cell], align=4) if add else zero for cell in cells}
    entry, loop, done = builder.block, builder.append_basic_block("depth"), builder.append_basic_block("done")
    builder.branch(loop)

    builder.position_at_end(loop)
    step = builder.phi(INT)
    step.add_incoming(INT(0), entry)
    sums = {cell: builder.phi(VECTOR) for cell in cells}
    right = [builder.load(builder.bitcast(builder.gep(start, [builder.mul(stride, step)]), pointer), align=4) for start in starts]
    if each is not None:
        each(step)
    totals: dict[tuple[int, int], Any] = {}
    for row in range(rows):
        left = _broadcast(builder, builder.load(at(builder, of, builder.add(builder.mul(of_stride, INT(row)), step))))
        for vector, value in enumerate(right):
            totals[row, vector] = builder.call(fma, [left, value, sums[row, vector]])
            sums[row, vector].add_incoming(begin[row, vector], entry)
            sums[row, vector].add_incoming(totals[row, vector], loop)
    after = builder.add(step, INT(1))
    step.add_incoming(after, loop)
    builder.cbranch(builder.icmp_signed("<", after, depth), loop, done)

    builder.position_at_end(done)
    for cell in cells:
        builder.store(totals[cell], places[cell], align=4)


def _broadcast(builder: Any, number: Any) -> Any:
    empty = ir.Constant(VECTOR, ir.Undefined)
    first = builder.insert_element(empty, number, ir.IntType(32)(0))
    return builder.shuffle_vector(first, empty, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))


_1x1, _2x1, _3x1, _4x1, _8x1 = (_product(rows, 1) for rows in (1, 2, 3, 4, 8))
_1x4, _2x4, _3x4, _4x4 = (_product(rows, 4) for rows in (1, 2, 3, 4))
_s1x1, _s2x1, _s3x1, _s4x1, _s8x1 = (_scores(rows, 1) for rows in (1, 2, 3, 4, 8))
_s1x2, _s2x2, _s3x2, _s4x2 = (_scores(rows, 2) for rows in (1, 2, 3, 4))
_s1x4, _s2x4, _s3x4, _s4x4 = (_scores(rows, 4) for rows in (1, 2, 3, 4))


@compiled
def dot_keys(c: int, c_stride: int, a: int, rows: int, b: int, step: int, numbers: int, apart: int, blocks: int, depth: int) -> None:
    """Compute c[rows, 16 * blocks] = a[rows, depth] @ keys of up to four blocks.

    Args:
        c, c_stride: address and row stride in floats. a: address of dense rows. b: address of the pool's keys, each block
            [depth, 16], `step` floats apart. numbers, apart: address of the first block's number (int64) and how far apart they are.
    """
    done = 0
    while done < blocks:
        to, chosen = np.uintp(c + 4 * 16 * done), np.uintp(numbers + 8 * apart * done)
        left = blocks - done
        if left >= 4:
            _dot_4(to, c_stride, a, rows, b, step, chosen, apart, depth)
            done += 4
        elif left >= 2:
            _dot_2(to, c_stride, a, rows, b, step, chosen, apart, depth)
            done += 2
        else:
            _dot_1(to, c_stride, a, rows, b, step, chosen, apart, depth)
            done += 1


@compiled
def _dot_4(c: int, c_stride: int, a: int, rows: int, b: int, step: int, numbers: int, apart: int, depth: int) -> None:
    row = 0
    while row < rows:
        left = rows - row
        to, of = np.uintp(c + 4 * row * c_stride), np.uintp(a + 4 * row * depth)
        if left >= 4:
            _s4x4(to, c_stride, of, depth, b, step, numbers, apart, depth)
        elif left == 3:
            _s3x4(to, c_stride, of, depth, b, step, numbers, apart, depth)
        elif left == 2:
            _s2x4(to, c_stride, of, depth, b, step, numbers, apart, depth)
        else:
            _s1x4(to, c_stride, of, depth, b, step, numbers, apart, depth)
        row += min(left, 4)


@compiled
def _dot_2(c: int, c_stride: int, a: int, rows: int, b: int, step: int, numbers: int, apart: int, depth: int) -> None:
    row = 0
    while row < rows:
        left = rows - row
        to, of = np.uintp(c + 4 * row * c_stride), np.uintp(a + 4 * row * depth)
        if left >= 4:
            _s4x2(to, c_stride, of, depth, b, step, numbers, apart, depth)
        elif left == 3:
            _s3x2(to, c_stride, of, depth, b, step, numbers, apart, depth)
        elif left == 2:
            _s2x2(to, c_stride, of, depth, b, step, numbers, apart, depth)
        else:
            _s1x2(to, c_stride, of, depth, b, step, numbers, apart, depth)
        row += min(left, 4)


@compiled
def _dot_1(c: int, c_stride: int, a: int, rows: int, b: int, step: int, numbers: int, apart: int, depth: int) -> None:
    row = 0
    while row < rows:
        left = rows - row
        to, of = np.uintp(c + 4 * row * c_stride), np.uintp(a + 4 * row * depth)
        if left >= 8:
            _s8x1(to, c_stride, of, depth, b, step, numbers, apart, depth)
            row += 8
            continue
        if left >= 4:
            _s4x1(to, c_stride, of, depth, b, step, numbers, apart, depth)
        elif left == 3:
            _s3x1(to, c_stride, of, depth, b, step, numbers, apart, depth)
        elif left == 2:
            _s2x1(to, c_stride, of, depth, b, step, numbers, apart, depth)
        else:
            _s1x1(to, c_stride, of, depth, b, step, numbers, apart, depth)
        row += min(left, 4)


@compiled
def add_narrow(c: int, c_stride: int, a: int, a_stride: int, rows: int, b: int, b_stride: int, depth: int) -> None:
    """Compute c[rows, 16] += a[rows, depth] @ b[depth, 16], from addresses and row strides in floats."""
    row = 0
    while row < rows:
        left = rows - row
        to, of = np.uintp(c + 4 * row * c_stride), np.uintp(a + 4 * row * a_stride)
        if left >= 8:
            _8x1(to, c_stride, of, a_stride, b, b_stride, depth)
            row += 8
            continue
        if left >= 4:
            _4x1(to, c_stride, of, a_stride, b, b_stride, depth)
        elif left == 3:
            _3x1(to, c_stride, of, a_stride, b, b_stride, depth)
        elif left == 2:
            _2x1(to, c_stride, of, a_stride, b, b_stride, depth)
        else:
            _1x1(to, c_stride, of, a_stride, b, b_stride, depth)
        row += min(left, 4)


@compiled
def add_wide(c: int, c_stride: int, a: int, a_stride: int, rows: int, b: int, b_stride: int, depth: int) -> None:
    """Compute c[rows, 64] += a[rows, depth] @ b[depth, 64], from addresses and row strides in floats."""
    row = 0
    while row < rows:
        left = rows - row
        to, of = np.uintp(c + 4 * row * c_stride), np.uintp(a + 4 * row * a_stride)
        if left >= 4:
            _4x4(to, c_stride, of, a_stride, b, b_stride, depth)
        elif left == 3:
            _3x4(to, c_stride, of, a_stride, b, b_stride, depth)
        elif left == 2:
            _2x4(to, c_stride, of, a_stride, b, b_stride, depth)
        else:
            _1x4(to, c_stride, of, a_stride, b, b_stride, depth)
        row += min(left, 4)
