"""The KV tree: nodes that share the keys and values of their ancestors.

A node is a segment of tokens made by one call: a prompt, a forced text, the tokens of a row. A node shares its blocks
with no other node; a fork is a second reference and copies nothing. Where a node begins and ends depends on calls
alone, never on siblings. So the cuts of a path, and the rounding of its numbers, are properties of the path.

A node's tokens stay on the host while the node exists. Its keys and values may be evicted under memory pressure, and
are recomputed to the same bits when they are needed. A node holds the keys and values of its first `length` tokens, and
any only if its parent's are complete.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from tts.backends.engine.planning import NodeTable
from tts.backends.engine.pool import BlockPool
from tts.backends.kernels.plan import BLOCK

# The order of eviction: nodes of caches, then those that callers hold.
Rank = Literal[0, 1]
CACHED: Rank = 0
HELD: Rank = 1


@dataclass(slots=True, eq=False, repr=False)
class KVNode:
    """A segment of a path. Only the tree changes a node; `tokens` grow while the node's row is under way.

    Attributes:
        place: The node's row in the tree's table; -1 once the node was removed.
        parent: The node above; None for a root.
        tokens: The tokens of the segment.
        rank: The rank of the node in the order of eviction.
        start: Position of the node's first token.
        handles: References of callers.
        pins: Running jobs that need the node or a descendant.
        children: Nodes directly below.
        resident_children: Children that hold keys and values.
        num_blocks: The node's number of blocks.
        computed: The largest number of tokens that were ever computed.
        used: The tree's clock at the last use.
        pieces: Text that each token completed, after a prompt.
        scores: Readings of value heads, one a token.
    """

    place: int
    parent: KVNode | None
    tokens: list[int]
    rank: Rank
    start: int = field(init=False)
    handles: int = 1
    pins: int = 0
    children: int = 0
    resident_children: int = 0
    num_blocks: int = 0
    computed: int = 0
    used: int = 0
    pieces: list[str] = field(default_factory=list[str])
    scores: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    def __post_init__(self) -> None:
        self.start = 0 if self.parent is None else self.parent.end

    @property
    def end(self) -> int:
        """The number of tokens of the path up to here."""
        return self.start + len(self.tokens)

    @property
    def alive(self) -> bool:
        """Whether the node is still in the tree."""
        return self.place >= 0

    def path(self) -> list[KVNode]:
        """Return the nodes from the root to here."""
        nodes: list[KVNode] = []
        node: KVNode | None = self
        while node is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]


class _Candidate(NamedTuple):
    """A node that could be evicted when it was pushed. Candidates compare by rank, last use, and age."""

    rank: Rank
    used: int
    number: int  # the number of candidates pushed before, so that nodes are never compared
    node: KVNode


class KVTree:
    """Nodes over a block pool.

    Args:
        pool: The pool of the blocks.

    Attributes:
        clock: A count of steps that callers advance; the time of a node's last use orders evictions.
        evictions: Nodes evicted so far.
        nodes: All existing nodes, by place.
        root_gone: Called with a removed root, if set.
        table: The tree as arrays, for the planner.
    """

    def __init__(self, pool: BlockPool) -> None:
        self.pool = pool
        self.clock = 0
        self.evictions = 0
        self.nodes: dict[int, KVNode] = {}
        self.root_gone: Callable[[KVNode], None] | None = None
        self.table = _empty_table(64)
        self._places = list(range(63, -1, -1))
        self._pinned_blocks = 0
        self._candidates: list[_Candidate] = []  # a heap; an entry is stale once its node was used again
        self._num_pushed = 0

    @property
    def reclaimable(self) -> int:
        """Blocks that are free, or that eviction could free."""
        return self.pool.num_blocks - self._pinned_blocks

    def add(self, parent: KVNode | None, tokens: Sequence[int], rank: Rank = HELD) -> KVNode:
        """Return a new node with one handle."""
        if not self._places:
            self._grow()
        place = self._places.pop()
        node = KVNode(place, parent, list(tokens), rank)
        self.nodes[place] = node
        table = self.table
        table.parent[place] = -1 if parent is None else parent.place
        table.start[place] = node.start
        table.length[place] = 0
        table.head[place] = -1
        if parent is not None:
            parent.children += 1
        return node

    def length(self, node: KVNode) -> int:
        """Return how many of a node's tokens have keys and values."""
        return int(self.table.length[node.place])

    def complete(self, node: KVNode) -> bool:
        """Whether all of a node's tokens have keys and values."""
        return self.length(node) == len(node.tokens)

    # References -------------------------------------------------------------------------------------------------------

    def retain(self, node: KVNode) -> KVNode:
        """Add a handle."""
        node.handles += 1
        return node

    def release(self, node: KVNode) -> None:
        """Release a handle. A node without references is removed, as are ancestors that nothing else needs."""
        node.handles -= 1
        self._collect(node)

    def pin(self, node: KVNode) -> None:
        """Keep a node and its ancestors from being evicted, while a job needs them."""
        for ancestor in _ancestors(node):
            ancestor.pins += 1
            if ancestor.pins == 1:
                self._pinned_blocks += ancestor.num_blocks

    def unpin(self, node: KVNode) -> None:
        """Undo one `pin`."""
        for ancestor in _ancestors(node):
            ancestor.pins -= 1
            if ancestor.pins == 0:
                self._pinned_blocks -= ancestor.num_blocks
                ancestor.used = self.clock
                self._offer(ancestor)
        self._collect(node)

    def _collect(self, node: KVNode | None) -> None:
        """Remove a node that nothing refers to, and then its ancestors to which nothing refers any more."""
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

    # Memory -----------------------------------------------------------------------------------------------------------

    def reserve(self, node: KVNode, length: int) -> bool:
        """Reserve blocks for `length` tokens of a pinned node; False where even evictions make no room."""
        while node.num_blocks * BLOCK < length:
            if not self.pool.num_free and not self._evict():
                return False
            block = self.pool.take()
            if node.num_blocks == 0:
                self.table.head[node.place] = block
                if node.parent is not None:
                    node.parent.resident_children += 1
            else:
                self.pool.following[self._tail(node)] = block
            node.num_blocks += 1
            self._pinned_blocks += 1
        return True

    def fill(self, node: KVNode, length: int) -> None:
        """Record that a node's first `length` tokens have keys and values, or will at the end of this step."""
        self.table.length[node.place] = length
        node.computed = max(node.computed, length)

    def forget(self, node: KVNode) -> None:
        """Drop a node's invalid keys and values. Those of its descendants stay and must not be used."""
        self.table.length[node.place] = 0

    def _tail(self, node: KVNode) -> int:
        block = int(self.table.head[node.place])
        for _ in range(node.num_blocks - 1):
            block = int(self.pool.following[block])
        return block

    def _evict(self) -> bool:
        """Evict one node's keys and values, by rank, then by last use; False where no node can be evicted."""
        while self._candidates:
            candidate = heapq.heappop(self._candidates)
            if self._is_current(candidate):
                self._drop_blocks(candidate.node)
                self.evictions += 1
                return True
        return False

    def _is_current(self, candidate: _Candidate) -> bool:
        """Whether a candidate can still be evicted and was not used since it was pushed."""
        return self._can_be_evicted(candidate.node) and candidate.used == candidate.node.used

    def _can_be_evicted(self, node: KVNode) -> bool:
        return node.alive and node.num_blocks > 0 and node.pins == 0 and node.resident_children == 0

    def _offer(self, node: KVNode) -> None:
        """Add a node to the candidates for eviction, if it can be evicted."""
        if not self._can_be_evicted(node):
            return
        if len(self._candidates) > 2 * len(self.nodes) + 64:  # most candidates are stale
            self._candidates = [candidate for candidate in self._candidates if self._is_current(candidate)]
            heapq.heapify(self._candidates)
        self._num_pushed += 1
        heapq.heappush(self._candidates, _Candidate(node.rank, node.used, self._num_pushed, node))

    def _drop_blocks(self, node: KVNode) -> None:
        """Give a node's blocks back to the pool; the parent may then be a candidate for eviction."""
        if not node.num_blocks:
            return
        self.pool.give(int(self.table.head[node.place]))
        node.num_blocks = 0
        self.table.head[node.place] = -1
        self.table.length[node.place] = 0
        if node.parent is not None:
            node.parent.resident_children -= 1
            self._offer(node.parent)

    def _grow(self) -> None:
        """Double the table's rows, all of which are taken."""
        old_table = self.table
        size = len(old_table.parent)
        self.table = _empty_table(2 * size)
        for column, values in zip(self.table, old_table, strict=True):
            column[:size] = values
        self._places = list(range(2 * size - 1, size - 1, -1))


def _ancestors(node: KVNode | None) -> Iterator[KVNode]:
    while node is not None:
        yield node
        node = node.parent


def _empty_table(size: int) -> NodeTable:
    return NodeTable(
        np.full(size, -1, np.int64), np.zeros(size, np.int64), np.zeros(size, np.int64), np.full(size, -1, np.int64)
    )
