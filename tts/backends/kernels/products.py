"""Small matrix products held in vector registers, for the CPU kernels: written as LLVM code, called from compiled functions.

c[rows, 16 * vectors] (+)= a[rows, depth] @ b[depth, 16 * vectors]: every sum runs over depth in ascending order by fused
multiply-adds, whatever `rows` is, so a row's bits are its own. A compiler would not keep the sums in registers by itself, since
it cannot know that c does not overlap a or b.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tts.backends.kernels.host import compiled

LANES = 16  # floats of a vector
_VECTOR = ir.VectorType(ir.FloatType(), LANES)
_INT = ir.IntType(64)
_SIGNATURE = types.void(
    types.uintp, types.intp, types.uintp, types.intp, types.uintp, types.intp, types.intp, types.boolean
)  # addresses and row strides (in floats) of c, a, b; depth, at least 1; whether c starts at 0


def _product(rows: int, vectors: int) -> Any:
    @intrinsic
    def product(context: Any, c: Any, c_stride: Any, a: Any, a_stride: Any, b: Any, b_stride: Any, depth: Any, fresh: Any) -> Any:
        del context, c, c_stride, a, a_stride, b, b_stride, depth, fresh
        return _SIGNATURE, lambda ctx, builder, _, args: _emit(ctx, builder, args, rows, vectors)

    return product


def _emit(context: Any, builder: Any, args: Sequence[Any], rows: int, vectors: int) -> Any:
    """Write the loop over depth: one load of b serves all rows, and every sum stays in a register."""
    c, c_stride, a, a_stride, b, b_stride, depth, fresh = args
    floats, pointer = ir.FloatType().as_pointer(), _VECTOR.as_pointer()
    c, a, b = (builder.inttoptr(address, floats) for address in (c, a, b))
    fma = cgutils.get_or_insert_function(builder.module, ir.FunctionType(_VECTOR, [_VECTOR] * 3), "llvm.fma.v16f32")

    def place(base: Any, stride: Any, row: Any, vector: int) -> Any:
        offset = builder.add(builder.mul(stride, row), _INT(LANES * vector))
        return builder.bitcast(builder.gep(base, [offset]), pointer)

    cells = [(row, vector) for row in range(rows) for vector in range(vectors)]
    places = {cell: place(c, c_stride, _INT(cell[0]), cell[1]) for cell in cells}
    zero = ir.Constant(_VECTOR, [0.0] * LANES)
    begin = {cell: builder.select(fresh, zero, builder.load(places[cell], align=4)) for cell in cells}
    entry, loop, done = builder.block, builder.append_basic_block("depth"), builder.append_basic_block("done")
    builder.branch(loop)

    builder.position_at_end(loop)
    step = builder.phi(_INT)
    step.add_incoming(_INT(0), entry)
    sums = {cell: builder.phi(_VECTOR) for cell in cells}
    right = [builder.load(place(b, b_stride, step, vector), align=4) for vector in range(vectors)]
    for row in range(rows):
        left = _broadcast(builder, builder.load(builder.gep(a, [builder.add(builder.mul(a_stride, _INT(row)), step)])))
        for vector in range(vectors):
            total = builder.call(fma, [left, right[vector], sums[row, vector]])
            sums[row, vector].add_incoming(begin[row, vector], entry)
            sums[row, vector].add_incoming(total, loop)
            begin[row, vector] = total
    after = builder.add(step, _INT(1))
    step.add_incoming(after, loop)
    builder.cbranch(builder.icmp_signed("<", after, depth), loop, done)

    builder.position_at_end(done)
    for cell in cells:
        builder.store(begin[cell], places[cell], align=4)
    return context.get_dummy_value()


def _broadcast(builder: Any, number: Any) -> Any:
    empty = ir.Constant(_VECTOR, ir.Undefined)
    first = builder.insert_element(empty, number, ir.IntType(32)(0))
    return builder.shuffle_vector(first, empty, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))


_1x1, _2x1, _3x1, _4x1, _8x1 = (_product(rows, 1) for rows in (1, 2, 3, 4, 8))
_1x4, _2x4, _3x4, _4x4 = (_product(rows, 4) for rows in (1, 2, 3, 4))


@compiled
def narrow(c: int, c_stride: int, a: int, a_stride: int, rows: int, b: int, b_stride: int, depth: int, fresh: bool) -> None:
    """Compute c[rows, 16] (+)= a[rows, depth] @ b[depth, 16], from addresses and row strides in floats."""
    row = 0
    while row < rows:
        left = rows - row
        to, of = np.uintp(c + 4 * row * c_stride), np.uintp(a + 4 * row * a_stride)
        if left >= 8:
            _8x1(to, c_stride, of, a_stride, b, b_stride, depth, fresh)
            row += 8
        elif left >= 4:
            _4x1(to, c_stride, of, a_stride, b, b_stride, depth, fresh)
            row += 4
        elif left == 3:
            _3x1(to, c_stride, of, a_stride, b, b_stride, depth, fresh)
            row += 3
        elif left == 2:
            _2x1(to, c_stride, of, a_stride, b, b_stride, depth, fresh)
            row += 2
        else:
            _1x1(to, c_stride, of, a_stride, b, b_stride, depth, fresh)
            row += 1


@compiled
def wide(c: int, c_stride: int, a: int, a_stride: int, rows: int, b: int, b_stride: int, depth: int, fresh: bool) -> None:
    """Compute c[rows, 64] (+)= a[rows, depth] @ b[depth, 64], from addresses and row strides in floats."""
    row = 0
    while row < rows:
        left = rows - row
        to, of = np.uintp(c + 4 * row * c_stride), np.uintp(a + 4 * row * a_stride)
        if left >= 4:
            _4x4(to, c_stride, of, a_stride, b, b_stride, depth, fresh)
            row += 4
        elif left == 3:
            _3x4(to, c_stride, of, a_stride, b, b_stride, depth, fresh)
            row += 3
        elif left == 2:
            _2x4(to, c_stride, of, a_stride, b, b_stride, depth, fresh)
            row += 2
        else:
            _1x4(to, c_stride, of, a_stride, b, b_stride, depth, fresh)
            row += 1
