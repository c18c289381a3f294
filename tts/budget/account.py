"""Accounts: a budget is a tree of limits, and every call to a model or verifier is one lease.

    account = Account(Budget(tokens=2000))
    async with account.lease({"tokens": 300}, kind="expand", model="policy") as lease:
        ...                       # the call
        lease.spend(usage)        # what it cost

A lease reserves an upper bound in every limited unit, or raises `Exhausted`. Leaving its block adds a row to the ledger
and frees what was not spent, whatever happened in the block. Nothing else books. What is spent and held never passes a
limit.

A part takes its limits from its parent. A unit that it does not limit is the parent's own. Amounts are whole numbers
(dollars in 1e-15), so that rounding cannot carry a spend past a limit.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import NoReturn, Self

from tts.budget.budget import USD_UNIT, Budget, Rates, check_units, format_limits
from tts.budget.ledger import UNITS, Amounts, Books, Call, Ledger, price_usage
from tts.display import grid
from tts.errors import BudgetExceeded, ConfigError, HintsKeywords
from tts.renamed import refuse_old_members
from tts.types import Usage

_NUMBERS = itertools.count()  # of accounts, in the order in which they were made
_LOOKED_AT = 32  # waiting accounts that are looked at when an amount becomes free
_CLOSING_SHARE = 10  # at most this part of `seconds` is kept for what follows the search


class Exhausted(Exception):
    """A limit cannot pay a call.

    Attributes:
        unit: The unit of the limit.
    """

    def __init__(self, unit: str) -> None:
        super().__init__(unit)
        self.unit = unit


@refuse_old_members
class Account(HintsKeywords):
    """Limits that are never passed, and what was spent of them.

    An account may stand wherever a budget may: calls that share it share one total, also at the same time and from
    several threads.

    Args:
        budget: The limits; a number limits `tokens`.
        name: A name for messages.
        clock: The clock that `seconds` are read from, in seconds.
        started: The clock's reading from which `seconds` count. None: that of the first lease.
        noted: A function that gets each row of the ledger.
        books: A function from limits to the books of this account, such as a class in place of `Books`.

    Attributes:
        ledger: A row for each call that was paid from this account or from a part of it.
        shortened: The limits of a part that its parent could not pay: by unit, what was asked for and what it got.

    Raises:
        ConfigError: The budget is not valid.

    Example:
        >>> import tts
        >>> with tts.Account(tts.Budget(tokens=500, samples=20)) as account:
        ...     first = tts.solve("3 + 4 - 2", account, model="toy", strategy="best_of_n(n=4) | majority")
        ...     second = tts.solve("9 - 5 + 1", account, model="toy", strategy="best_of_n(n=4) | majority")
        >>> account.spent["samples"], account.left["samples"]
        (8, 12)
        >>> account.spent["tokens"] == first.usage.tokens + second.usage.tokens
        True
    """

    def __init__(
        self,
        budget: Budget | float,
        *,
        name: str = "",
        clock: Callable[[], float] = time.monotonic,
        started: float | None = None,
        noted: Callable[[Call], None] | None = None,
        books: Callable[[Amounts], Books] = Books,
    ) -> None:
        budget = Budget.of(budget)
        self._open(budget.whole_units(), budget.seconds, None, name, clock, started, noted, books)

    def _open(
        self,
        limits: Amounts,
        seconds: float | None,
        parent: Account | None,
        name: str,
        clock: Callable[[], float],
        started: float | None,
        noted: Callable[[Call], None] | None,
        books: Callable[[Amounts], Books],
    ) -> None:
        self.name = name
        self.ledger = Ledger(noted=noted)
        self.started = started
        self.shortened: dict[str, tuple[float, float]] = {}
        self._books = books(limits)
        self._parent = parent
        self._clock = clock
        self._seconds = seconds
        self._closing = 0.0
        self._is_closed = False
        self._is_search = False
        self._searches = 0  # open searches that are paid from here or from a part
        self._changes: dict[str, int] = dict.fromkeys(UNITS, 0)  # how often an amount was held or freed here
        self._changes_before: dict[str, int] = {}  # those of the accounts that limit this one, when it was opened
        self._is_contended = self._is_cut_by_time = False
        self._number = next(_NUMBERS)
        self._process = os.getpid()
        self._lock: threading.RLock = threading.RLock() if parent is None else parent._lock
        self._kept: dict[object, dict[str, int]] = {}
        # for what this account limits, oldest first
        self._waiting: dict[str, dict[_Waiter, None]] = {unit: {} for unit in limits}
        # what is held here by calls and keys of its own, not of parts
        self._direct: dict[str, int] = dict.fromkeys(UNITS, 0)
        self._holders: dict[str, set[Account]] = {unit: set() for unit in limits}  # accounts below with such amounts
        self._awake: dict[str, int] = dict.fromkeys(limits, 0)  # how many of these do not wait
        # how many waiting calls were woken and are about to try again
        self._woken: dict[str, int] = dict.fromkeys(limits, 0)
        self._asleep = 0  # calls of this account that wait
        self._chain: tuple[Account, ...] = (self, *(() if parent is None else parent._chain))
        self._payers = {unit: chain for unit in UNITS if (chain := self._payers_of(unit))}
        self.units = tuple(self._payers)
        levels = [
            (account, frozenset(unit for unit, payers in self._payers.items() if account in payers))
            for account in self._chain
        ]
        # where an amount is held, with its units
        self._levels = [(account, units) for account, units in levels if units]
        limited = [one for account in self._chain if (one := account._seconds) is not None]
        self._least_seconds = min(limited, default=None)
        # limited above
        self._shared = {unit: payers[-1] for unit, payers in self._payers.items() if payers[-1] is not self}
        self._changes_before = {unit: owner._changes[unit] for unit, owner in self._shared.items()}

    def _payers_of(self, unit: str) -> tuple[Account, ...]:
        """Return the accounts in which an amount is held.

        They are this one, and those above it up to the first that limits the unit.
        """
        for place, account in enumerate(self._chain):
            if unit in account._books.limits:
                return self._chain[: place + 1]
        return ()

    @property
    def is_closed(self) -> bool:
        """Whether this account, or one above it, is closed: it pays no call any more."""
        return any(account._is_closed for account in self._chain)

    # What is left -----------------------------------------------------------------------------------------------------

    @property
    def limits(self) -> dict[str, float]:
        """The limits by unit, in the units of `Budget`.

        A unit that this account does not limit has the limit of an account above.
        """
        found = {unit: _user_amount(unit, payers[-1]._books.limits[unit]) for unit, payers in self._payers.items()}
        seconds = [one for account in self._chain if (one := account._seconds) is not None]
        return found | ({"seconds": min(seconds)} if seconds else {})

    @property
    def spent(self) -> dict[str, float]:
        """What was spent from this account and its parts, by unit, limited or not, in the units of `Budget`."""
        return {unit: _user_amount(unit, amount) for unit, amount in self._books.spent.items()}

    @property
    def left(self) -> dict[str, float]:
        """What may still be reserved of each limited unit, in the units of `Budget`; `seconds` are at least 0."""
        found = {unit: _user_amount(unit, self.available(unit)) for unit in self._payers}
        return found | ({} if self.seconds_left is None else {"seconds": self.seconds_left})

    def available(self, unit: str) -> int:
        """Return what may still be reserved of a limited unit, in whole units."""
        return self._payers[unit][-1]._books.remainder(unit)

    def limit(self, unit: str) -> int:
        """Return the limit of a limited unit, in whole units."""
        return self._payers[unit][-1]._books.limits[unit]

    def spending(self, unit: str) -> int:
        """Return what was spent of a unit from this account and its parts, in whole units."""
        return self._books.spent[unit]

    def reservation(self, unit: str) -> int:
        """Return what is held of a unit for this account's own calls and parts, in whole units."""
        return self._books.held[unit]

    def remainder(self) -> dict[str, float]:
        """Return the unspent part of each limit, in the units of `Budget`.

        It includes what is held. The value of `seconds` is at least 0.
        """
        rest: dict[str, float] = {}
        for unit, payers in self._payers.items():
            books = payers[-1]._books
            rest[unit] = _user_amount(unit, books.limits[unit] - books.spent[unit])
        return rest | ({} if self.seconds_left is None else {"seconds": self.seconds_left})

    def all_available(self) -> dict[str, int]:
        """Return what may still be reserved of each limited unit, in whole units."""
        return {unit: payers[-1]._books.remainder(unit) for unit, payers in self._payers.items()}

    def fair_shares(self) -> dict[str, int]:
        """Return the amounts that one open search may take at once of the limits that several share.

        The amounts are in whole units.
        """
        owners = {unit: owner for unit, payers in self._payers.items() if (owner := payers[-1])._searches > 1}
        return {
            unit: max(0, one._books.limits[unit] - one._books.spent[unit]) // one._searches
            for unit, one in owners.items()
        }

    @property
    def is_contended(self) -> bool:
        """Whether other accounts shared this account's limits while it was open.

        The amounts that it could pay then depended on their timing.
        """
        return self._is_cut_by_time or self._is_contended or any(map(self._is_disturbed, self._shared))

    def _is_disturbed(self, unit: str) -> bool:
        """Whether others changed what is left of a limit above, since this part was opened."""
        return self._shared[unit]._changes[unit] - self._changes_before[unit] != self._changes[unit]

    @property
    def shortages(self) -> list[str]:
        """A line for each limit that an account above could not pay.

        Lines cover requests of this account and of those above it.
        """
        return [
            f"the part asked for {asked:,.12g} {unit}, and got the {got:,.12g} that were left"
            for account in self._chain
            for unit, (asked, got) in account.shortened.items()
        ]

    def short_of(self, amounts: Amounts) -> str | None:
        """Return the first limited unit that cannot pay its amount; None: all can."""
        for unit, amount in amounts.items():
            if unit in self._payers and amount > self.available(unit):
                return unit
        return None

    # Time -------------------------------------------------------------------------------------------------------------

    @property
    def deadline(self) -> float | None:
        """The clock's reading at which calls must have ended; None: time is not limited."""
        if self._least_seconds is None:
            return None
        own = (
            None if self._seconds is None else (self._clock() if self.started is None else self.started) + self._seconds
        )
        above = None if self._parent is None else self._parent.deadline
        known = [one for one in (own, above) if one is not None]
        return min(known) - self._closing if known else None

    @property
    def seconds_left(self) -> float | None:
        """The seconds until the deadline, at least 0; None: time is not limited."""
        deadline = self.deadline
        return None if deadline is None else max(0.0, deadline - self._clock())

    @property
    def elapsed(self) -> float:
        """The seconds since its `seconds` began to count."""
        return 0.0 if self.started is None else self._clock() - self.started

    def keep_for_closing(self, seconds: float) -> None:
        """Keep seconds for what follows the search: at most a tenth of the limit."""
        self._closing = 0.0 if self._least_seconds is None else min(seconds, self._least_seconds / _CLOSING_SHARE)

    def check_time(self) -> None:
        """Raise Exhausted where the deadline has passed."""
        if self._least_seconds is not None and self.seconds_left == 0:
            raise Exhausted("seconds")

    # Parts ------------------------------------------------------------------------------------------------------------

    def part(self, *, name: str = "", strict: bool = False, **limits: float) -> Account:
        """Return an account whose limits are taken from this one; `close` gives back what it has not spent.

        A unit that is not given stays limited by this account alone. Where less is left than asked for, the part gets
        what is left, and `shortened` says so.

        Args:
            name: A name for messages.
            strict: Whether a limit that this account cannot pay is an error.
            limits: The limits by unit, in the units of `Budget`.

        Raises:
            ConfigError: A limit is not valid, or cannot be paid where `strict` is set. The account is closed or of
                another process.
        """
        check_units(limits)
        budget = Budget(**limits) if limits else None  # pyright: ignore[reportArgumentType]
        seconds = None if budget is None else budget.seconds
        return self._divide({} if budget is None else budget.whole_units(), seconds=seconds, name=name, strict=strict)

    def reserve_part(self, amounts: Amounts, *, name: str = "", noted: Callable[[Call], None] | None = None) -> Account:
        """Return a part with limits in whole units, which may be 0."""
        return self._divide(amounts, name=name, noted=noted)

    def take_all(self) -> Account:
        """Return a part that has all that is left of every limit; a deadline stays the parent's."""
        self.check_usable()
        with self._lock:
            is_timed = self._is_timed(self._payers)
            part = self._divide({unit: max(0, self.available(unit)) for unit in self._payers})
            part._is_cut_by_time = part._is_cut_by_time or is_timed
        return part

    def _is_timed(self, units: Iterable[str]) -> bool:
        """Whether what is left of some units depends on when others pay."""
        owners = [(unit, self._payers[unit][-1]) for unit in units if unit in self._payers]
        return any(owner._is_contended or owner._books.held[unit] for unit, owner in owners)

    def _divide(
        self,
        amounts: Amounts,
        *,
        seconds: float | None = None,
        name: str = "",
        strict: bool = False,
        started: float | None = None,
        noted: Callable[[Call], None] | None = None,
    ) -> Account:
        self.check_usable()
        with self._lock:
            taken = {
                unit: min(amount, max(0, self.available(unit))) if unit in self._payers else amount
                for unit, amount in amounts.items()
            }
            for unit, amount in amounts.items():
                if strict and taken[unit] < amount:
                    asked, got = _user_amount(unit, amount), _user_amount(unit, taken[unit])
                    raise ConfigError(
                        f"the part asks for {asked:,.12g} {unit}, but {got:,.12g} are left of {self._label()}",
                        hint="ask for less, or leave strict out",
                    )
            short = [unit for unit, amount in amounts.items() if taken[unit] < amount]
            is_cut_by_time = self._is_cut_by_time or self._is_timed(short)
            is_contended = self._is_timed(unit for unit in self._payers if unit not in taken)
            self._hold(taken)
            part = Account.__new__(Account)
            part._open(taken, seconds, self, name, self._clock, started, noted, Books)
            part._is_cut_by_time, part._is_contended = is_cut_by_time, is_contended
        part.shortened = {unit: (_user_amount(unit, amounts[unit]), _user_amount(unit, taken[unit])) for unit in short}
        return part

    def open_search(self, *, noted: Callable[[Call], None] | None = None) -> Account:
        """Return the part for one search: it has the same limits, and a ledger of its own."""
        part = self._divide({}, started=self._clock(), noted=noted)
        part._is_search = True
        self._count_search(1)
        return part

    def _count_search(self, change: int) -> None:
        with self._lock:
            for account in self._chain:
                account._searches += change

    def draw(self, amounts: Amounts) -> None:
        """Take more from the parent into the limits of this part, in whole units.

        Raises:
            Exhausted: The parent cannot pay it; then nothing is taken.
        """
        assert self._parent is not None, "a part draws on its parent"
        with self._lock:
            if (short := self._parent.short_of(amounts)) is not None:
                raise Exhausted(short)
            self._parent._hold(amounts)
            for unit, amount in amounts.items():
                self._books.widen(unit, amount)

    def refund(self) -> None:
        """Give what is neither spent nor held of this part's limits back to its parent."""
        with self._lock:
            free = {unit: left for unit in self._books.limits if (left := self._books.remainder(unit)) > 0}
            for unit, amount in free.items():
                self._books.widen(unit, -amount)
            if self._parent is not None:
                self._parent._free(free)

    def close(self) -> None:
        """Close this account and return what it has not spent to its parent.

        Amounts that are kept for later calls stay kept there.
        """
        with self._lock:
            if self._is_closed:
                return
            for owner in {self._shared[unit] for unit in self._shared if self._is_disturbed(unit)}:
                owner._is_contended = self._is_contended = True
            self._is_closed = True
            if self._parent is None:
                return
            if self._is_search:
                self._parent._count_search(-1)
            for key, amounts in self._kept.items():
                self._move_to_parent(key, amounts)
            self._kept.clear()
            self.refund()

    def _move_to_parent(self, key: object, amounts: dict[str, int]) -> None:
        """Let the parent keep what this part keeps; above it the amounts are held already."""
        assert self._parent is not None, "a part has a parent"
        for unit, amount in amounts.items():
            self._books.hold({unit: -amount})
            self._note_direct(unit, -amount)
            # the parent holds this limit for the part, and now holds this much of it for the key
            if unit in self._books.limits:
                self._books.widen(unit, -amount)
            else:
                self._parent._note_direct(unit, amount)
        self._parent._kept[key] = amounts

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __str__(self) -> str:
        """Return what was spent of each limit, in one line."""
        limits, left = self.limits, self.remainder()
        told = ", ".join(f"{limits[unit] - left[unit]:,.12g} of {limits[unit]:,.12g} {unit}" for unit in limits)
        name = f"the account {self.name!r}" if self.name else "an account"
        return f"{name}: {told or 'nothing'} spent{', closed' if self._is_closed else ''}"

    def __repr__(self) -> str:
        return f"<tts.Account: {self}>"

    def _repr_html_(self) -> str:
        limits, left = self.limits, self.left
        rows = [
            (unit, *(f"{value:,.12g}" for value in (limit, self.spent.get(unit, self.elapsed), left[unit])))
            for unit, limit in limits.items()
        ]
        return grid((self._label(), "limit", "spent", "left"), rows)

    def _label(self) -> str:
        """Return its name for messages, or its limits where it has none."""
        return (
            f"the account {self.name!r}" if self.name else f"an account of {format_limits(self.limits) or 'no limit'}"
        )

    def __reduce__(self) -> NoReturn:
        raise ConfigError(
            f"{self._label()} cannot be pickled: its books are in this process",
            hint="give each process a part of its own, or share a store",
        )

    def check_usable(self) -> None:
        """Raise ConfigError where the account, or one above it, is closed or of another process."""
        for account in self._chain:
            if account._is_closed:
                raise ConfigError(
                    f"{account._label()} is closed, but was asked to pay a call", hint="open another account"
                )
        if self._process != os.getpid():
            raise ConfigError(
                f"{self._label()} belongs to another process, but was asked to pay a call",
                hint="make an account in each process",
            )

    # Leases -----------------------------------------------------------------------------------------------------------

    def lease(
        self,
        amounts: Amounts,
        *,
        kind: str,
        model: str = "",
        rows: int = 1,
        granted: int = 0,
        rates: Rates | None = None,
    ) -> Lease:
        """Return a lease for one call.

        A lease is an async context manager that reserves amounts and books what the call spent.

        Args:
            amounts: The most that the call may spend, in whole units. Units without a limit are free.
            kind: The kind of the call, for the ledger.
            model: The role that is called.
            rows: The sequences in the call.
            granted: The tokens that its rows may generate at most.
            rates: The rates of the model, from which flops and dollars follow; None: the call costs none.
        """
        return Lease(self, amounts, kind, model, rows, granted, rates)

    def keep(self, by_key: Mapping[object, Amounts]) -> None:
        """Hold amounts for later calls, by key, until they are freed.

        Held are those, in order, that the limits can pay.
        """
        if self._least_seconds is not None and self.seconds_left == 0:
            return
        with self._lock:
            left = self.all_available()
            total = dict.fromkeys(left, 0)
            for key, amounts in by_key.items():
                wanted = {unit: amount for unit, amount in amounts.items() if amount and unit in left}
                if not wanted or any(total[unit] + amount > left[unit] for unit, amount in wanted.items()):
                    continue
                for unit, amount in wanted.items():
                    total[unit] += amount
                before = self._kept.get(key)
                self._kept[key] = wanted if before is None else dict(Counter(before) + Counter(wanted))
            self._hold({unit: amount for unit, amount in total.items() if amount})

    def keeps(self, key: object) -> bool:
        """Whether amounts are held under a key, here or in an account of which this is a part."""
        return any(key in account._kept for account in self._chain)

    def kept_under(self, key: object) -> Amounts:
        """Return what this account holds under a key."""
        return self._kept.get(key, {})

    def amounts_under(self, key: object) -> Amounts:
        """Return the amounts by which the limits grow once a key is freed.

        The key is kept by this account, or by one of which it is a part.
        """
        for account in self._chain:
            if key in account._kept:
                amounts = account._kept[key]
                return {
                    unit: one
                    for unit, one in amounts.items()
                    if account._payers[unit][-1] is self._payers.get(unit, (None,))[-1]
                }
        return {}

    @property
    def has_kept(self) -> bool:
        """Whether anything is held for later calls, here or in an account of which this is a part."""
        return any(account._kept for account in self._chain)

    @property
    def kept(self) -> dict[str, int]:
        """What is held for later calls, by unit."""
        total: Counter[str] = Counter()
        for amounts in self._kept.values():
            total.update(amounts)
        return dict(total)

    def free(self, *keys: object) -> None:
        """Free what is held under some keys, here or in an account of which this is a part."""
        with self._lock:
            for account in self._chain:
                total: Counter[str] = Counter()
                for key in keys if account._kept else ():
                    total.update(account._kept.pop(key, {}))
                if total:
                    account._free(total)

    def free_all(self) -> None:
        """Free all that is held for later calls."""
        self.free(*self._kept)

    # Books ------------------------------------------------------------------------------------------------------------

    def _hold(self, amounts: Amounts) -> None:
        self._change_held(amounts)

    def _free(self, amounts: Amounts) -> None:
        """Free amounts that were held, and wake what waits for them."""
        for unit in self._change_held({unit: -amount for unit, amount in amounts.items()}):
            owner = self._payers[unit][-1]
            owner._wake(unit)
            if owner._is_closed:  # a call that its part did not wait for has ended
                owner.refund()

    def _change_held(self, amounts: Amounts) -> Amounts:
        """Add to what is held in each account that pays for this one; return the amounts of limited units."""
        changed = {unit: amount for unit, amount in amounts.items() if amount and unit in self._payers}
        for account, units in self._levels:
            if mine := {unit: amount for unit, amount in changed.items() if unit in units}:
                account._books.hold(mine)
                for unit in mine:
                    account._changes[unit] += 1
        for unit, amount in changed.items():
            self._note_direct(unit, amount)
        return changed

    def _note_direct(self, unit: str, amount: int) -> None:
        """Count what this account itself holds, for those that wait for it."""
        self._direct[unit] += amount
        if (owner := self._payers[unit][-1]) is self:
            return
        holders = owner._holders[unit]
        if (self in holders) != bool(self._direct[unit]):
            (holders.add if self._direct[unit] else holders.discard)(self)
            if not self._asleep:
                owner._awake[unit] += 1 if self._direct[unit] else -1

    def _note_asleep(self, change: int) -> None:
        """Count a call of this account that begins or ends to wait."""
        before, self._asleep = self._asleep, self._asleep + change
        if not before or not self._asleep:
            for unit, payers in self._payers.items():
                if self in payers[-1]._holders[unit]:
                    payers[-1]._awake[unit] -= change

    def _pay(self, spent: Amounts) -> None:
        """Count a spend here and in all accounts above; what parts had taken for it is no longer held there."""
        spent = {unit: amount for unit, amount in spent.items() if amount}
        for account in self._chain:
            books, parent = account._books, account._parent
            limits = {} if parent is None else books.limits
            taken = {
                unit: max(0, min(amount, limits[unit] - books.spent[unit]))
                for unit, amount in spent.items()
                if unit in limits
            }
            books.pay(spent)
            if parent is None or not taken:
                continue
            for above, units in parent._levels:
                above._books.hold({unit: -amount for unit, amount in taken.items() if unit in units})
            for unit, amount in taken.items():
                if unit in parent._payers:
                    parent._note_direct(unit, -amount)

    def settle(self, held: Amounts, spent: Amounts | None = None, call: Call | None = None) -> None:
        """Free what was held for a call, and book what it spent; None: nothing was called.

        Raises:
            BudgetExceeded: It spent more than was held. It is booked all the same: the record stays true.
        """
        spent = spent or {}
        with self._lock:
            self._pay(spent)
            self._free(held)
            if call is not None:
                for account in self._chain:
                    account.ledger.add(call)
        over = [
            f"{spent[unit]} {unit} where {held.get(unit, 0)} were granted"
            for unit in self._payers
            if spent.get(unit, 0) > held.get(unit, 0)
        ]
        if over:
            raise BudgetExceeded(
                f"a call spent {' and '.join(over)}", hint="the backend or verifier breaks its stated bound"
            )

    def book(self, call: Call) -> None:
        """Book a call that needed no lease: work outside of models, which time alone limits."""
        self.settle({}, {}, call)

    # Waiting for amounts that siblings hold ---------------------------------------------------------------------------

    async def acquire(self, amounts: Amounts) -> None:
        """Hold amounts; where other accounts only hold what is missing, wait until they free it.

        Raises:
            Exhausted: A limit cannot pay its amount, the time is over, or every holder waits and this account is the
                youngest.
        """
        self.check_usable()
        for account in self._chain:
            account.started = account._clock() if account.started is None else account.started
        while True:
            self.check_time()
            with self._lock:
                if (short := self.short_of(amounts)) is None:
                    self._hold(amounts)
                    return
                waiter = self._begin_waiting(short, amounts[short])
            await self._wait(short, waiter)

    async def wait_for(self, unit: str, amount: int = 1) -> None:
        """Wait until other accounts free what they hold of a unit.

        Args:
            unit: The unit that is short.
            amount: The least amount that is needed, in whole units.

        Raises:
            Exhausted: What others hold would not suffice, the time is over, or every holder waits and this account is
                the youngest.
        """
        if unit not in self._payers:
            raise Exhausted(unit)
        with self._lock:
            waiter = self._begin_waiting(unit, amount)
        await self._wait(unit, waiter)

    async def wait_for_more(self, unit: str) -> None:
        """Wait until more of a unit is left than now, for what is planned by what is left.

        Raises:
            Exhausted: No other account holds any, the time is over, or every holder waits and this account is the
                youngest.
        """
        await self.wait_for(unit, self.available(unit) + 1 if unit in self._payers else 1)

    def _begin_waiting(self, unit: str, amount: int) -> _Waiter:
        owner = self._payers[unit][-1]
        books = owner._books
        freed = sum(one._direct[unit] for one in owner._holders[unit] if self not in one._chain)
        if not freed or amount > books.remainder(unit) + freed:
            raise Exhausted(unit)
        loop = asyncio.get_running_loop()
        waiter = _Waiter(self, amount, loop, loop.create_future())
        owner._waiting[unit][waiter] = None
        self._note_asleep(1)
        owner._wake(unit)
        return waiter

    async def _wait(self, unit: str, waiter: _Waiter) -> None:
        owner = self._payers[unit][-1]
        try:
            async with asyncio.timeout(self.seconds_left):
                await waiter.future
        except TimeoutError:
            raise Exhausted("seconds") from None
        finally:
            with self._lock:
                owner._let_go(unit, waiter)
                del owner._waiting[unit][waiter]
                owner._woken[unit] -= 1
                owner._wake(unit)  # where it was woken and has left, the next may go on
        if waiter.is_refused:
            raise Exhausted(unit)

    def _wake(self, unit: str) -> None:
        """Let accounts that wait for a unit try again: the oldest whose amounts fit into what is left.

        Where none does, none is about to try, and every account that holds some of the unit waits, the youngest is
        refused. All are refused where no account holds any.
        """
        if not self._waiting[unit]:
            return
        left = self._books.remainder(unit)
        for waiter in itertools.islice(self._waiting[unit], _LOOKED_AT):
            if waiter.amount <= left:
                left -= waiter.amount
                self._let_go(unit, waiter)
        if not self._awake[unit] and not self._woken[unit]:
            stuck = list(self._waiting[unit])
            youngest = max(stuck, key=lambda waiter: waiter.account._number)
            for waiter in [youngest] if self._holders[unit] else stuck:
                waiter.is_refused = True
                self._let_go(unit, waiter)

    def _let_go(self, unit: str, waiter: _Waiter) -> None:
        """End the wait of a call."""
        if not waiter.is_woken:
            waiter.is_woken = True
            self._woken[unit] += 1
            waiter.account._note_asleep(-1)
            with suppress(RuntimeError):  # its loop has ended
                waiter.loop.call_soon_threadsafe(waiter.finish)


