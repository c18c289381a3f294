"""One search of the gateway from its order to its solution.

The module has the requests that wait for it, its cancellation and its progress.
"""

from __future__ import annotations

import asyncio
import dataclasses
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
from tts.serve.access import Client
from tts.serve.failures import ApiError
from tts.serve.offers import Offer
from tts.serve.wire.request import SearchRequest
from tts.solver.problem_run import Event
from tts.tasks.base import Task
from tts.trace.trace import TraceNode
from tts.types import Problem, Solution

T = TypeVar("T")
_LOOK_S = 0.2  # between two records of a tree that grows
Phase = Literal["waiting", "running", "done", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A checked request for a search.

    Args:
        offer: The model and preset.
        problem: The problem.
        request: The request that it was made from.
        budget: The budget of the search.
        seed: The seed of the search.
        strategy: The strategy; None: the model's own.
        verifier: The verifier; None: the model's own.
        task: The task; None: the model's own.
        sampling: The sampling of the rows.
        choices: The most answers of the reply.
        chats: Whether the policy's server is called by chats, for tools or pictures.
        tokenizer: The tokenizer of the policy, where log-probabilities of the answers' tokens are wanted; None: they
            are not.
        notes: What the reply reports of fields without effect.
        keep_trace: Whether the trace is kept for the client.
        links: The orders of the links of a chain, where the preset has a risk: this one, and those that it escalates
            to. Each has a budget of its own, and `budget` is their sum.
        on_end: A function that is called with the search when it is over; None: none.
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
        """Whether a stream of one text as the model writes it is asked for.

        Such a request has no form, stop text or call, no risk, and one answer.
        """
        plain = self.task is None and self.tokenizer is None and not self.links
        return self.request.stream and plain and self.choices == 1

    def with_end(self, on_end: Callable[[RunningSearch], None]) -> Order:
        """Return the order with a function that is called when its search is over."""
        return dataclasses.replace(self, on_end=on_end)


class Job(Generic[T]):
    """Work in the library's event loop, which can be cancelled from any thread.

    Args:
        work: A function that returns what the loop awaits.
    """

    def __init__(self, work: Callable[[], Awaitable[T]]) -> None:
        self._work = work
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False

    async def run(self) -> T | None:
        """Await the work, in the library's loop; return None where it was cancelled before it began."""
        self._task, self._loop = asyncio.current_task(), asyncio.get_running_loop()
        return None if self._cancelled else await self._work()

    def cancel(self) -> None:
        """Cancel the work, from any thread."""
        self._cancelled = True
        if self._task is not None:
            self.call(self._task.cancel)

    def call(self, function: Callable[[], Any]) -> None:
        """Call a function in the library's loop, if the work has begun there; from any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended, and the work with it
                self._loop.call_soon_threadsafe(function)


class RunningSearch:
    """A search that one or more requests wait for.

    Attributes:
        number: The name of the search, which cannot be guessed.
        client: The client that sent its request.
        order: The order that it carries out.
        begun_at: The seconds since the epoch at which it began.
        event: The last progress.
        solution: The solution that it ended with; None: there is none.
        failure: The error that ended it; None: there is none.
        cancelled: Why it was ended early.
        retries: The highest count of retries that has joined.
        listeners: The number of requests that wait for the solution.
        followers: The number of requests that get its progress.
        watchers: The number of followers that also get its tree.
        tree: The nodes as they were last recorded.
        streams_text: Whether its one row is the answer, so that a stream has its text while it is written.
    """

    def __init__(self, number: str, client: Client, order: Order, begun_at: float) -> None:
        self.number, self.client, self.order, self.begun_at = number, client, order, begun_at
        self.state: Phase = "waiting"
        self.event: Event | None = None
        self.solution: Solution | None = None
        self.failure: Exception | None = None
        self.cancelled: Exception | None = None
        self.retries = 0
        self.listeners = 0
        self.followers = 0
        self.watchers = 0
        self.streams_text = False
        self._waking = False  # whether a wake is on its way
        self.tree: tuple[TraceNode, ...] = ()
        self._looked_s = -math.inf
        self._unseen: asyncio.TimerHandle | None = None  # the timer of the next record of the tree
        self.task: asyncio.Task[None] | None = None  # the task that runs the search
        self.job: Job[Solution] | None = None
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def tell(self, event: Event) -> None:
        """Record progress, in the library's loop.

        For watchers the tree is recorded too, at most every `_LOOK_S`.
        """
        self.event = event
        if self.watchers and self._unseen is None:
            wait_s = self._looked_s + _LOOK_S - time.monotonic()
            self._unseen = asyncio.get_running_loop().call_later(wait_s, self._look) if wait_s > 0 else None
            if self._unseen is None:
                self._look()
        if self.followers and not self._waking:
            self._waking = True
            with suppress(RuntimeError):  # the server's loop has ended
                self._loop.call_soon_threadsafe(self.wake)

    def _look(self) -> None:
        """Record the tree of the last event, in the library's thread, where nothing changes it meanwhile."""
        if self._unseen is not None:
            self._unseen.cancel()
        self._unseen, self._looked_s = None, time.monotonic()
        if self.event is not None and self.event.nodes is not None:
            with suppress(RuntimeError):  # the server's loop has ended
                self._loop.call_soon_threadsafe(self._note_tree, tuple(self.event.nodes()))

    def _note_tree(self, tree: tuple[TraceNode, ...]) -> None:
        if not self.over:  # else the whole tree is there
            self.tree = tree
            self.wake()

    @contextmanager
    def follow(self, *, tree: bool = False) -> Generator[None]:
        """Wake waiters at progress, for the block; `tree`: record the tree too."""
        self.followers += 1
        self.watchers += tree
        if tree and self.job is not None:
            self.job.call(self._look)  # the next event may be far away
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
        self._waking = False
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def signal(self) -> asyncio.Event:
        """The event that is set at the next change; it must be taken before other attributes are read."""
        return self._changed

    @property
    def over(self) -> bool:
        """Whether it has ended, and its books are closed."""
        return self.state in ("done", "failed")

    def result(self) -> Solution:
        """Return the solution of a search that is over.

        Raises:
            Exception: what the search failed with.
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


class Joining:
    """Searches under way, by what identifies a repeated request.

    A request joins a search only of the same client, and only with the same idempotency key, or as a retry that its
    client announces. Equal bodies alone never join.
    """

    def __init__(self) -> None:
        self._by_key: dict[tuple[str, str], tuple[bytes, RunningSearch]] = {}
        self._by_body: dict[tuple[str, bytes], list[RunningSearch]] = {}

    def find(self, client: Client, key: str | None, digest: bytes, retry: int | None) -> RunningSearch | None:
        """Return the search that a request repeats; None: the request is new, or the search was cancelled.

        Args:
            client: The client that sends the request.
            key: The request's `Idempotency-Key`.
            digest: The hash of the body.
            retry: The number of earlier attempts; None: unknown.

        Raises:
            ApiError: 409, the key belongs to another body.
        """
        if key is not None:
            known_digest, search = self._by_key.get((client.owner, key), (digest, None))
            if search is None or search.cancelled is not None:
                return None
            if known_digest != digest:
                cause = "the idempotency key belongs to a request with another body that is under way; use a new key"
                raise ApiError(409, cause, code="idempotency_key_reused")
            return search
        if not retry:
            return None
        candidates = self._by_body.get((client.owner, digest), ())
        fits = [search for search in candidates if search.retries < retry and search.cancelled is None]
        chosen = min(fits, key=lambda search: (search.listeners, search.begun_at), default=None)
        if chosen is not None:
            chosen.retries = retry
        return chosen

    def add(self, search: RunningSearch, key: str | None, digest: bytes, retry: int | None) -> Callable[[], None]:
        """Make a search joinable, and return the function that removes it again."""
        owner = search.client.owner
        if key is not None:
            self._by_key[owner, key] = entry = (digest, search)

            def give_up() -> None:
                # else another search has the key since this one was cancelled
                if self._by_key.get((owner, key)) is entry:
                    del self._by_key[owner, key]

            return give_up
        if retry is None:
            return lambda: None
        search.retries = retry
        line = self._by_body.setdefault((owner, digest), [])
        line.append(search)

        def forget() -> None:
            line.remove(search)
            if not line:
                self._by_body.pop((owner, digest), None)

        return forget
