"""The planner against what a plan has to be, said plainly: which keys each query reads, where its own go, and what is
shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

pytest.importorskip("numba")

from hypothesis import given, settings
from hypothesis import strategies as st

from tts.backends.engine.planning import NodeTable, StepPlan, StepRows, make_plan
from tts.backends.kernels.plan import BLOCK

LENGTHS = (0, 1, 2, 15, 16, 17, 31, 32, 33, 48, 64, 65, 80)


class Part(NamedTuple):
    """A node: its parent's index or -1, tokens that have keys, and how many of them this step feeds, up to `behind`
    from the end.
    """

    parent: int
    length: int
    fed: int = 0
    behind: int = 0


@dataclass(frozen=True)
class Forest:
    """Nodes at random places of a table and in random blocks of a pool."""

    parts: list[Part]
    table: NodeTable
    following: np.ndarray
    places: list[int]
    blocks: list[list[int]]
    starts: list[int]
    rows: list[int]

    def path(self, node: int) -> list[int]:
        nodes = [node]
        while self.parts[nodes[-1]].parent >= 0:
            nodes.append(self.parts[nodes[-1]].parent)
        return nodes[::-1]

    def first(self, node: int) -> int:
        return self.parts[node].length - self.parts[node].behind - self.parts[node].fed

    def keys(self, node: int) -> list[tuple[int, int, int]]:
        """Return a node's blocks as a plan has them: number, position of the first key, keys."""
        length, start = self.parts[node].length, self.starts[node]
        return [(block, start + BLOCK * i, min(BLOCK, length - BLOCK * i)) for i, block in enumerate(self.blocks[node])]

    def plan(self, *, share: bool = True) -> StepPlan:
        columns = [[self.places[node], self.first(node), self.parts[node].fed] for node in self.rows]
        rows = StepRows(*(np.array(column, np.int64) for column in zip(*columns, strict=True)))
        return make_plan(rows, self.table, self.following, share=share)


