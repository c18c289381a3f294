"""What each client may still spend: totals of a period in SQLite, which all workers share and a restart does not forget.

A transaction of SQLite is the one owner of a total. Another process as the owner would be one more part that can die, and its state
would have to be written anyway.
"""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from collections import Counter, deque
from collections.abc import Callable

from tts.errors import ConfigError
from tts.serve.config import GatewayLimits
from tts.serve.failures import ApiError

DEAD_S = 30.0  # seconds without a sign of life, after which what a worker held counts as spent
_LOOK_S = 0.1  # between two looks at what other workers hold
_WAIT_S = 30.0  # for other processes
_TABLES = (
    "CREATE TABLE IF NOT EXISTS spent (client TEXT PRIMARY KEY, period INTEGER NOT NULL, tokens INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS holds (number INTEGER PRIMARY KEY, worker TEXT NOT NULL, client TEXT NOT NULL, period INTEGER NOT NULL, "
    "tokens INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS workers (worker TEXT PRIMARY KEY, seen_at REAL NOT NULL)",
)


class Hold:
    """Tokens of a client that are held for one request, or wait until others free theirs.

    Args:
        books: The books.
        client: The name of the client.
        tokens: The number of tokens.

    Attributes:
        number: The name of the row that holds them; None: they are not held.
    """

    def __init__(self, books: ClientBooks, client: str, tokens: int) -> None:
        self._books, self.client, self.tokens = books, client, tokens
        self.number: int | None = None

    async def wait(self) -> None:
        """Wait until the tokens are held. Requests of a client get theirs in the order in which they came.

        Raises:
            ApiError: 429, others have spent them meanwhile.
        """
        await self._books.wait_for(self)

    def settle(self, spent: int) -> None:
        """Free what was held, and book what was spent of it."""
        self._books.settle(self, spent)