@dataclasses.dataclass(slots=True, eq=False)
class _Waiter:
    """An account that waits for an amount of a unit."""

    account: Account
    amount: int
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[None]
    is_woken: bool = False
    is_refused: bool = False

    def finish(self) -> None:
        """End the wait, in its own loop."""
        if not self.future.done():
            self.future.set_result(None)


class Lease:
    """What one call may spend, for the block of an `async with`; see `Account.lease`.

    Attributes:
        usage: What the call has spent so far, without flops and dollars.
    """

    __slots__ = (
        "_account",
        "_amounts",
        "_granted",
        "_is_void",
        "_kind",
        "_model",
        "_priced",
        "_rates",
        "_rows",
        "usage",
    )

    def __init__(
        self, account: Account, amounts: Amounts, kind: str, model: str, rows: int, granted: int, rates: Rates | None
    ) -> None:
        self._account = account
        self._amounts = {unit: amount for unit, amount in amounts.items() if unit in account.units}
        self._kind, self._model, self._rows, self._granted, self._rates = kind, model, rows, granted, rates
        self._priced: Amounts | None = None
        self._is_void = False
        self.usage = Usage()

    async def __aenter__(self) -> Self:
        await self._account.acquire(self._amounts)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_void:
            self._account.settle(self._amounts)
            return
        usage, spent = price_usage(self.usage, self._rates, self._priced)
        try:
            self._account.settle(self._amounts, spent, Call(self._kind, self._model, self._rows, self._granted, usage))
        except BudgetExceeded:
            if kind is None or not issubclass(kind, asyncio.CancelledError):
                raise

    def spend(self, usage: Usage, *, priced: Amounts | None = None) -> None:
        """Note what the call has spent.

        Args:
            usage: The whole cost of the call so far.
            priced: Its flops and dollars in whole units, where they do not follow from the rates of the lease.
        """
        self.usage, self._priced = usage, priced

    def void(self) -> None:
        """Take the lease back: nothing was called, and no row is added to the ledger."""
        self._is_void = True


def read_limits(given: Budget | float | Mapping[str, float] | Account) -> Budget | Account:
    """Return an account unchanged, and anything else as `Budget.of` reads it.

    Raises:
        ConfigError: It is none of these.
    """
    return given if isinstance(given, Account) else Budget.of(given)


def _user_amount(unit: str, amount: int) -> float:
    return amount / USD_UNIT if unit == "usd" else amount