def grown(parts: Sequence[Part], seed: int = 0, *, size: int | None = None) -> Forest:
    """Place a forest; `size` places in the table and as many blocks as needed, all in a random order, rows too."""
    draw = np.random.Generator(np.random.Philox(key=seed))
    size = size or len(parts) + 5
    places = draw.permutation(size)[: len(parts)].tolist()
    counts = [-(-part.length // BLOCK) for part in parts]
    numbers = iter(draw.permutation(sum(counts) + 3).tolist())
    table = NodeTable(
        np.full(size, -1, np.int64), np.zeros(size, np.int64), np.zeros(size, np.int64), np.full(size, -1, np.int64)
    )
    following = np.full(sum(counts) + 3, -1, np.int64)
    starts: list[int] = []
    blocks: list[list[int]] = []
    for i, part in enumerate(parts):
        starts.append(starts[part.parent] + parts[part.parent].length if part.parent >= 0 else 0)
        blocks.append([next(numbers) for _ in range(counts[i])])
        following[blocks[i][:-1]] = blocks[i][1:]
        table.parent[places[i]] = places[part.parent] if part.parent >= 0 else -1
        table.start[places[i]], table.length[places[i]] = starts[i], part.length
        table.head[places[i]] = blocks[i][0] if blocks[i] else -1
    rows = [i for i, part in enumerate(parts) if part.fed]
    return Forest(
        list(parts), table, following, places, blocks, starts, draw.permutation(np.array(rows, np.int64)).tolist()
    )


@st.composite
def forests(draw: st.DrawFn) -> Forest:
    count = draw(st.integers(1, 24))
    parts: list[Part] = []
    for i in range(count):
        parent = draw(st.integers(-1, i - 1))
        length = draw(st.sampled_from(LENGTHS) | st.integers(0, 90))
        fed = draw(st.just(0) | st.integers(0, length))
        behind = draw(st.just(0) | st.integers(0, length - fed))
        parts.append(Part(parent, length, fed, behind))
    if not any(part.fed for part in parts):
        parts.append(Part(-1, 3, 2))
    return grown(parts, draw(st.integers(0, 1 << 30)))


def check_queries(forest: Forest, planned: StepPlan) -> list[int]:
    """Check what every query is, and what it reads; return the node of each."""
    plan = planned.plan
    assert sorted(planned.order.tolist()) == list(range(len(forest.rows)))
    nodes: list[int] = []
    tokens: list[int] = []
    for row in planned.order.tolist():
        node = forest.rows[row]
        nodes += [node] * forest.parts[node].fed
        tokens += range(forest.first(node), forest.first(node) + forest.parts[node].fed)
    assert plan.positions.tolist() == [forest.starts[node] + token for node, token in zip(nodes, tokens, strict=True)]
    assert planned.places.tolist() == [
        [forest.blocks[n][t // BLOCK], t % BLOCK] for n, t in zip(nodes, tokens, strict=True)
    ]
    for array in plan:
        assert array.dtype == np.int64
        assert array.flags.c_contiguous
    for query, node in enumerate(nodes):
        read = [
            tuple(row)
            for first, behind, low, high in plan.items.tolist()
            if low <= query < high
            for row in plan.blocks[first:behind].tolist()
        ]
        # from the root to its own, each once
        assert read == [key for above in forest.path(node) for key in forest.keys(above)]
    return nodes


def check_items(planned: StepPlan) -> None:
    """Items are not empty, share no row of blocks, and stand in pre-order: each lies in one before it, or behind it."""
    open_items: list[tuple[int, int]] = []
    used: list[int] = []
    for first, behind, low, high in planned.plan.items.tolist():
        assert first < behind
        assert low < high
        used += range(first, behind)
        while open_items and open_items[-1][1] <= low:
            open_items.pop()
        assert not open_items or (open_items[-1][0] <= low and high <= open_items[-1][1])
        open_items.append((low, high))
    assert sorted(used) == list(range(len(planned.plan.blocks)))


@settings(deadline=None)
@given(forests())
def test_every_query_reads_its_path_and_every_node_is_read_once(forest: Forest) -> None:
    planned = forest.plan()
    nodes = check_queries(forest, planned)
    check_items(planned)
    above = {node for row in forest.rows for node in forest.path(row)}
    assert len(planned.plan.items) == sum(forest.parts[node].length > 0 for node in above)
    assert planned.keys_read == sum(forest.parts[node].length for node in above)
    assert planned.keys_unshared == sum(position + 1 for position in planned.plan.positions.tolist())
    for node in above:  # the interval of a node's item is its readers' and nobody else's
        readers = [query for query, own in enumerate(nodes) if node in forest.path(own)]
        if forest.parts[node].length and readers:
            head = forest.blocks[node][0]
            [item] = [item for item in planned.plan.items.tolist() if planned.plan.blocks[item[0], 0] == head]
            assert list(range(item[2], item[3])) == readers


@settings(deadline=None)
@given(forests())
def test_without_sharing_every_row_reads_its_path_by_itself(forest: Forest) -> None:
    planned = forest.plan(share=False)
    check_queries(forest, planned)
    check_items(planned)
    assert planned.order.tolist() == list(range(len(forest.rows)))
    lengths = [forest.parts[node].length for row in forest.rows for node in forest.path(row)]
    assert planned.keys_read == sum(lengths)
    assert len(planned.plan.items) == sum(length > 0 for length in lengths)
    assert planned.keys_unshared == forest.plan().keys_unshared


@settings(deadline=None)
@given(forests(), st.integers(0, 1 << 30))
def test_neither_places_nor_blocks_nor_the_order_of_rows_change_what_is_read(forest: Forest, seed: int) -> None:
    one, other = forest.plan(), grown(forest.parts, seed, size=200).plan()
    assert (one.keys_read, one.keys_unshared) == (other.keys_read, other.keys_unshared)
    assert len(one.plan.blocks) == len(other.plan.blocks)
    assert sorted(one.plan.positions.tolist()) == sorted(other.plan.positions.tolist())


def test_a_tree_by_hand() -> None:
    """A prompt of 20, two children of 17 and 3 that decode, a grandchild that reads a chunk, and a prompt nobody
    needs.
    """
    forest = grown([Part(-1, 20), Part(0, 17, 1), Part(0, 3, 1), Part(1, 5, 4), Part(-1, 90)])
    planned = forest.plan()
    assert sorted(planned.plan.positions.tolist()) == [22, 36, 38, 39, 40, 41]
    assert sorted((high - low) for *_, low, high in planned.plan.items.tolist()) == [1, 4, 5, 6]
    assert planned.keys_read == 20 + 17 + 3 + 5
    assert planned.keys_unshared == 23 + 37 + 39 + 40 + 41 + 42
    assert forest.plan(share=False).keys_read == (20 + 17) + (20 + 3) + (20 + 17 + 5)


def big_tree(num_nodes: int = 10_000, num_rows: int = 1_000, problems: int = 16) -> Forest:
    """Prompts of 160 tokens, nodes of 20 to 80 tokens anywhere below them, and leaves that decode a token each."""
    draw = np.random.Generator(np.random.Philox(key=5))
    parts = [Part(-1, 160) for _ in range(problems)]
    for i in range(problems, num_nodes - num_rows):
        parts.append(Part(int(draw.integers(max(0, i - 2_000), i)), int(draw.integers(20, 81))))
    for _ in range(num_rows):
        parts.append(Part(int(draw.integers(num_nodes // 2, num_nodes - num_rows)), int(draw.integers(1, 80)), 1))
    return grown(parts, size=16_384)


@pytest.mark.slow
def test_a_large_tree_costs_what_its_paths_hold() -> None:
    forest = big_tree()
    assert (len(forest.parts), len(forest.rows)) == (10_000, 1_000)
    planned = forest.plan()
    above = {node for row in forest.rows for node in forest.path(row)}
    assert len(above) < 5_000  # most nodes are on nobody's path, and are not looked at
    assert len(planned.plan.items) == len(above)
    assert len(planned.plan.blocks) == sum(-(-forest.parts[node].length // BLOCK) for node in above)
    assert planned.keys_read == sum(forest.parts[node].length for node in above) < planned.keys_unshared / 2
    unshared = forest.plan(share=False)
    assert unshared.keys_unshared == unshared.keys_read == planned.keys_unshared
