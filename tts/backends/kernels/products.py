"""Small matrix products held in vector registers, for the CPU kernels.

The products are written as LLVM code and called from compiled functions. Every sum runs over depth in ascending order
by fused multiply-adds, whatever `rows` is, so a row's bits depend on that row alone. A compiler would not keep the sums
in registers, since c might overlap a or b. `target.TILES` sets the number of sums kept at once, which changes no bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tts.backends.kernels.host import compile_function
from tts.backends.kernels.target import FUSED, TILES, WIDENS_HALVES

LANES = 16  # floats of a vector; a CPU with smaller registers takes several registers for one vector
VECTOR = ir.VectorType(ir.FloatType(), LANES)
HALVES = ir.VectorType(ir.HalfType(), LANES)
INT = ir.IntType(64)
ADDRESS, COUNT = types.uintp, types.intp
_FLOAT = ir.FloatType()


def _product(vectors: int, max_rows: int) -> Any:
    """Return the product c[rows, 16 * vectors] += a[rows, depth] @ b[depth, 16 * vectors].

    The product takes 1 to `max_rows` rows, and numbers of b of 2 or 4 bytes.
    """

    @intrinsic
    def product(
        context: Any,
        rows: Any,
        c: Any,
        c_stride: Any,
        a: Any,
        a_stride: Any,
        b: Any,
        b_stride: Any,
        width: Any,
        depth: Any,
    ) -> Any:
        del context, rows, c, c_stride, a, a_stride, b, b_stride, width, depth
        signature = types.void(COUNT, ADDRESS, COUNT, ADDRESS, COUNT, ADDRESS, COUNT, COUNT, COUNT)

        def emit(ctx: Any, builder: Any, _: Any, args: Sequence[Any]) -> Any:
            rows, c, c_stride, a, a_stride, b, b_stride, width, depth = args

            def write_product(num_rows: int, number_type: Any) -> None:
                starts = [offset_pointer(builder, b, INT(LANES * vector), number_type) for vector in range(vectors)]
                write_loop(builder, (c, c_stride), (a, a_stride), (starts, b_stride), num_rows, depth, add=True)

            # `rows` and `width` are known only when the product runs, so code is written for each of their values
            _switch_rows_and_type(builder, rows, width, max_rows, write_product)
            return ctx.get_dummy_value()

        return signature, emit

    return product


def _scores(blocks: int, max_rows: int) -> Any:
    """Return the product c[rows, 16 * blocks] = a[rows, depth] @ [the matrices of some blocks side by side].

    A block's matrix is [depth, 16], and lies `step * number` numbers after the address b. The blocks' numbers lie at
    the address `numbers`, `apart` numbers from each other. The product takes 1 to `max_rows` rows.
    """

    @intrinsic
    def product(
        context: Any,
        rows: Any,
        c: Any,
        c_stride: Any,
        a: Any,
        a_stride: Any,
        b: Any,
        step: Any,
        width: Any,
        numbers: Any,
        apart: Any,
        depth: Any,
    ) -> Any:
        del context, rows, c, c_stride, a, a_stride, b, step, width, numbers, apart, depth
        signature = types.void(COUNT, ADDRESS, COUNT, ADDRESS, COUNT, ADDRESS, COUNT, COUNT, ADDRESS, COUNT, COUNT)

        def emit(ctx: Any, builder: Any, _: Any, args: Sequence[Any]) -> Any:
            rows, c, c_stride, a, a_stride, b, step, width, numbers, apart, depth = args
            number_pointer = builder.inttoptr(numbers, INT.as_pointer())
            number_offsets = [builder.mul(apart, INT(block)) for block in range(blocks)]
            block_numbers = [builder.load(builder.gep(number_pointer, [offset])) for offset in number_offsets]

            def write_product(num_rows: int, number_type: Any) -> None:
                starts = [
                    offset_pointer(builder, b, builder.mul(step, number), number_type) for number in block_numbers
                ]
                write_loop(builder, (c, c_stride), (a, a_stride), (starts, INT(LANES)), num_rows, depth, add=False)

            _switch_rows_and_type(builder, rows, width, max_rows, write_product)
            return ctx.get_dummy_value()

        return signature, emit

    return product


def offset_pointer(builder: Any, address: Any, numbers: Any, kind: Any = _FLOAT) -> Any:
    """Return the pointer to a number of a kind, given an address and an offset in numbers."""
    return builder.gep(builder.inttoptr(address, kind.as_pointer()), [numbers])


def _switch_rows_and_type(
    builder: Any, rows: Any, width: Any, max_rows: int, write: Callable[[int, Any], None]
) -> None:
    """Write a switch over the number of rows, 1 to `max_rows`, and the type of the numbers.

    A number has `width` bytes: 4, or 2 where the CPU widens halves. `write` writes the code for a number of rows and a
    type.
    """
    # the case of r rows is r for halves, and r + float_offset for floats
    float_offset = max_rows + 1

    def write_case(case: int) -> None:
        if case > float_offset:
            write(case - float_offset, _FLOAT)
        else:
            write(case, ir.HalfType())

    half_cases = range(1, max_rows + 1) if WIDENS_HALVES else ()
    float_cases = range(float_offset + 1, float_offset + max_rows + 1)
    is_float = builder.ashr(width, INT(2))  # 4 bytes -> 1, 2 bytes -> 0
    case = builder.add(builder.mul(is_float, INT(float_offset)), rows)
    switch(builder, case, [*half_cases, *float_cases], write_case)


def switch(builder: Any, number: Any, cases: Iterable[int], write: Callable[[int], None]) -> None:
    """Write a switch over a number; `write` writes the code of each case.

    The switch does nothing for a number that is no case.
    """
    end_block = builder.append_basic_block("after")
    jump = builder.switch(number, end_block)
    for case in cases:
        block = builder.append_basic_block("case")
        jump.add_case(INT(case), block)
        builder.position_at_end(block)
        write(case)
        builder.branch(end_block)
    builder.position_at_end(end_block)


def write_loop(
    builder: Any, c: Any, a: Any, b: Any, rows: int, depth: Any, *, add: bool, each: Callable[[Any], None] | None = None
) -> None:
    """Write the loop over depth.

    One load of each vector of b serves all rows, and every sum stays in a register.

    Args:
        builder: The builder of LLVM code.
        c: The address of the result, and its row stride in floats.
        a: The address of the left factor, and its row stride in floats.
        b: Pointers to the right factor's vectors at depth 0, and their stride. Halves are widened, which is exact.
        rows: The rows of a and c.
        depth: The numbers of each sum, at least 1.
        add: Whether c is added to, else overwritten.
        each: Writes further code for each depth, called with the depth; None: no further code.
    """
    (c_address, c_stride), (a_address, a_stride), (b_starts, b_stride) = c, a, b
    vectors = range(len(b_starts))
    cells = [(row, vector) for row in range(rows) for vector in vectors]  # the vectors of c
    places: dict[tuple[int, int], Any] = {}
    for row, vector in cells:
        offset = builder.add(builder.mul(c_stride, INT(row)), INT(LANES * vector))
        places[row, vector] = builder.bitcast(offset_pointer(builder, c_address, offset), VECTOR.as_pointer())
    zero = ir.Constant(VECTOR, [0.0] * LANES)
    first_sums = {cell: builder.load(places[cell], align=4) if add else zero for cell in cells}
    entry, loop, done = builder.block, builder.append_basic_block("depth"), builder.append_basic_block("done")
    builder.branch(loop)

    builder.position_at_end(loop)
    step = builder.phi(INT)
    step.add_incoming(INT(0), entry)
    sums = {cell: builder.phi(VECTOR) for cell in cells}
    right_vectors = [_load_vector(builder, builder.gep(start, [builder.mul(b_stride, step)])) for start in b_starts]
    if each is not None:
        each(step)
    totals: dict[tuple[int, int], Any] = {}
    for row in range(rows):
        offset = builder.add(builder.mul(a_stride, INT(row)), step)
        left = broadcast(builder, builder.load(offset_pointer(builder, a_address, offset)), VECTOR)
        for vector in vectors:
            totals[row, vector] = _multiply_add(builder, left, right_vectors[vector], sums[row, vector])
            sums[row, vector].add_incoming(first_sums[row, vector], entry)
            sums[row, vector].add_incoming(totals[row, vector], loop)
    next_step = builder.add(step, INT(1))
    step.add_incoming(next_step, loop)
    builder.cbranch(builder.icmp_signed("<", next_step, depth), loop, done)

    builder.position_at_end(done)
    for cell in cells:
        builder.store(totals[cell], places[cell], align=4)


def _load_vector(builder: Any, start: Any) -> Any:
    """Return the vector of floats that lies at a pointer to floats or halves."""
    if start.type.pointee == _FLOAT:
        return builder.load(builder.bitcast(start, VECTOR.as_pointer()), align=4)
    return builder.fpext(builder.load(builder.bitcast(start, HALVES.as_pointer()), align=2), VECTOR)


def _multiply_add(builder: Any, left: Any, right: Any, total: Any) -> Any:
    if not FUSED:  # without the instruction, a fused multiply-add is a library call for each number
        return builder.fadd(builder.fmul(left, right), total)
    fma = cgutils.get_or_insert_function(builder.module, ir.FunctionType(VECTOR, [VECTOR] * 3), f"llvm.fma.v{LANES}f32")
    return builder.call(fma, [left, right, total])


def broadcast(builder: Any, number: Any, vector: Any) -> Any:
    """Return a vector of type `vector` with a number in every lane."""
    empty = ir.Constant(vector, ir.Undefined)
    one_lane = builder.insert_element(empty, number, ir.IntType(32)(0))
    zero_indices = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(one_lane, empty, zero_indices)  # each lane is lane 0 of `one_lane`


_NARROW, _PAIR, _WIDE = TILES.narrow, TILES.pair, TILES.wide
_add_1, _add_2, _add_4 = _product(1, _NARROW), _product(2, _PAIR), _product(4, _WIDE)
_dot_1, _dot_2, _dot_4 = _scores(1, _NARROW), _scores(2, _PAIR), _scores(4, _WIDE)


@compile_function
def dot_keys(
    c: int,
    c_stride: int,
    a: int,
    rows: int,
    b: int,
    step: int,
    bytes_each: int,
    numbers: int,
    apart: int,
    blocks: int,
    depth: int,
) -> None:
    """Compute c[rows, 16 * blocks] = a[rows, depth] @ keys of some blocks.

    Args:
        c: The address of the result.
        c_stride: The row stride of the result in floats.
        a: The address of dense rows.
        rows: The number of rows of `a`.
        b: The address of the pool's keys, where each block is [depth, 16].
        step: The distance between blocks of the pool, in numbers.
        bytes_each: The bytes of each number of a key: 4, or 2 for halves.
        numbers: The address of the first block's number (int64).
        apart: The distance between the numbers of consecutive blocks, in numbers of 8 bytes.
        blocks: The number of blocks.
        depth: The size of a key.
    """
    blocks_done = 0
    while blocks_done < blocks:
        tile_at, numbers_at = np.uintp(c + 4 * LANES * blocks_done), np.uintp(numbers + 8 * apart * blocks_done)
        width, max_rows = _tile(rows, blocks - blocks_done)
        row = 0
        while row < rows:
            group_rows = min(rows - row, max_rows)
            c_at, a_at = np.uintp(tile_at + 4 * row * c_stride), np.uintp(a + 4 * row * depth)
            if width == 4:
                _dot_4(group_rows, c_at, c_stride, a_at, depth, b, step, bytes_each, numbers_at, apart, depth)
            elif width == 2:
                _dot_2(group_rows, c_at, c_stride, a_at, depth, b, step, bytes_each, numbers_at, apart, depth)
            else:
                _dot_1(group_rows, c_at, c_stride, a_at, depth, b, step, bytes_each, numbers_at, apart, depth)
            row += group_rows
        blocks_done += width


@compile_function
def add_values(
    c: int,
    c_stride: int,
    a: int,
    a_stride: int,
    rows: int,
    b: int,
    b_stride: int,
    bytes_each: int,
    depth: int,
    vectors: int,
) -> None:
    """Compute c[rows, 16 * vectors] += a[rows, depth] @ b[depth, 16 * vectors].

    Addresses and row strides are given as numbers.

    Args:
        c: The address of the result.
        c_stride: The row stride of `c`, in numbers.
        a: The address of the weights.
        a_stride: The row stride of `a`, in numbers.
        rows: The number of rows of `a` and `c`.
        b: The address of the values.
        b_stride: The row stride of `b`, in numbers.
        bytes_each: The bytes of each number of b: 4, or 2 for halves.
        depth: The number of columns of `a`.
        vectors: The number of vectors of 16 numbers in a row of `b`.
    """
    vectors_done = 0
    while vectors_done < vectors:
        tile_at, b_at = np.uintp(c + 4 * LANES * vectors_done), np.uintp(b + bytes_each * LANES * vectors_done)
        width, max_rows = _tile(rows, vectors - vectors_done)
        row = 0
        while row < rows:
            group_rows = min(rows - row, max_rows)
            c_at, a_at = np.uintp(tile_at + 4 * row * c_stride), np.uintp(a + 4 * row * a_stride)
            if width == 4:
                _add_4(group_rows, c_at, c_stride, a_at, a_stride, b_at, b_stride, bytes_each, depth)
            elif width == 2:
                _add_2(group_rows, c_at, c_stride, a_at, a_stride, b_at, b_stride, bytes_each, depth)
            else:
                _add_1(group_rows, c_at, c_stride, a_at, a_stride, b_at, b_stride, bytes_each, depth)
            row += group_rows
        vectors_done += width


@compile_function(inline="always")
def _tile(rows: int, vectors: int) -> Any:
    """Return the number of vectors of a product, 4, 2 or 1, and the most rows whose sums then fit the registers.

    With `rows` rows, the CPU's tiles tell whether a product of more vectors pays (see `target.Tiles`).
    """
    if vectors >= 4 and (rows <= _WIDE or _WIDE > 1):
        return 4, _WIDE
    if vectors >= 2 and (rows <= _PAIR or _PAIR > 2):
        return 2, _PAIR
    return 1, _NARROW
