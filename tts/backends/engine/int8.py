"""The int8 linear layers: eight-bit weights and activations with integer sums.

So a row's bits depend on that row alone.

Shapes: M rows, K inputs, N outputs.

Idea: the weights of an output are integers times one scale, its largest magnitude over 127. So are the numbers of a
    row. Products of integers add up exactly in any order, and the scales are applied to each sum alone. So rows are
    exact for any M, place and number of threads. Against float32 a layer of normally distributed weights is off by
    1.1 % (root of the mean square).

Two kernels give the same bits. FBGEMM's kernel is for CPUs with VNNI; on others its sums saturate. This package's
kernel is for other CPUs with AVX2.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch

from tts.backends.kernels import gemm_int8
from tts.backends.kernels.gemm_int8 import LEAST, LEVELS
from tts.backends.kernels.host import Team
from tts.errors import ConfigError

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

    exact_rows = True

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


class HostInt8Linear:
    """The int8 product of this package (`kernels/gemm_int8.py`).

    Args:
        weight: `[N, K]`, finite, on CPU; not kept.
        bias: `[N]` or None; added in float32.
        team: The threads that share a call.

    Attributes:
        panels: The weight's levels, as `gemm_int8.pack` lays them out.
        outputs: [2, N] scales and biases, padded with zeros to whole panels.
    """

    exact_rows = True

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, team: Team) -> None:
        self.out_features, self.in_features = weight.shape
        self.weight_bytes = weight.numel() + 4 * self.out_features
        levels, scales = quantise_weight(weight)
        self.panels = gemm_int8.pack(levels.numpy())
        num_panels, _, panel_outputs, _ = self.panels.shape
        self.outputs = np.zeros((2, num_panels * panel_outputs), np.float32)
        self.outputs[0, : len(scales)] = scales.numpy()
        if bias is not None:
            self.outputs[1, : len(scales)] = bias.detach().float().numpy()
        self._team = team

    def __call__(self, x: torch.Tensor, /) -> torch.Tensor:
        """Return x · weightᵀ + bias, `[M, N]`, of x's dtype."""
        padded = torch.empty(len(x), self.outputs.shape[1])
        if len(x):
            gemm_int8.multiply(x.float().contiguous().numpy(), self.panels, self.outputs, padded.numpy(), self._team)
        return padded[:, : self.out_features].contiguous().to(x.dtype)


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
    """Check that this CPU has an int8 product that is faster than float32.

    Raises:
        ConfigError: the CPU has none.
    """
    if not (fbgemm_is_exact() or gemm_int8.has_instructions()):
        raise ConfigError(
            "precision is 'int8', but this CPU has no int8 product that is exact and faster than float32 (AVX2, or "
            "VNNI)",
            hint="use precision='float32'",
        )
