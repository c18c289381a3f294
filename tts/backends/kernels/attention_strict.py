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

_TILE_KEYS = 4 * BLOCK  # keys between two rescalings
_BATCH_ROWS = 32  # query heads whose scores of one tile are kept at once
_HIDDEN_SCORE = f32(-1e30)  # the score of keys that a query may not see, below every other score


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
    heads, rows, group, head_size = queries.shape
    if head_size % BLOCK:
        raise ValueError(f"the head size is {head_size}, but must be a multiple of {BLOCK}")
    keys_read = np.cumsum(plan.positions + 1)  # [T] keys that each query and the queries before read
    work = int(keys_read[-1]) * heads * group * head_size
    # a part has an interval of heads and an interval of queries
    if rows < 2 * team.threads:  # too few queries to be divided
        parts = [(head_begin, head_end, 0, rows) for head_begin, head_end in team.cuts(heads, work)]
    else:  # queries are divided so that all parts read about the same number of keys
        shares = [keys_read[-1] * end // rows for _, end in team.cuts(rows, work)]
        inner_edges = [int(edge) for edge in np.searchsorted(keys_read, shares[:-1])]
        edges = [0, *inner_edges, rows]
        parts = [(0, heads, begin, end) for begin, end in pairwise(edges) if end > begin]
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
    """Attend for an interval of queries and an interval of key-value heads, whose ends are excluded.

    A row here is one query of one query head. Other parameters are those of `attend`.
    """
    group, head_size = queries.shape[2], queries.shape[3]
    rows = (end - begin) * group
    sums = np.empty((rows, head_size), np.float32)
    best = np.empty(rows, np.float32)
    weight = np.empty((rows, BLOCK), np.float32)
    scores = np.empty((_BATCH_ROWS, _TILE_KEYS), np.float32)
    for head in range(head_begin, head_end):
        sums[:] = f32(0)
        best[:] = _HIDDEN_SCORE
        weight[:] = f32(0)
        for item in range(items.shape[0]):
            first_block, block_end = items[item, 0], items[item, 1]
            first_query = max(items[item, 2], begin)
            query_end = min(items[item, 3], end)
            if first_query < query_end:
                first_row = (first_query - begin) * group
                _fold(
                    queries[head, first_query:query_end].reshape(-1, head_size),
                    positions[first_query:query_end],
                    group,
                    blocks[first_block:block_end],
                    keys[head],
                    values[head],
                    scores,
                    sums[first_row:],
                    best[first_row:],
                    weight[first_row:],
                )
        for row in range(rows):
            total = f32(0)
            for lane in range(BLOCK):
                total += weight[row, lane]
            out_row = out[begin + row // group, head, row % group]
            for column in range(head_size):
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
    """Fold one node's keys into the running sums of the rows that read the node.

    Keys are taken in tiles of up to four blocks, and rows in batches. The products take addresses of memory, whose
    names end with "_at".

    Args:
        queries: [rows, d], all query heads of a query in sequence.
        positions: [queries] positions of the queries' tokens.
        group: G.
        blocks: The node's rows of the plan's blocks.
        keys: [N, d, BLOCK] of one key-value head.
        values: [N, BLOCK, d] of one key-value head.
        scores: Room for the scores of a batch.
        sums: [rows, d] weighted sums of values so far.
        best: [rows] best scores so far, relative to which weights are kept.
        weight: [rows, BLOCK] sums of weights so far, in lanes.
    """
    head_size = queries.shape[1]
    num_keys = BLOCK * (blocks.shape[0] - 1) + blocks[-1, 2]
    scores_at, keys_at = np.uintp(scores.ctypes.data), np.uintp(keys.ctypes.data)
    for first_block in range(0, blocks.shape[0], _TILE_KEYS // BLOCK):
        tile_blocks = min(_TILE_KEYS // BLOCK, blocks.shape[0] - first_block)
        tile_position, tile_keys = blocks[first_block, 1], num_keys - BLOCK * first_block
        for first_row in range(0, queries.shape[0], _BATCH_ROWS):
            rows = min(_BATCH_ROWS, queries.shape[0] - first_row)
            # the keys of these blocks that the last of these rows sees; earlier rows see no more
            most_visible = min(positions[(first_row + rows - 1) // group] - tile_position + 1, tile_keys)
            num_blocks = min(tile_blocks, (most_visible + BLOCK - 1) // BLOCK)
            if num_blocks <= 0:
                continue
            queries_at = np.uintp(queries.ctypes.data + 4 * head_size * first_row)
            numbers_at = np.uintp(blocks.ctypes.data + 8 * 3 * first_block)  # a row of `blocks` has three int64
            dot_keys(
                scores_at,
                _TILE_KEYS,
                queries_at,
                rows,
                keys_at,
                head_size * BLOCK,
                keys.itemsize,
                numbers_at,
                3,  # from a block's number to the next block's
                num_blocks,
                head_size,
            )
            for index in range(rows):
                row = first_row + index
                visible = min(positions[row // group] - tile_position + 1, tile_keys)
                _weigh(scores[index], BLOCK * num_blocks, visible, best[row:], weight[row], sums[row])
            sums_at = np.uintp(sums.ctypes.data + 4 * head_size * first_row)
            for block in range(num_blocks):
                depth = min(BLOCK, most_visible - BLOCK * block)
                number = blocks[first_block + block, 0]
                weights_at = np.uintp(scores_at + 4 * BLOCK * block)
                values_at = np.uintp(values.ctypes.data + values.itemsize * head_size * BLOCK * number)
                add_values(
                    sums_at,
                    head_size,
                    weights_at,
                    _TILE_KEYS,
                    rows,
                    values_at,
                    head_size,
                    values.itemsize,
                    depth,
                    head_size // LANES,
                )


@compile_function
def _weigh(scores: Any, count: int, visible: int, best: Any, weight: Any, sums: Any) -> None:
    """Turn one row's `count` scores in a tile into weights, and rescale the row's sums to the new best score.

    Only the first `visible` keys of the tile are seen. `best` holds the best score so far in its first number.
    """
    for key in range(max(visible, 0), count):
        scores[key] = _HIDDEN_SCORE
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
    top = _HIDDEN_SCORE
    for key in range(count):
        top = max(top, scores[key])
    return top
