"""Attention over a tree on a GPU.

One kernel computes attention over runs of keys for tiles of queries. A second kernel merges a query's results.

Idea: a program of `tree_partial` takes one run of blocks and a tile of queries with all the query heads of one
    key-value head, so that a key is loaded once for all of them. Each query of a tile writes its partial result and the
    logarithm of its weight; `merge` folds a query's partial results from the root to the leaf. A query with a single
    partial result needs no merge.
Source: Dao et al. 2022, FlashAttention (arXiv 2205.14135): the running maximum and sum; Hong et al. 2024, DeFT (arXiv
    2404.00242): fixed-length runs of a flattened tree. Differs: see `tts.backends.kernels.lowering`.
Shapes: as in `tts.backends.kernels.plan`.
Numbers: products in the inputs' type with float32 sums, weights rounded to the values' type, partial results in
    float32, the logarithms in base 2. Slots of a block that hold no key are never read, so they may hold anything.
"""

# pyright: reportMissingParameterType=false
# (a kernel's arguments have no Python type: tensors arrive as pointers)

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import torch
import triton
import triton.language as tl

from tts.backends.kernels.lowering import KernelWork, lower
from tts.backends.kernels.plan import BLOCK, AttentionPlan


@triton.jit
def _rows_of_pool(pool, head, number, j, column, is_cell, pool_head, pool_block, pool_row, pool_column):
    place = head.to(tl.int64) * pool_head + number * pool_block + j * pool_row
    return tl.load(pool + place[:, None] + column[None, :] * pool_column, mask=is_cell, other=0.0)


