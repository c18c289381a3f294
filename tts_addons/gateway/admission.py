"""Which search runs next."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from tts_addons.gateway.config import GatewayLimits
from tts_addons.gateway.failures import ApiError


class Admission:
    """At most `limits.searches` at once; a queue behind them that is fair between clients.

    A free place goes to the waiting client with the fewest running searches. Among equals, the client that was served
    longest ago is next. A client with 200 requests therefore does not delay a client with one.

    Args:
        clock: The clock, in seconds.
    """

    def __init__(self, limits: GatewayLimits, clock: Callable[[], float]) -> None:
        self._limits, self._clock = limits, clock
        # the queue of each client; the client that was served longest ago comes first
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self.running: Counter[str] = Counter()
        self._typical_s = 1.0  # seconds of a search, as a moving mean

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return sum(map(len, self._waiting.values()))

    def count_by_client(self) -> Counter[str]:
        """Return the requests that have a place or wait for one, by client."""
        return self.running + Counter({client: len(line) for client, line in self._waiting.items()})

    def refuse_if_full(self, searches: int, own: int) -> None:
        """Refuse a request where the queue is full.

        For a client without a search the queue has twice as many places.

        Args:
            searches: The number of searches that run or wait.
            own: The number of the client's own searches among them.

        Raises:
            ApiError: 429, with the time after which there may be room.
        """
        num_waiting, limit = searches - self._limits.searches, self._limits.queue
        if num_waiting >= (limit if own else 2 * limit):
            wait_s = min(60.0, max(1.0, self._typical_s * (num_waiting + 1) / self._limits.searches))
            raise ApiError(
                429,
                f"{num_waiting} requests wait already, and limits.queue is {limit}; try again later",
                kind="rate_limit_error",
                code="queue_full",
                retry_s=wait_s,
            )

    @asynccontextmanager
    async def place(self, client: str) -> AsyncGenerator[None]:
        """Wait for a place, and hold it for the block."""
        await self._enter(client)
        begun_s = self._clock()
        try:
            yield
        finally:
            search_s = self._clock() - begun_s
            self._typical_s += 0.1 * (search_s - self._typical_s)  # a moving mean
            self._leave(client)

    async def _enter(self, client: str) -> None:
        """Wait for a place."""
        if self.running.total() < self._limits.searches and not self._waiting:
            self.running[client] += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the place was given at the same moment
                self._leave(client)
            else:
                self._forget(client, turn)
            raise

    def _leave(self, client: str) -> None:
        """Free a place, and give free places to the waiting clients with the fewest searches."""
        self.running[client] -= 1
        if not self.running[client]:
            del self.running[client]
        while self._waiting and self.running.total() < self._limits.searches:
            next_client = min(self._waiting, key=lambda name: self.running[name])
            turn = self._waiting[next_client].popleft()
            if self._waiting[next_client]:
                self._waiting.move_to_end(next_client)
            else:
                del self._waiting[next_client]
            if not turn.done():
                self.running[next_client] += 1
                turn.set_result(None)

    def _forget(self, client: str, turn: asyncio.Future[None]) -> None:
        if turn in (line := self._waiting.get(client, ())):
            line.remove(turn)  # pyright: ignore[reportAttributeAccessIssue]
            if not line:
                del self._waiting[client]
