"""The machine's bandwidth and compute, to compare the engine's speed with.

The measurement takes about half a second.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from tts.backends.engine.linear import make_linear
from tts.backends.kernels.host import Team

_SIZE, _LAYERS = 2048, 12  # weights of far more bytes than any cache holds
_ROWS = (1, 16, 64)


@dataclass(frozen=True)
class MachineLimits:
    """A machine's measured limits.

    Args:
        bandwidth: The bytes that are read in a second.
        flops: The floating-point operations a second of linear layers in float32, by rows.
        executor: What computes attention, the engine's default here.
        threads: The threads that were used.
    """

    bandwidth: float
    flops: dict[int, float]
    executor: str
    threads: int


@functools.cache
def measure() -> MachineLimits:
    """Measure the CPU, with as many threads as torch has.

    Each number is the best of a few short runs. Later calls in the same process return the first result.
    """
    weights = [torch.ones(_SIZE, _SIZE) for _ in range(_LAYERS)]
    num_bytes = sum(weight.nbytes for weight in weights)
    bandwidth = num_bytes / _shortest_seconds(lambda: [weight.sum() for weight in weights])
    threads = torch.get_num_threads()
    team = Team(threads)
    layers = [
        make_linear(weight, None, precision="float32", strict=True, threads=threads, team=team) for weight in weights
    ]
    flops: dict[int, float] = {}
    for rows in _ROWS:
        x = torch.ones(rows, _SIZE)
        operations = 2 * rows * _SIZE * _SIZE * len(layers)
        flops[rows] = operations / _shortest_seconds(lambda x=x: [layer(x) for layer in layers])
    team.close()
    return MachineLimits(bandwidth, flops, "strict", threads)


def _shortest_seconds(run: Callable[[], object], times: int = 3) -> float:
    """Return the seconds of the fastest of a few runs, after one run that is not measured."""
    run()
    seconds: list[float] = []
    for _ in range(times):
        began = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - began)
    return min(seconds)
