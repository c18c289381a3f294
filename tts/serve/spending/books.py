"""What the workers of a gateway share, kept in SQLite.

The books have spends by account, key and period, requests under way, and counts. A transaction of SQLite is the one
owner of an account. Another process as the owner would be one more part that can die, and its state would have to be
written anyway. Amounts are whole numbers of any size, as JSON, and are added in Python.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sqlite3
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from tts.budget.ledger import Amounts
from tts.errors import ConfigError
from tts.serve.archive import share_file
from tts.serve.failures import ApiError
from tts.serve.spending.accounts import SharedAccount, format_amount, to_budget_unit

DEAD_S: Final = 30.0  # seconds without a sign of life, after which what a worker held counts as spent
LOOK_S: Final = 0.1  # between two looks at what other workers do
_WAIT_S = 30.0  # for other processes
_GOES_ON, _SHALL_END, _IS_OVER = range(3)  # phases of a request
_GONE = ""  # the name under which the counts of all ended workers are kept
_TABLES = (
    "CREATE TABLE IF NOT EXISTS spends (account TEXT, client TEXT, begins REAL, amounts TEXT, PRIMARY KEY (account, "
    "client, begins))",
    "CREATE TABLE IF NOT EXISTS requests (name TEXT PRIMARY KEY, worker TEXT, owner TEXT, client TEXT, account TEXT, "
    "hours REAL, "
    "amounts TEXT, about TEXT, phase INTEGER)",
    "CREATE INDEX IF NOT EXISTS requests_by_account ON requests (account)",
    "CREATE TABLE IF NOT EXISTS processes (worker TEXT PRIMARY KEY, seen_at REAL, counts TEXT, gauges TEXT)",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestEntry:
    """A request under way, as all workers see it.

    Args:
        name: The number of its search, which cannot be guessed.
        owner: The owner of its client.
        client: The name of its client.
        account: The account that pays for it.
        about: What other workers show of it; empty: it is not shown.
    """

    name: str
    owner: str
    client: str
    account: SharedAccount
    about: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Part:
    """The amounts that an account holds for one request, or that the request waits for.

    Args:
        books: The books.
        entry: The request.
        amounts: The limits of the request, in whole units. Those that its account limits too are taken from it.

    Attributes:
        is_held: Whether the amounts are held.
    """

    def __init__(self, books: SharedBooks, entry: RequestEntry, amounts: Amounts) -> None:
        self._books, self.entry, self.amounts = books, entry, amounts
        self.is_held = False

    async def wait(self) -> None:
        """Wait until the amounts are held.

        Requests of an account get their amounts in the order in which the requests came.

        Raises:
            ApiError: 429, others have spent them meanwhile.
        """
        await self._books.wait_for(self)

    def close(self, spent: Amounts) -> None:
        """Free what is held, and book what the request has spent; once.

        Args:
            spent: The amounts in whole units, limited or not.
        """
        self._books.settle(self, spent)


class SharedBooks:
    """The books of a gateway.

    The books have what was spent, what requests hold, which requests are under way, and what workers have counted. The
    spent and held amounts of an account never exceed its limits. Amounts that are held by a worker without a sign of
    life count as spent.

    Args:
        now: The clock, in seconds since the epoch.
        path: The file that workers share; None: the books are kept in memory.
        worker: The name of this worker; None: it is drawn.

    Attributes:
        held: The tokens that requests of this process hold, by account.

    Raises:
        ConfigError: The file cannot be opened.
    """

    def __init__(self, now: Callable[[], float], path: str | None = None, worker: str | None = None) -> None:
        self._now = now
        self.is_shared = path is not None
        self._worker = worker or secrets.token_hex(8)
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._last_counts: Mapping[str, float] = {}
        self._buried: Mapping[str, float] = {}  # counts of this worker that another keeps, which took it for dead
        self.held: Counter[str] = Counter()
        try:
            self._file = sqlite3.connect(
                path or ":memory:", timeout=_WAIT_S, isolation_level=None, check_same_thread=False
            )
            share_file(self._file)
            for statement in _TABLES:
                self._file.execute(statement)
            self.show_life({}, {})
        except sqlite3.Error as failure:
            raise ConfigError(
                f"store is {path!r}, but it cannot be opened: {failure}", hint="name another file"
            ) from None

    # Workers ----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Take leave of the other workers, and close the file."""
        self.bury(self._worker)
        self._file.close()

    def show_life(self, counts: Mapping[str, float], gauges: Mapping[str, float]) -> None:
        """Write that this worker lives and what it has counted, and bury dead workers.

        Args:
            counts: The numbers that this worker has counted since it began, by name.
            gauges: Numbers that describe the present moment, by name.
        """
        now = self._now()
        with self._transaction():
            if self._file.execute("SELECT 1 FROM processes WHERE worker = ?", (self._worker,)).fetchone() is None:
                self._buried = self._last_counts
            own = {name: count - self._buried.get(name, 0) for name, count in counts.items()}
            self._put_process(self._worker, own, gauges)
            for (worker,) in self._file.execute(
                "SELECT worker FROM processes WHERE seen_at < ?", (now - DEAD_S,)
            ).fetchall():
                if worker != _GONE:
                    self._bury(worker)
        self._last_counts = dict(counts)

    def bury(self, worker: str) -> None:
        """Book as spent what an ended worker held, and keep its counts."""
        with self._transaction():
            self._bury(worker)

    def _bury(self, worker: str) -> None:
        query = "SELECT account, client, hours, amounts FROM requests WHERE worker = ? AND amounts IS NOT NULL"
        for account, client, hours, amounts in self._file.execute(query, (worker,)).fetchall():
            self._book(SharedAccount(account, {}, hours), client, json.loads(amounts))
        self._file.execute("DELETE FROM requests WHERE worker = ?", (worker,))
        counts = self._sum("SELECT counts FROM processes WHERE worker IN (?, ?)", worker, _GONE)
        self._file.execute("DELETE FROM processes WHERE worker = ?", (worker,))
        self._put_process(_GONE, counts, {})

    def _put_process(self, worker: str, counts: Mapping[str, float], gauges: Mapping[str, float]) -> None:
        row = (worker, self._now(), json.dumps(counts), json.dumps(gauges))
        self._file.execute("INSERT OR REPLACE INTO processes VALUES (?, ?, ?, ?)", row)

    def counts(self) -> dict[str, float]:
        """Return the sums of the counts of all workers, ended ones included."""
        return self._sum("SELECT counts FROM processes")

    def gauges(self) -> dict[str, float]:
        """Return the sums of all workers' gauges."""
        return self._sum("SELECT gauges FROM processes")

    # Requests under way -----------------------------------------------------------------------------------------------

    def under_way(self, owner: str) -> list[RequestEntry]:
        """Return the requests of a client that other workers work on, the newest first."""
        return self._entries("owner = ? AND worker != ? AND about != '{}' ORDER BY rowid DESC", owner, self._worker)

    def find(self, owner: str, name: str) -> RequestEntry | None:
        """Return a client's request that another worker works on; None where there is none."""
        if not self.is_shared:
            return None
        entries = self._entries(
            "owner = ? AND worker != ? AND about != '{}' AND name = ? AND phase != ?",
            owner,
            self._worker,
            name,
            _IS_OVER,
        )
        return entries[0] if entries else None

    def is_being_written(self, owner: str, name: str) -> bool:
        """Return whether a client's request is over, but another worker still writes it into the archive."""
        query = "SELECT 1 FROM requests WHERE owner = ? AND name = ? AND worker != ? AND phase = ?"
        return (
            self.is_shared and self._file.execute(query, (owner, name, self._worker, _IS_OVER)).fetchone() is not None
        )

    def _entries(self, condition: str, *values: str | int) -> list[RequestEntry]:
        rows = self._file.execute(f"SELECT name, owner, client, account, about FROM requests WHERE {condition}", values)
        return [
            RequestEntry(
                name=name, owner=owner, client=client, account=SharedAccount(account, {}), about=json.loads(about)
            )
            for name, owner, client, account, about in rows
        ]

    def ask_end(self, owner: str, name: str) -> None:
        """Ask the worker of a client's request to end it."""
        self._file.execute(
            "UPDATE requests SET phase = ? WHERE owner = ? AND name = ? AND phase = ?",
            (_SHALL_END, owner, name, _GOES_ON),
        )

    def to_end(self) -> list[str]:
        """Return the names of this worker's requests that another worker asks to end."""
        query = "SELECT name FROM requests WHERE worker = ? AND phase = ?"
        return [name for (name,) in self._file.execute(query, (self._worker, _SHALL_END))]

    def forget(self, name: str) -> None:
        """Drop a request that is over; where no other worker sees it, `settle` has done so."""
        if self.is_shared:
            self._file.execute("DELETE FROM requests WHERE name = ?", (name,))

    # Accounts ---------------------------------------------------------------------------------------------------------

    def spending(self, account: SharedAccount) -> dict[str, int]:
        """Return what was spent of an account in this period, in whole units, by unit."""
        query = "SELECT amounts FROM spends WHERE account = ? AND begins >= ?"
        return self._sum(query, account.name, account.begin_of_period(self._now()))

    def held_of(self, account: SharedAccount) -> dict[str, int]:
        """Return what the requests of all workers hold of an account, in whole units, by unit."""
        return self._sum("SELECT amounts FROM requests WHERE account = ? AND amounts IS NOT NULL", account.name)

    def remainder(self, account: SharedAccount) -> dict[str, int]:
        """Return what is neither spent nor held of each limit of an account, in whole units."""
        spent, held = self.spending(account), self.held_of(account)
        return {unit: max(0, limit - spent.get(unit, 0) - held.get(unit, 0)) for unit, limit in account.limits.items()}

    def history(self, account: SharedAccount, client: str | None = None) -> list[tuple[str, float, dict[str, int]]]:
        """Return what was spent of an account, the newest period first.

        Each item is client, begin of the period and amounts in whole units.

        Args:
            account: The account.
            client: The only client whose spends are returned; None: the spends of all clients.
        """
        query = "SELECT client, begins, amounts FROM spends WHERE account = ? ORDER BY begins DESC, client"
        rows = self._file.execute(query, (account.name,)).fetchall()
        return [(name, begins, json.loads(amounts)) for name, begins, amounts in rows if client in (None, name)]

    def _sum(self, query: str, *values: object) -> dict[str, Any]:
        """Return the sums of numbers by name, which the rows of a query have as JSON."""
        total: Counter[str] = Counter()
        for (numbers,) in self._file.execute(query, values):
            total.update(json.loads(numbers))
        return dict(total)

    def reserve(self, entry: RequestEntry, limits: Amounts) -> Part:
        """Hold a request's limits at once; where others hold what it needs, it must wait (see `Part.wait`).

        Args:
            entry: The request.
            limits: All its limits, in whole units.

        Raises:
            ApiError: 429, a limit is more than the account has not spent.
        """
        part = Part(self, entry, limits)
        with self._transaction():
            self._refuse_if_spent(part)
            if entry.account.name in self._waiting or not self._hold(part):
                self._put_request(entry, None)
        return part

    def busy(self, account: SharedAccount) -> ApiError:
        """Return the refusal of a request that cannot wait for what others hold."""
        limits = ", ".join(format_amount(unit, amount) for unit, amount in account.limits.items())
        cause = f"other requests hold what is left of {account.label}, {limits}; try again in a moment"
        return ApiError(429, cause, kind="rate_limit_error", param="tts.budget", code="tokens_held", retry_s=1.0)

    async def wait_for(self, part: Part) -> None:
        """Wait until the amounts are held; see `Part.wait`."""
        if part.is_held:
            return
        name = part.entry.account.name
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line = self._waiting.setdefault(name, deque())
        line.append(turn)
        try:
            while line[0] is not turn or not self._try(part):
                await asyncio.wait([turn], timeout=LOOK_S if self.is_shared and line[0] is turn else None)
                if turn.done():
                    line[line.index(turn)] = turn = asyncio.get_running_loop().create_future()
        finally:
            line.remove(turn)
            if not line:
                del self._waiting[name]
            self._wake(name)

    def settle(self, part: Part, spent: Amounts) -> None:
        """Free what is held for a request that is over, and book what it has spent.

        Until `forget`, other workers know that the request is still written into the archive.
        """
        entry, was_held = part.entry, part.is_held
        part.is_held = False
        with self._transaction():
            # `_free` is False if this worker was taken for dead; then all that was held is booked already
            if self._free(entry.name, was_held=was_held):
                self._book(entry.account, entry.client, {unit: amount for unit, amount in spent.items() if amount})
        if was_held:
            self.held[entry.account.name] -= part.amounts.get("tokens", 0)
            self.held += Counter()  # drops names that hold nothing
        self._wake(entry.account.name)

    def _free(self, name: str, *, was_held: bool) -> bool:
        """Free the amounts of a request; return whether the books still had them."""
        if self.is_shared:
            query = "SELECT 1 FROM requests WHERE name = ? AND worker = ? AND amounts IS NOT NULL"
            is_held = self._file.execute(query, (name, self._worker)).fetchone() is not None
            self._file.execute("UPDATE requests SET amounts = NULL, phase = ? WHERE name = ?", (_IS_OVER, name))
            return is_held
        self._file.execute("DELETE FROM requests WHERE name = ?", (name,))
        return was_held

    def _try(self, part: Part) -> bool:
        with self._transaction():
            self._refuse_if_spent(part)
            return self._hold(part)

    def _hold(self, part: Part) -> bool:
        """Hold the amounts if they are free; return whether they are held."""
        account = part.entry.account
        remainder = self.remainder(account) if account.limits else {}
        if any(part.amounts.get(unit, 0) > amount for unit, amount in remainder.items()):
            return False
        self._put_request(part.entry, json.dumps(part.amounts))
        part.is_held = True
        self.held[account.name] += part.amounts.get("tokens", 0)
        return True

    def _put_request(self, entry: RequestEntry, amounts: str | None) -> None:
        account = entry.account
        row = (
            entry.name,
            self._worker,
            entry.owner,
            entry.client,
            account.name,
            account.hours,
            amounts,
            json.dumps(entry.about),
            _GOES_ON,
        )
        self._file.execute("INSERT OR REPLACE INTO requests VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

    def _refuse_if_spent(self, part: Part) -> None:
        account = part.entry.account
        spent = self.spending(account) if account.limits else {}
        for unit, limit in account.limits.items():
            amount, rest = part.amounts.get(unit, 0), max(0, limit - spent.get(unit, 0))
            if amount > rest:
                end = account.end_of_period(self._now())
                later = "" if end is None else f", or wait {end - self._now():.0f} seconds"
                raise ApiError(
                    429,
                    f"the budget is {format_amount(unit, amount)}, but of {account.label}, "
                    f"{to_budget_unit(unit, limit):.12g}, "
                    f"{to_budget_unit(unit, rest):.12g} are left to this key; ask for less{later}",
                    kind="insufficient_quota",
                    param=f"tts.budget.{unit}",
                    code="insufficient_quota",
                )

    def _book(self, account: SharedAccount, client: str, amounts: Amounts) -> None:
        key = (account.name, client, account.begin_of_period(self._now()))
        row = self._file.execute(
            "SELECT amounts FROM spends WHERE account = ? AND client = ? AND begins = ?", key
        ).fetchone()
        total = Counter({} if row is None else json.loads(row[0]))
        total.update(amounts)
        self._file.execute("INSERT OR REPLACE INTO spends VALUES (?, ?, ?, ?)", (*key, json.dumps(total)))

    def _wake(self, account: str) -> None:
        if (line := self._waiting.get(account)) and not line[0].done():
            line[0].set_result(None)

    @contextmanager
    def _transaction(self) -> Generator[None]:
        if not self.is_shared:  # nobody else reads what is half done
            yield
            return
        with self._file:
            self._file.execute("BEGIN IMMEDIATE")
            yield
