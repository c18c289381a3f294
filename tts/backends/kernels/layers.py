"""The CPU's row-wise parts of a decoder layer.

The parts are norms, rotary positions with the write to the pool, and gates. Each gives a row the same bits in every
batch. Their plain references: `torch.nn.functional.rms_norm`, that of rotations in the tests, and silu(gate) * up.

Shapes: T tokens, K hidden size, F intermediate size, H key-value heads, G query heads for each, d head size, N blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from tts.backends.kernels.host import compile_function, exponential, f32, intrinsic

_MOST_HALF = 65504.0  # the largest half


@compile_function(fastmath={"reassoc", "contract", "nsz"})
def _squares(row: Any) -> Any:
    total = f32(0)
    for k in range(row.shape[0]):
        total += row[k] * row[k]
    return total


@compile_function
def add_norm(hidden: Any, change: Any, weight: Any, eps: float, out: Any, begin: int, end: int) -> None:
    """Add `change` to `hidden`, in place, and write its RMS norm times `weight` to `out`.

    The rows are those from `begin` to before `end`. `hidden`, `change` and `out` are [T, K] float32; a `change` without
    rows adds nothing. `weight` is [K].
    """
    size = hidden.shape[1]
    for token in range(begin, end):
        row, out_row = hidden[token], out[token]
        if change.shape[0]:
            change_row = change[token]
            for k in range(size):
                row[k] += change_row[k]
        scale = f32(1) / f32(math.sqrt(_squares(row) / f32(size) + f32(eps)))
        for k in range(size):
            out_row[k] = row[k] * scale * weight[k]


@compile_function
def gate(both: Any, out: Any, begin: int, end: int) -> None:
    """Write silu(gate) * up for rows from `begin` to before `end`.

    `both` is [T, 2 F], in each row F values of gate, then F of up. `out` is [T, F].
    """
    size = out.shape[1]
    for token in range(begin, end):
        row, out_row = both[token], out[token]
        for k in range(size):
            gate_value, up_value = row[k], row[size + k]
            decay = exponential(-abs(gate_value))  # at most 1, so that nothing overflows
            sigmoid = (f32(1) if gate_value >= f32(0) else decay) / (f32(1) + decay)
            out_row[k] = gate_value * sigmoid * up_value


@compile_function
def rotate_write(
    qkv: Any,
    positions: Any,
    cosines: Any,
    sines: Any,
    places: Any,
    norms: Any,
    eps: float,
    keys: Any,
    values: Any,
    queries: Any,
    begin: int,
    end: int,
) -> None:
    """Rotate queries and keys, write keys and values to the pool, and lay the queries out for attention.

    Args:
        qkv: [T, (H G + 2 H) d]: queries, keys, values, head by head.
        positions: [T] place of each token in its path.
        cosines: [context, d / 2] cosines of the rotary positions.
        sines: [context, d / 2] sines of the rotary positions.
        places: [T, 2] block and offset of each token.
        norms: [2, d] weights of the norms of queries and keys by head (Qwen3), or no rows.
        eps: The number that these norms add to the mean square.
        keys: [H, N, d, BLOCK] of the layer: float32, or the bits of halves as int16, then at most 65,504.
        values: [H, N, BLOCK, d] of the layer, of the same type.
        queries: [H, T, G, d], overwritten; scaled by d**-0.5.
        begin: The first row of this call.
        end: The row after the last row of this call.
    """
    heads, _, group, head_size = queries.shape
    scale = f32(1.0 / math.sqrt(head_size))
    rotated = np.empty(head_size, np.float32)
    for token in range(begin, end):
        row = qkv[token]
        cos, sin = cosines[positions[token]], sines[positions[token]]
        block, offset = places[token, 0], places[token, 1]
        for query_head in range(heads * group):
            query_start = query_head * head_size
            _norm_and_rotate(row[query_start : query_start + head_size], cos, sin, norms[:1], eps, rotated)
            query = queries[query_head // group, token, query_head % group]
            for j in range(head_size):
                query[j] = rotated[j] * scale
        for head in range(heads):
            key_start = (heads * group + head) * head_size
            _norm_and_rotate(row[key_start : key_start + head_size], cos, sin, norms[1:], eps, rotated)
            key_block = keys[head, block]  # [d, BLOCK]
            for j in range(head_size):
                key_block[j, offset] = _store(rotated[j], key_block)
            value_start = key_start + heads * head_size  # the values come after all keys
            new_value = row[value_start : value_start + head_size]
            value = values[head, block, offset]
            for j in range(head_size):
                value[j] = _store(new_value[j], value)


@intrinsic
def _store(context: Any, x: Any, like: Any) -> Any:
    """Return a float in the type of the array `like`: unchanged, or as the bits of the nearest finite half."""
    del context, x

    def emit(_context: Any, builder: Any, _: Any, args: Sequence[Any]) -> Any:
        number = args[0]
        if like.dtype == types.float32:
            return number
        for comparison, limit in ((">", _MOST_HALF), ("<", -_MOST_HALF)):
            bound = ir.Constant(ir.FloatType(), limit)
            is_beyond = builder.fcmp_ordered(comparison, number, bound)
            number = builder.select(is_beyond, bound, number)
        return builder.bitcast(builder.fptrunc(number, ir.HalfType()), ir.IntType(16))

    return like.dtype(types.float32, like), emit


@compile_function
def _norm_and_rotate(x: Any, cos: Any, sin: Any, norm: Any, eps: float, out: Any) -> None:
    """Write one head to `out`, normed if `norm` has a row, and rotated by its position."""
    half = x.shape[0] // 2
    for j in range(2 * half):
        out[j] = x[j]
    if norm.shape[0]:
        factor = f32(1) / f32(math.sqrt(_squares(x) / f32(2 * half) + f32(eps)))
        for j in range(2 * half):
            out[j] = x[j] * factor * norm[0, j]
    for j in range(half):
        x1, x2 = out[j], out[half + j]
        out[j] = x1 * cos[j] - x2 * sin[j]
        out[half + j] = x2 * cos[j] + x1 * sin[j]
