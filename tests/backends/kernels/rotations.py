"""Random arguments of the rotation of queries and keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

CONTEXT = 100


def cos_and_sin(size: int, context: int = CONTEXT) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the tables [context, d/2] float32 of the original rotation."""
    angles = torch.arange(context)[:, None] * 10_000.0 ** (-torch.arange(0, size, 2) / size)
    return angles.cos(), angles.sin()


def rotation_case(
    heads: int, group: int, size: int, dtype: Any
) -> tuple[tuple[Any, ...], tuple[torch.Tensor, torch.Tensor]]:
    """Return (qkv, positions, tables, places) of five tokens for a pool of six blocks, and weights of norms."""
    draw = np.random.Generator(np.random.Philox(key=size + group))
    qkv = torch.from_numpy(draw.standard_normal((5, heads * (group + 2) * size), np.float32)).to(dtype)
    norms = torch.from_numpy(draw.standard_normal((2, size), np.float32)).to(dtype)
    places = (torch.tensor([4, 1, 1, 0, 5]), torch.tensor([0, 15, 14, 3, 2]))
    return (qkv, torch.tensor([0, 3, 77, 4, CONTEXT - 1]), cos_and_sin(size), places), (norms[0], norms[1])
