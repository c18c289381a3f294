"""The host time of `make_plan`, the planner's part of a step, for 10,000 live nodes.

    python -m benchmarks.engine.planning [--nodes 10000] [--rows 1000] [--repeat 200]

The time is a median, and 1,000 of the nodes are active rows. The tree has 16 prompts of 160 tokens, nodes of 20 to 80
tokens below any of the 2,000 nodes before them, and rows that decode one token.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

from tts.backends.engine.planning import NodeTable, StepRows, make_plan
from tts.backends.kernels.plan import BLOCK


def grow_tree(num_nodes: int, num_rows: int, problems: int = 16) -> tuple[StepRows, NodeTable, np.ndarray]:
    """Return the rows of a step, the table of the tree, and the chains of its blocks, in a random order."""
    draw = np.random.Generator(np.random.Philox(key=5))
    inner = num_nodes - num_rows
    size = 1 << (num_nodes - 1).bit_length()
    table = NodeTable(*(np.full(size, value, np.int64) for value in (-1, 0, 0, -1)))
    place = draw.permutation(size)
    lengths = (
        [160] * problems + draw.integers(20, 81, inner - problems).tolist() + draw.integers(1, 80, num_rows).tolist()
    )
    counts = [-(-length // BLOCK) for length in lengths]
    blocks = draw.permutation(sum(counts))
    following = np.full(sum(counts), -1, np.int64)
    used = 0
    for i, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        own = blocks[used : used + count]
        used += count
        following[own[:-1]] = own[1:]
        table.length[place[i]], table.head[place[i]] = length, own[0]
        if i >= problems:
            above = place[draw.integers(max(0, i - 2_000), i) if i < inner else draw.integers(num_nodes // 2, inner)]
            table.parent[place[i]], table.start[place[i]] = above, table.start[above] + table.length[above]
    nodes = place[inner:num_nodes]
    return StepRows(nodes, table.length[nodes] - 1, np.ones(num_rows, np.int64)), table, following


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=1_000)
    parser.add_argument("--repeat", type=int, default=200)
    options = parser.parse_args()
    step = grow_tree(options.nodes, options.rows)
    planned = make_plan(*step)
    seconds = []
    for _ in range(options.repeat):
        began = time.perf_counter()
        make_plan(*step)
        seconds.append(time.perf_counter() - began)
    shape = f"{len(planned.plan.items)} items, {len(planned.plan.blocks)} blocks"
    share = planned.keys_unshared / planned.keys_read
    print(
        f"{options.nodes} nodes, {options.rows} rows: {shape}, {share:.1f} times fewer keys read than without sharing"
    )
    print(
        f"make_plan: median {1e3 * statistics.median(seconds):.3f} ms, fastest {1e3 * min(seconds):.3f} ms of "
        f"{options.repeat}"
    )


if __name__ == "__main__":
    main()
