"""The int8 linear layer: eight-bit weights and activations with integer sums, so a row's bits depend on that row alone.

Shapes: M rows, K inputs, N outputs.

Two kernels give the same bits. FBGEMM's is the faster one for 2 to 16 rows (1.1 to 1.6 times on SmolLM2's shapes), but its
packed weights can be made only of torch's quantised tensors, which are deprecated: where they are gone, or sums differ, torch's
product of int8 matrices stands in (`best_kernel`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from tts.errors import ConfigError

_LEVELS = 127  # of magnitude: -128 is not used, so that both signs round alike
_ZERO = 128  # FBGEMM's activations are unsigned
_LEAST = 1e-30  # of scales: a row or output of zeros divides by it
_DEPRECATED = "torch.quantize_per_tensor, torch.quantize_per_channel and other quantized tensor creation functions"

# [M, K] float32 in ±127, rounded by it -> [M, N]: sums of products with the weights, times the outputs' scales
Kernel = Callable[[torch.Tensor], torch.Tensor]
# levels [N, K], int8, and scales [N] -> their kernel
KernelOf = Callable[[torch.Tensor, torch.Tensor], Kernel]


class Int8Linear:
    """Weights in int8 with one scale an output, activations rounded to int8 with one scale a row.

    Idea: each output is its largest weight's magnitude over 127 times an integer, each row likewise. Products of integers add up
        exactly in any order, and the scales are applied to each sum alone: exact rows for any M, place and number of threads.
        Against float32 a layer of normally distributed weights is off by 1.1 % (root of the mean square).

    Args:
        weight: `[N, K]`, finite, on CPU; not kept.
        bias: `[N]` or None; added in float32.

    Raises:
        ConfigError: the weight is on another device, or this CPU's int8 products are not exact.
    """

    exact_rows = True

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        if weight.device.type != "cpu":
            raise ConfigError(f"precision is 'int8', but the weights are on {weight.device}", hint="use 'bfloat16' there, or the CPU")
        self.out_features, self.in_features = weight.shape
        self.weight_bytes = weight.numel() + 4 * self.out_features
        levels, scales = _quantised(weight.detach().float())
        self._kernel = best_kernel()(levels, scales)
        self._bias = None if bias is None else bias.detach().float()

    def __call__(self, x: torch.Tensor, /) -> torch.Tensor:
        """Return x · weightᵀ + bias, `[M, N]`, of x's dtype."""
        rows = x.float()
        scales = rows.abs().amax(1, keepdim=True).div_(_LEVELS).clamp_min_(_LEAST)  # [M, 1]
        sums = self._kernel(rows / scales)
        y = sums.mul_(scales) if self._bias is None else torch.addcmul(self._bias, sums, scales)
        return y.to(x.dtype)


def _quantised(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return levels `[N, K]`, int8 in ±127, and scales `[N]` of a weight."""
    scales = (weight.abs().amax(1) / _LEVELS).clamp_min(_LEAST)
    return (weight / scales[:, None]).round_().to(torch.int8), scales


def fbgemm(levels: torch.Tensor, scales: torch.Tensor) -> Kernel:
    """Return FBGEMM's kernel for levels `[N, K]` and scales `[N]`."""
    zeros = torch.zeros(len(scales), dtype=torch.int64)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", _DEPRECATED, UserWarning)
        quantised = torch._make_per_channel_quantized_tensor(levels, scales.double(), zeros, 0)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
    packed: Any = torch.ops.quantized.linear_prepack(quantised, None)
    product: Any = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32
    return lambda x: product(x, 1.0, _ZERO, packed)


def plain(levels: torch.Tensor, scales: torch.Tensor) -> Kernel:
    """Return the kernel of torch's int8 matrix product for levels `[N, K]` and scales `[N]`."""
    columns, product = levels.t(), torch.ops.aten._int_mm
    return lambda x: product(_rounded(x), columns).mul(scales)


@cache
def best_kernel() -> KernelOf:
    """Return the fastest kernel that works on this machine, determined once a process.

    Raises:
        ConfigError: none does.
    """
    for kind in (fbgemm, plain):
        if _works(kind):
            return kind
    raise ConfigError("precision is 'int8', but no int8 product of this CPU and torch is exact", hint="use precision='float32'")


def _works(kind: KernelOf) -> bool:
    """Whether a kind of kernel is available and its sums are exact, the greatest included, which overflow on CPUs without VNNI."""
    try:
        return all(_exact(kind, outputs, inputs) for outputs, inputs in ((33, 65), (64, 576)))
    except (AttributeError, RuntimeError):  # the operator is gone, or refuses
        return False


def _exact(kind: KernelOf, outputs: int, inputs: int) -> bool:
    levels = (torch.arange(outputs * inputs).view(outputs, inputs) * 7919 % 255 - _LEVELS).to(torch.int8)
    levels[0], levels[1] = _LEVELS, -_LEVELS
    scales = torch.linspace(0.001, 0.01, outputs)
    kernel = kind(levels, scales)
    for rows in (1, 2, 17, 64):
        x = (torch.arange(rows * inputs).view(rows, inputs) * 104_729 % 2541 - 1270) / 10
        x[-1] = _LEVELS
        if not torch.equal(kernel(x), (_rounded(x).double() @ levels.double().t()).float() * scales):
            return False
    return True


def _rounded(x: torch.Tensor) -> torch.Tensor:
    """Round as FBGEMM does: behind the addition of its zero point, which costs the bits that would break near ties."""
    return (x + _ZERO).round_().sub_(_ZERO).to(torch.int8)
