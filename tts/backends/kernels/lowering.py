"""Lowering of a plan to the kernels' work, on the host.

Lowering decides which runs are shared, where runs are cut, and where partial results lie.

Idea: sharing a run saves reading it once per query but costs each query a partial result, written and read back. Runs
    too short to pay for that join the *private run* of each of their queries, which may span nodes: blocks carry their
    own position and count, so nothing about a node's borders is needed to read them exactly. Many queries of one node
    fill the card by themselves: each of their tiles is *folded*, that is, one program reads the whole path, run after
    run, and there are no partial results.
Source: Hong et al. 2024, DeFT (arXiv 2404.00242): flattened trees cut into runs of equal length. Differs: runs are cut
    per node or per query and never mix queries that see different keys, so no bit masks; all heads of a group share one
    load of a key.
Shapes: as in `tts.backends.kernels.plan`; B' block rows, I items, S slots.
Cost: vectorised numpy; a step of 256 rows on four trees takes 0.3 ms of one core, one of 1,000 rows 0.5 ms; tests hold
    it to ten times that.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tts.backends.kernels.plan import BLOCK, AttentionPlan

Ints = NDArray[np.int64]

_MARGIN = 1.5  # the least length of a shared run, in break-even lengths
_NARROW, _WIDE = 16, 64  # rows of a tile: the fewest for a tensor core, and the rows of a wide run's tile
_FIXED = 16  # the blocks of a run of strict work, and the fewest of other cut runs
_ANY = 1 << 40  # more blocks, or queries, than there are


class KernelWork(NamedTuple):
    """The input of the kernels. Arrays are int32.

    Args:
        group: G, the query heads of each key-value head.
        strict: Whether the runs of an item are merged as partial results are, so that folding changes no bit.
        narrow: Rows of a narrow tile, which holds rows // G queries.
        wide: Rows of a wide tile, which holds rows // G queries.
        num_narrow: The number of narrow items, which come first.
        positions: [T] absolute position of each query's token.
        items: [I, 5] first run, after the last run, first query, after the last query, first row of `slots`.
        runs: [R, 2] first block, after the last block.
        blocks: [B', 3] number in the pool, position of the first key, keys held.
        slots: [S] the partial result that each query of each item writes.
        first_slots: [T + 1] slots of query t are first_slots[t] to first_slots[t + 1], from the root to the leaf.
    """

    group: int
    strict: bool
    narrow: int
    wide: int
    num_narrow: int
    positions: NDArray[np.int32]
    items: NDArray[np.int32]
    runs: NDArray[np.int32]
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
    plan: AttentionPlan,
    *,
    group: int,
    split: int | None = 256,
    element_bytes: int = 2,
    strict: bool = False,
    heads: int = 1,
    programs: int = 264,
    most_slots: int | None = None,
) -> KernelWork:
    """Return the kernels' work for one step's plan; the same for every layer.

    Args:
        plan: The attention plan of the step.
        group: G, query heads of each key-value head, at least 1.
        split: Most tokens of a run, a multiple of BLOCK. With `strict` the length is fixed, since the cuts of a run
            must not depend on the batch. None: as long as `programs` programs have equal work.
        element_bytes: Bytes of one number in the pool; 4 for float32.
        strict: Whether a query's runs and the kind of its tiles depend on its path alone: every node is a run of its
            own, whatever queries read it, and all tiles are narrow.
        heads: H, the key-value heads.
        programs: The programs that fill the card.
        most_slots: The room for partial results, at least T. Paths are folded until the results fit. None: no path is
            folded.

    Raises:
        ValueError: `split` is not a positive multiple of BLOCK, or None with `strict`.
    """
    if split is None and strict:
        raise ValueError("`split` is None, but the runs of strict work have a fixed length")
    if split is not None and (split <= 0 or split % BLOCK):
        raise ValueError(f"`split` is {split}, but must be a positive multiple of {BLOCK}")
    narrow = max(_NARROW, 1 << (group - 1).bit_length())
    wide = narrow if element_bytes == 4 else max(_WIDE, narrow)  # wide tiles of float32 do not fit the registers
    tile_queries = (narrow if strict else wide) // group
    run_blocks = _ANY if split is None else split // BLOCK
    folded = np.empty((0, 2), np.int64)
    if most_slots is not None:
        folded = _folded_intervals(plan, run_blocks, tile_queries * programs // heads, most_slots)
    rest = plan._replace(items=_outside(plan.items, folded))
    is_shared = np.ones(len(rest.items), np.bool_) if strict else _is_shared(rest, group, element_bytes)
    starts, rows = private_runs(rest, ~is_shared)
    path_starts, path_rows = _path_blocks(plan, folded)
    # the blocks of private runs and of folded paths are copied behind the plan's blocks, so that each is one run
    blocks = np.concatenate([plan.blocks, plan.blocks[rows], plan.blocks[path_rows]])
    private_queries = np.flatnonzero(np.diff(starts))  # queries with a private run
    run_begin = starts[private_queries] + len(plan.blocks)
    run_end = starts[private_queries + 1] + len(plan.blocks)
    private_items = np.stack([run_begin, run_end, private_queries, private_queries + 1], axis=1)
    runs = np.concatenate([rest.items[is_shared], private_items])
    if split is None:
        run_blocks = _balanced_length(runs, tile_queries, programs / heads, most_slots)
    runs = _cut(runs, run_blocks, evenly=split is None)
    if not strict:
        path_starts += len(plan.blocks) + len(rows)
        runs = np.concatenate([runs, np.stack([path_starts[:-1], path_starts[1:], *folded.T], axis=1)])
    num_queries = runs[:, 3] - runs[:, 2]
    is_narrow = (num_queries <= narrow // group) | (tile_queries == narrow // group)
    narrow_tiles = _trim(_tile(runs[is_narrow], narrow // group), plan.positions, blocks)
    wide_tiles = _trim(_tile(runs[~is_narrow], wide // group), plan.positions, blocks)
    tiles = np.concatenate([narrow_tiles, wide_tiles])
    numbers = np.arange(len(tiles))  # each of these tiles has a run of its own
    items, all_runs = np.stack([numbers, numbers + 1, tiles[:, 2], tiles[:, 3]], axis=1), tiles[:, :2]
    if strict:
        path_items, path_runs = _path_items(plan, folded, tile_queries, run_blocks, len(tiles))
        items, all_runs = np.concatenate([items, path_items]), np.concatenate([all_runs, path_runs])
    slots, first_slots = _slots(items, blocks[all_runs[items[:, 0], 0], 1], len(plan.positions))
    item_slots = offsets_of(items[:, 3] - items[:, 2])[:-1]  # the first row of `slots` of each item
    return KernelWork(
        group=group,
        strict=strict,
        narrow=narrow,
        wide=wide,
        num_narrow=len(items) if strict else len(narrow_tiles),
        positions=np.ascontiguousarray(plan.positions, np.int32),
        items=np.ascontiguousarray(np.concatenate([items, item_slots[:, None]], axis=1), np.int32),
        runs=np.ascontiguousarray(all_runs, np.int32),
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


def _folded_intervals(plan: AttentionPlan, run_blocks: int, filling: int, most_slots: int) -> Ints:
    """Return the intervals of queries [F, 2] whose paths are folded, in order.

    The queries of an interval read the same items. `filling` queries fill the card by themselves. Where the partial
    results pass `most_slots`, further intervals are folded, those with the most results first.
    """
    first_block, block_end, first_query, query_end = plan.items.T
    num_parts = -(-(block_end - first_block) // run_blocks)  # rounded up
    edges = np.unique(plan.items[:, 2:])
    if not len(edges):
        return np.empty((0, 2), np.int64)
    results = np.zeros(len(edges), np.int64)  # of a query of each interval
    np.add.at(results, np.searchsorted(edges, first_query), num_parts)
    np.subtract.at(results, np.searchsorted(edges, query_end), num_parts)
    results = np.cumsum(results)[:-1]
    num_queries = np.diff(edges)
    saved = num_queries * (results - 1)  # results fewer, if the interval is folded
    is_folded = (num_queries >= filling) & (saved > 0)
    excess = (num_queries * results).sum() - saved[is_folded].sum() - most_slots
    if excess > 0:
        order = np.argsort(np.where(is_folded, 0, -saved), kind="stable")
        is_folded[order[: np.searchsorted(np.cumsum(saved[order]), excess) + 1]] = True
    return np.stack([edges[:-1], edges[1:]], axis=1)[is_folded]


def _outside(items: Ints, folded: Ints) -> Ints:
    """Return items [I, 4] with their queries outside of some intervals [F, 2], which may cut an item."""
    begins, ends = folded.T
    skipped = np.searchsorted(ends, items[:, 2], side="right")  # intervals before an item's first query
    num_cuts = np.searchsorted(begins, items[:, 3]) - skipped
    item, piece = ragged_ranges(num_cuts + 1)
    before = np.concatenate([[0], ends])[skipped[item] + piece]
    after = np.append(begins, _ANY)[skipped[item] + piece]
    pieces = items[item]
    pieces[:, 2] = np.where(piece == 0, pieces[:, 2], before)
    pieces[:, 3] = np.minimum(pieces[:, 3], after)
    return pieces[pieces[:, 2] < pieces[:, 3]]


def _path_of(plan: AttentionPlan, folded: Ints) -> tuple[Ints, Ints]:
    """Return pairs of an interval of queries and an item that the interval reads, from the root to the leaf."""
    path, item = np.nonzero((plan.items[:, 2] <= folded[:, :1]) & (plan.items[:, 3] >= folded[:, 1:]))
    return path, item


def _path_blocks(plan: AttentionPlan, folded: Ints) -> tuple[Ints, Ints]:
    """Return [F + 1] the beginnings of folded paths, and the rows of `plan.blocks` of all paths, root to leaf."""
    path, item = _path_of(plan, folded)
    first_block, block_end = plan.items[item, :2].T
    pair, block_index = ragged_ranges(block_end - first_block)
    return offsets_of(np.bincount(path[pair], minlength=len(folded))), first_block[pair] + block_index


def _path_items(
    plan: AttentionPlan, folded: Ints, num_queries: int, run_blocks: int, first_run: int
) -> tuple[Ints, Ints]:
    """Return items [n, 4] of strict tiles that read whole paths, and the runs [m, 2] of all paths.

    The number of the first run is `first_run`.
    """
    path, item = _path_of(plan, folded)
    runs = _cut(np.stack([*plan.items[item, :2].T, path, path], axis=1), run_blocks)
    edges = np.searchsorted(runs[:, 2], np.arange(len(folded) + 1))
    tiles = _tile(np.stack([edges[:-1], edges[1:], *folded.T], axis=1), num_queries)
    # runs that lie after a tile's last query are left out; runs are ordered by path, then by position
    tile_path = np.searchsorted(folded[:, 0], tiles[:, 2], side="right") - 1
    span = int(plan.positions.max(initial=0)) + 1
    first_position = plan.blocks[runs[:, 0], 1].clip(max=span - 1)
    last_position = plan.positions[tiles[:, 3] - 1]
    tiles[:, 1] = np.searchsorted(runs[:, 2] * span + first_position, tile_path * span + last_position, side="right")
    tiles[:, :2] += first_run
    return tiles, runs[:, :2]


def _balanced_length(runs: Ints, num_queries: int, programs: float, most_slots: int | None) -> int:
    """Return the most blocks of a run with which about `programs` tiles have equal work.

    Runs [n, 4] are cut no shorter than is fixed for strict work. Where partial results would pass `most_slots`, runs
    are longer.
    """
    lengths, readers = runs[:, 1] - runs[:, 0], runs[:, 3] - runs[:, 2]
    work = (lengths * -(-readers // num_queries)).sum()
    run_blocks = max(_FIXED, math.ceil(work / programs))
    while most_slots is not None and run_blocks < lengths.max(initial=0):
        if (readers * -(-lengths // run_blocks)).sum() <= most_slots:
            break
        run_blocks *= 2
    return run_blocks


def _cut(runs: Ints, num_blocks: int, *, evenly: bool = False) -> Ints:
    """Return runs [n, 4] cut every `num_blocks` blocks from their beginning, or into equal parts of at most so many."""
    first_block, block_end, first_query, query_end = runs.T
    lengths = block_end - first_block
    num_parts = -(-lengths // num_blocks)  # rounded up
    run, part_index = ragged_ranges(num_parts)
    if evenly:
        offset = lengths[run] * part_index // num_parts[run]
        part_end = first_block[run] + lengths[run] * (part_index + 1) // num_parts[run]
    else:
        offset = part_index * num_blocks
        part_end = np.minimum(block_end[run], first_block[run] + offset + num_blocks)
    return np.stack([first_block[run] + offset, part_end, first_query[run], query_end[run]], axis=1)


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


def _slots(items: Ints, first_position: Ints, num_queries: int) -> tuple[Ints, Ints]:
    """Return the slot of each query of each item, [S], and the beginnings of the queries' slots, [T + 1].

    `first_position` [I] has the position of each item's first key.
    """
    first_query, query_end = items[:, 2], items[:, 3]
    item, query_index = ragged_ranges(query_end - first_query)  # pairs of an item and a query
    query = first_query[item] + query_index
    order = np.lexsort((first_position[item], query))  # by query, then from root to leaf
    slots = np.empty(len(item), np.int64)
    slots[order] = np.arange(len(item))
    return slots, offsets_of(np.bincount(query, minlength=num_queries))
