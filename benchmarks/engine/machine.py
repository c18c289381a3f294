"""The most that the machine can do, measured in the same run: bytes and operations a second.

The least seconds of a step follow from these.
"""

from __future__ import annotations

import math
import os
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tts.backends.engine.linear import make_linear

Linear = Callable[[torch.Tensor], torch.Tensor]

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_STREAMED_BYTES = 512 << 20
_LAYERS = 6  # enough that their weights do not stay in the caches
_BYTES = {"float32": 4.0, "int8": 1.0}


@dataclass(frozen=True)
class Probe:
    """Bytes a second that are read, and float32 operations a second of a model's linear layers by rows."""

    bandwidth: float
    flops_by_rows: Mapping[int, float]

    def best(self, other: Probe) -> Probe:
        """Return what was reached in either: others who use the machine can only lower it."""
        rates = {rows: max(flops, other.flops_by_rows[rows]) for rows, flops in self.flops_by_rows.items()}
        return Probe(max(self.bandwidth, other.bandwidth), rates)


@dataclass(frozen=True)
class Shapes:
    """What of a model decides the cost of a step."""

    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    vocabulary: int

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Shapes:
        return cls(
            config["hidden_size"],
            config["intermediate_size"],
            config["num_hidden_layers"],
            config["num_attention_heads"],
            config["num_key_value_heads"],
            config["head_dim"],
            config["vocab_size"],
        )

    def layer(self) -> list[tuple[int, int]]:
        queries, keys = self.heads * self.head, self.kv_heads * self.head
        return [
            (self.hidden, queries + 2 * keys),
            (queries, self.hidden),
            (self.hidden, 2 * self.inner),
            (self.inner, self.hidden),
        ]

    def parameters(self) -> int:
        return self.layers * sum(a * b for a, b in self.layer()) + self.hidden * self.vocabulary

    def kv_bytes(self) -> int:
        return 2 * self.layers * self.kv_heads * self.head * 4


def bandwidth() -> float:
    """Return bytes a second of reading memory that is in no cache, with all cores; the best of five."""
    block = torch.ones(_STREAMED_BYTES // 4)
    return _STREAMED_BYTES / _best(block.sum, 5)


def measure(shapes: Shapes) -> Probe:
    """Measure the reading of memory, and linear layers in the model's shapes.

    The layers are run by torch and by our engine, and the better of the two counts.
    """
    weights = [torch.ones(b, a) for _ in range(_LAYERS) for a, b in shapes.layer()] + [
        torch.ones(shapes.vocabulary // 5, shapes.hidden)
    ]
    size = sum(weight.numel() for weight in weights)
    threads = torch.get_num_threads()
    by_torch: list[Linear] = [partial(torch.nn.functional.linear, weight=weight) for weight in weights]
    by_us: list[Linear] = [
        make_linear(weight, None, precision="float32", strict=True, threads=threads) for weight in weights
    ]
    rates: dict[int, float] = {}
    for rows in ROWS:
        inputs = [torch.ones(rows, weight.shape[1]) for weight in weights]
        seconds = min(_best(partial(_apply, layers, inputs), 3) for layers in (by_torch, by_us))
        rates[rows] = 2 * size * rows / seconds
    return Probe(bandwidth(), rates)


def _apply(layers: Sequence[Linear], inputs: Sequence[torch.Tensor]) -> None:
    for layer, x in zip(layers, inputs, strict=True):
        layer(x)


def _best(run: Callable[[], object], times: int) -> float:
    run()
    found: list[float] = []
    for _ in range(times):
        started = time.perf_counter()
        run()
        found.append(time.perf_counter() - started)
    return min(found)


def rate(probe: Probe, rows: int) -> float:
    """Return operations a second at a number of rows, between two measured ones by their logarithms."""
    known = sorted(probe.flops_by_rows)
    at = bisect_left(known, rows)
    if at in (0, len(known)):
        return probe.flops_by_rows[known[min(at, len(known) - 1)]]
    low, high = known[at - 1], known[at]
    share = math.log(rows / low) / math.log(high / low)
    return probe.flops_by_rows[low] ** (1 - share) * probe.flops_by_rows[high] ** share


def step_s(probe: Probe, shapes: Shapes, rows: int, keys: int) -> float:
    """Return the least seconds of a float32 step.

    Either its weights and keys are read once each, or its operations are done at the measured rate.
    """
    weights = shapes.parameters() * _BYTES["float32"]
    return max(
        (weights + keys * shapes.kv_bytes()) / probe.bandwidth, 2 * shapes.parameters() * rows / rate(probe, rows)
    )


def load() -> float:
    return os.getloadavg()[0]


def processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
        return next(line.split(":")[1].strip() for line in text.splitlines() if line.startswith("model name"))
    except (OSError, StopIteration):
        return "unknown"
