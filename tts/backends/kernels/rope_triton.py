"""Rotary positions, and the write of new keys and values to the pool.

One program rotates a token's heads and writes its key and value to the pool.

Source: Su et al. 2021, RoFormer (arXiv 2104.09864), section 3.4.2, in the two halves of transformers' Llama: with a
    head's numbers in halves x1, x2, it becomes x1*cos - x2*sin, x2*cos + x1*sin. Zhang and Sennrich 2019 (arXiv
    1910.07467): the RMS norm that Qwen3 takes of each head of queries and keys before they are rotated. Differs from
    transformers: nothing is rounded in between.
Shapes: as in `tts.backends.kernels.plan`.
Numbers: computed in float32, rounded once when written.
"""
# pyright: reportMissingParameterType=false
# (a kernel's arguments have no Python type: tensors arrive as pointers)

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tts.backends.kernels.attention_triton import launch_at


@triton.jit
def _norm_weight(of_query, of_key, is_query, is_column):
    query_weight = tl.load(of_query, mask=is_column, other=0.0).to(tl.float32)
    key_weight = tl.load(of_key, mask=is_column, other=0.0).to(tl.float32)
    return tl.where(is_query, query_weight, key_weight)


@triton.jit(do_not_specialize=["num_tokens"])
def rope_and_write(
    qkv,
    positions,
    cos,
    sin,
    numbers,
    offsets,
    keys,
    values,
    queries,
    query_norm,
    key_norm,
    num_tokens,
    eps,
    key_head,
    key_block,
    key_row,
    key_column,
    value_head,
    value_block,
    value_row,
    value_column,
    num_heads: tl.constexpr,
    group: tl.constexpr,
    size: tl.constexpr,
    rows: tl.constexpr,
    padded: tl.constexpr,
    has_norms: tl.constexpr,
):
    """Rotate a token's queries and keys, and write its queries, keys and values.

    The token's heads are the rows of two tiles: x1 has the first half of each head's numbers, x2 the second half.
    `rows` and `padded` are the number of heads and half the head size, rounded up to powers of two.
    """
    token = tl.program_id(0).to(tl.int64)
    half: tl.constexpr = size // 2
    row, column = tl.arange(0, rows)[:, None], tl.arange(0, padded)[None, :]
    is_query = row < num_heads * group
    is_key = (row >= num_heads * group) & (row < num_heads * (group + 1))
    is_value = (row >= num_heads * (group + 1)) & (row < num_heads * (group + 2))
    is_column = column < half
    is_cell = (row < num_heads * (group + 2)) & is_column
    base = qkv + token * (num_heads * (group + 2) * size) + row * size + column
    x1 = tl.load(base, mask=is_cell, other=0.0).to(tl.float32)
    x2 = tl.load(base + half, mask=is_cell, other=0.0).to(tl.float32)
    if has_norms:
        scale = tl.rsqrt((tl.sum(x1 * x1, 1) + tl.sum(x2 * x2, 1)) / size + eps)[:, None]  # masked columns are 0
        weight1 = _norm_weight(query_norm + column, key_norm + column, is_query, is_column)
        weight2 = _norm_weight(query_norm + half + column, key_norm + half + column, is_query, is_column)
        x1 = tl.where(is_value, x1, x1 * scale * weight1)
        x2 = tl.where(is_value, x2, x2 * scale * weight2)

    entry = tl.load(positions + token).to(tl.int64) * half + column
    c = tl.where(is_value, 1.0, tl.load(cos + entry, mask=is_column, other=0.0))  # values are not rotated
    s = tl.where(is_value, 0.0, tl.load(sin + entry, mask=is_column, other=0.0))
    scale = tl.where(is_query, size**-0.5, 1.0)
    y1 = (x1 * c - x2 * s) * scale
    y2 = (x2 * c + x1 * s) * scale

    place = queries + ((row // group * num_tokens + token) * group + row % group) * size + column
    tl.store(place, y1.to(queries.dtype.element_ty), mask=is_query & is_column)
    tl.store(place + half, y2.to(queries.dtype.element_ty), mask=is_query & is_column)
    number, offset = tl.load(numbers + token).to(tl.int64), tl.load(offsets + token).to(tl.int64)
    if number >= 0:
        head = (row - num_heads * group).to(tl.int64)
        key_place = keys + head * key_head + number * key_block + offset * key_row + column * key_column
        tl.store(key_place, y1.to(keys.dtype.element_ty), mask=is_key & is_column)
        tl.store(key_place + half * key_column, y2.to(keys.dtype.element_ty), mask=is_key & is_column)
        token_values = values + (head - num_heads) * value_head + number * value_block + offset * value_row
        value_place = token_values + column * value_column
        tl.store(value_place, y1.to(values.dtype.element_ty), mask=is_value & is_column)
        tl.store(value_place + half * value_column, y2.to(values.dtype.element_ty), mask=is_value & is_column)


def rope(
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
    """Write the keys and values of T tokens to the pool on a GPU, and return the queries.

    The keys are rotated. The queries are rotated and scaled by d**-0.5. In Triton's interpreter this runs anywhere.
    Whole numbers may be int32 or int64. qkv and the tables must be contiguous. A token whose block is -1 writes no key
    and no value.

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
    num_heads, _, _, size = keys.shape
    num_tokens, num_columns = qkv.shape
    group = num_columns // (num_heads * size) - 2  # a key-value head has G heads of queries, a key and a value
    assert qkv.is_contiguous(), "qkv must be contiguous"
    for table in tables:
        assert table.is_contiguous(), "tables must be contiguous float32"
        assert table.dtype == torch.float32, "tables must be contiguous float32"
    query_norm, key_norm = norms or tables  # without norms the tables stand in, and are not read
    queries = torch.empty(num_heads, num_tokens, group, size, dtype=qkv.dtype, device=qkv.device)
    if num_tokens:
        launch_at(rope_and_write, num_tokens)(
            qkv,
            positions,
            *tables,
            *places,
            keys,
            values,
            queries,
            query_norm,
            key_norm,
            num_tokens,
            eps,
            *keys.stride(),
            *values.stride(),
            num_heads=num_heads,
            group=group,
            size=size,
            rows=triton.next_power_of_2(num_heads * (group + 2)),
            padded=triton.next_power_of_2(size // 2),
            has_norms=norms is not None,
            num_warps=4,
            enable_fp_fusion=True,
        )
    return queries
