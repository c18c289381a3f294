"""Who takes part in the next step: admission, room for keys and values, and who gives way when there is none.

Work is served in the order in which it was asked for. The oldest work under way is never held up by younger work: where room runs
out, the youngest gives way ("parks": its tokens stay, its keys and values may be evicted) and goes on when there is room again.
So there is always progress, and the only failure is a single path that does not fit the pool by itself.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from tts.backends.engine.stats import EngineStats
from tts.backends.engine.tree import KVTree, Node
from tts.backends.engine.work import Line, Reading, Work
from tts.backends.kernels.plan import BLOCK
from tts.errors import KVBudgetError

_GROWTH = 2  # blocks that work is expected to need beyond what it has when it is let in


class Feed(NamedTuple):
    """Tokens of a node that a step feeds: `num_tokens` from `first` on. `work` waits for them; None: they are on another's path."""

    node: Node
    first: int
    num_tokens: int
    work: Work | None

    @property
    def until(self) -> int:
        """The token behind the last one fed."""
        return self.first + self.num_tokens

    @property
    def asked(self) -> int:
        """From which of the node's tokens on the work wants something of this step; `until`: of none."""
        if isinstance(self.work, Line):
            return self.until - 1 if self.until == len(self.node.tokens) else self.until
        return self.until if self.work is None else min(self.until, max(self.first, self.work.at))

    @property
    def asks_logits(self) -> bool:
        """Whether what is asked is logits, not hidden states."""
        return isinstance(self.work, Line) or (self.work is not None and self.work.logits)


@dataclass
class _Step:
    """A step in the making: how many more tokens it reads beside one a row, what it feeds, and which nodes' places those are.

    Open nodes of rows are nobody else's, and are not noted where they take the short way.
    """

    left: int
    feeds: list[Feed] = field(default_factory=list[Feed])
    fed: set[int] = field(default_factory=set[int])


class _NoRoom(Exception):
    """There is no block, and nothing to evict."""


@dataclass
class Limits:
    """How much one step takes on.

    Args:
        rows: most rows under way. tokens: most tokens of a step that are read, beside one for each row.
    """

    rows: int
    tokens: int


