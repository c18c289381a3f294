"""One search of the gateway from its order to its solution.

The module has the requests that wait for it, its cancellation and its progress.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from tts.backends.base import Sampling
from tts.backends.metadata import Tokenizer
from tts.budget.budget import Budget
from tts.search.parts import Plan
from tts.solver.live import Event
from tts.tasks.base import Task
from tts.trace.trace import TraceNode
from tts.types import Problem, Solution
from tts_addons.gateway.access import Client
from tts_addons.gateway.offers import Offer
from tts_addons.gateway.wire.request import SearchRequest

T = TypeVar("T")
_LOOK_S = 0.2  # seconds between two records of a tree that grows
Phase = Literal["waiting", "running", "done", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A checked request for a search.

    Args:
        offer: The model and preset.
        problem: The problem.
        request: The request from which the order was made.
        budget: The budget of the search.
        seed: The seed of the search.
        strategy: The strategy; None: the model's own.
        verifier: The verifier; None: the model's own.
        task: The task; None: the model's own.
        sampling: The sampling of the rows.
        choices: The most answers of the reply.
        chats: Whether the policy's server is called by its chat API, which tools and pictures need.
        tokenizer: The policy's tokenizer, for log-probabilities of the answers' tokens; None: they are not asked for.
        notes: Remarks of the reply on fields without effect.
        keep_trace: Whether the trace is kept for the client.
        links: The orders of a chain of models, where the preset has a risk: this order, and those to which it
            escalates. Each has a budget of its own, and `budget` is their sum.
        on_end: A function that is called with the finished search; None: no function is called.
    """

    offer: Offer
    problem: Problem
    request: SearchRequest
    budget: Budget
    seed: int
    strategy: Plan | None = None
    verifier: str | None = None
    task: Task | None = None
    sampling: Sampling = field(default_factory=Sampling)
    choices: int = 1
    chats: bool = False
    tokenizer: Tokenizer | None = None
    notes: tuple[str, ...] = ()
    keep_trace: bool = True
    links: tuple[Order, ...] = ()
    on_end: Callable[[RunningSearch], None] | None = None

    @property
    def is_one_text(self) -> bool:
        """Whether the request asks to stream one answer while the model writes it.

        Such an order has no task, tokenizer or chain of its own.
        """
        is_plain = self.task is None and self.tokenizer is None and not self.links
        return self.request.stream and is_plain and self.choices == 1


class Job(Generic[T]):
    """Work in the library's event loop, which can be cancelled from any thread.

    Args:
        work: A function that returns the awaitable of the work.
    """

    def __init__(self, work: Callable[[], Awaitable[T]]) -> None:
        self._work = work
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False

    async def run(self) -> T | None:
        """Await the work in the library's loop, and return its result; None: it was cancelled before it began."""
        self._task, self._loop = asyncio.current_task(), asyncio.get_running_loop()
        return None if self._cancelled else await self._work()

    def cancel(self) -> None:
        """Cancel the work, from any thread."""
        self._cancelled = True
        if self._task is not None:
            self.call(self._task.cancel)

    def call(self, function: Callable[[], Any]) -> None:
        """Call a function in the library's loop, from any thread; before the work begins nothing is called."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended, and the work with it
                self._loop.call_soon_threadsafe(function)


class RunningSearch:
    """A search, and the requests that wait for its solution.

    Attributes:
        number: The name of the search, which cannot be guessed.
        client: The client that sent the request.
        order: The order of the search.
        begun_at: The seconds since the epoch at which the search began.
        event: The last progress.
        solution: The solution; None: there is none yet, or the search failed.
        failure: The error that ended the search; None: there is none.
        cancelled: The error for which the search was cancelled; None: it was not cancelled.
        listeners: The number of requests that wait for the solution.
        followers: The number of requests that get the progress.
        watchers: The number of followers that also get the tree.
        tree: The nodes of the search tree as last recorded.
        streams_text: Whether the search has only one row, whose text a stream can show while it is written.
    """

    def __init__(self, number: str, client: Client, order: Order, begun_at: float) -> None:
        self.number, self.client, self.order, self.begun_at = number, client, order, begun_at
        self.state: Phase = "waiting"
        self.event: Event | None = None
        self.solution: Solution | None = None
        self.failure: Exception | None = None
        self.cancelled: Exception | None = None
        self.listeners = 0
        self.followers = 0
        self.watchers = 0
        self.streams_text = False
        self._is_wake_scheduled = False
        self.tree: tuple[TraceNode, ...] = ()
        self._recorded_at_s = -math.inf  # when the tree was last recorded, by the monotonic clock
        self._record_timer: asyncio.TimerHandle | None = None  # calls the next record of the tree
        self.task: asyncio.Task[None] | None = None  # the task that runs the search
        self.job: Job[Solution] | None = None
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def tell(self, event: Event) -> None:
        """Record progress, in the library's loop, and wake the followers.

        For watchers the tree is recorded too, at most once in `_LOOK_S` seconds.
        """
        self.event = event
        if self.watchers and self._record_timer is None:
            wait_s = self._recorded_at_s + _LOOK_S - time.monotonic()
            if wait_s > 0:
                self._record_timer = asyncio.get_running_loop().call_later(wait_s, self._record_tree)
            else:
                self._record_tree()
        if self.followers and not self._is_wake_scheduled:
            self._is_wake_scheduled = True
            with suppress(RuntimeError):  # the server's loop has ended
                self._loop.call_soon_threadsafe(self.wake)

    def _record_tree(self) -> None:
        """Record the tree of the last event, in the library's thread, the only one that changes the tree."""
        if self._record_timer is not None:
            self._record_timer.cancel()
        self._record_timer, self._recorded_at_s = None, time.monotonic()
        if self.event is not None and self.event.nodes is not None:
            with suppress(RuntimeError):  # the server's loop has ended
                self._loop.call_soon_threadsafe(self._note_tree, tuple(self.event.nodes()))

    def _note_tree(self, tree: tuple[TraceNode, ...]) -> None:
        if not self.over:  # a finished search already has its whole tree
            self.tree = tree
            self.wake()

    @contextmanager
    def follow(self, *, tree: bool = False) -> Generator[None]:
        """Wake waiters at each progress while the block runs.

        Args:
            tree: Whether the tree is recorded too.
        """
        self.followers += 1
        self.watchers += tree
        if tree and self.job is not None:
            self.job.call(self._record_tree)  # the next event may come late
        try:
            yield
        finally:
            self.followers -= 1
            self.watchers -= tree

    @property
    def question(self) -> str:
        """The last turn of the prompt."""
        prompt = self.order.problem.prompt
        return prompt if isinstance(prompt, str) else prompt[-1].content

    def wake(self) -> None:
        """Wake everything that waits for a change."""
        self._is_wake_scheduled = False
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def signal(self) -> asyncio.Event:
        """The event that is set at the next change; it must be taken before other attributes are read."""
        return self._changed

    async def wait(self) -> None:
        """Wait until the search is over."""
        while not self.over:
            await self._changed.wait()

    @property
    def over(self) -> bool:
        """Whether the search has ended, and its spending is booked."""
        return self.state in ("done", "failed")

    def result(self) -> Solution:
        """Return the solution of a search that is over.

        Raises:
            Exception: the error that ended the search.
        """
        if self.failure is not None:
            raise self.failure
        assert self.solution is not None
        return self.solution

    def cancel(self, why: Exception) -> None:
        """End the search; requests that still wait get the error `why`."""
        if self.failure is None:
            self.failure = self.cancelled = why
        if self.job is not None:
            self.job.cancel()
        elif self.task is not None:
            self.task.cancel()
