"""The CPU's attention over a tree: bit for bit the same for a query, whichever queries share its keys.

Idea: every query folds its keys from the root to its own token, node by node, in tiles of 64 keys that begin where the
    node begins, by the online softmax. Queries that share a node are worked on together, so that one load of keys
    serves them all, but no arithmetic mixes them. Keys that a query may not see weigh exactly 0 and change nothing. So
    decoding a node token by token, reading it at once, in chunks, or again after eviction folds the same numbers in the
    same order.

Source: the online softmax of Milakov and Gimelshein (2018, arXiv 1805.02867). Differs: sums of weights are kept in 16
    lanes and added up at the end.

Shapes: T queries, H key-value heads, G query heads for each key-value head, d head size, N blocks.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tts.backends.kernels.host import Team, compile_function, exponential, f32
from tts.backends.kernels.plan import BLOCK, AttentionPlan
from tts.backends.kernels.products import LANES, add_values, dot_keys

Floats = NDArray[np.float32]

_TILE = 4 * BLOCK  # keys between two rescalings
_BATCH = 32  # query heads whose scores of one tile are kept at once
_HIDDEN = f32(-1e30)  # below every score


def attend(plan: AttentionPlan, queries: Floats, keys: Floats, values: Floats, out: Floats, team: Team) -> None:
    """Write the attention of every query to `out`.

    Args:
        plan: The plan of this step.
        queries: [H, T, G, d], rotated and scaled by d**-0.5.
        keys: [H, N, d, BLOCK], transposed within a block; float32, or the bits of halves as int16.
        values: [H, N, BLOCK, d], of the type of `keys`.
        out: [T, H, G, d], overwritten.
        team: The threads that share the work.

    Raises:
        ValueError: d is no multiple of 16.
    """
    heads, rows, group, size = queries.shape
    if size % BLOCK:
        raise ValueError(f"the head size is {size}, but must be a multiple of {BLOCK}")
    reads = np.cumsum(plan.positions + 1)
    work = int(reads[-1]) * heads * group * size
    if rows < 2 * team.threads:
        parts = [(first, last, 0, rows) for first, last in team.cuts(heads, work)]
    else:
        marks = np.searchsorted(reads, [reads[-1] * last // rows for _, last in team.cuts(rows, work)][:-1])
        edges = [0, *(int(mark) for mark in marks), rows]
        parts = [(0, heads, first, last) for first, last in pairwise(edges) if last > first]
    team.run(attend_part, [(*part, *plan, queries, keys, values, out) for part in parts])


@compile_function
def attend_part(
    head_begin: int,
    head_end: int,
    begin: int,
    end: int,
    positions: Any,
    items: Any,
    blocks: Any,
    queries: Any,
    keys: Any,
    values: Any,
    out: Any,
) -> None:
    """Attend for the queries and the heads of two intervals, whose ends are excluded."""
    group, size = queries.shape[2], queries.shape[3]
    rows = (end - begin) * group
    sums, best, weight = (
        np.empty((rows, size), np.float32),
        np.empty(rows, np.float32),
        np.empty((rows, BLOCK), np.float32),
    )
    scores = np.empty((_BATCH, _TILE), np.float32)
    for head in range(head_begin, head_end):
        sums[:], best[:], weight[:] = f32(0), _HIDDEN, f32(0)
        for item in range(items.shape[0]):
            first_query = max(items[item, 2], begin)
            query_end = min(items[item, 3], end)
            if first_query < query_end:
                node_queries = queries[head, first_query:query_end].reshape(-1, size)
                _fold(
                    node_queries,
                    positions[first_query:query_end],
                    group,
                    blocks[items[item, 0] : items[item, 1]],
                    keys[head],
                    values[head],
                    scores,
                    sums[(first_query - begin) * group :],
                    best[(first_query - begin) * group :],
                    weight[(first_query - begin) * group :],
                )
        for row in range(rows):
            total = f32(0)
            for lane in range(BLOCK):
                total += weight[row, lane]
            out_row = out[begin + row // group, head, row % group]
            for column in range(size):
                out_row[column] = sums[row, column] / total


@compile_function
def _fold(
    queries: Any,
    positions: Any,
    group: int,
    blocks: Any,
    keys: Any,
    values: Any,
    scores: Any,
    sums: Any,
    best: Any,
    weight: Any,
) -> None:
    """Fold one node's keys into the running sums of the queries that read it."""
    size = queries.shape[1]
    num_keys = BLOCK * (blocks.shape[0] - 1) + blocks[-1, 2]
    scores_at, keys_at = np.uintp(scores.ctypes.data), np.uintp(keys.ctypes.data)
    for block in range(0, blocks.shape[0], _TILE // BLOCK):
        width = min(_TILE // BLOCK, blocks.shape[0] - block)
        start = blocks[block, 1]
        for row in range(0, queries.shape[0], _BATCH):
            rows = min(_BATCH, queries.shape[0] - row)
            # the keys of these blocks that the last of these rows sees; earlier rows see no more
            most_visible = min(positions[(row + rows - 1) // group] - start + 1, num_keys - BLOCK * block)
            num_blocks = min(width, (most_visible + BLOCK - 1) // BLOCK)
            if num_blocks <= 0:
                continue
            queries_at = np.uintp(queries.ctypes.data + 4 * size * row)
            numbers = np.uintp(blocks.ctypes.data + 8 * 3 * block)
            dot_keys(
                scores_at, _TILE, queries_at, rows, keys_at, size * BLOCK, keys.itemsize, numbers, 3, num_blocks, size
            )
            for r in range(rows):
                visible = min(positions[(row + r) // group] - start + 1, num_keys - BLOCK * block)
                _weigh(scores[r], BLOCK * num_blocks, visible, best[row + r :], weight[row + r], sums[row + r])
            for b in range(num_blocks):
                depth = min(BLOCK, most_visible - BLOCK * b)
                weights = np.uintp(scores_at + 4 * BLOCK * b)
                sums_at = np.uintp(sums.ctypes.data + 4 * size * row)
                values_at = np.uintp(values.ctypes.data + values.itemsize * size * BLOCK * blocks[block + b, 0])
                add_values(sums_at, size, weights, _TILE, rows, values_at, size, values.itemsize, depth, size // LANES)


@compile_function
def _weigh(scores: Any, count: int, visible: int, best: Any, weight: Any, sums: Any) -> None:
    """Turn one query's `count` scores in a tile into weights, and rescale its sums to the new best score."""
    for key in range(max(visible, 0), count):
        scores[key] = _HIDDEN
    top = max(best[0], _largest(scores, count))
    factor = exponential(best[0] - top)
    best[0] = top
    for key in range(count):
        scores[key] = exponential(scores[key] - top)
    for key in range(max(visible, 0), count):
        scores[key] = f32(0)
    for lane in range(BLOCK):
        weight[lane] *= factor
    for block in range(count // BLOCK):
        for lane in range(BLOCK):
            weight[lane] += scores[BLOCK * block + lane]
    if factor != f32(1):
        for column in range(sums.shape[0]):
            sums[column] *= factor


@compile_function(fastmath={"nnan", "nsz"})
def _largest(scores: Any, count: int) -> Any:
    top = _HIDDEN
    for key in range(count):
        top = max(top, scores[key])
    return top
