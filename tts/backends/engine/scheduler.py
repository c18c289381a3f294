"""The scheduler: admission to the next step, memory for keys and values, and preemption.

Jobs are served in the order of their requests. Where memory runs out, the youngest running job is preempted: its tokens
stay, its keys and values may be evicted, and the job resumes when there is room. So the oldest job always progresses,
and the only failure is a single path that does not fit the pool by itself.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tts.backends.engine.stats import EngineStats
from tts.backends.engine.tree import KVNode, KVTree
from tts.backends.engine.work import DecodeSequence, PrefillJob, Schedulable
from tts.backends.kernels.plan import BLOCK
from tts.errors import KVBudgetError

_GROWTH = 2  # blocks that a job is expected to need beyond its blocks at admission


class Feed(NamedTuple):
    """Tokens of a node that a step feeds: `num_tokens` from `first` on.

    `work` is the job that waits for the tokens. None: the node is an ancestor of a job's node.
    """

    node: KVNode
    first: int
    num_tokens: int
    work: Schedulable | None

    @property
    def until(self) -> int:
        """The index after the last token fed."""
        return self.first + self.num_tokens

    @property
    def ids(self) -> list[int]:
        """The tokens fed."""
        return self.node.tokens[self.first : self.until]

    @property
    def wanted_from(self) -> int:
        """The first token of the node whose result the job wants from this step; `until`: none."""
        if isinstance(self.work, DecodeSequence):
            return min(self.until, len(self.node.tokens) - 1)
        return self.until if self.work is None else min(self.until, max(self.first, self.work.at))

    @property
    def wants_logits(self) -> bool:
        """Whether logits are wanted, not hidden states."""
        return isinstance(self.work, DecodeSequence) or (self.work is not None and self.work.logits)


def output_indices(feeds: Sequence[Feed], *, every: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the indices of a step's tokens with wanted hidden states, and the indices of the logits.

    The logits' indices point into the hidden states. With `every` the hidden states of all tokens are wanted.
    """
    hidden_indices: list[int] = []
    logit_indices: list[int] = []
    start = 0
    for feed in feeds:
        wanted_from = feed.wanted_from
        for token in range(feed.first if every else wanted_from, feed.until):
            if token >= wanted_from and feed.wants_logits:
                logit_indices.append(len(hidden_indices))
            hidden_indices.append(start + token - feed.first)
        start += feed.num_tokens
    return np.array(hidden_indices, np.int64), np.array(logit_indices, np.int64)


@dataclass
class _StepBuilder:
    """A step being built: the prefill tokens left, its feeds, and the places of the nodes fed.

    Nodes fed by the fast path are not recorded, since each belongs to one sequence.
    """

    left: int
    feeds: list[Feed] = field(default_factory=list[Feed])
    fed: set[int] = field(default_factory=set[int])


class _NoRoom(Exception):
    """There is no block, and nothing to evict."""


@dataclass
class SchedulerLimits:
    """Limits of one step.

    Args:
        rows: Most rows under way.
        tokens: Most prefill tokens of a step, beside one for each row.
    """

    rows: int
    tokens: int