class ClientBooks:
    """Tokens that each client has spent in the current period, and tokens that are held for its requests under way.

    Spent and held tokens of a client never exceed `limits.client_tokens` together. Periods begin at multiples of their length since the
    epoch. What a worker held that gives no sign of life counts as spent.

    Args:
        limits: The operator's limits.
        now: The clock, in seconds since the epoch.
        path: The file that workers share; None: totals are kept in memory.

    Attributes:
        held: The tokens that this process holds, by client.

    Raises:
        ConfigError: The file cannot be opened.
    """

    def __init__(self, limits: GatewayLimits, now: Callable[[], float], path: str | None = None) -> None:
        self._most, self._period_s, self._now = limits.client_tokens, limits.client_hours * 3600, now
        self._is_shared = path is not None and self._most is not None  # without a limit nobody reads the totals
        self._worker = secrets.token_hex(8)
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self.held: Counter[str] = Counter()
        try:
            self._file = sqlite3.connect(
                path if self._is_shared and path else ":memory:", timeout=_WAIT_S, isolation_level=None, check_same_thread=False
            )
            for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = NORMAL", *_TABLES):
                self._file.execute(statement)
            self.show_life()
        except sqlite3.Error as failure:
            raise ConfigError(f"store is {path!r}, but it cannot be opened: {failure}", hint="name another file") from None

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def show_life(self) -> None:
        """Write that this worker lives, and book as spent what others held that no longer do."""
        now = self._now()
        with self._file:
            self._file.execute("BEGIN IMMEDIATE")
            self._file.execute("INSERT OR REPLACE INTO workers VALUES (?, ?)", (self._worker, now))
            dead = "SELECT worker FROM workers WHERE seen_at < ?"
            lost = f"SELECT client, period, tokens FROM holds WHERE worker IN ({dead})"
            for client, period, tokens in self._file.execute(lost, (now - DEAD_S,)).fetchall():
                self._book(client, period, tokens)
            self._file.execute(f"DELETE FROM holds WHERE worker IN ({dead})", (now - DEAD_S,))
            self._file.execute("DELETE FROM workers WHERE seen_at < ?", (now - DEAD_S,))

    async def keep_alive(self) -> None:
        """Show life until cancelled, where other workers share the file."""
        while self._is_shared:
            await asyncio.sleep(DEAD_S / 6)
            self.show_life()

    def spent(self, client: str) -> int:
        """Return the tokens that a client has spent in this period."""
        query = "SELECT tokens FROM spent WHERE client = ? AND period = ?"
        row = self._file.execute(query, (client, self._period())).fetchone()
        return 0 if row is None else row[0]

    def reserve(self, client: str, tokens: int) -> Hold:
        """Hold a request's whole budget; where others hold what it needs, it must wait (see `Hold.wait`).

        Args:
            client: The name of the client.
            tokens: The budget.

        Raises:
            ApiError: 429, it is more than the client has not spent.
        """
        hold = Hold(self, client, tokens)
        if client in self._waiting:
            self._refuse_if_spent(hold)
        else:
            self._try(hold)
        return hold

    def busy(self) -> ApiError:
        """Return the refusal of a request that cannot wait for what others hold."""
        cause = f"other requests of this key hold what is left of limits.client_tokens, {self._most}; try again in a moment"
        return ApiError(429, cause, kind="rate_limit_error", param="tts.budget.tokens", code="tokens_held", retry_s=1.0)

    async def wait_for(self, hold: Hold) -> None:
        """Wait until the tokens are held; see `Hold.wait`."""
        if hold.number is not None:
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line = self._waiting.setdefault(hold.client, deque())
        line.append(turn)
        try:
            while line[0] is not turn or not self._try(hold):
                await asyncio.wait([turn], timeout=_LOOK_S if self._is_shared and line[0] is turn else None)
                if turn.done():
                    line[line.index(turn)] = turn = asyncio.get_running_loop().create_future()
        finally:
            line.remove(turn)
            if not line:
                del self._waiting[hold.client]
            self._wake(hold.client)

    def settle(self, hold: Hold, spent: int) -> None:
        """Free what was held for a request that is over, and book what it spent; nothing where nothing was held."""
        if hold.number is None:
            return
        with self._file:
            self._file.execute("BEGIN IMMEDIATE")
            freed = self._file.execute("DELETE FROM holds WHERE number = ? AND worker = ?", (hold.number, self._worker)).rowcount
            if freed:  # else this worker was taken for dead, and all of it is booked
                self._book(hold.client, self._period(), spent)
        self.held[hold.client] -= hold.tokens
        if not self.held[hold.client]:
            del self.held[hold.client]
        hold.number = None
        self._wake(hold.client)

    def _try(self, hold: Hold) -> bool:
        """Hold the tokens if they are free; return whether they are held.

        Raises:
            ApiError: 429, they are spent.
        """
        with self._file:
            self._file.execute("BEGIN IMMEDIATE")
            self._refuse_if_spent(hold)
            if self._most is not None:
                (held,) = self._file.execute("SELECT coalesce(sum(tokens), 0) FROM holds WHERE client = ?", (hold.client,)).fetchone()
                if self.spent(hold.client) + held + hold.tokens > self._most:
                    return False
            row = (self._worker, hold.client, self._period(), hold.tokens)
            hold.number = self._file.execute("INSERT INTO holds (worker, client, period, tokens) VALUES (?, ?, ?, ?)", row).lastrowid
        self.held[hold.client] += hold.tokens
        return True

    def _refuse_if_spent(self, hold: Hold) -> None:
        left = None if self._most is None else max(0, self._most - self.spent(hold.client))
        if left is not None and hold.tokens > left:
            again_s = self._period_s - self._now() % self._period_s
            raise ApiError(
                429,
                f"the budget is {hold.tokens} tokens, but of limits.client_tokens, {self._most}, {left} are left to this key; ask for "
                f"less, or wait {again_s:.0f} seconds",
                kind="insufficient_quota", param="tts.budget.tokens", code="insufficient_quota",
            )  # fmt: skip

    def _book(self, client: str, period: int, tokens: int) -> None:
        self._file.execute(
            "INSERT INTO spent VALUES (?1, ?2, ?3) ON CONFLICT (client) DO UPDATE SET period = ?2, "
            "tokens = ?3 + CASE period WHEN ?2 THEN tokens ELSE 0 END WHERE period <= ?2",
            (client, period, tokens),
        )

    def _period(self) -> int:
        return int(self._now() // self._period_s)

    def _wake(self, client: str) -> None:
        if (line := self._waiting.get(client)) and not line[0].done():
            line[0].set_result(None)
