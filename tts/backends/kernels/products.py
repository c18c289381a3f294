"""Small matrix products held in vector registers, for the CPU kernels.

They are written as LLVM code and called from compiled functions. Every sum runs over depth in ascending order by fused
multiply-adds, whatever `rows` is, so a row's bits are its own. A compiler would not keep the sums in registers, since c
might overlap a or b. `target.TILES` sets how many sums are kept at once, which changes no bit.
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

LANES = 16  # floats of a vector; a CPU with smaller registers takes several for it
VECTOR = ir.VectorType(ir.FloatType(), LANES)
HALVES = ir.VectorType(ir.HalfType(), LANES)
INT = ir.IntType(64)
ADDRESS, COUNT = types.uintp, types.intp
_FLOAT = ir.FloatType()


def _product(vectors: int, most: int) -> Any:
    """c[rows, 16 * vectors] += a[rows, depth] @ b[depth, 16 * vectors], for 1 to `most` rows; b of 2 or 4 bytes a
    number.
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

            def write(rows: int, kind: Any) -> None:
                starts = [offset_pointer(builder, b, INT(LANES * vector), kind) for vector in range(vectors)]
                write_loop(builder, (c, c_stride), (a, a_stride), (starts, b_stride), rows, depth, add=True)

            _switch_of_both(builder, rows, width, most, write)
            return ctx.get_dummy_value()

        return signature, emit

    return product


