"""A plain implementation of attention over a tree.

This float64 reference is the oracle that every executor is tested against.

Idea: a query's keys are gathered along its items in order, and softmax attention is taken over them. Nothing is shared,
    nothing is fast. `merge_reference` is the identity that lets executors cut a query's keys into parts, in any way and
    any order.
Source: Juravsky et al. 2024, "Hydragen: High-Throughput LLM Inference with Shared Prefixes" (arXiv 2402.05099), section
    3.1: the merge of partial softmax results by their log-sum-exp.
Shapes: as in `tts.backends.kernels.plan`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tts.backends.kernels.plan import BLOCK, AttentionPlan

Floats = NDArray[np.float64]


def visible_keys(plan: AttentionPlan, query: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the keys that a query reads, from the root to its own token.

    The result has each key's block number and its offset in the block, both [L].
    """
    numbers: list[int] = []
    offsets: list[int] = []
    for first_block, block_end, first_query, query_end in plan.items.tolist():
        if first_query <= query < query_end:
            for number, first_position, num_keys in plan.blocks[first_block:block_end].tolist():
                last_key = plan.positions[query] - first_position  # the last that the query may see
                visible_offsets = [offset for offset in range(BLOCK) if offset < num_keys and offset <= last_key]
                numbers += [number] * len(visible_offsets)
                offsets += visible_offsets
    return np.array(numbers, np.int64), np.array(offsets, np.int64)


def attend_reference(plan: AttentionPlan, queries: Any, keys: Any, values: Any) -> tuple[Floats, Floats]:
    """Return softmax attention of every query over the keys that it sees, in float64.

    Args:
        plan: The attention plan of the step.
        queries: [H, T, G, d], an array or a CPU tensor that numpy can read (widen bfloat16 first).
        keys: [H, N, BLOCK, d], an array or tensor like `queries`.
        values: [H, N, BLOCK, d], an array or tensor like `queries`.

    Returns:
        out [T, H, G, d], and the natural-log sum of exponentials of the scores [T, H, G]. A query that sees no key has
        out 0 and log-sum-exp -inf.
    """
    queries = np.asarray(queries).astype(np.float64)
    keys = np.asarray(keys).astype(np.float64)
    values = np.asarray(values).astype(np.float64)
    num_heads, num_queries, group, head_size = queries.shape
    out = np.zeros((num_queries, num_heads, group, head_size))
    lse = np.full((num_queries, num_heads, group), -np.inf)
    for query in range(num_queries):
        numbers, offsets = visible_keys(plan, query)
        if len(numbers):
            scores = queries[:, query] @ keys[:, numbers, offsets].swapaxes(1, 2)  # [H, G, L]
            top = scores.max(-1, keepdims=True)
            weights = np.exp(scores - top)
            total = weights.sum(-1, keepdims=True)
            out[query] = weights @ values[:, numbers, offsets] / total
            lse[query] = (top + np.log(total))[..., 0]
    return out, lse


def merge_reference(outs: Any, lses: Any) -> tuple[Floats, Floats]:
    """Return the attention over a union of disjoint key sets from the attention over each, in float64.

    Shapes: S sets; outs [S, ..., d], lses [S, ...] natural log. A set that holds no key has log-sum-exp -inf; its out
    is ignored.
    """
    outs, lses = np.asarray(outs, np.float64), np.asarray(lses, np.float64)
    top = lses.max(0)
    finite_top = np.where(np.isfinite(top), top, 0.0)
    weights = np.exp(lses - finite_top)  # [S, ...]; 0 for a set without keys
    parts = np.where(weights[..., None] > 0, outs, 0.0) * weights[..., None]
    total = weights.sum(0)
    divisor = np.where(total > 0, total, 1.0)
    with np.errstate(divide="ignore"):
        return parts.sum(0) / divisor[..., None], top + np.log(divisor)
