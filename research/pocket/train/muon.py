"""Muon in float32, for processors whose bfloat16 products are slower than float32 ones.

`torch.optim.Muon` computes in bfloat16 alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

_STEPS, _A, _B, _C = 5, 3.4445, -4.7750, 2.0315  # Newton-Schulz, as Jordan et al. have them


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised: each matrix moves by about the same share for any gradient's spectrum.

    Source: Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks". Steps have the root mean
    square of AdamW's.

    Args:
        params: The matrices.
        lr: The learning rate.
        momentum: The momentum of the gradients, Nesterov's.
        weight_decay: The pull to zero, times the learning rate.
    """

    def __init__(
        self, params: Iterable[torch.Tensor], lr: float, momentum: float = 0.95, weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Move every matrix that has a gradient."""
        del closure
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if "mean" not in state:
                    state["mean"] = torch.zeros_like(p)
                state["mean"].lerp_(p.grad, 1 - group["momentum"])
                moved = nearest_orthogonal(p.grad.lerp(state["mean"], group["momentum"]))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(moved, alpha=-group["lr"] * 0.2 * max(p.shape) ** 0.5)


def nearest_orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """Return about the nearest matrix with orthonormal rows or columns."""
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(_STEPS):
        gram = x @ x.T
        x = _A * x + (_B * gram + _C * gram @ gram) @ x
    return x.T if tall else x
