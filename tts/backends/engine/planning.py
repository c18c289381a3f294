"""The planner: which keys each token of a step reads.

A plan is made by one walk over the ancestors of the step's nodes.

Each step is planned anew: a compiled walk over the paths of a thousand rows is faster than tracking changes.

Shapes: R rows, V places in the tree's table, T queries, I items, B blocks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tts.backends.kernels.host import compile_function
from tts.backends.kernels.plan import BLOCK, AttentionPlan

Ints = NDArray[np.int64]


class StepRows(NamedTuple):
    """The rows of a step: nodes, first tokens, numbers of tokens. Each [R]; a node has at most one row."""

    nodes: Ints
    first: Ints
    num_tokens: Ints


class NodeTable(NamedTuple):
    """The tree as arrays, by a node's place; each [V].

    Args:
        parent: Place of the parent, -1 for a root.
        start: Absolute position of the node's first token.
        length: Tokens that have keys and values, those of this step included.
        head: First block of the node's chain, -1: none.
    """

    parent: Ints
    start: Ints
    length: Ints
    head: Ints


class StepPlan(NamedTuple):
    """The plan of one step.

    Args:
        plan: The plan for the executors.
        order: [R] rows, as their queries stand in the plan.
        places: [T, 2] block and offset of each query's own token.
        keys_read: Keys that items read.
        keys_unshared: Keys that items would read without sharing.
    """

    plan: AttentionPlan
    order: Ints
    places: Ints
    keys_read: int
    keys_unshared: int

    def part(self, begin: int, end: int) -> StepPlan:
        """Return the plan of the queries from `begin` to before `end`.

        The part's numbers of keys read are 0, since the whole plan counts them.
        """
        items = self.plan.items.copy()
        items[:, 2:] = items[:, 2:].clip(begin, end) - begin
        plan = AttentionPlan(self.plan.positions[begin:end], items[items[:, 2] < items[:, 3]], self.plan.blocks)
        return StepPlan(plan, self.order[begin:end], self.places[begin:end], 0, 0)


def make_plan(rows: StepRows, table: NodeTable, following: Ints, *, share: bool = True) -> StepPlan:
    """Plan one step.

    Args:
        rows: The rows of this step.
        table: The tree.
        following: The next block of each block.
        share: Whether rows below one node read its keys together; False: each row reads its path alone, for comparison.
    """
    positions, items, blocks, *step_arrays = _plan(*rows, *table, following, share)
    return StepPlan(AttentionPlan(positions, items, blocks), *step_arrays)


@compile_function
def _plan(
    nodes: Any, first: Any, count: Any, parent: Any, start: Any, length: Any, head: Any, following: Any, share: bool
) -> Any:
    total = count.sum()
    positions, places = np.empty(total, np.int64), np.empty((total, 2), np.int64)
    order = np.empty(nodes.shape[0], np.int64)
    if share:
        items, blocks = _plan_shared_items(nodes, count, parent, start, length, head, following, order)
    else:
        items, blocks = _plan_row_items(nodes, count, parent, start, length, head, following, order)
    query = 0
    for i in range(order.shape[0]):
        row = order[i]
        node = nodes[row]
        block = head[node]
        for _ in range(first[row] // BLOCK):
            block = following[block]
        for token in range(first[row], first[row] + count[row]):
            if token % BLOCK == 0 and token > first[row]:
                block = following[block]
            positions[query] = start[node] + token
            places[query, 0], places[query, 1] = block, token % BLOCK
            query += 1
    keys_read = 0
    for i in range(items.shape[0]):
        keys_read += BLOCK * (items[i, 1] - items[i, 0] - 1) + blocks[items[i, 1] - 1, 2]
    return positions, items, blocks, order, places, keys_read, (positions + 1).sum()


@compile_function
def _plan_shared_items(
    nodes: Any, count: Any, parent: Any, start: Any, length: Any, head: Any, following: Any, order: Any
) -> Any:
    """Return an item for each node above the rows, and the items' blocks; write the rows' order to `order`.

    The nodes are walked depth first. A node's readers are the queries added between entering and leaving the node.
    """
    size = parent.shape[0]
    child, sibling = np.full(size, -1, np.int64), np.full(size, -1, np.int64)
    row_of, visited = np.full(size, -1, np.int64), np.zeros(size, np.bool_)
    first_root, nodes_seen, blocks_seen = -1, 0, 0
    for row in range(nodes.shape[0]):
        node = nodes[row]
        row_of[node] = row
        while not visited[node]:
            visited[node] = True
            nodes_seen += 1
            blocks_seen += (length[node] + BLOCK - 1) // BLOCK
            parent_node = parent[node]
            if parent_node < 0:
                sibling[node], first_root = first_root, node
                break
            sibling[node], child[parent_node] = child[parent_node], node
            node = parent_node
    items, blocks = np.empty((nodes_seen, 4), np.int64), np.empty((blocks_seen, 3), np.int64)
    item_of = np.full(size, -1, np.int64)
    num_items, num_blocks, queries, rows = 0, 0, 0, 0
    node = first_root
    while node >= 0:
        if length[node] > 0:
            item_of[node] = num_items
            block_end = _write_blocks(node, start, length, head, following, blocks, num_blocks)
            items[num_items, 0], items[num_items, 1], items[num_items, 2] = num_blocks, block_end, queries
            num_blocks = block_end
            num_items += 1
        if row_of[node] >= 0:
            order[rows] = row_of[node]
            queries += count[row_of[node]]
            rows += 1
        following_node = child[node]
        while following_node < 0 and node >= 0:  # leave this node, and the ancestors that have no further child
            if item_of[node] >= 0:
                items[item_of[node], 3] = queries
            following_node = sibling[node]
            if following_node < 0:
                node = parent[node]
        node = following_node
    return items[:num_items], blocks


@compile_function
def _plan_row_items(
    nodes: Any, count: Any, parent: Any, start: Any, length: Any, head: Any, following: Any, order: Any
) -> Any:
    """Return items for every row alone, from the root to its node, and the items' blocks."""
    num_items, num_blocks = 0, 0
    for row in range(nodes.shape[0]):
        node = nodes[row]
        while node >= 0:
            num_items += length[node] > 0
            num_blocks += (length[node] + BLOCK - 1) // BLOCK
            node = parent[node]
    items, blocks = np.empty((num_items, 4), np.int64), np.empty((num_blocks, 3), np.int64)
    num_items, num_blocks, queries = 0, 0, 0
    for row in range(nodes.shape[0]):
        order[row] = row
        depth, node = 0, nodes[row]
        while node >= 0:
            depth += length[node] > 0
            node = parent[node]
        node, item = nodes[row], num_items + depth
        while node >= 0:
            if length[node] > 0:
                item -= 1
                block_end = _write_blocks(node, start, length, head, following, blocks, num_blocks)
                items[item, 0], items[item, 1], items[item, 2], items[item, 3] = (
                    num_blocks,
                    block_end,
                    queries,
                    queries + count[row],
                )
                num_blocks = block_end
            node = parent[node]
        num_items += depth
        queries += count[row]
    return items, blocks


@compile_function
def _write_blocks(node: int, start: Any, length: Any, head: Any, following: Any, blocks: Any, place: int) -> int:
    """Write the blocks of a node's tokens; return the place after them."""
    block = head[node]
    for first in range(0, length[node], BLOCK):
        blocks[place, 0], blocks[place, 1], blocks[place, 2] = (
            block,
            start[node] + first,
            min(BLOCK, length[node] - first),
        )
        block = following[block]
        place += 1
    return place
