"""The int8 linear layer: eight-bit weights and activations, integer sums, so every row is exact.

Shapes: M rows, K inputs, N outputs.
"""

from __future__ import annotations

import warnings

import torch

_LEAST_SCALE = 1e-12  # of a row's largest magnitude: a row of zeros divides by it
_LEVELS = 127


class Int8Linear:
    """Weights in int8 with one scale an output, activations with one scale a row; sums are integers.

    Args:
        weight: `[N, K]`, on CPU; not kept.
        bias: `[N]` or None, added in float32.
    """

    exact_rows = True

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        weight = weight.detach().float()
        scales = (weight.abs().amax(1) / _LEVELS).clamp_min(_LEAST_SCALE)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            quantised = torch.quantize_per_channel(weight, scales.double(), torch.zeros(len(weight), dtype=torch.int64), 0, torch.qint8)
            self._packed = torch.ops.quantized.linear_prepack(quantised, None)
        self._bias = None if bias is None else bias.detach().float()
        self.out_features, self.in_features = weight.shape
        self.weight_bytes = weight.numel() + 4 * len(weight)

    def __call__(self, x: torch.Tensor, /) -> torch.Tensor:
        """Return x · weightᵀ + bias, `[M, N]`, float32."""
        largest = x.abs().amax(1, keepdim=True).clamp_min(_LEAST_SCALE)
        y = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(x / largest, 1 / _LEVELS, 128, self._packed) * largest
        return y if self._bias is None else y + self._bias
