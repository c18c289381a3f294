"""The tree of everything the engine remembers: immutable nodes that share the keys and values of their ancestors.

A node is a segment of tokens made by one call: a prompt, a forced text, the tokens of a row. Its blocks are its own; a fork is a
second reference and copies nothing. Where a node begins and ends is decided by calls alone, never by what siblings do, so how a
path is cut, and with it how its numbers are rounded, is a property of the path.

A node's tokens stay on the host as long as it lives. Its keys and values may be evicted when room is needed and are computed
again, to the same bits, when they are touched. They are resident from the front: a node holds those of its first `length` tokens,
and holds any only if its parent's are complete.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np

from tts.backends.engine.planning import Table
from tts.backends.engine.pool import BlockPool
from tts.backends.kernels.plan import BLOCK

# In which order nodes are evicted: what nobody asked to keep, then what somebody holds.
Rank = Literal[0, 1]
CACHED: Rank = 0
HELD: Rank = 1


class Node:
    """A segment of a path. Only the tree changes it; `tokens` grow while the one row that writes it is under way.

    Attributes:
        place: its row in the tree's table. parent: None for a root. start: position of its first token.
        handles: references of callers. pins: work under way that needs it, here or below. children: nodes below it.
        resident_children: those that hold keys and values. num_blocks: its blocks. computed: most tokens ever computed.
        pieces: text that each token completed, behind a prompt. scores: readings of value heads, one a token.
    """

    __slots__ = (
        "children",
        "computed",
        "handles",
        "num_blocks",
        "parent",
        "pieces",
        "pins",
        "place",
        "rank",
        "resident_children",
        "scores",
        "start",
        "tokens",
        "used",
    )

    def __init__(self, place: int, parent: Node | None, tokens: Sequence[int], rank: Rank) -> None:
        self.place = place
        self.parent = parent
        self.tokens = list(tokens)
        self.start = 0 if parent is None else parent.end
        self.rank: Rank = rank
        self.handles = 1
        self.pins = 0
        self.children = 0
        self.resident_children = 0
        self.num_blocks = 0
        self.computed = 0
        self.used = 0
        self.pieces: list[str] = []
        self.scores: dict[str, list[float]] = {}

    @property
    def end(self) -> int:
        """The number of tokens of the path up to here."""
        return self.start + len(self.tokens)

    @property
    def alive(self) -> bool:
        """Whether the tree still has it."""
        return self.place >= 0

    def path(self) -> list[Node]:
        """Return the nodes from the root to here."""
        nodes: list[Node] = []
        node: Node | None = self
        while node is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]


class KVTree:
    """Nodes over a block pool.

    Args:
        pool: whose blocks it hands out.

    Attributes:
        clock: a count that callers advance; nodes are evicted in the order in which it last saw them.
        evictions: nodes evicted so far. nodes: all that live, by place. root_gone: called with a root that has gone, if set.
    """

    def __init__(self, pool: BlockPool) -> None:
        self.pool = pool
        self.clock = 0
        self.evictions = 0
        self.nodes: dict[int, Node] = {}
        self.root_gone: Callable[[Node], None] | None = None
        self._table = _empty_table(64)
        self._places = list(range(63, -1, -1))
        self._pinned_blocks = 0
        self._leaves: list[tuple[int, int, int, Node]] = []
        self._pushed = 0

    @property
    def table(self) -> Table:
        """The tree as the planner reads it."""
        return self._table

    @property
    def reclaimable(self) -> int:
        """Blocks that are free, or would be if everything that nothing under way needs were evicted."""
        return self.pool.num_blocks - self._pinned_blocks

    def add(self, parent: Node | None, tokens: Sequence[int], rank: Rank = HELD) -> Node:
        """Return a new node with one handle."""
        if not self._places:
            self._grow()
        place = self._places.pop()
        node = Node(place, parent, tokens, rank)
        self.nodes[place] = node
        table = self._table
        table.parent[place] = -1 if parent is None else parent.place
        table.start[place], table.length[place], table.head[place] = node.start, 0, -1
        if parent is not None:
            parent.children += 1
        return node

    def length(self, node: Node) -> int:
        """Return how many of a node's tokens have keys and values."""
        return int(self._table.length[node.place])

    def complete(self, node: Node) -> bool:
        """Whether all of a node's tokens have keys and values."""
        return self.length(node) == len(node.tokens)

    # References ---------------------------------------------------------------------------------------------------------------------

    def retain(self, node: Node) -> Node:
        """Add a handle."""
        node.handles += 1
        return node

    def release(self, node: Node) -> None:
        """Give up a handle. A node that nothing refers to any more is gone, and so are ancestors that only it kept."""
        node.handles -= 1
        self._collect(node)

    def pin(self, node: Node) -> None:
        """Keep a node and its ancestors from being evicted: work that needs them is under way."""
        for each in _upwards(node):
            each.pins += 1
            if each.pins == 1:
                self._pinned_blocks += each.num_blocks

    def unpin(self, node: Node) -> None:
        """Undo one `pin`."""
        for each in _upwards(node):
            each.pins -= 1
            if each.pins == 0:
                self._pinned_blocks -= each.num_blocks
                each.used = self.clock
                self._offer(each)
        self._collect(node)

    def _collect(self, node: Node | None) -> None:
        while node is not None and node.handles == 0 and node.children == 0 and node.pins == 0:
            self._drop_blocks(node)
            del self.nodes[node.place]
            self._places.append(node.place)
            node.place = -1
            if node.parent is not None:
                node.parent.children -= 1
            elif self.root_gone is not None:
                self.root_gone(node)
            node = node.parent

    # Memory -------------------------------------------------------------------------------------------------------------------------

    def reserve(self, node: Node, length: int) -> bool:
        """Make sure that a node, which is pinned, has blocks for so many tokens; False where there is no room even after evicting."""
        while node.num_blocks * BLOCK < length:
            if not self.pool.num_free and not self._evict():
                return False
            block = self.pool.take()
            if node.num_blocks == 0:
                self._table.head[node.place] = block
                if node.parent is not None:
                    node.parent.resident_children += 1
            else:
                self.pool.following[self._tail(node)] = block
            node.num_blocks += 1
            self._pinned_blocks += 1
        return True

    def fill(self, node: Node, length: int) -> None:
        """Say that a node's first `length` tokens have keys and values, or will at the end of this step."""
        self._table.length[node.place] = length
        node.computed = max(node.computed, length)

    def forget(self, node: Node) -> None:
        """Drop a node's keys and values, for they are not what they should be; its descendants' stay and are not to be used."""
        self._table.length[node.place] = 0

    def _tail(self, node: Node) -> int:
        block = int(self._table.head[node.place])
        for _ in range(node.num_blocks - 1):
            block = int(self.pool.following[block])
        return block

    def _evict(self) -> bool:
        """Evict the keys and values of one node: of the first rank, then longest unused; False where there is none."""
        while self._leaves:
            rank, used, _, node = heapq.heappop(self._leaves)
            if self._is_leaf(node) and (rank, used) == (node.rank, node.used):
                self._drop_blocks(node)
                self.evictions += 1
                return True
        return False

    def _is_leaf(self, node: Node) -> bool:
        return node.alive and node.num_blocks > 0 and node.pins == 0 and node.resident_children == 0

    def _offer(self, node: Node) -> None:
        """Add a node to what may be evicted, if it may."""
        if self._is_leaf(node):
            if len(self._leaves) > 2 * len(self.nodes) + 64:  # most of them are stale
                self._leaves = [entry for entry in self._leaves if self._is_leaf(entry[3]) and entry[1] == entry[3].used]
                heapq.heapify(self._leaves)
            self._pushed += 1
            heapq.heappush(self._leaves, (node.rank, node.used, self._pushed, node))

    def _drop_blocks(self, node: Node) -> None:
        if not node.num_blocks:
            return
        self.pool.give(int(self._table.head[node.place]))
        node.num_blocks = 0
        self._table.head[node.place], self._table.length[node.place] = -1, 0
        if node.parent is not None:
            node.parent.resident_children -= 1
            self._offer(node.parent)

    def _grow(self) -> None:
        old = self._table
        size = len(old.parent)
        self._table = _empty_table(2 * size)
        for new, values in zip(self._table, old, strict=True):
            new[:size] = values
        self._places = list(range(2 * size - 1, size - 1, -1))

    # What it holds ------------------------------------------------------------------------------------------------------------------

    def unique_tokens(self) -> int:
        """Return how many tokens have keys and values."""
        return sum(self.length(node) for node in self.nodes.values())

    def logical_tokens(self) -> int:
        """Return what the paths to all leaves hold together: what memory without sharing would."""
        return sum(node.end for node in self.nodes.values() if node.children == 0)


def _upwards(node: Node | None) -> Iterator[Node]:
    while node is not None:
        yield node
        node = node.parent


def _empty_table(size: int) -> Table:
    return Table(np.full(size, -1, np.int64), np.zeros(size, np.int64), np.zeros(size, np.int64), np.full(size, -1, np.int64))
