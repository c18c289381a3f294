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

    The length is infinite for one query. Sharing saves (R-1) * len * 2 * H * d * b bytes of keys and values. It costs R
    * 8 * H * G * d bytes of float32 partial results.
    """
    with np.errstate(divide="ignore"):
        return num_queries / (num_queries - 1.0) * (4.0 * group / element_bytes)


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
    items = plan.items[is_private]
    num_readers = items[:, 3] - items[:, 2]
    item_of, nth = ragged_ranges(num_readers)
    query_of = items[item_of, 2] + nth
    order = np.argsort(query_of, kind="stable")  # by query, then root to leaf
    item_of, query_of = item_of[order], query_of[order]
    pair_of, nth = ragged_ranges((items[:, 1] - items[:, 0])[item_of])
    rows, query_of = items[item_of[pair_of], 0] + nth, query_of[pair_of]
    is_visible = plan.blocks[rows, 1] <= plan.positions[query_of]
    lengths = np.bincount(query_of[is_visible], minlength=len(plan.positions))
    return offsets_of(lengths), rows[is_visible]


def ragged_ranges(lengths: Ints) -> tuple[Ints, Ints]:
    """Return each element's range and its index in that range, for ranges laid end to end.

    `lengths` has the ranges' lengths. Both results are [sum of lengths].
    """
    owner = np.repeat(np.arange(len(lengths)), lengths)
    return owner, np.arange(len(owner)) - (np.cumsum(lengths) - lengths)[owner]


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
    has_private = np.flatnonzero(np.diff(starts))
    run_begin, run_end = starts[has_private] + len(plan.blocks), starts[has_private + 1] + len(plan.blocks)
    private_items = np.stack([run_begin, run_end, has_private, has_private + 1], axis=1)
    blocks = np.concatenate([plan.blocks, plan.blocks[rows]])
    runs = _cut(np.concatenate([plan.items[is_shared], private_items]), split // BLOCK)
    fits = (runs[:, 3] - runs[:, 2] <= narrow // group) | strict
    narrow_tiles, wide_tiles = (
        _trim(_tile(part, rows // group), plan.positions, blocks)
        for part, rows in ((runs[fits], narrow), (runs[~fits], wide))
    )
    items = np.concatenate([narrow_tiles, wide_tiles])
    slots, first_slots = _slots(items, blocks, len(plan.positions))
    items = np.concatenate([items, offsets_of(items[:, 3] - items[:, 2])[:-1, None]], axis=1)
    arrays = (np.ascontiguousarray(array, np.int32) for array in (plan.positions, items, blocks, slots, first_slots))
    return KernelWork(group, split, narrow, wide, len(narrow_tiles), *arrays)


def pad_work(work: KernelWork, shape: WorkShape) -> KernelWork:
    """Return the same work padded to a shape.

    Added items have no blocks and no queries, and added queries no slots.
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
    keys = offsets_of(plan.blocks[:, 2])
    num_keys = keys[plan.items[:, 1]] - keys[plan.items[:, 0]]
    return num_keys > _MARGIN * break_even(plan.items[:, 3] - plan.items[:, 2], group, element_bytes)


def _cut(runs: Ints, num_blocks: int) -> Ints:
    """Return runs [n, 4] cut every `num_blocks` blocks from their beginning."""
    owner, nth = ragged_ranges(-(-(runs[:, 1] - runs[:, 0]) // num_blocks))
    pieces = runs[owner]
    pieces[:, 0] += nth * num_blocks
    pieces[:, 1] = np.minimum(pieces[:, 1], pieces[:, 0] + num_blocks)
    return pieces


def _tile(runs: Ints, num_queries: int) -> Ints:
    """Return runs [n, 4] with their queries cut into tiles of at most `num_queries`."""
    owner, nth = ragged_ranges(-(-(runs[:, 3] - runs[:, 2]) // num_queries))
    tiles = runs[owner]
    tiles[:, 2] += nth * num_queries
    tiles[:, 3] = np.minimum(tiles[:, 3], tiles[:, 2] + num_queries)
    return tiles


def _trim(tiles: Ints, positions: Ints, blocks: Ints) -> Ints:
    """Return tiles [n, 4] without blocks that lie after all queries of the tile, and without empty tiles."""
    if not len(tiles):
        return tiles
    # the greatest positions of tiles; every second range of `reduceat` lies between two tiles
    last_position = np.maximum.reduceat(np.append(positions, 0), tiles[:, 2:].ravel())[::2]
    late_tiles = np.flatnonzero(
        blocks[tiles[:, 1] - 1, 1] > last_position
    )  # positions rise along a run, so its last block decides
    owner, nth = ragged_ranges((tiles[:, 1] - tiles[:, 0])[late_tiles])
    is_seen = blocks[tiles[late_tiles[owner], 0] + nth, 1] <= last_position[late_tiles[owner]]
    tiles[late_tiles, 1] = tiles[late_tiles, 0] + np.bincount(owner[is_seen], minlength=len(late_tiles))
    return tiles[tiles[:, 1] > tiles[:, 0]]


def _slots(tiles: Ints, blocks: Ints, num_queries: int) -> tuple[Ints, Ints]:
    """Return the slot of each query of each tile, [S], and the beginnings of the queries' slots, [T + 1]."""
    owner, nth = ragged_ranges(tiles[:, 3] - tiles[:, 2])
    query_of = tiles[owner, 2] + nth
    slots = np.empty(len(owner), np.int64)
    slots[np.lexsort((blocks[tiles[owner, 0], 1], query_of))] = np.arange(len(owner))  # root to leaf
    return slots, offsets_of(np.bincount(query_of, minlength=num_queries))
