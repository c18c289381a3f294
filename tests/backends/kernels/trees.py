"""Random trees for attention executors: a plan, its queries, and a pool with shuffled blocks and garbage where nobody
may look.

A forest is a list of nodes in depth-first pre-order, each (parent, tokens, queries): parent is an index into the list
or -1 for a root, `tokens` the node's length, `queries` how many of its last tokens are fed in this step: 1 on a leaf is
a decoding row, more a chunk of a prompt, 0 a node that is only read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from tts.backends.kernels.plan import BLOCK, AttentionPlan

Node = tuple[int, int, int]
EDGES = (1, 15, 16, 17, 31, 32, 33, 63, 64, 65)  # lengths around every block boundary


class Case(NamedTuple):
    plan: AttentionPlan
    queries: np.ndarray  # [H, T, G, d] float32, scaled by d**-0.5
    keys: np.ndarray  # [H, N, BLOCK, d] float32, a view of [H, N, d, BLOCK]
    values: np.ndarray  # [H, N, BLOCK, d] float32


def chain(lengths: Iterable[int], queries: int = 1) -> list[Node]:
    lengths = list(lengths)
    return [(i - 1, length, queries if i == len(lengths) - 1 else 0) for i, length in enumerate(lengths)]


def star(trunk: int, leaves: Iterable[int]) -> list[Node]:
    return [(-1, trunk, 0), *((0, length, 1) for length in leaves)]


def branching(lengths: Sequence[int], widths: Sequence[int]) -> list[Node]:
    """A root of lengths[0] tokens, widths[i] children of lengths[i + 1] tokens below each node of depth i."""
    nodes: list[Node] = []

    def grow(parent: int, depth: int) -> None:
        is_leaf = depth == len(widths)
        nodes.append((parent, lengths[depth], int(is_leaf)))
        me = len(nodes) - 1
        for _ in range(0 if is_leaf else widths[depth]):
            grow(me, depth + 1)

    grow(-1, 0)
    return nodes


def caterpillar(lengths: Iterable[int], leg: int = 3) -> list[Node]:
    """A spine whose every node but the last has a leaf beside the next one."""
    nodes: list[Node] = []
    spine = -1
    lengths = list(lengths)
    for i, length in enumerate(lengths):
        nodes.append((spine, length, int(i == len(lengths) - 1)))
        spine = len(nodes) - 1
        if i < len(lengths) - 1:
            nodes.append((spine, leg + i, 1))
    return nodes


def ragged(seed: int, num_nodes: int = 12) -> list[Node]:
    """A random tree: lengths at the edges of blocks or anywhere to 80, leaves that decode or take a chunk, inner nodes
    that also ask.
    """
    draw = np.random.Generator(np.random.Philox(key=seed))
    nodes: list[list[int]] = []
    path: list[int] = []
    for i in range(num_nodes):
        del path[int(draw.integers(1, len(path) + 1)) if path else 0 :]
        length = int(draw.choice(EDGES)) if draw.random() < 0.5 else int(draw.integers(1, 81))
        nodes.append([path[-1] if path else -1, length, 0])
        path.append(i)
    parents = {parent for parent, _, _ in nodes}
    for i, node in enumerate(nodes):
        chunk = int(draw.integers(2, 20)) if draw.random() < 0.3 else 1
        if i not in parents or draw.random() < 0.15:
            node[2] = min(node[1], chunk)
    return [(parent, length, queries) for parent, length, queries in nodes]


def forest(*trees: Sequence[Node]) -> list[Node]:
    """Several independent trees in one plan."""
    nodes: list[Node] = []
    for tree in trees:
        base = len(nodes)
        nodes += [(parent + base if parent >= 0 else -1, length, queries) for parent, length, queries in tree]
    return nodes


def make_plan(nodes: Sequence[Node], seed: int = 0, spare: int = 5) -> tuple[AttentionPlan, int]:
    """Return the plan of a forest and the number of blocks in its pool, `spare` of which nobody reads."""
    starts, behind, first_query = [0] * len(nodes), [0] * len(nodes), [0] * len(nodes)
    positions: list[int] = []
    for i, (parent, length, queries) in enumerate(nodes):
        assert parent < i
        assert 0 <= queries <= length
        starts[i] = starts[parent] + nodes[parent][1] if parent >= 0 else 0
        first_query[i] = len(positions)
        positions += range(starts[i] + length - queries, starts[i] + length)
        ancestor = i
        while ancestor >= 0:
            behind[ancestor] = len(positions)
            ancestor = nodes[ancestor][0]
    counts = [-(-length // BLOCK) for _, length, _ in nodes]
    numbers = iter(np.random.Generator(np.random.Philox(key=seed)).permutation(sum(counts) + spare).tolist())
    items: list[tuple[int, ...]] = []
    blocks: list[tuple[int, ...]] = []
    for i, (_, length, _) in enumerate(nodes):
        first = len(blocks)
        rows = [(next(numbers), starts[i] + j, min(BLOCK, length - j)) for j in range(0, length, BLOCK)]
        if behind[i] > first_query[i]:  # a node that nobody reads is in no plan
            blocks += rows
            items.append((first, len(blocks), first_query[i], behind[i]))
    plan = AttentionPlan(*(np.ascontiguousarray(np.array(rows, np.int64)) for rows in (positions, items, blocks)))
    return plan, sum(counts) + spare


def make_tree(
    nodes: Sequence[Node], *, heads: int = 2, group: int = 2, size: int = 64, seed: int = 0, scale: float = 1.0
) -> Case:
    """Return a forest's plan with random queries, keys and values; scores have a standard deviation of about
    `scale`.
    """
    plan, num_blocks = make_plan(nodes, seed)
    draw = np.random.Generator(np.random.Philox(key=seed + 1))

    def normal(*shape: int) -> np.ndarray:
        return draw.standard_normal(shape, np.float32)

    queries = normal(heads, len(plan.positions), group, size) * np.float32(scale * size**-0.5)
    keys = normal(heads, num_blocks, size, BLOCK).swapaxes(2, 3)
    values = normal(heads, num_blocks, BLOCK, size)
    held = np.zeros((num_blocks, BLOCK), bool)
    held[plan.blocks[:, 0]] = np.arange(BLOCK) < plan.blocks[:, 2:]
    keys[:, ~held], values[:, ~held] = 1e4, -1e4
    return Case(plan, queries, keys, values)


def blind_case() -> Case:
    """Two queries that share 16 keys, of which the first one, at position 5, sees none: they begin at position 10."""
    draw = np.random.Generator(np.random.Philox(key=8))
    plan = AttentionPlan(np.array([5, 30]), np.array([[0, 1, 0, 2]]), np.array([[1, 10, BLOCK]]))
    return Case(
        plan,
        *(draw.standard_normal(shape, np.float32) for shape in ((1, 2, 2, 64), (1, 2, BLOCK, 64), (1, 2, BLOCK, 64))),
    )


FORESTS: dict[str, list[Node]] = {
    "chain": chain([17, 1, 33]),
    "one token": chain([1]),
    "single-token nodes": chain([1] * 9),
    "star": star(40, [1, 15, 16, 17, 31, 32, 33]),
    "edges": forest(*(chain([length]) for length in EDGES), star(65, [1, 1])),
    "binary": branching([33, 16, 7, 1], [2, 2, 2]),
    "caterpillar": caterpillar([31, 17, 1, 16, 64]),
    "prefill": chain([37], queries=37),
    "chunk": chain([50, 70], queries=33),
    "one tree with all": [(-1, 64, 0), (0, 20, 20), (0, 33, 1), (2, 5, 1), (2, 18, 6), (0, 1, 1)],
    "mixture": forest(star(48, [3, 17]), chain([40], queries=24), branching([20, 31, 2], [2, 2]), chain([1])),
    "ragged": forest(ragged(1), ragged(2, 5)),
    "ragged again": ragged(7, 16),
}
