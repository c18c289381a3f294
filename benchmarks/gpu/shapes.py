"""Search trees as plans of attention, random keys and values, and attention in float64."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from tests.backends.kernels.trees import Node
from tts.backends.kernels.lowering import KernelWork, lower
from tts.backends.kernels.plan import BLOCK, AttentionPlan

_CHUNK = 1 << 27  # most numbers of the keys that are widened at once


class Heads(NamedTuple):
    """The heads of attention: key-value heads, query heads of each, and numbers of a head."""

    heads: int
    group: int
    size: int


LLAMA_8B, QWEN_HALF = Heads(8, 4, 128), Heads(2, 7, 64)
TINY = Heads(1, 4, 32)


class Pool(NamedTuple):
    """The queries [H, T, G, d] of a plan, and one layer's keys and values [H, N, BLOCK, d]."""

    queries: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor


def grow_tree(lengths: Sequence[int], widths: Sequence[Sequence[int]]) -> list[Node]:
    """Return the nodes of a tree whose leaves have one query each, in depth-first order.

    Args:
        lengths: The tokens of the nodes at each depth.
        widths: The numbers of children at each depth but the last, dealt to its nodes in turn.
    """
    turns = [itertools.cycle(each) for each in widths]
    nodes: list[Node] = []

    def grow(parent: int, depth: int) -> None:
        is_leaf = depth == len(widths)
        nodes.append((parent, lengths[depth], int(is_leaf)))
        place = len(nodes) - 1
        for _ in range(0 if is_leaf else next(turns[depth])):
            grow(place, depth + 1)

    grow(-1, 0)
    return nodes


# inner nodes are whole blocks, since FlashInfer's pages of a row may not be half full before the last
TREES: dict[str, list[Node]] = {
    "2,048 + 64 x 256": grow_tree([2048, 256], [[64]]),
    "2,048 + 256 x 256": grow_tree([2048, 256], [[256]]),
    "2,048 + 1,024 x 256": grow_tree([2048, 256], [[1024]]),
    "8,192 + 64 x 256": grow_tree([8192, 256], [[64]]),
    "beam": grow_tree([1024, 128, 128, 121], [[4], [4], [4]]),
    "REBASE": grow_tree([1024, 64, 64, 57], [[16], [8, 4, 2, 1, 1], [4, 2, 1, 1]]),
    "particles": grow_tree([1024, 256, 64, 41], [[4], [6, 3, 2, 1], [9, 5, 4, 2, 1, 1]]),
    "depth 12": grow_tree([512] + [64] * 10 + [50], [[2], [1]] * 5 + [[2]]),
}
SMOKE_TREES = {
    "2,048 + 64 x 256": grow_tree([32, 20], [[5]]),
    "REBASE": grow_tree([32, 16, 9], [[2], [2, 1]]),
    "depth 12": grow_tree([16] * 11 + [5], [[2], *[[1]] * 10]),
}


def make_pool(plan: AttentionPlan, num_blocks: int, heads: Heads, dtype: Any, device: str) -> Pool:
    """Return random queries, keys and values; keys that nobody holds are NaN."""
    draw = torch.Generator(device).manual_seed(num_blocks)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw, device=device).to(dtype)

    queries = normal(heads.heads, len(plan.positions), heads.group, heads.size) * heads.size**-0.5
    keys, values = (normal(heads.heads, num_blocks, BLOCK, heads.size) for _ in range(2))
    held = np.zeros((num_blocks, BLOCK), bool)
    held[plan.blocks[:, 0]] = np.arange(BLOCK) < plan.blocks[:, 2:]
    unheld = torch.from_numpy(~held).to(device)
    keys[:, unheld], values[:, unheld] = torch.nan, torch.nan
    return Pool(queries, keys, values)


def lower_as_engine(
    plan: AttentionPlan, heads: Heads, element_bytes: int, *, processors: int = 132, strict: bool = False
) -> KernelWork:
    """Return the work that the engine makes of a plan on a card with some processors."""
    return lower(
        plan,
        group=heads.group,
        split=256 if strict else None,
        element_bytes=element_bytes,
        strict=strict,
        heads=heads.heads,
        programs=2 * processors,
        most_slots=64 * len(plan.positions),
    )


def path_places(plan: AttentionPlan) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the block and the offset of each key that each query sees, and how many each sees.

    The places are [2, T, L], where L is the longest path. Shorter paths are padded with their last key.
    """
    tokens: list[list[NDArray[np.int64]]] = [[] for _ in plan.positions]
    for first_block, block_end, first_query, query_end in plan.items.tolist():
        number, position, count = (column[:, None] for column in plan.blocks[first_block:block_end].T)
        offset = np.arange(BLOCK)[None, :]
        columns = np.broadcast_arrays(number, offset, position + offset)
        of_node = np.stack([column[np.broadcast_to(offset < count, column.shape)] for column in columns])
        for query in range(first_query, query_end):
            tokens[query].append(of_node[:2, of_node[2] <= plan.positions[query]])
    paths = [np.concatenate(parts, axis=1) for parts in tokens]
    lengths = np.array([path.shape[1] for path in paths])
    padded = [np.pad(path, ((0, 0), (0, lengths.max() - path.shape[1])), mode="edge") for path in paths]
    return np.stack(padded, axis=1), lengths


def attend_exactly(plan: AttentionPlan, pool: Pool) -> torch.Tensor:
    """Return softmax attention of every query over the keys that it sees, [T, H, G, d] in float64."""
    device = pool.queries.device
    places, lengths = path_places(plan)
    longest = places.shape[2]
    out: list[torch.Tensor] = []
    rows = max(1, _CHUNK // (pool.keys.shape[0] * pool.keys.shape[3] * longest))
    for first in range(0, len(lengths), rows):
        numbers, offsets = torch.from_numpy(places[:, first : first + rows]).to(device)
        keys, values = pool.keys[:, numbers, offsets].double(), pool.values[:, numbers, offsets].double()
        scores = torch.einsum("htgd,htld->htgl", pool.queries[:, first : first + rows].double(), keys)
        is_seen = torch.arange(longest) < torch.from_numpy(lengths[first : first + rows])[:, None]
        weights = scores.masked_fill(~is_seen.to(device)[None, :, None], -torch.inf).softmax(-1)
        out.append(torch.einsum("htgl,htld->thgd", weights, values))
    return torch.cat(out)


def compare(found: torch.Tensor, wanted: torch.Tensor, tolerance: float) -> dict[str, Any]:
    """Return the largest error, relative to values above 1, and whether it is within a tolerance.

    NaN is never within it.
    """
    wanted = wanted.to(found.device, torch.float64)
    error = float(((found.double() - wanted).abs() / wanted.abs().clamp(min=1.0)).max())
    return {"error": error, "tolerance": tolerance, "agrees": error <= tolerance}
