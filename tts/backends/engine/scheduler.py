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

_EXPECTED_GROWTH = 2  # blocks that a job is expected to need beyond its blocks at admission


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
        if self.work is None:
            return self.until
        if isinstance(self.work, DecodeSequence):  # the last token gives the logits of the next
            return min(self.until, len(self.node.tokens) - 1)
        return min(self.until, max(self.first, self.work.at))

    @property
    def wants_logits(self) -> bool:
        """Whether the job wants logits. If not, the job wants hidden states, or there is no job."""
        if isinstance(self.work, PrefillJob):
            return self.work.logits
        return self.work is not None


def output_indices(feeds: Sequence[Feed], *, every: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the indices of a step's tokens with wanted hidden states, and the indices of the logits.

    The second indices point into the first: logits are computed from hidden states.

    Args:
        feeds: The feeds of the step, in the order of its tokens.
        every: Whether the hidden states of all tokens are wanted.
    """
    hidden_indices: list[int] = []
    logit_indices: list[int] = []
    feed_start = 0  # the index of the feed's first token in the step
    for feed in feeds:
        wanted_from = feed.wanted_from
        hidden_from = feed.first if every else wanted_from
        for token in range(hidden_from, feed.until):
            if token >= wanted_from and feed.wants_logits:
                logit_indices.append(len(hidden_indices))
            hidden_indices.append(feed_start + token - feed.first)
        feed_start += feed.num_tokens
    return np.array(hidden_indices, np.int64), np.array(logit_indices, np.int64)


@dataclass
class _StepBuilder:
    """A step being built.

    Attributes:
        tokens_left: The prefill tokens that may still be fed.
        feeds: The feeds so far.
        fed_places: The places of the nodes fed. Nodes fed by `Scheduler._feed_next` are left out, since no other job
            feeds them.
    """

    tokens_left: int
    feeds: list[Feed] = field(default_factory=list[Feed])
    fed_places: set[int] = field(default_factory=set[int])


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


@dataclass(eq=False)
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

    tree: KVTree
    limits: SchedulerLimits
    stats: EngineStats
    failed: Callable[[Schedulable, Exception], None]

    def __post_init__(self) -> None:
        self._most_running: int | None = None
        self._waiting: list[Schedulable] = []
        self.running: list[Schedulable] = []
        self._nodes_to_unpin: list[KVNode] = []  # at the end of the step

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
            self._nodes_to_unpin.append(work.node)
        else:
            self._waiting.remove(work)

    def limit(self, most_running: int) -> None:
        """Serve at most so many jobs at once from now on; the youngest jobs beyond them wait again."""
        self._most_running = most_running
        while len(self.running) > most_running:
            self._nodes_to_unpin.append(self._preempt(self.running[-1]))

    def end_step(self) -> None:
        """Unpin the nodes of jobs that ended or were preempted in this step."""
        nodes, self._nodes_to_unpin = self._nodes_to_unpin, []
        for node in nodes:
            self.tree.unpin(node)

    def choose(self) -> list[Feed]:
        """Return the feeds of the next step, with memory reserved for all their tokens."""
        self._admit()
        step = _StepBuilder(self.limits.tokens)
        index = 0
        while index < len(self.running):
            work = self.running[index]
            try:
                was_fed = isinstance(work, DecodeSequence) and self._feed_next(work, step)
                if not was_fed:
                    self._feed(work, step)
                index += 1
            except _NoRoom:
                youngest = self.running[-1]
                if youngest is not work:  # the youngest job is not fed yet, so its node can be unpinned at once
                    self.tree.unpin(self._preempt(youngest))
                elif len(self.running) > 1 or self._nodes_to_unpin:  # there may be room after this step
                    self._nodes_to_unpin.append(self._preempt(work))
                else:
                    self.running.remove(work)
                    self._nodes_to_unpin.append(work.node)
                    self.failed(work, self._too_small(work))
        return step.feeds

    def _admit(self) -> None:
        """Admit waiting jobs, oldest first, while there is room for the blocks that a job needs."""
        while self._waiting:
            work = self._waiting[0]
            is_full = self._most_running is not None and len(self.running) >= self._most_running
            if is_full or (self.running and self._needs(work) > self.tree.reclaimable):
                return
            self._waiting.pop(0)
            if not work.started:
                work.started = True
                self.stats.prefill_reused += sum(self.tree.length(node) for node in work.node.path())
            self.tree.pin(work.node)
            bisect.insort(self.running, work, key=_order)

    def _needs(self, work: Schedulable) -> int:
        """Return the number of blocks that a job needs beyond the blocks pinned by other jobs."""
        path = work.node.path()
        num_own_tokens = work.upto if isinstance(work, PrefillJob) else len(work.node.tokens)
        ancestor_blocks = sum(_num_blocks(len(node.tokens)) for node in path[:-1] if node.pins == 0)
        return ancestor_blocks + _num_blocks(num_own_tokens) + _EXPECTED_GROWTH

    def _preempt(self, work: Schedulable) -> KVNode:
        """Put a running job back into the queue, and return its node, which the caller unpins."""
        self.running.remove(work)
        work.ready = False
        self.stats.parked += 1
        bisect.insort(self._waiting, work, key=_order)
        return work.node

    def _feed_next(self, sequence: DecodeSequence, step: _StepBuilder) -> bool:
        """Feed a sequence's last drawn token, if this token alone is missing and a block has room.

        Most feeds are such tokens, and `_feed` is slower.

        Returns:
            Whether the token was fed.
        """
        node, lengths = sequence.node, self.tree.table.length
        length = lengths.item(node.place)
        misses_one_token = node.computed == length and len(node.tokens) == length + 1
        has_room = node.num_blocks * BLOCK > length
        if not (sequence.ready and misses_one_token and has_room):
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
                missing = len(node.tokens) - self.tree.length(node)
                if not missing:
                    continue
                if node.place in step.fed_places or step.tokens_left <= 0:
                    return
                self._add(Feed(node, self.tree.length(node), min(missing, step.tokens_left), None), step)
                if not self.tree.complete(node):
                    return
            work.ready = True
        if work.node.place in step.fed_places:
            return
        length = self.tree.length(work.node)
        if isinstance(work, DecodeSequence):
            missing = len(work.node.tokens) - length
            most_tokens = max(1, step.tokens_left)  # a row may always feed a token
            self._add(Feed(work.node, length, min(missing, most_tokens), work), step)
        elif step.tokens_left > 0:
            first = min(length, work.at)
            if first < work.upto:
                self._add(Feed(work.node, first, min(work.upto - first, step.tokens_left), work), step)

    def _add(self, feed: Feed, step: _StepBuilder) -> None:
        """Add a feed to a step, with memory reserved for its tokens.

        Raises:
            _NoRoom: there is no block for the tokens.
        """
        if not self.tree.reserve(feed.node, feed.until):
            raise _NoRoom
        self.stats.recomputed += max(0, min(feed.until, feed.node.computed) - feed.first)
        self.tree.fill(feed.node, max(feed.until, self.tree.length(feed.node)))
        step.feeds.append(feed)
        step.fed_places.add(feed.node.place)
        is_row = isinstance(feed.work, DecodeSequence)
        step.tokens_left -= feed.num_tokens - 1 if is_row else feed.num_tokens  # a row's first token is free

    def _too_small(self, work: Schedulable) -> KVBudgetError:
        """Return the error for a job whose path alone does not fit the memory."""
        block_bytes = BLOCK * self.tree.pool.shape.bytes_per_token
        needed_bytes = block_bytes * sum(_num_blocks(len(node.tokens)) for node in work.node.path())
        return KVBudgetError(
            f"a path of {work.node.end} tokens needs {needed_bytes} bytes for keys and values, but there are "
            f"{block_bytes * self.tree.pool.num_blocks}",
            hint="give the engine a larger kv_budget",
        )


def _num_blocks(num_tokens: int) -> int:
    return -(-num_tokens // BLOCK)  # rounded up


def _order(work: Schedulable) -> tuple[int, int]:
    return work.order
