"""Attention over a tree in plain torch, for any device: trunks as dense products, the rest as padded batches of tails.

Idea: a trunk is what the same two or more queries read; all of them, with all their heads, meet its keys in one product, so the
    keys are gathered once. What is left is each query's own tail; tails of similar length are padded and make one batched
    product. Both give partial results, which are merged by their log-sum-exp. A trunk that is too small to be worth a product of
    its own is read as a part of the tails.
Source: Juravsky et al. 2024, "Hydragen" (arXiv 2402.05099). Differs: trunks are any nodes of any trees, not levels of one prefix.
Shapes: as in `tts.backends.kernels.attention`; R queries and L keys of a product.
Numbers: products and partial results in float32 (float64 where the inputs are), whatever the inputs' type.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from tts.backends.kernels.lowering import offsets_of, private_runs, ragged_ranges
from tts.backends.kernels.plan import AttentionPlan

Ints = NDArray[np.int64]
Products = TypeVar("Products", "Tails", "Trunk")

_CPU = "cpu"  # the device whose own kernel reports the log-sum-exp
_WORTH = 256  # keys that a trunk must save its queries together: about what a product of its own costs
_PREFIX = 256  # keys that all see, from which a trunk's mask leaves them out
_MASK_CELLS = 1 << 22  # most cells of one mask
_WASTE = 2  # the longest tail of a batch is at most so many times its shortest


class Trunk(NamedTuple):
    """One product of the queries from `first` to `behind` with the same keys.

    Args:
        numbers, offsets: [L] int64 where the keys are.
        mask: None where all queries see all keys; else [R*G, L] float, 0 where seen and -inf elsewhere.
        blind: None, or [R, 1] whether a query sees none of the keys; its row of the mask is all 0, its result is left out.
    """

    first: int
    behind: int
    numbers: torch.Tensor
    offsets: torch.Tensor
    mask: torch.Tensor | None
    blind: torch.Tensor | None


class Tails(NamedTuple):
    """One batched product, each query with its own keys.

    Args:
        queries: [R] int64.
        numbers, offsets: [R, L] int64 where the keys are; shorter tails repeat their first key.
        mask: None where all tails are equally long; else [R, 1, 1, L] float, 0 for a tail's keys and -inf behind them.
    """

    queries: torch.Tensor
    numbers: torch.Tensor
    offsets: torch.Tensor
    mask: torch.Tensor | None


class Tables(NamedTuple):
    """A step's products; the same for every layer."""

    tails: list[Tails]
    trunks: list[Trunk]


