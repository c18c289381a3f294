"""One result of each CPU kernel, from fixed inputs; rows are checked to have bits of their own.

python -m tests.backends.kernels.one_of_each FILE       # writes them, and prints the instructions that they were
compiled for
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from tts.backends.base import Sampling
from tts.backends.kernels import gemm, layers
from tts.backends.kernels.attention_strict import attend
from tts.backends.kernels.draw import draw_at
from tts.backends.kernels.host import Team
from tts.backends.kernels.plan import BLOCK, AttentionPlan
from tts.backends.kernels.target import INSTRUCTIONS, WIDENS_HALVES

ROWS, INPUTS, OUTPUTS, HEADS, GROUP, SIZE = 37, 576, 94, 2, 3, 64
SOME = (1, 2, 3, 7, 12, ROWS)


def normal(*shape: int, seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def product(x: Any, weight: Any, team: Team) -> Any:
    out = np.empty((len(x), -(-len(weight) // gemm.PANEL) * gemm.PANEL), np.float32)
    gemm.multiply(x, gemm.pack(weight), out, team)
    return out[:, : len(weight)]


def attention(queries: Any, keys: Any, values: Any, team: Team) -> Any:
    """Rows below one prompt of 100 tokens, each with 20 tokens of its own; the last row's alone where there is one
    row.
    """
    rows = queries.shape[1]
    shared = [(block, BLOCK * block, min(BLOCK, 100 - BLOCK * block)) for block in range(7)]
    own = [
        (7 + 2 * (ROWS - rows + row) + half, 100 + BLOCK * half, (BLOCK, 4)[half])
        for row in range(rows)
        for half in range(2)
    ]
    items = [(0, 7, 0, rows), *((7 + 2 * row, 9 + 2 * row, row, row + 1) for row in range(rows))]
    plan = AttentionPlan(np.full(rows, 119, np.int64), np.array(items, np.int64), np.array(shared + own, np.int64))
    out = np.empty((rows, HEADS, GROUP, SIZE), np.float32)
    attend(plan, np.ascontiguousarray(queries), keys, values, out, team)
    return out


def computed() -> dict[str, Any]:
    """Return results by name, after checks that any number of last rows, on one thread or three, has the same bits."""
    x, weight = normal(ROWS, INPUTS, seed=1), normal(OUTPUTS, INPUTS, seed=2)
    blocks = 7 + 2 * ROWS
    queries, keys, values = (
        normal(*s, seed=3)
        for s in ((HEADS, ROWS, GROUP, SIZE), (HEADS, blocks, SIZE, BLOCK), (HEADS, blocks, BLOCK, SIZE))
    )
    halves = tuple(held.astype(np.float16) for held in (keys, values))
    held = tuple(half.view(np.int16) if WIDENS_HALVES else half.astype(np.float32) for half in halves)
    both, norm = normal(ROWS, 2 * 96, seed=4), normal(INPUTS, seed=5)
    found: dict[str, list[Any]] = {}
    for team in (Team(1), Team(3)):
        for rows in SOME:
            some = {
                "product": product(x[-rows:], weight, team),
                "attention": attention(queries[:, -rows:], keys, values, team),
            }
            some["halves"] = attention(queries[:, -rows:], *held, team)
            some["gate"] = np.empty((rows, 96), np.float32)
            layers.gate(both[-rows:], some["gate"], 0, rows)
            some["norm"] = np.empty((rows, INPUTS), np.float32)
            layers.add_norm(x[-rows:].copy(), np.empty((0, 0), np.float32), norm, 1e-5, some["norm"], 0, rows)
            numbers = np.linspace(0.01, 0.99, ROWS)[-rows:]
            drawn = draw_at(
                some["product"] / 12, np.arange(rows), [Sampling(temperature=0.8, top_p=0.9)] * rows, numbers, team
            )
            some |= {"tokens": drawn.tokens, "logprobs": drawn.logprobs}
            for name, value in some.items():
                found.setdefault(name, []).append(value)
        team.close()
    results = {name: values[len(SOME) - 1] for name, values in found.items()}
    for name, values in found.items():
        for value in values:
            assert np.array_equal(value, results[name][-len(value) :]), name
    return results


if __name__ == "__main__":
    np.savez(sys.argv[1], **computed())
    sys.stdout.write(INSTRUCTIONS)
