"""The CPU's matrix product for few rows and weights larger than its caches; a row's bits depend on that row alone.

Idea: a step of decoding reads every weight once for a handful of rows, so that memory bandwidth is the limit. Weights lie in
    panels of 64 outputs, the order in which they are read; while one panel is worked on, the next is fetched into the cache. A row's
    sum for an output runs over the inputs in ascending order by fused multiply-adds, in one register: how many rows there are,
    and which threads compute which panels, changes nothing. That makes it exact as well as fast.

Shapes: M rows, K inputs, N outputs, P panels of 64 outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from tts.backends.kernels.host import Team, compiled
from tts.backends.kernels.products import ADDRESS, COUNT, INT, LANES, at, write_loop

PANEL = 64  # outputs of a panel: four vectors
_BLOCK_ROWS = 96  # rows whose inputs stay in a core's cache while the panels pass
_LINE = 16  # floats of a cache line
_READ, _SECOND_LEVEL, _DATA = 0, 2, 1  # what a prefetch is for


def supported() -> bool:
    """Whether this CPU has the registers that the kernel is written for: 32 of 16 floats."""
    return llvm.get_host_cpu_features().get("avx512f", False)


def pack(weight: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return weights [N, K] as panels [P, K, 64]; outputs that the last panel has too many are 0."""
    outputs, inputs = weight.shape
    panels = -(-outputs // PANEL)
    whole = np.zeros((panels * PANEL, inputs), np.float32)
    whole[:outputs] = weight
    return np.ascontiguousarray(whole.reshape(panels, PANEL, inputs).transpose(0, 2, 1))


def multiply(x: NDArray[np.float32], panels: NDArray[np.float32], out: NDArray[np.float32], team: Team) -> None:
    """Write x @ weights.T.

    Args:
        x: [M, K] contiguous, M at least 1. panels: of `pack`. out: [M, 64 P] contiguous, overwritten.
        team: the threads that share the panels.
    """
    cuts = team.cuts(len(panels), x.size * panels.shape[0] * PANEL)
    team.run(_multiply, [(x, panels, out, begin, end) for begin, end in cuts])


def _panel(rows: int, lines: int) -> Any:
    """c[rows, 64] = a[rows, depth] @ b[depth, 64], fetching `lines` cache lines from `ahead` on at each depth."""

    @intrinsic
    def product(context: Any, c: Any, c_stride: Any, a: Any, a_stride: Any, b: Any, depth: Any, ahead: Any) -> Any:
        del context, c, c_stride, a, a_stride, b, depth, ahead
        signature = types.void(ADDRESS, COUNT, ADDRESS, COUNT, ADDRESS, COUNT, ADDRESS)

        def emit(ctx: Any, builder: Any, _: Any, args: Sequence[Any]) -> Any:
            c, c_stride, a, a_stride, b, depth, ahead = args
            byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
            fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")

            def fetch_ahead(step: Any) -> None:
                for line in range(lines):
                    offset = builder.add(builder.mul(step, INT(lines * _LINE)), INT(line * _LINE))
                    place = builder.bitcast(at(builder, ahead, offset), byte)
                    builder.call(fetch, [place, number(_READ), number(_SECOND_LEVEL), number(_DATA)])

            starts = [at(builder, b, INT(LANES * vector)) for vector in range(PANEL // LANES)]
            write_loop(builder, (c, c_stride), (a, a_stride), (starts, INT(PANEL)), rows, depth, add=False, each=fetch_ahead)
            return ctx.get_dummy_value()

        return signature, emit

    return product


_1a0, _2a0, _3a0, _4a0, _5a0, _6a0 = (_panel(rows, 0) for rows in range(1, 7))
_1a1, _2a1, _3a1, _4a1, _5a1, _6a1 = (_panel(rows, 1) for rows in range(1, 7))
_1a2, _2a2, _3a2, _4a2, _5a2, _6a2 = (_panel(rows, 2) for rows in range(1, 7))
_1a4, _2a4, _3a4, _4a4, _5a4, _6a4 = (_panel(rows, 4) for rows in range(1, 7))


@compiled
def _multiply(x: Any, panels: Any, out: Any, begin: int, end: int) -> None:
    """Compute the panels from `begin` to before `end`, in blocks of rows, and those in even groups of at most six."""
    inputs, stride = x.shape[1], out.shape[1]
    size = 4 * inputs * PANEL
    for start in range(0, x.shape[0], _BLOCK_ROWS):
        rows = min(_BLOCK_ROWS, x.shape[0] - start)
        groups = (rows + 5) // 6
        for panel in range(begin, end):
            here = np.uintp(panels.ctypes.data + size * panel)
            ahead = panels.ctypes.data + size * min(panel + 1, end - 1)
            fetched = 0
            for group in range(groups):
                first = start + rows * group // groups
                count = start + rows * (group + 1) // groups - first
                lines = _share(group, groups)
                to = np.uintp(out.ctypes.data + 4 * (first * stride + PANEL * panel))
                of = np.uintp(x.ctypes.data + 4 * first * inputs)
                _group(count, lines, to, stride, of, inputs, here, np.uintp(ahead + 4 * _LINE * inputs * fetched))
                fetched += lines


@compiled(inline="always")
def _share(group: int, groups: int) -> int:
    """Return how many of the four cache lines of each depth of the next panel a group of rows fetches."""
    if groups == 1:
        return 4
    if groups == 2:
        return 2
    if groups == 3:
        return 2 if group == 0 else 1
    return 1 if group < 4 else 0


@compiled
def _group(rows: int, lines: int, c: int, c_stride: int, a: int, depth: int, b: int, ahead: int) -> None:
    """Compute up to six rows of a panel."""
    if lines == 0:
        _rows_0(rows, c, c_stride, a, depth, b, ahead)
    elif lines == 1:
        _rows_1(rows, c, c_stride, a, depth, b, ahead)
    elif lines == 2:
        _rows_2(rows, c, c_stride, a, depth, b, ahead)
    else:
        _rows_4(rows, c, c_stride, a, depth, b, ahead)


@compiled
def _rows_0(rows: int, c: int, c_stride: int, a: int, depth: int, b: int, ahead: int) -> None:
    if rows == 6:
        _6a0(c, c_stride, a, depth, b, depth, ahead)
    elif rows == 5:
        _5a0(c, c_stride, a, depth, b, depth, ahead)
    elif rows == 4:
        _4a0(c, c_stride, a, depth, b, depth, ahead)
    elif rows == 3:
        _3a0(c, c_stride, a, depth, b, depth, ahead)
    elif rows == 2:
        _2a0(c, c_stride, a, depth, b, depth, ahead)
    else:
        _1a0(c, c_stride, a, depth, b, depth, ahead)


@compiled
def _rows_1(rows: int, c: int, c_stride: int, a: int, depth: int, b: int, ahead: int) -> None:
    if rows == 6:
        _6a1(c, c_stride, a, depth, b, depth, ahead)
    elif rows == 5:
        _5a1(c, c_stride, a, depth, b, depth, ahead)
    elif rows == 4:
        _4a1(c, c_stride, a, depth, b, depth, ahead)
    elif rows == 3:
        _3a1(c, c_stride, a, depth, b, depth, ahead)
    elif rows == 2:
        _2a1(c, c_stride, a, depth, b, depth, ahead)
    else:
        _1a1(c, c_stride, a, depth, b, depth, ahead)


@compiled
def _rows_2(rows: int, c: int, c_stride: int, a: int, depth: int, b: int, ahead: int) -> None:
    if rows == 6:
        _6a2(c, c_stride, a, depth, b, depth, ahead)
    elif rows == 5:
        _5a2(c, c_stride, a, depth, b, depth, ahead)
    elif rows == 4:
        _4a2(c, c_stride, a, depth, b, depth, ahead)
    elif rows == 3:
        _3a2(c, c_stride, a, depth, b, depth, ahead)
    elif rows == 2:
        _2a2(c, c_stride, a, depth, b, depth, ahead)
    else:
        _1a2(c, c_stride, a, depth, b, depth, ahead)


@compiled
def _rows_4(rows: int, c: int, c_stride: int, a: int, depth: int, b: int, ahead: int) -> None:
    if rows == 6:
        _6a4(c, c_stride, a, depth, b, depth, ahead)
    elif rows == 5:
        _5a4(c, c_stride, a, depth, b, depth, ahead)
    elif rows == 4:
        _4a4(c, c_stride, a, depth, b, depth, ahead)
    elif rows == 3:
        _3a4(c, c_stride, a, depth, b, depth, ahead)
    elif rows == 2:
        _2a4(c, c_stride, a, depth, b, depth, ahead)
    else:
        _1a4(c, c_stride, a, depth, b, depth, ahead)