@triton.jit
def _add_keys(
    q, top, total, acc, keys, values, blocks, begin, block_end, position, head, column, is_column,
    key_head, key_block, key_row, key_column, value_head, value_block, value_row, value_column,
    cols: tl.constexpr, block: tl.constexpr, upcast: tl.constexpr,
):  # fmt: skip
    """Return the running maximum, sum and weighted values of a tile with `cols` more keys, from block `begin` on."""
    key = tl.arange(0, cols)
    index, j = begin + key // block, key % block  # a key's block, as a row of `blocks`, and its place in the block
    is_key = index < block_end
    number = tl.load(blocks + 3 * index, mask=is_key, other=0).to(tl.int64)
    key_position = tl.load(blocks + 3 * index + 1, mask=is_key, other=0) + j
    is_key = is_key & (j < tl.load(blocks + 3 * index + 2, mask=is_key, other=0))
    is_cell = is_key[:, None] & is_column[None, :]
    k = _rows_of_pool(keys, head, number, j, column, is_cell, key_head, key_block, key_row, key_column)
    v = _rows_of_pool(values, head, number, j, column, is_cell, value_head, value_block, value_row, value_column)
    if upcast:
        k, v = k.to(tl.float32), v.to(tl.float32)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * 1.4426950408889634  # base 2
    is_seen = is_key[None, :] & (key_position[None, :] <= position[:, None])
    scores = tl.where(is_seen, scores, -1e30)
    new_top = tl.maximum(top, tl.max(scores, 1))
    # a row that sees nothing yet has scores - new_top = 0, so its weights are set to 0
    p = tl.where(is_seen, tl.exp2(scores - new_top[:, None]), 0.0)
    scale = tl.exp2(top - new_top)
    total = total * scale + tl.sum(p, 1)
    acc = acc * scale[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
    return new_top, total, acc


@triton.jit
def _fold(top, total, acc, weight, part):
    """Add a partial result and the logarithm of its weight to those before it."""
    new_top = tl.maximum(top, weight)
    # a part without keys counts 1 while no key was seen, which is harmless: the part is 0
    share, scale = tl.exp2(weight - new_top), tl.exp2(top - new_top)
    return new_top, total * scale + share, acc * scale[:, None] + part * share[:, None]


@triton.jit(do_not_specialize=["first_item", "num_queries"])
def tree_partial(
    queries,
    keys,
    values,
    out,
    partials,
    weights,
    positions,
    items,
    runs,
    blocks,
    slots,
    first_slots,
    first_item,
    num_queries,
    key_head,
    key_block,
    key_row,
    key_column,
    value_head,
    value_block,
    value_row,
    value_column,
    group: tl.constexpr,
    size: tl.constexpr,
    padded: tl.constexpr,
    rows: tl.constexpr,
    cols: tl.constexpr,
    block: tl.constexpr,
    strict: tl.constexpr,
    upcast: tl.constexpr,
):
    """Compute softmax attention of an item's queries over its runs, for one (item, key-value head).

    With `strict` the result of each run is rounded and added as `merge` would add it; else an item has one run. The
    `rows` of a tile are queries with all their query heads, and its `cols` are keys. `padded` is the head size, rounded
    up to a power of two.
    """
    item = items + 5 * (first_item + tl.program_id(0))
    head, num_heads = tl.program_id(1), tl.num_programs(1)
    first_run, run_end = tl.load(item), tl.load(item + 1)
    first_query, query_end, first_slot = tl.load(item + 2), tl.load(item + 3), tl.load(item + 4)

    row = tl.arange(0, rows)
    query_index, query_head = row // group, row % group
    query = first_query + query_index
    is_row = query < query_end  # a tile has at most rows // group queries
    column = tl.arange(0, padded)
    is_column = column < size
    position = tl.load(positions + query, mask=is_row, other=-1)
    address = ((head * num_queries + query) * group + query_head).to(tl.int64) * size
    q = tl.load(queries + address[:, None] + column[None, :], mask=is_row[:, None] & is_column[None, :], other=0.0)
    if upcast:
        q = q.to(tl.float32)

    top, total = tl.full([rows], -1e30, tl.float32), tl.zeros([rows], tl.float32)
    acc = tl.zeros([rows, padded], tl.float32)
    if strict:
        for run in range(first_run, run_end):
            run_top, run_total = tl.full([rows], -1e30, tl.float32), tl.zeros([rows], tl.float32)
            run_acc = tl.zeros([rows, padded], tl.float32)
            first_block, block_end = tl.load(runs + 2 * run), tl.load(runs + 2 * run + 1)
            for begin in range(first_block, block_end, cols // block):
                run_top, run_total, run_acc = _add_keys(
                    q, run_top, run_total, run_acc, keys, values, blocks, begin, block_end, position, head, column,
                    is_column, key_head, key_block, key_row, key_column, value_head, value_block, value_row,
                    value_column, cols, block, upcast,
                )  # fmt: skip
            divisor = tl.where(run_total == 0.0, 1.0, run_total)
            weight = tl.where(run_total == 0.0, -1e30, run_top + tl.log2(divisor))
            top, total, acc = _fold(top, total, acc, weight, run_acc / divisor[:, None])
    else:
        first_block, block_end = tl.load(runs + 2 * first_run), tl.load(runs + 2 * first_run + 1)
        first_block = tl.where(first_run < run_end, first_block, block_end)  # padding has no run
        for begin in range(first_block, block_end, cols // block):
            top, total, acc = _add_keys(
                q, top, total, acc, keys, values, blocks, begin, block_end, position, head, column, is_column,
                key_head, key_block, key_row, key_column, value_head, value_block, value_row, value_column,
                cols, block, upcast,
            )  # fmt: skip

    is_empty = (total == 0.0) | (top == -1e30)
    divisor = tl.where(is_empty, 1.0, total)
    result = acc / divisor[:, None]
    weight = tl.where(is_empty, -1e30, top + tl.log2(divisor))
    slot = tl.load(slots + first_slot + query_index, mask=is_row, other=0)
    next_query_slots = tl.load(first_slots + query + 1, mask=is_row, other=0)
    # a query's only result goes to `out` without a merge
    is_alone = next_query_slots - tl.load(first_slots + query, mask=is_row, other=0) == 1
    tl.store(weights + (slot * num_heads + head) * group + query_head, weight, mask=is_row)
    address = ((slot * num_heads + head) * group + query_head).to(tl.int64) * size
    is_cell = (is_row & ~is_alone)[:, None] & is_column[None, :]
    tl.store(partials + address[:, None] + column[None, :], result, mask=is_cell)
    address = ((query * num_heads + head) * group + query_head).to(tl.int64) * size
    is_cell = (is_row & is_alone)[:, None] & is_column[None, :]
    tl.store(out + address[:, None] + column[None, :], result.to(out.dtype.element_ty), mask=is_cell)


@triton.jit
def merge(
    out,
    partials,
    weights,
    first_slots,
    group: tl.constexpr,
    rows: tl.constexpr,
    size: tl.constexpr,
    padded: tl.constexpr,
):
    """Fold a query's partial results from the root to the leaf, for one (query, key-value head).

    A query without any partial result gets 0.
    """
    query, head, num_heads = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    first_slot, slot_end = tl.load(first_slots + query), tl.load(first_slots + query + 1)
    if slot_end - first_slot != 1:
        row, column = tl.arange(0, rows), tl.arange(0, padded)
        is_row = row < group
        is_cell = is_row[:, None] & (column < size)[None, :]
        top = tl.full([rows], -1e30, tl.float32)
        total = tl.zeros([rows], tl.float32)
        acc = tl.zeros([rows, padded], tl.float32)
        for slot in range(first_slot, slot_end):
            base = (slot * num_heads + head) * group
            weight = tl.load(weights + base + row, mask=is_row, other=-1e30)
            address = (base + row).to(tl.int64) * size
            part = tl.load(partials + address[:, None] + column[None, :], mask=is_cell, other=0.0)
            top, total, acc = _fold(top, total, acc, weight, part)
        result = acc / tl.where(total == 0.0, 1.0, total)[:, None]
        address = ((query * num_heads + head) * group + row).to(tl.int64) * size
        tl.store(out + address[:, None] + column[None, :], result.to(out.dtype.element_ty), mask=is_cell)


class KernelLaunch(NamedTuple):
    """A step's work on the device, with room for its partial results.

    All layers of the step use it, one after the other.

    Args:
        work: The work that was uploaded; its arrays are no longer read.
        positions: The positions of `work`, int32, on the device.
        items: The items of `work`, int32, on the device.
        runs: The runs of `work`, int32, on the device.
        blocks: The blocks of `work`, int32, on the device.
        slots: The slots of `work`, int32, on the device.
        first_slots: The first slots of `work`, int32, on the device.
        partials: [S, H, G, d] float32.
        weights: [S, H, G] float32 base-2 log-sum-exp of each partial result; -1e30 where no key is seen. `attend`
            writes the weights of single results too.
    """

    work: KernelWork
    positions: torch.Tensor
    items: torch.Tensor
    runs: torch.Tensor
    blocks: torch.Tensor
    slots: torch.Tensor
    first_slots: torch.Tensor
    partials: torch.Tensor
    weights: torch.Tensor


def upload(
    work: KernelWork,
    *,
    num_heads: int,
    size: int,
    device: torch.device | str,
    room: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> KernelLaunch:
    """Return a step's work on a device, made by one copy.

    `room` has the partial results and weights of `KernelLaunch`, with room for those of the work. None: they are
    allocated here, with H = `num_heads` and d = `size`. Arrays begin at multiples of 16
    bytes, since a kernel is compiled anew for addresses of another alignment.
    """
    arrays = (work.positions, work.items, work.runs, work.blocks, work.slots, work.first_slots)
    padded_arrays = [np.pad(array.ravel(), (0, -array.size % 4)) for array in arrays]  # to four int32, 16 bytes
    numbers = torch.from_numpy(np.concatenate(padded_arrays)).to(device)
    padded_tensors = torch.split(numbers, [len(array) for array in padded_arrays])
    positions, items, runs, blocks, slots, first_slots = (
        tensor[: array.size].view(array.shape) for tensor, array in zip(padded_tensors, arrays, strict=True)
    )
    partials, weights = room or make_room(len(work.slots), num_heads, work.group, size, device)
    return KernelLaunch(work, positions, items, runs, blocks, slots, first_slots, partials, weights)


def make_room(
    num_slots: int, num_heads: int, group: int, size: int, device: torch.device | str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return room for partial results [S, H, G, d] and their weights [S, H, G], float32."""
    partials = torch.empty(num_slots, num_heads, group, size, dtype=torch.float32, device=device)
    return partials, torch.empty(num_slots, num_heads, group, dtype=torch.float32, device=device)


def attend(
    plan: AttentionPlan | KernelWork | KernelLaunch,
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    out: torch.Tensor,
    *,
    split: int = 256,
) -> KernelLaunch:
    """Write softmax attention of every query over the keys that it sees to `out`.

    Args:
        plan: A plan, which is lowered and uploaded; or the result of `lower` or of `upload`, so that later layers save
            these steps.
        queries: [H, T, G, d] contiguous: float16, bfloat16 or float32, on a GPU, or anywhere in Triton's interpreter.
        keys: [H, N, BLOCK, d] of any strides, with the types and places of `queries`.
        values: [H, N, BLOCK, d] of any strides, with the types and places of `queries`.
        out: [T, H, G, d] contiguous, with the types and places of `queries`; overwritten.
        split: Most tokens of a run, if `plan` is still to be lowered; else ignored.

    Returns:
        The uploaded work, for the next layer.
    """
    num_heads, num_queries, group, size = queries.shape
    if isinstance(plan, AttentionPlan):
        plan = lower(plan, group=group, split=split, element_bytes=keys.element_size())
    if isinstance(plan, KernelWork):
        plan = upload(plan, num_heads=num_heads, size=size, device=queries.device)
    launch, work = plan, plan.work
    assert work.group == group, f"the work was lowered for {work.group} query heads of each key-value head, not {group}"
    assert launch.partials.shape[1:] == (num_heads, group, size), "the work was uploaded for another shape of heads"
    assert len(work.positions) == num_queries, f"the work has {len(work.positions)} queries, not {num_queries}"
    assert queries.is_contiguous(), "queries must be contiguous"
    assert out.is_contiguous(), "out must be contiguous"
    assert out.shape == (num_queries, num_heads, group, size), "out must be [T, H, G, d]"
    if not num_queries:
        return launch
    padded = max(16, triton.next_power_of_2(size))
    shape = {"group": group, "size": size, "padded": padded}
    narrow_items, wide_items = (0, work.num_narrow, False), (work.num_narrow, len(work.items), True)
    for first_item, item_end, is_wide in (narrow_items, wide_items):
        if item_end > first_item:
            launch_at(tree_partial, item_end - first_item, num_heads)(
                queries,
                keys,
                values,
                out,
                launch.partials,
                launch.weights,
                launch.positions,
                launch.items,
                launch.runs,
                launch.blocks,
                launch.slots,
                launch.first_slots,
                first_item,
                num_queries,
                *keys.stride(),
                *values.stride(),
                **shape,
                **tile(work, keys.element_size(), padded, is_wide=is_wide),
                block=BLOCK,
                strict=work.strict,
                upcast=is_interpreted(),
            )
    launch_at(merge, num_queries, num_heads)(
        out, launch.partials, launch.weights, launch.first_slots, **shape, **merge_tile(group, padded)
    )
    return launch


def tile(work: KernelWork, element_bytes: int, padded: int, *, is_wide: bool) -> dict[str, Any]:
    """Return the rows and keys of a tile, and the parameters to launch its kernel with.

    With these parameters the sums of a tile stay in registers up to d = 128, and its arrays fit 99 KB up to d = 256.
    """
    rows, is_float32 = work.wide if is_wide else work.narrow, element_bytes == 4
    is_large = padded > (128 if is_wide else 64) and (is_wide or work.strict)
    has_four_warps = not is_wide and not is_float32 and (is_large or not work.strict)
    is_tall = is_float32 and rows > 32  # of more than 32 query heads on one key-value head
    return {
        "rows": rows,
        "cols": 16 if is_tall else 32 if is_float32 or is_large else 64,
        "num_warps": 16 if is_tall else 4 if has_four_warps else 8,
        "num_stages": 2,
        "enable_fp_fusion": True,
    }


def merge_tile(group: int, padded: int) -> dict[str, Any]:
    """Return the rows of a merge, and the parameters with which its sums stay in registers."""
    rows = triton.next_power_of_2(group)
    return {"rows": rows, "num_warps": max(2, rows * padded // 2048), "enable_fp_fusion": True}


def launch_at(kernel: Any, *grid: int) -> Any:
    """Return a kernel to be called on a grid of programs."""
    return kernel[grid]


def is_interpreted() -> bool:
    """Whether kernels run in Triton's interpreter, whose products of bfloat16 numbers are wrong."""
    return not isinstance(cast("object", merge), triton.JITFunction)
