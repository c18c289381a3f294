"""The norm between parts of a layer on a GPU: one program a row.

So a row's sum has one order, whatever other rows the call has.

Numbers: the sum with the change is rounded to the type of the rows, as torch rounds it; the norm is computed in float32
and rounded once.
"""
# pyright: reportMissingParameterType=false
# (a kernel's arguments have no Python type: tensors arrive as pointers)

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tts.backends.kernels.attention_triton import launch_at


@triton.jit
def norm_rows(hidden, change, weight, out, eps, size: tl.constexpr, padded: tl.constexpr, has_change: tl.constexpr):
    """Add a row's change to the row, and write the row's RMS norm times the weight.

    A row has `size` numbers; `padded` is the size, rounded up to a power of two.
    """
    column = tl.arange(0, padded)
    is_column = column < size
    place = tl.program_id(0).to(tl.int64) * size + column
    x = tl.load(hidden + place, mask=is_column, other=0.0)
    if has_change:
        added = x.to(tl.float32) + tl.load(change + place, mask=is_column, other=0.0).to(tl.float32)
        x = added.to(hidden.dtype.element_ty)
        tl.store(hidden + place, x, mask=is_column)
    x = x.to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, 0) / size + eps)
    normed = x * scale * tl.load(weight + column, mask=is_column, other=0.0).to(tl.float32)
    tl.store(out + place, normed.to(out.dtype.element_ty), mask=is_column)


def add_norm(hidden: torch.Tensor, change: torch.Tensor | None, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Add `change` to `hidden`, in place, and return its RMS norm times `weight`.

    This runs on a GPU, or anywhere in Triton's interpreter.

    Args:
        hidden: [T, K], contiguous.
        change: [T, K], contiguous; None: nothing is added.
        weight: [K] weights of the norm.
        eps: The number that is added to the mean square.
    """
    rows, size = hidden.shape
    out = torch.empty_like(hidden)
    assert hidden.is_contiguous(), "hidden must be contiguous"
    assert change is None or change.is_contiguous(), "change must be contiguous"
    if rows:
        launch_at(norm_rows, rows)(
            hidden,
            hidden if change is None else change,
            weight,
            out,
            eps,
            size=size,
            padded=triton.next_power_of_2(size),
            has_change=change is not None,
            num_warps=8,
            enable_fp_fusion=True,
        )
    return out
