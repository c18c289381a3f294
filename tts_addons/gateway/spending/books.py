"""The books that the workers of a gateway share, kept in SQLite.

The books have spends by account, key and period, requests under way, and counts. Transactions of SQLite guard the
accounts. A process of its own for them could die, and would have to write its state anyway. Amounts are whole numbers
of any size, as JSON, and are added in Python.
"""

from __future__ import annotations

import asyncio
import json
import math
import secrets
import sqlite3
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from tts.budget.ledger import Amounts
from tts.budget.units import format_plain
from tts_addons.gateway.archive import open_store, share_file
from tts_addons.gateway.failures import ApiError
from tts_addons.gateway.spending.accounts import SharedAccount, format_amount, to_budget_unit

DEAD_S: Final = 30.0  # seconds without a sign of life, after which a worker's held amounts count as spent
LOOK_S: Final = 0.1  # seconds between two tries to hold amounts, which other workers may have freed
_GOES_ON, _SHALL_END, _IS_OVER = range(3)  # phases of a request
_ENDED = ""  # the name under which the counts of all ended workers are kept
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
        about: The description that other workers show; empty: they do not show the request.
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
        amounts: The limits of the request in whole units, by unit. Units that the account does not limit are free.

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
            ApiError: 429, other requests have spent the amounts meanwhile.
        """
        await self._books.wait_for(self)

    def close(self, spent: Amounts) -> None:
        """Free the held amounts, and book the spent ones; to be called once.

        Args:
            spent: The spent amounts in whole units, also of units without a limit.
        """
        self._books.settle(self, spent)


class SharedBooks:
    """The books of a gateway.

    The books have spent amounts, amounts that requests hold, requests under way, and counts of the workers. The spent
    and held amounts of an account together never exceed its limits. Amounts of a worker without a sign of life count as
    spent.

    Args:
        now: The clock, in seconds since the epoch.
        path: The file that workers share; None: the books are kept in memory.
        worker: The name of this worker; None: a random name.

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
        # counts of this worker that another worker, which took it for dead, has added to those of ended workers
        self._buried: Mapping[str, float] = {}
        self.held: Counter[str] = Counter()
        self._file = open_store(path, self._prepare)

    def _prepare(self, file: sqlite3.Connection) -> None:
        """Make the tables of a file, and enter this worker."""
        self._file = file
        share_file(file)
        for statement in _TABLES:
            file.execute(statement)
        self.show_life({}, {})

    # Workers ----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Enter this worker as ended, and close the file."""
        with closing(self._file):
            self.bury(self._worker)

    def show_life(self, counts: Mapping[str, float], gauges: Mapping[str, float]) -> None:
        """Write a sign of life and the counts of this worker, and enter dead workers as ended.

        Args:
            counts: The numbers that this worker has counted since it began, by name.
            gauges: Numbers that describe the present moment, by name.
        """
        now = self._now()
        with self._transaction():
            query = "SELECT 1 FROM processes WHERE worker = ?"
            is_entered = self._file.execute(query, (self._worker,)).fetchone() is not None
            if not is_entered:  # this is the first sign of life, or another worker took this one for dead
                self._buried = self._last_counts
            unburied_counts = {name: count - self._buried.get(name, 0) for name, count in counts.items()}
            self._put_process(self._worker, unburied_counts, gauges)
            query = "SELECT worker FROM processes WHERE seen_at < ?"
            for (worker,) in self._file.execute(query, (now - DEAD_S,)).fetchall():
                if worker != _ENDED:
                    self._bury(worker)
        self._last_counts = dict(counts)

    def bury(self, worker: str) -> None:
        """Book the held amounts of an ended worker as spent, and keep its counts."""
        with self._transaction():
            self._bury(worker)

    def _bury(self, worker: str) -> None:
        """Do the work of `bury` inside of a transaction that was begun."""
        query = "SELECT account, client, hours, amounts FROM requests WHERE worker = ? AND amounts IS NOT NULL"
        for account, client, hours, amounts in self._file.execute(query, (worker,)).fetchall():
            self._book(SharedAccount(account, {}, hours), client, json.loads(amounts))
        self._file.execute("DELETE FROM requests WHERE worker = ?", (worker,))
        counts = self._sum("SELECT counts FROM processes WHERE worker IN (?, ?)", worker, _ENDED)
        self._file.execute("DELETE FROM processes WHERE worker = ?", (worker,))
        self._put_process(_ENDED, counts, {})

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
        return self._file.execute(query, (owner, name, self._worker, _IS_OVER)).fetchone() is not None

    def _entries(self, condition: str, *values: str | int) -> list[RequestEntry]:
        """Return the requests that satisfy a condition of SQL; `values` are its parameters."""
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
        """Drop a request that is over."""
        self._file.execute("DELETE FROM requests WHERE name = ?", (name,))

    # Accounts ---------------------------------------------------------------------------------------------------------

    def spending(self, account: SharedAccount) -> dict[str, int]:
        """Return the spent amounts of an account in this period, in whole units, by unit."""
        query = "SELECT amounts FROM spends WHERE account = ? AND begins >= ?"
        return self._sum(query, account.name, account.begin_of_period(self._now()))

    def held_of(self, account: SharedAccount) -> dict[str, int]:
        """Return the amounts of an account that requests of all workers hold, in whole units, by unit."""
        return self._sum("SELECT amounts FROM requests WHERE account = ? AND amounts IS NOT NULL", account.name)

    def remainder(self, account: SharedAccount) -> dict[str, int]:
        """Return the limits of an account less spent and held amounts, in whole units, by unit."""
        spent, held = self.spending(account), self.held_of(account)
        return {unit: max(0, limit - spent.get(unit, 0) - held.get(unit, 0)) for unit, limit in account.limits.items()}

    def history(self, account: SharedAccount, client: str | None = None) -> list[tuple[str, float, dict[str, int]]]:
        """Return the spends of an account, the newest period first.

        A spend has the client, the begin of the period, and the amounts in whole units.

        Args:
            account: The account.
            client: The only client whose spends are returned; None: the spends of all clients.
        """
        query = "SELECT client, begins, amounts FROM spends WHERE account = ? ORDER BY begins DESC, client"
        rows = self._file.execute(query, (account.name,)).fetchall()
        return [(name, begins, json.loads(amounts)) for name, begins, amounts in rows if client in (None, name)]

    def _sum(self, query: str, *values: object) -> dict[str, Any]:
        """Return the sums of a query's rows by name, where each row is a JSON object of numbers."""
        total: Counter[str] = Counter()
        for (numbers_json,) in self._file.execute(query, values):
            total.update(json.loads(numbers_json))
        return dict(total)

    def reserve(self, entry: RequestEntry, limits: Amounts) -> Part:
        """Return the part of a request, and hold its amounts if they are free.

        If they are not free, the request must wait (see `Part.wait`).

        Args:
            entry: The request.
            limits: All limits of the request, in whole units.

        Raises:
            ApiError: 429, a limit is above the unspent amount of the account.
        """
        part = Part(self, entry, limits)
        with self._transaction():
            self._refuse_if_spent(part)
            if entry.account.name in self._waiting or not self._hold(part):
                self._put_request(entry, None)
        return part

    def busy(self, account: SharedAccount) -> ApiError:
        """Return the refusal of a request that cannot wait for amounts of other requests."""
        limits = ", ".join(format_amount(unit, amount) for unit, amount in account.limits.items())
        cause = f"other requests hold what is left of {account.label}, {limits}; try again in a moment"
        return ApiError(429, cause, kind="rate_limit_error", param="tts.budget", code="tokens_held", retry_s=1.0)

    async def wait_for(self, part: Part) -> None:
        """Wait until the amounts are held; see `Part.wait`."""
        if part.is_held:
            return
        name = part.entry.account.name
        loop = asyncio.get_running_loop()
        signal: asyncio.Future[None] = loop.create_future()  # done when the part may try again
        queue = self._waiting.setdefault(name, deque())
        queue.append(signal)
        try:
            while queue[0] is not signal or not self._try(part):
                # no signal comes when another worker frees amounts, so the first in the queue looks from time to time
                is_polling = self.is_shared and queue[0] is signal
                await asyncio.wait([signal], timeout=LOOK_S if is_polling else None)
                if signal.done():
                    place = queue.index(signal)
                    signal = loop.create_future()
                    queue[place] = signal
        finally:
            queue.remove(signal)
            if not queue:
                del self._waiting[name]
            self._wake(name)

    def settle(self, part: Part, spent: Amounts) -> None:
        """Free the held amounts of a request that is over, and book the spent ones.

        Until `forget`, other workers see the request as over, but not yet written into the archive.

        Args:
            part: The part of the request.
            spent: The spent amounts, in whole units.
        """
        entry, was_held = part.entry, part.is_held
        part.is_held = False
        with self._transaction():
            # `_free` returns False if this worker was taken for dead; then all held amounts are booked already
            if self._free(entry.name):
                self._book(entry.account, entry.client, {unit: amount for unit, amount in spent.items() if amount})
        if was_held:
            self.held[entry.account.name] -= part.amounts.get("tokens", 0)
            self.held += Counter()  # drops names with the count 0
        self._wake(entry.account.name)

    def _free(self, name: str) -> bool:
        """Free the amounts of a request, and return whether the books still had them as held."""
        query = "SELECT 1 FROM requests WHERE name = ? AND worker = ? AND amounts IS NOT NULL"
        is_held = self._file.execute(query, (name, self._worker)).fetchone() is not None
        self._file.execute("UPDATE requests SET amounts = NULL, phase = ? WHERE name = ?", (_IS_OVER, name))
        return is_held

    def _try(self, part: Part) -> bool:
        """Hold the amounts of a waiting part if they are free, and return whether they are held."""
        with self._transaction():
            self._refuse_if_spent(part)
            return self._hold(part)

    def _hold(self, part: Part) -> bool:
        """Hold the amounts if they are free, in a transaction that was begun, and return whether they are held."""
        account = part.entry.account
        remainder = self.remainder(account) if account.limits else {}
        if any(part.amounts.get(unit, 0) > amount for unit, amount in remainder.items()):
            return False
        self._put_request(part.entry, json.dumps(part.amounts))
        part.is_held = True
        self.held[account.name] += part.amounts.get("tokens", 0)
        return True

    def _put_request(self, entry: RequestEntry, amounts: str | None) -> None:
        """Write a request under way, with its held amounts as JSON; None: nothing is held yet."""
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
        """Refuse a part that is larger than the unspent amounts of its account.

        Raises:
            ApiError: 429, a limit is above the unspent amount.
        """
        account = part.entry.account
        spent = self.spending(account) if account.limits else {}
        for unit, limit in account.limits.items():
            amount, unspent = part.amounts.get(unit, 0), max(0, limit - spent.get(unit, 0))
            if amount > unspent:
                end_of_period = account.end_of_period(self._now())
                # a request above the whole limit would be refused in the next period too
                retry_s = None if end_of_period is None or amount > limit else end_of_period - self._now()
                later = "" if retry_s is None else f", or wait {math.ceil(retry_s)} seconds"
                raise ApiError(
                    429,
                    f"the budget is {format_amount(unit, amount)}, but of {account.label}, "
                    f"{format_plain(to_budget_unit(unit, limit), 12)}, "
                    f"{format_plain(to_budget_unit(unit, unspent), 12)} are left to this key; ask for less{later}",
                    kind="insufficient_quota",
                    param=f"tts.budget.{unit}",
                    code="insufficient_quota",
                    retry_s=retry_s,
                )

    def _book(self, account: SharedAccount, client: str, amounts: Amounts) -> None:
        """Add amounts to the spends of a client in the account's current period."""
        key = (account.name, client, account.begin_of_period(self._now()))
        row = self._file.execute(
            "SELECT amounts FROM spends WHERE account = ? AND client = ? AND begins = ?", key
        ).fetchone()
        total = Counter({} if row is None else json.loads(row[0]))
        total.update(amounts)
        self._file.execute("INSERT OR REPLACE INTO spends VALUES (?, ?, ?, ?)", (*key, json.dumps(total)))

    def _wake(self, account: str) -> None:
        queue = self._waiting.get(account)
        if queue and not queue[0].done():
            queue[0].set_result(None)

    @contextmanager
    def _transaction(self) -> Generator[None]:
        with self._file:
            self._file.execute("BEGIN IMMEDIATE")
            yield
