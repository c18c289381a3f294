"""The CPU's matrix product for few rows and weights larger than its caches.

A row's bits depend on that row alone.

Idea: a step of decoding reads every weight once for a handful of rows, so that memory bandwidth is the limit. Weights
    lie in panels, in the order in which they are read. A panel has as many outputs as the registers hold sums
    (`target.TILES`). While one panel is worked on, the next is fetched into the cache. A row's sum for an output runs
    over the inputs in ascending order by fused multiply-adds, in one register. The number of rows, and the division of
    panels over threads, change nothing. So rows are exact, and the same on every CPU that has these instructions.

Shapes: M rows, K inputs, N outputs, P panels of `PANEL` outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from tts.backends.kernels.host import Team, compile_function, intrinsic
from tts.backends.kernels.products import ADDRESS, COUNT, INT, LANES, offset_pointer, switch, write_loop
from tts.backends.kernels.target import TILES

PANEL = LANES * TILES.panel  # outputs of a panel
_ROWS = TILES.rows  # most rows of a group
_BLOCK_ROWS = 16 * _ROWS  # rows whose inputs stay in a core's cache while the panels pass
_LINES = TILES.panel  # cache lines of a panel at each depth
_LINE = 16  # floats of a cache line
_READ, _SECOND_LEVEL, _DATA = 0, 2, 1  # LLVM's arguments of a prefetch


def pack(weight: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return weights [N, K] as panels [P, K, PANEL]; the last panel is padded with zeros."""
    outputs, inputs = weight.shape
    panels = -(-outputs // PANEL)
    padded = np.zeros((panels * PANEL, inputs), np.float32)
    padded[:outputs] = weight
    return np.ascontiguousarray(padded.reshape(panels, PANEL, inputs).transpose(0, 2, 1))


def multiply(x: NDArray[np.float32], panels: NDArray[np.float32], out: NDArray[np.float32], team: Team) -> None:
    """Write x @ weights.T.

    Args:
        x: [M, K] contiguous, M at least 1.
        panels: The weights, as `pack` lays them out.
        out: [M, PANEL P] contiguous, overwritten.
        team: The threads that share the panels.
    """
    cuts = team.cuts(len(panels), x.size * panels.shape[0] * PANEL)
    team.run(multiply_panels, [(x, panels, out, begin, end) for begin, end in cuts])


@intrinsic
def _group(
    context: Any, rows: Any, lines: Any, c: Any, c_stride: Any, a: Any, a_stride: Any, b: Any, depth: Any, ahead: Any
) -> Any:
    """Compute c[rows, PANEL] = a[rows, depth] @ b[depth, PANEL] for up to `_ROWS` rows.

    a, b and c are addresses of float32. At each depth `lines` cache lines are fetched into the cache, from the address
    `ahead` on.
    """
    del context, rows, lines, c, c_stride, a, a_stride, b, depth, ahead
    signature = types.void(COUNT, COUNT, ADDRESS, COUNT, ADDRESS, COUNT, ADDRESS, COUNT, ADDRESS)

    def emit(ctx: Any, builder: Any, _: Any, args: Sequence[Any]) -> Any:
        rows, lines, c, c_stride, a, a_stride, b, depth, ahead = args
        byte_pointer, int32 = ir.IntType(8).as_pointer(), ir.IntType(32)
        fetch_type = ir.FunctionType(ir.VoidType(), [byte_pointer, int32, int32, int32])
        fetch = cgutils.get_or_insert_function(builder.module, fetch_type, "llvm.prefetch.p0")
        starts = [offset_pointer(builder, b, INT(LANES * vector)) for vector in range(PANEL // LANES)]

        # there is a case for each number of lines and of rows, with the number lines * (_ROWS + 1) + rows
        def write_case(case: int) -> None:
            num_lines, num_rows = divmod(case, _ROWS + 1)

            def fetch_ahead(step: Any) -> None:
                for line in range(num_lines):
                    offset = builder.add(builder.mul(step, INT(num_lines * _LINE)), INT(line * _LINE))
                    place = builder.bitcast(offset_pointer(builder, ahead, offset), byte_pointer)
                    builder.call(fetch, [place, int32(_READ), int32(_SECOND_LEVEL), int32(_DATA)])

            result, left, right = (c, c_stride), (a, a_stride), (starts, INT(PANEL))
            write_loop(builder, result, left, right, num_rows, depth, add=False, each=fetch_ahead)

        line_counts = [num_lines for num_lines in (0, 1, 2, 4) if num_lines <= _LINES]
        cases = [num_lines * (_ROWS + 1) + row for num_lines in line_counts for row in range(1, _ROWS + 1)]
        case = builder.add(builder.mul(lines, INT(_ROWS + 1)), rows)
        switch(builder, case, cases, write_case)
        return ctx.get_dummy_value()

    return signature, emit


@compile_function
def multiply_panels(x: Any, panels: Any, out: Any, begin: int, end: int) -> None:
    """Compute the panels from `begin` to before `end`, in blocks of rows.

    The rows of a block are divided evenly into groups of at most `_ROWS`. Names that end with "_at" are addresses.
    """
    inputs, out_stride = x.shape[1], out.shape[1]
    panel_bytes = 4 * inputs * PANEL
    for first_of_block in range(0, x.shape[0], _BLOCK_ROWS):
        rows = min(_BLOCK_ROWS, x.shape[0] - first_of_block)
        groups = (rows + _ROWS - 1) // _ROWS
        for panel in range(begin, end):
            panel_at = np.uintp(panels.ctypes.data + panel_bytes * panel)
            next_panel = panels.ctypes.data + panel_bytes * min(panel + 1, end - 1)
            lines_fetched = 0
            for group in range(groups):
                first_row = first_of_block + rows * group // groups
                group_rows = first_of_block + rows * (group + 1) // groups - first_row
                lines = _lines_to_fetch(group, groups)
                out_at = np.uintp(out.ctypes.data + 4 * (first_row * out_stride + PANEL * panel))
                rows_at = np.uintp(x.ctypes.data + 4 * first_row * inputs)
                ahead_at = np.uintp(next_panel + 4 * _LINE * inputs * lines_fetched)
                _group(group_rows, lines, out_at, out_stride, rows_at, inputs, panel_at, inputs, ahead_at)
                lines_fetched += lines


@compile_function(inline="always")
def _lines_to_fetch(group: int, groups: int) -> int:
    """Return the number of cache lines of the next panel that a group of rows fetches at each depth.

    Together the groups fetch the whole panel. The group is number `group` of `groups`, from 0.
    """
    if _LINES == 1:
        return 1 if group == 0 else 0
    if groups == 1:
        return 4
    if groups == 2:
        return 2
    if groups == 3:
        return 2 if group == 0 else 1
    return 1 if group < 4 else 0
