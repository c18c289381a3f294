"""The plan of a step's attention, made once on the host: which keys every query reads.

A *query* is one token that a step feeds to the model. Queries are in depth-first order of their nodes, so that queries
with a common ancestor are neighbours. A *block* is room for `BLOCK` consecutive tokens of one node. An *item* is a run
of blocks and the interval of queries that read these blocks.

One rule of visibility serves prompts, decoding and scoring alike. A query reads key j of a block if and only if j < the
block's count, and position of the block's first key + j <= position of the query.

Items are in depth-first pre-order: each query meets its keys from the root to its own token.

Shapes, the same for every executor: T queries, H key-value heads, G query heads of each key-value head, d head size, N
blocks in the pool, BLOCK keys of a block.
    queries [H, T, G, d] contiguous, rotated by position and scaled by d**-0.5.
    keys, values [H, N, BLOCK, d] views of one layer of the pool, of any strides.
    out [T, H, G, d] contiguous, so that out.view(T, H*G*d) feeds the output projection.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BLOCK = 16  # tokens of a block


class AttentionPlan(NamedTuple):
    """The keys that each query of a step reads. All arrays are contiguous int64.

    Args:
        positions: [T] absolute position of each query's token.
        items: [I, 4] first block, after the last block (rows of `blocks`), first query, after the last query. No item
            is empty, and the blocks of an item belong to one node and begin at its start.
        blocks: [B, 3] number in the pool, absolute position of the first key, number of keys held (1 to BLOCK).
    """

    positions: NDArray[np.int64]
    items: NDArray[np.int64]
    blocks: NDArray[np.int64]
