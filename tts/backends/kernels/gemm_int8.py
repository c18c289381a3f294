"""The product of eight-bit weights and activations for CPUs with AVX2 but without VNNI.

VNNI has instructions made for this product.

Idea: AVX2's product of eight-bit numbers saturates, which loses sums. Its product of 16-bit numbers adds neighbouring
    pairs exactly. So weights lie as eight-bit numbers, pairs of inputs side by side, and are widened in registers, once
    for a group of rows. Sums of integers are exact in any order: a row's bits depend on that row alone, and are those
    of every other exact kernel.

Shapes: M rows, K inputs, N outputs, P panels of 16 outputs, D pairs of inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from tts.backends.kernels.host import Team, compile_function, f32, intrinsic
from tts.backends.kernels.products import ADDRESS, COUNT, INT, broadcast, offset_pointer, switch
from tts.backends.kernels.target import INSTRUCTIONS

LEVELS = 127  # levels of magnitude: -128 is not used, so that both signs round alike
LEAST = 1e-30  # the least scale, by which a row or output of zeros is divided
_PANEL = 16  # outputs of a panel: two vectors of eight sums
_ROWS = 6  # most rows of a group: with two vectors each, all registers
_BLOCK_ROWS = 16 * _ROWS  # rows whose inputs stay in a core's cache while the panels pass
_SHIFT = f32(128)  # added before rounding, as in FBGEMM: the addition drops the bits that would break near ties
_MAGNITUDE = np.int32(0x7FFFFFFF)  # the bits of a float32 but its sign
_ROUND = f32(3 << 22)  # float32 has no fractions at this size: adding the number rounds to even

_BYTES = ir.VectorType(ir.IntType(8), 16)
_WORDS = ir.VectorType(ir.IntType(16), 16)
_SUMS = ir.VectorType(ir.IntType(32), 8)
_FLOATS = ir.VectorType(ir.FloatType(), 8)


def has_instructions() -> bool:
    """Whether this CPU has the instructions that the kernel is written for."""
    return INSTRUCTIONS in ("AVX2", "AVX-512")


def pack(levels: NDArray[np.int8]) -> NDArray[np.int8]:
    """Return levels [N, K] as panels [P, D, 16, 2]; the last panel and pair are padded with zeros."""
    outputs, inputs = levels.shape
    panels, pairs = -(-outputs // _PANEL), -(-inputs // 2)
    padded = np.zeros((panels * _PANEL, 2 * pairs), np.int8)
    padded[:outputs, :inputs] = levels
    return np.ascontiguousarray(padded.reshape(panels, _PANEL, pairs, 2).transpose(0, 2, 1, 3))


def multiply(
    x: NDArray[np.float32], panels: NDArray[np.int8], outputs: NDArray[np.float32], out: NDArray[np.float32], team: Team
) -> None:
    """Write x @ weights.T + bias, with each row of x rounded to 8 bits below its largest magnitude.

    Args:
        x: [M, K] contiguous, M at least 1.
        panels: The weights, as `pack` lays them out.
        outputs: [2, 16 P] scales and biases of the outputs.
        out: [M, 16 P], overwritten.
        team: The threads that share the work.
    """
    num_pairs = panels.shape[1]
    levels = np.empty((len(x), 2 * num_pairs), np.int16)
    steps = np.empty(len(x), np.float32)  # the size of a row's level
    row_cuts = team.cuts(len(x), x.size, worth=1 << 17)
    team.run(round_rows, [(x, levels, steps, begin, end) for begin, end in row_cuts])
    panel_cuts = team.cuts(len(panels), x.size * len(panels) * _PANEL, worth=1 << 23)
    team.run(multiply_panels, [(levels, steps, panels, outputs, out, begin, end) for begin, end in panel_cuts])


@compile_function
def round_rows(x: Any, levels: Any, steps: Any, begin: int, end: int) -> None:
    """Write rows of x as levels [M, 2 D], and each row's size of a level, NaN for a row that has a NaN.

    The rows are those from `begin` to before `end`. A number is about its level times the size of a level.
    """
    size = x.shape[1]
    for index in range(begin, end):
        row, bits, level_row = x[index], x[index].view(np.int32), levels[index]
        largest = np.int32(0)
        for k in range(size):
            largest = max(largest, bits[k] & _MAGNITUDE)  # magnitudes rank as their bits do, and NaN above all
        top = np.int32(largest).view(np.float32)
        step = max(top / f32(LEVELS), f32(LEAST))
        steps[index] = top if np.isnan(top) else step
        for k in range(size):
            rounded = (row[k] / step + _SHIFT) + _ROUND - _ROUND
            level_row[k] = np.int16(rounded - _SHIFT)
        for k in range(size, level_row.shape[0]):
            level_row[k] = 0


@intrinsic
def _group(
    context: Any, rows: Any, c: Any, c_stride: Any, a: Any, steps: Any, b: Any, scales: Any, biases: Any, pairs: Any
) -> Any:
    """Compute c[rows, 16] = a[rows, 2 * pairs] @ b[2 * pairs, 16], scaled, plus biases, for up to `_ROWS` rows.

    A sum is multiplied by its output's scale and its row's step. All arguments but `rows`, `c_stride` and `pairs` are
    addresses.
    """
    del context, rows, c, c_stride, a, steps, b, scales, biases, pairs
    signature = types.void(COUNT, ADDRESS, COUNT, ADDRESS, ADDRESS, ADDRESS, ADDRESS, ADDRESS, COUNT)

    def emit(ctx: Any, builder: Any, _: Any, args: Sequence[Any]) -> Any:
        rows, *operands = args
        switch(builder, rows, range(1, _ROWS + 1), lambda count: _write(builder, count, *operands))
        return ctx.get_dummy_value()

    return signature, emit


def _write(
    builder: Any, rows: int, c: Any, c_stride: Any, a: Any, steps: Any, b: Any, scales: Any, biases: Any, pairs: Any
) -> None:
    """Write the loop over pairs of inputs, with all sums in registers, then the scaling and storing of the sums.

    A row has two vectors of eight sums, the halves of its 16 outputs.
    """
    product_type = ir.FunctionType(_SUMS, [_WORDS, _WORDS])
    product = cgutils.get_or_insert_function(builder.module, product_type, "llvm.x86.avx2.pmadd.wd")
    weight_bytes = builder.inttoptr(b, ir.IntType(8).as_pointer())
    input_pairs = builder.inttoptr(a, ir.IntType(32).as_pointer())
    cells = [(row, half) for row in range(rows) for half in range(2)]
    entry, loop, done = builder.block, builder.append_basic_block("pair"), builder.append_basic_block("done")
    builder.branch(loop)

    builder.position_at_end(loop)
    step = builder.phi(INT)
    step.add_incoming(INT(0), entry)
    sums = {cell: builder.phi(_SUMS) for cell in cells}
    weights: list[Any] = []  # of each half, widened to 16 bits
    for half in range(2):
        offset = builder.add(builder.mul(step, INT(2 * _PANEL)), INT(_PANEL * half))
        place = builder.bitcast(builder.gep(weight_bytes, [offset]), _BYTES.as_pointer())
        weights.append(builder.sext(builder.load(place, align=1), _WORDS))
    totals: dict[tuple[int, int], Any] = {}
    for row in range(rows):
        pair_index = builder.add(builder.mul(pairs, INT(row)), step)
        input_pair = builder.load(builder.gep(input_pairs, [pair_index]), align=4)
        inputs = builder.bitcast(broadcast(builder, input_pair, _SUMS), _WORDS)
        for half in range(2):
            totals[row, half] = builder.add(sums[row, half], builder.call(product, [inputs, weights[half]]))
            sums[row, half].add_incoming(ir.Constant(_SUMS, [0] * 8), entry)
            sums[row, half].add_incoming(totals[row, half], loop)
    next_step = builder.add(step, INT(1))
    step.add_incoming(next_step, loop)
    builder.cbranch(builder.icmp_signed("<", next_step, pairs), loop, done)

    builder.position_at_end(done)
    fma = cgutils.get_or_insert_function(builder.module, ir.FunctionType(_FLOATS, [_FLOATS] * 3), "llvm.fma.v8f32")

    def load_halves(array: Any) -> list[Any]:
        places = [offset_pointer(builder, array, INT(8 * half)) for half in range(2)]
        return [builder.load(builder.bitcast(place, _FLOATS.as_pointer()), align=4) for place in places]

    scale_halves, bias_halves = load_halves(scales), load_halves(biases)
    for row, half in cells:
        row_step = broadcast(builder, builder.load(offset_pointer(builder, steps, INT(row))), _FLOATS)
        scaled = builder.fmul(builder.sitofp(totals[row, half], _FLOATS), scale_halves[half])
        result = builder.call(fma, [scaled, row_step, bias_halves[half]])
        place = offset_pointer(builder, c, builder.add(builder.mul(c_stride, INT(row)), INT(8 * half)))
        builder.store(result, builder.bitcast(place, _FLOATS.as_pointer()), align=4)


@compile_function
def multiply_panels(levels: Any, steps: Any, panels: Any, outputs: Any, out: Any, begin: int, end: int) -> None:
    """Compute the panels from `begin` to before `end`, in blocks of rows.

    The rows of a block are divided evenly into groups of at most six. Names that end with "_at" are addresses.
    """
    pairs, out_stride = panels.shape[1], out.shape[1]
    for first_of_block in range(0, levels.shape[0], _BLOCK_ROWS):
        rows = min(_BLOCK_ROWS, levels.shape[0] - first_of_block)
        groups = (rows + _ROWS - 1) // _ROWS
        for panel in range(begin, end):
            panel_at = np.uintp(panels.ctypes.data + 2 * _PANEL * pairs * panel)
            scales_at = np.uintp(outputs.ctypes.data + 4 * _PANEL * panel)
            biases_at = np.uintp(scales_at + 4 * outputs.shape[1])
            for group in range(groups):
                first_row = first_of_block + rows * group // groups
                group_rows = first_of_block + rows * (group + 1) // groups - first_row
                out_at = np.uintp(out.ctypes.data + 4 * (first_row * out_stride + _PANEL * panel))
                levels_at = np.uintp(levels.ctypes.data + 4 * pairs * first_row)
                steps_at = np.uintp(steps.ctypes.data + 4 * first_row)
                _group(group_rows, out_at, out_stride, levels_at, steps_at, panel_at, scales_at, biases_at, pairs)