class Scheduler:
    """Chooses what each step feeds.

    Args:
        tree: of the model. limits: of a step. stats: what it counts in. bytes_per_token: for what errors say.
        failed: called with work that can never run, when it has been taken out.
    """

    def __init__(
        self, tree: KVTree, limits: Limits, stats: EngineStats, *, bytes_per_token: int, failed: Callable[[Work, Exception], None]
    ) -> None:
        self._tree = tree
        self._limits = limits
        self._stats = stats
        self._bytes = bytes_per_token
        self._failed = failed
        self._waiting: list[Work] = []
        self._running: list[Work] = []
        self._late: list[Node] = []
        self._left = 0  # tokens that the step that is being chosen still reads

    @property
    def busy(self) -> bool:
        """Whether any work is waiting or under way."""
        return bool(self._waiting or self._running)

    @property
    def running(self) -> list[Work]:
        """Work under way, oldest first."""
        return self._running

    def every(self) -> list[Work]:
        """Return all work, waiting or under way."""
        return [*self._waiting, *self._running]

    def add(self, work: Work) -> None:
        """Take on work."""
        bisect.insort(self._waiting, work, key=_order)

    def remove(self, work: Work) -> None:
        """Forget work that has ended."""
        if work in self._running:
            self._running.remove(work)
            self._late.append(work.node)
        else:
            self._waiting.remove(work)

    def end_step(self) -> None:
        """Let go of what work that ended or gave way in this step had kept."""
        late, self._late = self._late, []
        for node in late:
            self._tree.unpin(node)

    def choose(self) -> list[Feed]:
        """Return what the next step feeds, with room for all of it."""
        self._admit()
        step = _Step(self._limits.tokens)
        index = 0
        while index < len(self._running):
            work = self._running[index]
            try:
                if not (isinstance(work, Line) and self._feed_next(work, step)):
                    self._feed(work, step)
                index += 1
            except _NoRoom:
                youngest = self._running[-1]
                if youngest is not work:  # which is not fed in this step yet, so it can let go at once
                    self._tree.unpin(self._park(youngest))
                elif len(self._running) > 1 or self._late:
                    self._late.append(self._park(work))
                else:
                    self._running.remove(work)
                    self._late.append(work.node)
                    self._failed(work, self._too_small(work))
        return step.feeds

    def _admit(self) -> None:
        """Let waiting work in, oldest first, while there is room for what it is known to need."""
        while self._waiting:
            work = self._waiting[0]
            if self._running and self._needs(work) > self._tree.reclaimable:
                return
            self._waiting.pop(0)
            if not work.started:
                work.started = True
                self._stats.prefill_reused += sum(self._tree.length(node) for node in work.node.path())
            self._tree.pin(work.node)
            bisect.insort(self._running, work, key=_order)

    def _needs(self, work: Work) -> int:
        """Return the blocks that work needs beside those that other work keeps anyway."""
        path = work.node.path()
        own = work.upto if isinstance(work, Reading) else len(work.node.tokens)
        above = sum(-(-len(node.tokens) // BLOCK) for node in path[:-1] if node.pins == 0)
        return above + -(-own // BLOCK) + _GROWTH

    def _park(self, work: Work) -> Node:
        """Put work back among what waits; return the node that it no longer keeps."""
        self._running.remove(work)
        work.ready = False
        self._stats.parked += 1
        bisect.insort(self._waiting, work, key=_order)
        return work.node

    def _feed_next(self, line: Line, step: _Step) -> bool:
        """Feed the one token that a row drew last, if that is all it needs and there is room: nearly always. Else return False."""
        node, lengths = line.node, self._tree.table.length
        length = lengths.item(node.place)
        if not line.ready or node.computed != length or len(node.tokens) != length + 1 or node.num_blocks * BLOCK <= length:
            return False
        lengths[node.place] = node.computed = length + 1
        step.feeds.append(Feed(node, length, 1, line))
        return True

    def _feed(self, work: Work, step: _Step) -> None:
        """Add what work needs next: ancestors that are not complete, then its own tokens; as much as this step still takes.

        Raises:
            _NoRoom: there is no block for it.
        """
        if not work.ready:
            for node in work.node.path()[:-1]:
                missing = len(node.tokens) - self._tree.length(node)
                if not missing:
                    continue
                if node.place in step.fed or step.left <= 0:
                    return
                self._add(Feed(node, self._tree.length(node), min(missing, step.left), None), step)
                if not self._tree.complete(node):
                    return
            work.ready = True
        if work.node.place in step.fed:
            return
        length = self._tree.length(work.node)
        if isinstance(work, Line):
            missing = len(work.node.tokens) - length
            self._add(Feed(work.node, length, min(missing, max(1, step.left)), work), step)
        elif step.left > 0:
            first = min(length, work.at)
            if first < work.upto:
                self._add(Feed(work.node, first, min(work.upto - first, step.left), work), step)

    def _add(self, feed: Feed, step: _Step) -> None:
        """Make room for tokens and feed them."""
        if not self._tree.reserve(feed.node, feed.until):
            raise _NoRoom
        self._stats.recomputed += max(0, min(feed.until, feed.node.computed) - feed.first)
        self._tree.fill(feed.node, max(feed.until, self._tree.length(feed.node)))
        step.feeds.append(feed)
        step.fed.add(feed.node.place)
        step.left -= feed.num_tokens - isinstance(feed.work, Line)

    def _too_small(self, work: Work) -> KVBudgetError:
        needed = self._bytes * BLOCK * sum(-(-len(node.tokens) // BLOCK) for node in work.node.path())
        return KVBudgetError(
            f"a path of {work.node.end} tokens needs {needed} bytes for keys and values, but there are "
            f"{self._bytes * BLOCK * self._tree.pool.num_blocks}",
            hint="give the engine a larger kv_budget",
        )


def _order(work: Work) -> tuple[int, int]:
    return work.order
