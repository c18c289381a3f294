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
        order: [R] rows, in the order of their queries in the plan.
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
        items[:, 2:] = items[:, 2:].clip(begin, end) - begin  # the columns of the first query, and after the last
        has_queries = items[:, 2] < items[:, 3]
        plan = AttentionPlan(self.plan.positions[begin:end], items[has_queries], self.plan.blocks)
        return StepPlan(plan, self.order[begin:end], self.places[begin:end], keys_read=0, keys_unshared=0)


def make_plan(rows: StepRows, table: NodeTable, following: Ints, *, share: bool = True) -> StepPlan:
    """Plan one step.

    Args:
        rows: The rows of this step.
        table: The tree.
        following: The next block of each block.
        share: Whether rows below one node read its keys together; False: each row reads its path alone, for comparison.
    """
    positions, items, blocks, order, places, keys_read, keys_unshared = _plan(*rows, *table, following, share)
    return StepPlan(AttentionPlan(positions, items, blocks), order, places, keys_read, keys_unshared)


@compile_function
def _plan(
    nodes: Any, first: Any, count: Any, parent: Any, start: Any, length: Any, head: Any, following: Any, share: bool
) -> Any:
    """Return the arrays of a step's plan, in the order of `make_plan`'s names."""
    num_queries = count.sum()
    positions, places = np.empty(num_queries, np.int64), np.empty((num_queries, 2), np.int64)
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
    for item in range(items.shape[0]):
        first_block, last_block = items[item, 0], items[item, 1] - 1
        keys_read += BLOCK * (last_block - first_block) + blocks[last_block, 2]  # only the last block may have room
    keys_unshared = (positions + 1).sum()  # a query reads all keys up to its own
    return positions, items, blocks, order, places, keys_read, keys_unshared


@compile_function
def _plan_shared_items(
    nodes: Any, count: Any, parent: Any, start: Any, length: Any, head: Any, following: Any, order: Any
) -> Any:
    """Return an item for each node above the rows, and the items' blocks; write the rows' order to `order`.

    First the nodes of the rows' paths are linked: `child` has each node's first child, and `sibling` the next child of
    the same parent, -1: none. Then the nodes are walked depth first. A node's readers are the queries added between
    entering and leaving the node.
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
                sibling[node] = first_root
                first_root = node
                break
            sibling[node] = child[parent_node]
            child[parent_node] = node
            node = parent_node
    items, blocks = np.empty((nodes_seen, 4), np.int64), np.empty((blocks_seen, 3), np.int64)
    item_of = np.full(size, -1, np.int64)
    num_items, num_blocks, num_queries, num_rows = 0, 0, 0, 0
    node = first_root
    while node >= 0:
        if length[node] > 0:
            item_of[node] = num_items
            block_end = _write_blocks(node, start, length, head, following, blocks, num_blocks)
            items[num_items, 0] = num_blocks
            items[num_items, 1] = block_end
            items[num_items, 2] = num_queries
            num_blocks = block_end
            num_items += 1
        row = row_of[node]
        if row >= 0:
            order[num_rows] = row
            num_queries += count[row]
            num_rows += 1
        next_node = child[node]
        while next_node < 0 and node >= 0:  # leave this node, and the ancestors that have no further child
            if item_of[node] >= 0:
                items[item_of[node], 3] = num_queries
            next_node = sibling[node]
            if next_node < 0:
                node = parent[node]
        node = next_node
    return items[:num_items], blocks


@compile_function
def _plan_row_items(
    nodes: Any, count: Any, parent: Any, start: Any, length: Any, head: Any, following: Any, order: Any
) -> Any:
    """Return items for every row alone, from the root to the row's node, and the items' blocks.

    A row has an item for each node of its path with keys. Rows keep their order.
    """
    num_items, num_blocks = 0, 0
    for row in range(nodes.shape[0]):
        node = nodes[row]
        while node >= 0:
            num_items += length[node] > 0
            num_blocks += (length[node] + BLOCK - 1) // BLOCK
            node = parent[node]
    items, blocks = np.empty((num_items, 4), np.int64), np.empty((num_blocks, 3), np.int64)
    num_items, num_blocks, num_queries = 0, 0, 0
    for row in range(nodes.shape[0]):
        order[row] = row
        row_items, node = 0, nodes[row]
        while node >= 0:
            row_items += length[node] > 0
            node = parent[node]
        num_items += row_items
        item, node = num_items, nodes[row]
        while node >= 0:  # upwards, so the row's items are written from the last to the first
            if length[node] > 0:
                item -= 1
                block_end = _write_blocks(node, start, length, head, following, blocks, num_blocks)
                items[item, 0] = num_blocks
                items[item, 1] = block_end
                items[item, 2] = num_queries
                items[item, 3] = num_queries + count[row]
                num_blocks = block_end
            node = parent[node]
        num_queries += count[row]
    return items, blocks


@compile_function
def _write_blocks(node: int, start: Any, length: Any, head: Any, following: Any, blocks: Any, place: int) -> int:
    """Write the blocks of a node's tokens to the rows of `blocks` from `place` on; return the row after them."""
    block = head[node]
    for first in range(0, length[node], BLOCK):
        blocks[place, 0] = block
        blocks[place, 1] = start[node] + first
        blocks[place, 2] = min(BLOCK, length[node] - first)
        block = following[block]
        place += 1
    return place
