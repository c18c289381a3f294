"""What a device reaches at best, and how calls on it are timed."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch


def wait(device: str) -> None:
    """Wait until the device has done all that was asked of it."""
    if device == "cuda":
        torch.cuda.synchronize()


def least_seconds(run: Callable[[], object], device: str, repeats: int = 10) -> float:
    """Return the least seconds of a call among some; one call before them is not counted."""
    seconds: list[float] = []
    for _ in range(repeats + 1):
        wait(device)
        began = time.perf_counter()
        run()
        wait(device)
        seconds.append(time.perf_counter() - began)
    return min(seconds[1:])


def measure_ceilings(device: str, precision: str, *, smoke: bool) -> dict[str, float]:
    """Return the bytes a second of a copy and of a read, and operations a second of a large product.

    A copy counts the bytes that it reads and those that it writes.
    """
    count, side = (1 << 18, 64) if smoke else (1 << 28, 8192)
    dtype = getattr(torch, precision)
    block, other = torch.ones(count, dtype=dtype, device=device), torch.empty(count, dtype=dtype, device=device)
    a, b = (torch.randn(side, side, dtype=dtype, device=device) for _ in range(2))
    return {
        "copy": 2 * block.nbytes / least_seconds(lambda: other.copy_(block), device),
        "read": block.nbytes / least_seconds(block.sum, device),
        "flops": 2 * side**3 / least_seconds(lambda: a @ b, device),
    }