class Scheduler:
    """Chooses what each step feeds.

    Args:
        tree: The tree of the model.
        limits: The limits of a step.
        stats: The counters to update.
        failed: Called with a job that can never run, after it has been removed.

    Attributes:
        running: Jobs that are served, oldest first.
    """

    def __init__(
        self,
        tree: KVTree,
        limits: SchedulerLimits,
        stats: EngineStats,
        *,
        failed: Callable[[Schedulable, Exception], None],
    ) -> None:
        self._tree = tree
        self._limits = limits
        self._stats = stats
        self._failed = failed
        self._waiting: list[Schedulable] = []
        self.running: list[Schedulable] = []
        self._late: list[KVNode] = []  # nodes to unpin when the step has ended

    @property
    def busy(self) -> bool:
        """Whether any job is waiting or running."""
        return bool(self._waiting or self.running)

    def every(self) -> list[Schedulable]:
        """Return all jobs, waiting or running."""
        return [*self._waiting, *self.running]

    def add(self, work: Schedulable) -> None:
        """Add a job."""
        bisect.insort(self._waiting, work, key=_order)

    def remove(self, work: Schedulable) -> None:
        """Remove a job that has ended."""
        if work in self.running:
            self.running.remove(work)
            self._late.append(work.node)
        else:
            self._waiting.remove(work)

    def end_step(self) -> None:
        """Unpin the nodes of jobs that ended or were preempted in this step."""
        late, self._late = self._late, []
        for node in late:
            self._tree.unpin(node)

    def choose(self) -> list[Feed]:
        """Return the feeds of the next step, with memory reserved for all of them."""
        self._admit()
        step = _StepBuilder(self._limits.tokens)
        index = 0
        while index < len(self.running):
            work = self.running[index]
            try:
                if not (isinstance(work, DecodeSequence) and self._feed_next(work, step)):
                    self._feed(work, step)
                index += 1
            except _NoRoom:
                youngest = self.running[-1]
                if youngest is not work:  # this step does not feed it yet, so its node can be unpinned at once
                    self._tree.unpin(self._preempt(youngest))
                elif len(self.running) > 1 or self._late:  # there may be room after this step
                    self._late.append(self._preempt(work))
                else:
                    self.running.remove(work)
                    self._late.append(work.node)
                    self._failed(work, self._too_small(work))
        return step.feeds

    def _admit(self) -> None:
        """Admit waiting jobs, oldest first, while there is room for their known needs."""
        while self._waiting:
            work = self._waiting[0]
            if self.running and self._needs(work) > self._tree.reclaimable:
                return
            self._waiting.pop(0)
            if not work.started:
                work.started = True
                self._stats.prefill_reused += sum(self._tree.length(node) for node in work.node.path())
            self._tree.pin(work.node)
            bisect.insort(self.running, work, key=_order)

    def _needs(self, work: Schedulable) -> int:
        """Return the number of blocks that a job needs beyond the blocks pinned by other jobs."""
        path = work.node.path()
        num_own = work.upto if isinstance(work, PrefillJob) else len(work.node.tokens)
        ancestor_blocks = sum(-(-len(node.tokens) // BLOCK) for node in path[:-1] if node.pins == 0)
        return ancestor_blocks + -(-num_own // BLOCK) + _GROWTH

    def _preempt(self, work: Schedulable) -> KVNode:
        """Put a running job back into the queue, and return its node, which the caller unpins."""
        self.running.remove(work)
        work.ready = False
        self._stats.parked += 1
        bisect.insort(self._waiting, work, key=_order)
        return work.node

    def _feed_next(self, sequence: DecodeSequence, step: _StepBuilder) -> bool:
        """Feed a sequence's last drawn token by the fast path; False where it needs other tokens or a new block."""
        node, lengths = sequence.node, self._tree.table.length
        length = lengths.item(node.place)
        if (
            not sequence.ready
            or node.computed != length
            or len(node.tokens) != length + 1
            or node.num_blocks * BLOCK <= length
        ):
            return False
        lengths[node.place] = node.computed = length + 1
        step.feeds.append(Feed(node, length, 1, sequence))
        return True

    def _feed(self, work: Schedulable, step: _StepBuilder) -> None:
        """Feed what a job needs next: incomplete ancestors, then its own tokens, within the limits of the step.

        Raises:
            _NoRoom: there is no block for the job.
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
        if isinstance(work, DecodeSequence):
            missing = len(work.node.tokens) - length
            self._add(Feed(work.node, length, min(missing, max(1, step.left)), work), step)
        elif step.left > 0:
            first = min(length, work.at)
            if first < work.upto:
                self._add(Feed(work.node, first, min(work.upto - first, step.left), work), step)

    def _add(self, feed: Feed, step: _StepBuilder) -> None:
        """Reserve memory for tokens and feed them."""
        if not self._tree.reserve(feed.node, feed.until):
            raise _NoRoom
        self._stats.recomputed += max(0, min(feed.until, feed.node.computed) - feed.first)
        self._tree.fill(feed.node, max(feed.until, self._tree.length(feed.node)))
        step.feeds.append(feed)
        step.fed.add(feed.node.place)
        step.left -= feed.num_tokens - isinstance(feed.work, DecodeSequence)

    def _too_small(self, work: Schedulable) -> KVBudgetError:
        block_bytes = BLOCK * self._tree.pool.shape.bytes_per_token
        needed_bytes = block_bytes * sum(-(-len(node.tokens) // BLOCK) for node in work.node.path())
        return KVBudgetError(
            f"a path of {work.node.end} tokens needs {needed_bytes} bytes for keys and values, but there are "
            f"{block_bytes * self._tree.pool.num_blocks}",
            hint="give the engine a larger kv_budget",
        )


def _order(work: Schedulable) -> tuple[int, int]:
    return work.order