def _scores(blocks: int, most: int) -> Any:
    """c[rows, 16 * blocks] = a[rows, depth] @ [b of each block], where a block lies at `b + step * number` and is
    [depth, 16].
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
            table = builder.inttoptr(numbers, INT.as_pointer())
            chosen = [builder.load(builder.gep(table, [builder.mul(apart, INT(block))])) for block in range(blocks)]

            def write(rows: int, kind: Any) -> None:
                starts = [offset_pointer(builder, b, builder.mul(step, number), kind) for number in chosen]
                write_loop(builder, (c, c_stride), (a, a_stride), (starts, INT(LANES)), rows, depth, add=False)

            _switch_of_both(builder, rows, width, most, write)
            return ctx.get_dummy_value()

        return signature, emit

    return product


def offset_pointer(builder: Any, address: Any, numbers: Any, kind: Any = _FLOAT) -> Any:
    """Return a pointer so many numbers of a kind after an address."""
    return builder.gep(builder.inttoptr(address, kind.as_pointer()), [numbers])


def _switch_of_both(builder: Any, rows: Any, width: Any, most: int, write: Callable[[int, Any], None]) -> None:
    """Write code that goes by the rows, 1 to `most`, and by the bytes of a number: 4, or 2 where the CPU widens
    halves.
    """

    def write_case(case: int) -> None:
        write(case % (most + 1), _FLOAT if case > most else ir.HalfType())

    halves = range(1, most + 1) if WIDENS_HALVES else ()
    number = builder.add(builder.mul(builder.ashr(width, INT(2)), INT(most + 1)), rows)
    switch(builder, number, [*halves, *range(most + 2, 2 * most + 2)], write_case)


def switch(builder: Any, number: Any, cases: Iterable[int], write: Callable[[int], None]) -> None:
    """Write code that goes by a number: `write` writes each case; another number does nothing."""
    after = builder.append_basic_block("after")
    jump = builder.switch(number, after)
    for case in cases:
        block = builder.append_basic_block("case")
        jump.add_case(INT(case), block)
        builder.position_at_end(block)
        write(case)
        builder.branch(after)
    builder.position_at_end(after)


def write_loop(
    builder: Any, c: Any, a: Any, b: Any, rows: int, depth: Any, *, add: bool, each: Callable[[Any], None] | None = None
) -> None:
    """Write the loop over depth.

    One load of each vector of b serves all rows, and every sum stays in a register.

    Args:
        builder: The builder of LLVM code.
        c: The address of the result, and its row stride in floats.
        a: The address of the left factor, and its row stride in floats.
        b: Pointers to its vectors at depth 0, and their stride. Halves are widened, which is exact.
        rows: The rows of a and c.
        depth: The numbers of each sum, at least 1.
        add: Whether c is added to, else overwritten.
        each: Writes what else is to be done at a depth, which it is given.
    """
    (to, to_stride), (of, of_stride), (starts, stride) = c, a, b
    pointer = VECTOR.as_pointer()
    cells = [(row, vector) for row in range(rows) for vector in range(len(starts))]
    places = {
        (row, vector): builder.bitcast(
            offset_pointer(builder, to, builder.add(builder.mul(to_stride, INT(row)), INT(LANES * vector))), pointer
        )
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
    right = [_load_vector(builder, builder.gep(start, [builder.mul(stride, step)])) for start in starts]
    if each is not None:
        each(step)
    totals: dict[tuple[int, int], Any] = {}
    for row in range(rows):
        left = broadcast(
            builder,
            builder.load(offset_pointer(builder, of, builder.add(builder.mul(of_stride, INT(row)), step))),
            VECTOR,
        )
        for vector, value in enumerate(right):
            totals[row, vector] = _multiply_add(builder, left, value, sums[row, vector])
            sums[row, vector].add_incoming(begin[row, vector], entry)
            sums[row, vector].add_incoming(totals[row, vector], loop)
    after = builder.add(step, INT(1))
    step.add_incoming(after, loop)
    builder.cbranch(builder.icmp_signed("<", after, depth), loop, done)

    builder.position_at_end(done)
    for cell in cells:
        builder.store(totals[cell], places[cell], align=4)


def _load_vector(builder: Any, start: Any) -> Any:
    """Return the vector of floats that lies at a pointer to floats or halves."""
    if start.type.pointee == _FLOAT:
        return builder.load(builder.bitcast(start, VECTOR.as_pointer()), align=4)
    return builder.fpext(builder.load(builder.bitcast(start, HALVES.as_pointer()), align=2), VECTOR)


def _multiply_add(builder: Any, left: Any, right: Any, total: Any) -> Any:
    if not FUSED:  # without the instruction, a fused one is a call to a library for each number
        return builder.fadd(builder.fmul(left, right), total)
    fma = cgutils.get_or_insert_function(builder.module, ir.FunctionType(VECTOR, [VECTOR] * 3), f"llvm.fma.v{LANES}f32")
    return builder.call(fma, [left, right, total])


def broadcast(builder: Any, number: Any, vector: Any) -> Any:
    """Return a vector of a type that holds a number in every lane."""
    empty = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(empty, number, ir.IntType(32)(0))
    return builder.shuffle_vector(
        first, empty, ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    )


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
        a: Address of dense rows.
        rows: The number of rows of `a`.
        b: Address of the pool's keys, each block [depth, 16], `step` numbers of `bytes_each` bytes apart: 4, or 2 for
            halves.
        step: The distance between blocks of the pool, in numbers.
        bytes_each: The bytes of each number of a key.
        numbers: The address of the first block's number (int64).
        apart: How far apart the numbers of blocks are, in numbers of 8 bytes.
        blocks: The number of blocks.
        depth: The size of a key.
    """
    done = 0
    while done < blocks:
        to, chosen = np.uintp(c + 4 * LANES * done), np.uintp(numbers + 8 * apart * done)
        width, most = _tile(rows, blocks - done)
        row = 0
        while row < rows:
            count = min(rows - row, most)
            here, of = np.uintp(to + 4 * row * c_stride), np.uintp(a + 4 * row * depth)
            if width == 4:
                _dot_4(count, here, c_stride, of, depth, b, step, bytes_each, chosen, apart, depth)
            elif width == 2:
                _dot_2(count, here, c_stride, of, depth, b, step, bytes_each, chosen, apart, depth)
            else:
                _dot_1(count, here, c_stride, of, depth, b, step, bytes_each, chosen, apart, depth)
            row += count
        done += width


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
    done = 0
    while done < vectors:
        to, column = np.uintp(c + 4 * LANES * done), np.uintp(b + bytes_each * LANES * done)
        width, most = _tile(rows, vectors - done)
        row = 0
        while row < rows:
            count = min(rows - row, most)
            here, of = np.uintp(to + 4 * row * c_stride), np.uintp(a + 4 * row * a_stride)
            if width == 4:
                _add_4(count, here, c_stride, of, a_stride, column, b_stride, bytes_each, depth)
            elif width == 2:
                _add_2(count, here, c_stride, of, a_stride, column, b_stride, bytes_each, depth)
            else:
                _add_1(count, here, c_stride, of, a_stride, column, b_stride, bytes_each, depth)
            row += count
        done += width


@compile_function(inline="always")
def _tile(rows: int, vectors: int) -> Any:
    """Return how many of the vectors to take at once, and most rows with so many: as many sums as the registers
    hold.
    """
    if vectors >= 4 and (rows <= _WIDE or _WIDE > 1):
        return 4, _WIDE
    if vectors >= 2 and (rows <= _PAIR or _PAIR > 2):
        return 2, _PAIR
    return 1, _NARROW
