"""Attention of one step to keys and values in float32 and in float16, in turns, on one thread.

    python -m benchmarks.engine.halves [--layers 8] [--repeat 11] [--heads 3] [--group 3] [--size 64] [--smoke]

Both run in one process. Rows share a prompt and have keys of their own. Times are the thread's processor time for all
layers, whose keys together are larger than the caches. The ratio is float32 over float16: above 1, float16 takes less.
The figure is the median of all pairs with their range.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np

from benchmarks.smoke import Smoke
from tts.backends.kernels.attention_strict import attend
from tts.backends.kernels.host import Team
from tts.backends.kernels.plan import BLOCK, AttentionPlan
from tts.backends.kernels.target import INSTRUCTIONS, WIDENS_HALVES

# rows, tokens shared, tokens of each row's own
SHAPES = ((16, 300, 64), (64, 300, 64), (64, 0, 1000), (16, 0, 4000), (1, 0, 8000))


def make_plan(rows: int, shared: int, own: int) -> AttentionPlan:
    """Return the plan of rows that decode one token behind a shared node and a node of their own."""
    items, blocks = [], []
    for start, length, first, last in ((0, shared, 0, rows), *((shared, own, row, row + 1) for row in range(rows))):
        if length:
            held = [
                (len(blocks) + i, start + BLOCK * i, min(BLOCK, length - BLOCK * i)) for i in range(-(-length // BLOCK))
            ]
            items.append((len(blocks), len(blocks) + len(held), first, last))
            blocks += held
    return AttentionPlan(
        np.full(rows, shared + own - 1, np.int64), np.array(items, np.int64), np.array(blocks, np.int64)
    )


def measure_plan(plan: AttentionPlan, options: argparse.Namespace) -> tuple[list[float], list[float]]:
    """Return the seconds of each repetition in float32 and in float16."""
    rng, count, rows, team = np.random.default_rng(0), len(plan.blocks), len(plan.positions), Team(1)

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape, np.float32)

    queries = normal(options.heads, rows, options.group, options.size)
    shapes = (options.heads, count, options.size, BLOCK), (options.heads, count, BLOCK, options.size)
    floats = [(normal(*shapes[0]), normal(*shapes[1])) for _ in range(options.layers)]
    halves = [tuple(held.astype(np.float16).view(np.int16) for held in layer) for layer in floats]
    out, seconds = np.empty((rows, options.heads, options.group, options.size), np.float32), ([], [])
    for repeat in range(options.repeat + 1):
        for layers, times in zip((floats, halves), seconds, strict=True):
            began = time.thread_time()
            for keys, values in layers:
                attend(plan, queries, keys, values, out, team)
            if repeat:  # the first compiles
                times.append(time.thread_time() - began)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name, default in (("layers", 8), ("repeat", 11), ("heads", 3), ("group", 3), ("size", 64)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--smoke", action=Smoke, sizes={"layers": 1, "repeat": 3})
    options = parser.parse_args()
    if not WIDENS_HALVES:
        raise SystemExit("this CPU has no F16C: it cannot widen float16")
    print(
        f"{INSTRUCTIONS}: {options.layers} layers of {options.heads} key-value heads with {options.group} query heads "
        f"of size {options.size} each"
    )
    for rows, shared, own in SHAPES:
        floats, halves = measure_plan(make_plan(rows, shared, own), options)
        ratios = [a / b for a, b in zip(floats, halves, strict=True)]
        shape = f"{rows:>3} rows, {shared:>5,} tokens shared, {own:>5,} of each"
        times = ", ".join(
            f"{what} {1e3 * statistics.median(each):7.2f} ms"
            for what, each in (("float32", floats), ("float16", halves))
        )
        print(f"{shape}: {times}, ratio {statistics.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}]")


if __name__ == "__main__":
    main()
