"""Rotary positions, and the write of new keys and values to the pool.

One pass over the product of the three projections does both.

Source: Su et al. 2021, RoFormer (arXiv 2104.09864), section 3.4.2, in the two halves of transformers' Llama: with a
    head's numbers in halves x1, x2, it becomes x1*cos - x2*sin, x2*cos + x1*sin. Zhang and Sennrich 2019 (arXiv
    1910.07467): the RMS norm that Qwen3 takes of each head of queries and keys before they are rotated. Differs from
    transformers: nothing is rounded in between.
Shapes: as in `tts.backends.kernels.plan`.
"""

from __future__ import annotations

import torch


def rope_reference(
    qkv: torch.Tensor,
    positions: torch.Tensor,
    tables: tuple[torch.Tensor, torch.Tensor],
    places: tuple[torch.Tensor, torch.Tensor],
    keys: torch.Tensor,
    values: torch.Tensor,
    *,
    norms: tuple[torch.Tensor, torch.Tensor] | None = None,
    eps: float = 1e-6,
) -> torch.Tensor:
    """Write the keys and values of T tokens to the pool, and return the queries.

    The keys are rotated. The queries are rotated and scaled by d**-0.5.

    Args:
        qkv: [T, (H*G + 2*H) * d] of any float type: heads of queries, where the G heads of a key-value head are
            neighbours; then heads of keys; then heads of values.
        positions: [T] whole numbers, rows of the tables.
        tables: Cosines and sines, each [context, d/2] float32 (float64 where qkv is).
        places: The block of each token's key and value, and their row in the block, both [T] whole numbers. No two
            tokens may have the same place.
        keys: [H, N, BLOCK, d] view of one layer of the pool, of any strides and float type; written to.
        values: [H, N, BLOCK, d] view of the layer's values, like `keys`; written to.
        norms: None, or weights [d] of the norms of queries and of keys.
        eps: The number that is added to the mean square.

    Returns:
        [H, T, G, d] contiguous, of qkv's type.
    """
    num_heads, _, _, head_size = keys.shape
    wide_type = torch.float64 if qkv.dtype == torch.float64 else torch.float32
    heads = qkv.to(wide_type).unflatten(1, (-1, head_size))  # [T, H*G + 2*H, d]
    num_query_heads = heads.shape[1] - 2 * num_heads
    new_queries, new_keys, new_values = heads.split([num_query_heads, num_heads, num_heads], 1)
    if norms is not None:
        query_weight, key_weight = norms
        new_queries = _rms_norm(new_queries, query_weight.to(wide_type), eps)
        new_keys = _rms_norm(new_keys, key_weight.to(wide_type), eps)
    cos, sin = (table[positions].to(wide_type).unsqueeze(1) for table in tables)  # [T, 1, d/2]
    new_queries = _rotate(new_queries, cos, sin) * head_size**-0.5
    new_keys = _rotate(new_keys, cos, sin)
    keys[:, *places] = new_keys.transpose(0, 1).to(keys.dtype)
    values[:, *places] = new_values.transpose(0, 1).to(values.dtype)
    return new_queries.unflatten(1, (num_heads, -1)).transpose(0, 1).to(qkv.dtype).contiguous()


def _rms_norm(heads: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return heads * (heads.square().mean(-1, keepdim=True) + eps).rsqrt() * weight


def _rotate(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    x1, x2 = heads.chunk(2, -1)
    return torch.cat([x1 * cos - x2 * sin, x2 * cos + x1 * sin], -1)