def lower(plan: AttentionPlan, *, group: int, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> Tables:
    """Return the products of one step's plan for G = `group`, with masks of the type that is computed in."""
    spans: dict[tuple[int, int], list[int]] = {}
    for i, (first, behind) in enumerate(plan.items[:, 2:].tolist()):
        spans.setdefault((first, behind), []).append(i)  # a chain of nodes that the same queries read
    is_private = np.ones(len(plan.items), np.bool_)
    trunks: list[Trunk] = []
    for (first, behind), items in spans.items():
        rows = np.concatenate([np.arange(*plan.items[i, :2]) for i in items])
        if (behind - first - 1) * plan.blocks[rows, 2].sum() >= _WORTH:
            is_private[items] = False
            trunks += _trunks(plan, first, behind, rows, group)
    numbers, offsets, starts = _tail_keys(plan, is_private)
    tails = [_tails(queries, numbers, offsets, starts) for queries in _batches(np.diff(starts))]

    return Tables([_moved(tail, device, dtype) for tail in tails], [_moved(trunk, device, dtype) for trunk in trunks])


def attend(plan: AttentionPlan | Tables, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, out: torch.Tensor) -> Tables:
    """Write softmax attention of every query over the keys that it sees to `out`.

    Args:
        plan: a plan, which is lowered; or what `lower` made of it, which saves that for later layers.
        queries, keys, values, out: any float type and device; shapes in `tts.backends.kernels.attention`.

    Returns:
        The products, for the next layer.
    """
    num_heads, num_queries, group, size = queries.shape
    wide = torch.float64 if queries.dtype == torch.float64 else torch.float32
    tables = lower(plan, group=group, device=queries.device, dtype=wide) if isinstance(plan, AttentionPlan) else plan
    acc = torch.zeros(num_heads, num_queries, group, size, dtype=wide, device=queries.device)
    lse = torch.full((num_heads, num_queries, group), -torch.inf, dtype=wide, device=queries.device)
    for tail in tables.tails:
        own = queries.index_select(1, tail.queries).transpose(0, 1).to(wide)  # [R, H, G, d]
        k, v = (pool[:, tail.numbers, tail.offsets].transpose(0, 1).to(wide) for pool in (keys, values))  # [R, H, L, d]
        result, weight = _product(own, k, v, tail.mask)
        acc.index_copy_(1, tail.queries, result.transpose(0, 1))
        lse.index_copy_(1, tail.queries, weight.transpose(0, 1))
    for trunk in tables.trunks:
        part = slice(trunk.first, trunk.behind)
        packed = queries[:, part].reshape(1, num_heads, -1, size).to(wide)  # [1, H, R*G, d]
        k, v = (pool[:, trunk.numbers, trunk.offsets].unsqueeze(0).to(wide) for pool in (keys, values))  # [1, H, L, d]
        result, weight = _product(packed, k, v, trunk.mask)
        result, weight = result.view(num_heads, -1, group, size), weight.view(num_heads, -1, group)
        if trunk.blind is not None:
            weight = weight.masked_fill(trunk.blind, -torch.inf)
        _fold(acc[:, part], lse[:, part], result, weight)
    out.copy_(acc.transpose(0, 1))
    return tables


def _product(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return attention and its natural-log sum of exponentials; every query must see a key.

    Shapes: queries [B, H, M, d], keys and values [B, H, L, d], results [B, H, M, d] and [B, H, M].
    """
    assert keys.shape[2], "a product without keys (torch's CPU kernel dies of it)"
    if queries.device.type == _CPU:
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(queries, keys, values, attn_mask=mask, scale=1.0)
    scores = queries @ keys.mT if mask is None else (queries @ keys.mT).add_(mask)
    weight = scores.logsumexp(-1)
    return scores.sub_(weight.unsqueeze(-1)).exp_() @ values, weight


def _fold(acc: torch.Tensor, lse: torch.Tensor, result: torch.Tensor, weight: torch.Tensor) -> None:
    """Merge a partial result into acc [H, R, G, d] and lse [H, R, G], in place; -inf means that no key was seen."""
    new = torch.logaddexp(lse, weight).clamp_min_(-1e30)  # of two that saw nothing: both keep weight 0
    acc.mul_((lse - new).exp_().unsqueeze(-1)).add_(result * (weight - new).exp_().unsqueeze(-1))
    lse.copy_(torch.where(new > -1e30, new, -torch.inf))


def _trunks(plan: AttentionPlan, first: int, behind: int, rows: Ints, group: int) -> list[Trunk]:
    """Return the products of an interval of queries with the keys of some blocks, [rows], from the root to the leaf."""
    asked = plan.positions[first:behind]
    owner, nth = ragged_ranges(plan.blocks[rows, 2])
    held = plan.blocks[rows[owner], 1] + nth  # [L] positions, rising
    keys = torch.from_numpy(np.stack([plan.blocks[rows[owner], 0], nth]))
    open_to_all, in_use = int((held <= asked.min()).sum()), int((held <= asked.max()).sum())
    prefix = open_to_all if open_to_all >= _PREFIX or open_to_all == in_use else 0
    trunks = [Trunk(first, behind, keys[0, :prefix], keys[1, :prefix], None, None)] if prefix else []
    step = max(1, _MASK_CELLS // (group * max(1, in_use - prefix)))
    for begin in range(first, behind if in_use > prefix else first, step):
        end = min(behind, begin + step)
        seen = held[None, prefix:in_use] <= plan.positions[begin:end, None]  # [R, L]
        blind = ~seen.any(1, keepdims=True)
        mask = np.where(seen | blind, np.float32(0), np.float32(-np.inf)).repeat(group, 0)
        part = keys[:, prefix:in_use]
        trunks.append(Trunk(begin, end, part[0], part[1], torch.from_numpy(mask), torch.from_numpy(blind) if blind.any() else None))
    return trunks


def _tail_keys(plan: AttentionPlan, is_private: NDArray[np.bool_]) -> tuple[Ints, Ints, Ints]:
    """Return every query's own keys end to end, their blocks' numbers and their offsets in them, and [T + 1] where each begins."""
    starts, rows = private_runs(plan, is_private)
    query_of, _ = ragged_ranges(np.diff(starts))
    seen = np.minimum(plan.blocks[rows, 2], plan.positions[query_of] - plan.blocks[rows, 1] + 1)
    owner, offsets = ragged_ranges(seen)
    return plan.blocks[rows[owner], 0], offsets, offsets_of(seen)[starts]


def _batches(lengths: Ints) -> list[Ints]:
    """Return the queries that have a tail, in batches of similar lengths."""
    order = np.argsort(lengths, kind="stable")
    order = order[lengths[order] > 0]
    batches: list[Ints] = []
    while len(order):
        size = int(np.searchsorted(lengths[order], _WASTE * lengths[order[0]], side="right"))
        batches.append(np.sort(order[:size]))
        order = order[size:]
    return batches


def _tails(queries: Ints, numbers: Ints, offsets: Ints, starts: Ints) -> Tails:
    lengths = (starts[queries + 1] - starts[queries])[:, None]
    column = np.arange(lengths.max())[None]
    index = starts[queries][:, None] + np.where(column < lengths, column, 0)
    mask = None
    if (lengths < lengths.max()).any():
        mask = torch.from_numpy(np.where(column < lengths, np.float32(0), np.float32(-np.inf))[:, None, None])
    return Tails(torch.from_numpy(queries), torch.from_numpy(numbers[index]), torch.from_numpy(offsets[index]), mask)


def _moved(products: Products, device: torch.device | str, dtype: torch.dtype) -> Products:
    """Return products with their tensors on a device, masks in a float type."""
    tensors = {name: part for name, part in products._asdict().items() if isinstance(part, torch.Tensor)}
    return products._replace(**{name: part.to(device, dtype if part.is_floating_point() else part.dtype) for name, part in tensors.items()})
