"""The int8 linear layers: eight-bit weights and activations with integer sums.

So a row's bits depend on that row alone.

Shapes: M rows, K inputs, N outputs.

Idea: the weights of an output are integers times one scale, its largest magnitude over 127. So are the numbers of a
    row. Products of integers add up exactly in any order, and the scales are applied to each sum alone. So rows are
    exact for any M, place and number of threads. Against float32 a layer of normally distributed weights is off by
    1.1 % (root of the mean square).

The kernel is FBGEMM's, a library of torch, on CPUs with VNNI. On others its sums saturate, and int8 is refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from tts.errors import ConfigError

LEVELS = 127  # the largest magnitude: -128 is not used, so that both signs round alike
LEAST = 1e-30  # the least scale, by which a row or output of zeros is divided
_ZERO = 128  # FBGEMM's activations are unsigned
_DEPRECATED = "torch.quantize_per_tensor, torch.quantize_per_channel and other quantized tensor creation functions"

# [M, K] float32 in ±127, which the kernel rounds -> [M, N]: sums of products with the weights, times outputs' scales
Kernel = Callable[[torch.Tensor], torch.Tensor]


class FbgemmLinear:
    """The int8 product of FBGEMM, a library of torch.

    Args:
        weight: `[N, K]`, finite, on CPU; not kept.
        bias: `[N]` or None; added in float32.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self.out_features, self.in_features = weight.shape
        self.weight_bytes = weight.numel() + 4 * self.out_features
        self._kernel = fbgemm(*quantise_weight(weight))
        self._bias = None if bias is None else bias.detach().float()

    def __call__(self, x: torch.Tensor, /) -> torch.Tensor:
        """Return x · weightᵀ + bias, `[M, N]`, of x's dtype."""
        rows = x.float()
        scales = rows.abs().amax(1, keepdim=True).div_(LEVELS).clamp_min_(LEAST)  # [M, 1]
        sums = self._kernel(rows / scales)  # [M, N]
        if self._bias is None:
            return sums.mul_(scales).to(x.dtype)
        return torch.addcmul(self._bias, sums, scales).to(x.dtype)


def quantise_weight(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return levels `[N, K]`, int8 in ±127, and scales `[N]` of a weight."""
    weight = weight.detach().float()
    scales = (weight.abs().amax(1) / LEVELS).clamp_min(LEAST)
    return (weight / scales[:, None]).round_().to(torch.int8), scales


def fbgemm(levels: torch.Tensor, scales: torch.Tensor) -> Kernel:
    """Return FBGEMM's product with a weight of N outputs and K inputs.

    The weight is given as levels `[N, K]`, int8, and scales `[N]`.
    """
    zeros = torch.zeros(len(scales), dtype=torch.int64)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", _DEPRECATED, UserWarning)
        weights = torch._make_per_channel_quantized_tensor(levels, scales.double(), zeros, 0)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
    packed: Any = torch.ops.quantized.linear_prepack(weights, None)
    product: Any = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32
    return lambda x: product(x, 1.0, _ZERO, packed)


@cache
def fbgemm_is_exact() -> bool:
    """Whether torch has FBGEMM's kernel, and all its sums are exact, the largest included.

    The check runs once a process.
    """
    try:
        return _is_exact(outputs=33, inputs=65) and _is_exact(outputs=64, inputs=576)
    except (AttributeError, RuntimeError):  # the operator is gone, or refuses
        return False


def _is_exact(*, outputs: int, inputs: int) -> bool:
    """Whether FBGEMM's products with a weight of varied levels are equal to products in float64."""
    levels = (torch.arange(outputs * inputs).view(outputs, inputs) * 7919 % 255 - LEVELS).to(torch.int8)
    levels[0], levels[1] = LEVELS, -LEVELS  # with rows of LEVELS, the largest and the smallest sum
    scales = torch.linspace(0.001, 0.01, outputs)
    kernel = fbgemm(levels, scales)
    for rows in (1, 2, 17, 64):
        x = (torch.arange(rows * inputs).view(rows, inputs) * 104_729 % 2541 - 1270) / 10
        x[-1] = LEVELS
        # FBGEMM adds its zero before it rounds, which may turn a number near a half into a tie
        rounded = (x + _ZERO).round_().sub_(_ZERO)
        expected = (rounded.double() @ levels.double().t()).float() * scales
        if not torch.equal(kernel(x), expected):
            return False
    return True


def check_int8() -> None:
    """Check that this CPU has an exact int8 product.

    Raises:
        ConfigError: the CPU has none.
    """
    if not fbgemm_is_exact():
        raise ConfigError(
            "precision is 'int8', but this CPU has no int8 product that is exact (VNNI)",
            hint="use precision='float32'",
        )
