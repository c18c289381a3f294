"""Lowering of a plan to the kernels' work, on the host.

Lowering decides which runs are shared, where runs are cut, and where partial results lie.

Idea: sharing a run saves reading it once per query but costs each query a partial result, written and read back. Runs
    too short to pay for that join the *private run* of each of their queries, which may span nodes: blocks carry their
    own position and count, so nothing about a node's borders is needed to read them exactly.
Source: Hong et al. 2024, DeFT (arXiv 2404.00242): flattened trees cut into runs of equal length. Differs: runs are cut
    per node or per query and never mix queries that see different keys, so no bit masks; all heads of a group share one
    load of a key.
Shapes: as in `tts.backends.kernels.attention`; B' block rows, I items, S slots.
Cost: vectorised numpy; a step of 256 rows on four trees takes 0.3 ms of one core, one of 1,000 rows 0.5 ms; tests hold
    it to ten times that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tts.backends.kernels.plan import BLOCK, AttentionPlan

Ints = NDArray[np.int64]

_MARGIN = 1.5  # the least length of a shared run, in break-even lengths
_NARROW, _WIDE = 16, 64  # rows of a tile: the fewest for a tensor core, and the rows of a wide run's tile


class KernelWork(NamedTuple):
    """The input of the kernels. Arrays are int32.

    Args:
        group: G, the query heads of each key-value head.
        split: Most tokens of a run.
        narrow: Rows of a narrow tile, which holds rows // G queries.
        wide: Rows of a wide tile, which holds rows // G queries.
        num_narrow: The number of narrow items, which come first.
        positions: [T] absolute position of each query's token.
        items: [I, 5] first block, after the last block, first query, after the last query, first row of `slots`.
        blocks: [B', 3] number in the pool, position of the first key, keys held.
        slots: [S] the partial result that each query of each item writes.
        first_slots: [T + 1] slots of query t are first_slots[t] to first_slots[t + 1], from the root to the leaf.
    """

    group: int
    split: int
    narrow: int
    wide: int
    num_narrow: int
    positions: NDArray[np.int32]
    items: NDArray[np.int32]
    blocks: NDArray[np.int32]
    slots: NDArray[np.int32]
    first_slots: NDArray[np.int32]


class WorkShape(NamedTuple):
    """The sizes of a step's work on which its kernels' grids depend: queries, narrow items, wide items."""

    queries: int
    narrow: int
    wide: int


def break_even(num_queries: Ints, group: int, element_bytes: int) -> NDArray[np.float64]:
    """Return the length in tokens above which sharing a run among queries moves fewer bytes.

    The length is infinite for one query. R queries that share a run of n tokens save (R - 1) * n * 2 * H * d * b bytes
    of keys and values, for numbers of b bytes. They cost R * 8 * H * G * d bytes of float32 partial results.
    """
    with np.errstate(divide="ignore"):
        readers_per_saved_read = num_queries / (num_queries - 1.0)
        return readers_per_saved_read * (4.0 * group / element_bytes)


def private_runs(plan: AttentionPlan, is_private: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Return the blocks of some items as one run for each query.

    Blocks that lie wholly after the query are left out.

    Args:
        plan: The attention plan of the step.
        is_private: [I] the items whose blocks are wanted.

    Returns:
        [T + 1] beginnings of the queries' runs, and the rows of `plan.blocks` of all runs, each from the root to the
        leaf.
    """
    first_block, block_end, first_query, query_end = plan.items[is_private].T
    # pairs of an item and a query that reads it, ordered by query, then from root to leaf
    pair_item, reader_index = ragged_ranges(query_end - first_query)
    pair_query = first_query[pair_item] + reader_index
    order = np.argsort(pair_query, kind="stable")
    pair_item, pair_query = pair_item[order], pair_query[order]
    # the blocks of all pairs, as rows of `plan.blocks`
    num_blocks = block_end - first_block
    pair, block_index = ragged_ranges(num_blocks[pair_item])
    rows, query = first_block[pair_item[pair]] + block_index, pair_query[pair]
    first_position = plan.blocks[rows, 1]
    is_visible = first_position <= plan.positions[query]
    lengths = np.bincount(query[is_visible], minlength=len(plan.positions))
    return offsets_of(lengths), rows[is_visible]


def ragged_ranges(lengths: Ints) -> tuple[Ints, Ints]:
    """Return each element's range and its index in that range, for ranges laid end to end.

    `lengths` has the ranges' lengths. Both results are [sum of lengths].
    """
    range_of = np.repeat(np.arange(len(lengths)), lengths)
    begins = np.cumsum(lengths) - lengths
    return range_of, np.arange(len(range_of)) - begins[range_of]


def offsets_of(lengths: Ints) -> Ints:
    """Return [n + 1] the beginnings of n consecutive ranges, and the end of the last range."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def lower(
    plan: AttentionPlan, *, group: int, split: int = 256, element_bytes: int = 2, strict: bool = False
) -> KernelWork:
    """Return the kernels' work for one step's plan; the same for every layer.

    Args:
        plan: The attention plan of the step.
        group: G, query heads of each key-value head, at least 1.
        split: Most tokens of a run, a multiple of BLOCK. The length is fixed, since the cuts of a run must not depend
            on the batch.
        element_bytes: Bytes of one number in the pool; 4 for float32.
        strict: Whether a query's runs and the kind of its tiles depend on its path alone: every node is a run of its
            own, whatever queries read it, and all tiles are narrow.

    Raises:
        ValueError: `split` is not a positive multiple of BLOCK.
    """
    if split <= 0 or split % BLOCK:
        raise ValueError(f"`split` is {split}, but must be a positive multiple of {BLOCK}")
    narrow = max(_NARROW, 1 << (group - 1).bit_length())
    wide = max(_WIDE, narrow)
    is_shared = np.ones(len(plan.items), np.bool_) if strict else _is_shared(plan, group, element_bytes)
    starts, rows = private_runs(plan, ~is_shared)
    # the blocks of private runs are copied behind the plan's blocks, so that each run is consecutive
    blocks = np.concatenate([plan.blocks, plan.blocks[rows]])
    private_queries = np.flatnonzero(np.diff(starts))  # queries with a private run
    run_begin = starts[private_queries] + len(plan.blocks)
    run_end = starts[private_queries + 1] + len(plan.blocks)
    private_items = np.stack([run_begin, run_end, private_queries, private_queries + 1], axis=1)
    runs = _cut(np.concatenate([plan.items[is_shared], private_items]), split // BLOCK)
    num_queries = runs[:, 3] - runs[:, 2]
    is_narrow = (num_queries <= narrow // group) | strict
    narrow_tiles = _trim(_tile(runs[is_narrow], narrow // group), plan.positions, blocks)
    wide_tiles = _trim(_tile(runs[~is_narrow], wide // group), plan.positions, blocks)
    tiles = np.concatenate([narrow_tiles, wide_tiles])
    slots, first_slots = _slots(tiles, blocks, len(plan.positions))
    tile_slots = offsets_of(tiles[:, 3] - tiles[:, 2])[:-1]  # the first row of `slots` of each tile
    items = np.concatenate([tiles, tile_slots[:, None]], axis=1)
    return KernelWork(
        group=group,
        split=split,
        narrow=narrow,
        wide=wide,
        num_narrow=len(narrow_tiles),
        positions=np.ascontiguousarray(plan.positions, np.int32),
        items=np.ascontiguousarray(items, np.int32),
        blocks=np.ascontiguousarray(blocks, np.int32),
        slots=np.ascontiguousarray(slots, np.int32),
        first_slots=np.ascontiguousarray(first_slots, np.int32),
    )


def pad_work(work: KernelWork, shape: WorkShape) -> KernelWork:
    """Return the same work padded to a shape.

    Added items have no blocks and no queries. Added queries have no slots.
    """
    items = np.zeros((shape.narrow + shape.wide, 5), np.int32)
    narrow, wide = np.split(work.items, [work.num_narrow])
    items[: len(narrow)] = narrow
    items[shape.narrow : shape.narrow + len(wide)] = wide
    padding = (0, shape.queries - len(work.positions))
    return work._replace(
        num_narrow=shape.narrow,
        positions=np.pad(work.positions, padding),
        items=items,
        first_slots=np.pad(work.first_slots, padding, mode="edge"),
    )


def _is_shared(plan: AttentionPlan, group: int, element_bytes: int) -> NDArray[np.bool_]:
    """Return [I] whether each item is long enough to be worth its readers' partial results."""
    first_block, block_end, first_query, query_end = plan.items.T
    keys_before = offsets_of(plan.blocks[:, 2])  # the keys of all blocks before each block
    num_keys = keys_before[block_end] - keys_before[first_block]
    return num_keys > _MARGIN * break_even(query_end - first_query, group, element_bytes)


def _cut(runs: Ints, num_blocks: int) -> Ints:
    """Return runs [n, 4] cut every `num_blocks` blocks from their beginning."""
    first_block, block_end, first_query, query_end = runs.T
    num_parts = -(-(block_end - first_block) // num_blocks)  # rounded up
    run, part_index = ragged_ranges(num_parts)
    part_begin = first_block[run] + part_index * num_blocks
    part_end = np.minimum(block_end[run], part_begin + num_blocks)
    return np.stack([part_begin, part_end, first_query[run], query_end[run]], axis=1)


def _tile(runs: Ints, num_queries: int) -> Ints:
    """Return runs [n, 4] with their queries cut into tiles of at most `num_queries`."""
    first_block, block_end, first_query, query_end = runs.T
    num_tiles = -(-(query_end - first_query) // num_queries)  # rounded up
    run, tile_index = ragged_ranges(num_tiles)
    tile_begin = first_query[run] + tile_index * num_queries
    tile_end = np.minimum(query_end[run], tile_begin + num_queries)
    return np.stack([first_block[run], block_end[run], tile_begin, tile_end], axis=1)


def _trim(tiles: Ints, positions: Ints, blocks: Ints) -> Ints:
    """Return tiles [n, 4] without blocks that lie after all queries of the tile, and without empty tiles."""
    if not len(tiles):
        return tiles
    first_block, block_end, first_query, query_end = tiles.T
    # the greatest position of each tile's queries; every second range of `reduceat` lies between two tiles
    query_edges = tiles[:, 2:].ravel()
    last_position = np.maximum.reduceat(np.append(positions, 0), query_edges)[::2]
    # positions rise along a run, so that its last block tells whether blocks lie after all queries
    late_tiles = np.flatnonzero(blocks[block_end - 1, 1] > last_position)
    late_index, block_index = ragged_ranges((block_end - first_block)[late_tiles])
    tile = late_tiles[late_index]
    is_seen = blocks[first_block[tile] + block_index, 1] <= last_position[tile]
    num_seen = np.bincount(late_index[is_seen], minlength=len(late_tiles))
    trimmed_end = block_end.copy()
    trimmed_end[late_tiles] = first_block[late_tiles] + num_seen
    trimmed_tiles = np.stack([first_block, trimmed_end, first_query, query_end], axis=1)
    return trimmed_tiles[trimmed_end > first_block]


def _slots(tiles: Ints, blocks: Ints, num_queries: int) -> tuple[Ints, Ints]:
    """Return the slot of each query of each tile, [S], and the beginnings of the queries' slots, [T + 1]."""
    first_block, _, first_query, query_end = tiles.T
    tile, query_index = ragged_ranges(query_end - first_query)  # pairs of a tile and a query
    query = first_query[tile] + query_index
    first_position = blocks[first_block[tile], 1]
    order = np.lexsort((first_position, query))  # by query, then from root to leaf
    slots = np.empty(len(tile), np.int64)
    slots[order] = np.arange(len(tile))
    return slots, offsets_of(np.bincount(query, minlength=num_queries))
