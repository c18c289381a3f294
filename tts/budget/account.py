"""Accounts: a budget is a tree of limits, and every call to a model or verifier is one lease.

    account = Account(Budget(tokens=2000))
    with account.lease({"tokens": 300}, kind="expand", model="policy") as lease:
        ...                                  # the call
        lease.spend(generated_tokens=120)    # what it cost

A lease reserves an upper bound in every limited unit, or raises `Exhausted`. Leaving its block adds a row to the ledger
and frees what was not spent, whatever happened in the block. Nothing else books. What is spent and held never passes a
limit.

A part takes its limits from its parent. A unit that it does not limit is the parent's own. Amounts are whole numbers
(dollars in 1e-15), so that rounding cannot carry a spend past a limit. Where other searches hold an amount for now, a
search waits (`wait_for_more`) and tries again.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, Self

from tts._core.display import grid
from tts.budget.budget import Budget, Rates, check_units, format_limits
from tts.budget.lease import ENCLOSING, Exhausted, Lease, Waiter
from tts.budget.ledger import Amounts, Books, Call, Entry, Ledger
from tts.budget.units import UNITS, to_user_amount
from tts.errors import BudgetExceeded, ConfigError

_NUMBERS = itertools.count()  # of accounts, in the order in which they were made
_MOST_WOKEN = 32  # the most waiting accounts that are looked at when an amount becomes free
_CLOSING_SHARE = 10  # at most this part of `seconds` is kept for what follows the search


class Account:
    """Limits that are never passed, and what was spent of them.

    An account may stand wherever a budget may: calls that share it share one total, also at the same time and from
    several threads.

    Args:
        budget: The limits; a number limits `tokens`.
        name: A name for messages.
        clock: The clock that `seconds` are read from, in seconds.
        started: The clock's reading from which `seconds` count; None: the reading at the first lease.
        noted: A function that gets each row of the ledger.
        books: A function from limits to the books of this account, such as a class in place of `Books`.

    Attributes:
        ledger: A row for each call that was paid from this account or from a part of it.
        shortened: The limits of a part that its parent could not pay: by unit, the requested and the granted amount.

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
        self._open(
            budget.whole_units(), budget.seconds, name=name, clock=clock, started=started, noted=noted, books=books
        )

    def _open(
        self,
        limits: Amounts,
        seconds: float | None,
        *,
        parent: Account | None = None,
        name: str,
        clock: Callable[[], float],
        started: float | None,
        noted: Callable[[Call], None] | None,
        books: Callable[[Amounts], Books] = Books,
    ) -> None:
        self.name = name
        self.ledger = Ledger(noted)
        self.started = started
        self.shortened: dict[str, tuple[float, float]] = {}
        self._books = books(limits)
        self._parent = parent
        self._clock = clock
        self._seconds = seconds
        self._closing = 0.0
        self._is_closed = False
        self._is_search = False
        self._num_searches = 0  # open searches that are paid from here or from a part
        self._changes: dict[str, int] = dict.fromkeys(UNITS, 0)  # how often an amount was held or freed here
        self._is_contended = self._is_cut_by_time = False
        self._number = next(_NUMBERS)
        self._process = os.getpid()
        self._lock: threading.RLock = threading.RLock() if parent is None else parent._lock
        # by unit that this account limits: the calls that wait for an amount, oldest first
        self._waiting: dict[str, dict[Waiter, None]] = {unit: {} for unit in limits}
        # by unit that this account limits: what accounts below hold for calls and scores, without their parts' limits
        self._holders: dict[str, dict[Account, int]] = {unit: {} for unit in limits}
        self.num_asleep = 0  # calls of this account that wait
        self._chain: tuple[Account, ...] = (self,) if parent is None else (self, *parent._chain)
        # by limited unit: the accounts in which an amount is held; the last one, the owner, limits the unit
        chains = {unit: self._payers_of(unit) for unit in UNITS}
        self._payers = {unit: payers for unit, payers in chains.items() if payers}
        self.units = tuple(self._payers)
        # each account in which amounts are held, with its units
        self._levels: list[tuple[Account, frozenset[str]]] = []
        for account in self._chain:
            units = frozenset(unit for unit, payers in self._payers.items() if account in payers)
            if units:
                self._levels.append((account, units))
        limits_of_time = [account._seconds for account in self._chain if account._seconds is not None]
        self._least_seconds = min(limits_of_time, default=None)
        # by unit that an account above limits: this account
        self._shared = {unit: payers[-1] for unit, payers in self._payers.items() if payers[-1] is not self}
        # the changes of these accounts when this one was opened
        self._changes_before = {unit: owner._changes[unit] for unit, owner in self._shared.items()}

    def _payers_of(self, unit: str) -> tuple[Account, ...]:
        """Return the accounts in which an amount of a unit is held; none if no account limits the unit.

        These are this account and the accounts above, up to the first that limits the unit.
        """
        for place, account in enumerate(self._chain):
            if unit in account._books.limits:
                return self._chain[: place + 1]
        return ()

    @property
    def is_shared(self) -> bool:
        """Whether this account is a part, so that other accounts may share its limits."""
        return self._parent is not None

    @property
    def is_closed(self) -> bool:
        """Whether this account, or an account above, is closed. A closed account pays no call any more."""
        return any(account._is_closed for account in self._chain)

    # What is left -----------------------------------------------------------------------------------------------------

    @property
    def limits(self) -> dict[str, float]:
        """The limits by unit, in the units of `Budget`.

        A unit that this account does not limit has the limit of an account above.
        """
        limits = {unit: to_user_amount(unit, self.limit(unit)) for unit in self._payers}
        if self._least_seconds is not None:
            limits["seconds"] = self._least_seconds
        return limits

    @property
    def spent(self) -> dict[str, float]:
        """The spend of this account and its parts, by unit, limited or not, in the units of `Budget`."""
        return {unit: to_user_amount(unit, amount) for unit, amount in self._books.spent.items()}

    @property
    def left(self) -> dict[str, float]:
        """The amount that may still be reserved of each limited unit, in the units of `Budget`."""
        amounts = {unit: to_user_amount(unit, self.available(unit)) for unit in self._payers}
        if self.seconds_left is not None:
            amounts["seconds"] = self.seconds_left
        return amounts

    def available(self, unit: str) -> int:
        """Return the amount of a limited unit that may still be reserved, in whole units."""
        return self._payers[unit][-1]._books.remainder(unit)

    def pays(self, unit: str) -> Account:
        """Return the account that limits a unit: this account, or one above."""
        return self._payers[unit][-1]

    def limit(self, unit: str) -> int:
        """Return the limit of a limited unit, in whole units."""
        return self._payers[unit][-1]._books.limits[unit]

    def spending(self, unit: str) -> int:
        """Return the spend of a unit by this account and its parts, in whole units."""
        return self._books.spent[unit]

    def reservation(self, unit: str) -> int:
        """Return the amount of a unit that is held for this account's own calls and parts, in whole units."""
        return self._books.held[unit]

    def remainder(self) -> dict[str, float]:
        """Return the unspent part of each limit, in the units of `Budget`.

        Held amounts are unspent. The value of `seconds` is at least 0.
        """
        unspent: dict[str, float] = {}
        for unit, payers in self._payers.items():
            books = payers[-1]._books
            unspent[unit] = to_user_amount(unit, books.limits[unit] - books.spent[unit])
        if self.seconds_left is not None:
            unspent["seconds"] = self.seconds_left
        return unspent

    def all_available(self) -> dict[str, int]:
        """Return the amount of each limited unit that may still be reserved, in whole units."""
        return {unit: payers[-1]._books.remainder(unit) for unit, payers in self._payers.items()}

    def fair_shares(self) -> dict[str, int]:
        """Return the equal part of one open search in each limit that several searches share, in whole units."""
        shares: dict[str, int] = {}
        for unit, payers in self._payers.items():
            owner = payers[-1]
            if owner._num_searches > 1:
                unspent = owner._books.limits[unit] - owner._books.spent[unit]
                shares[unit] = max(0, unspent) // owner._num_searches
        return shares

    @property
    def is_contended(self) -> bool:
        """Whether other accounts shared this account's limits while it was open.

        Then the amounts that this account could pay depended on the timing of the others.
        """
        return self._is_cut_by_time or self._is_contended or any(map(self._is_disturbed, self._shared))

    def _is_disturbed(self, unit: str) -> bool:
        """Whether other accounts held or freed amounts of a limit above, since this part was opened."""
        all_changes = self._shared[unit]._changes[unit] - self._changes_before[unit]
        return all_changes != self._changes[unit]  # the account's own changes are counted above too

    @property
    def shortages(self) -> list[str]:
        """A line for each limit of this account, and of accounts above, that its parent could not pay in full."""
        return [
            f"the part asked for {asked:,.12g} {unit}, and got the {got:,.12g} that were left"
            for account in self._chain
            for unit, (asked, got) in account.shortened.items()
        ]

    def short_of(self, amounts: Amounts) -> str | None:
        """Return the first limited unit of which less is left than its amount; None: all amounts can be paid."""
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
        deadlines: list[float] = []
        if self._seconds is not None:
            started = self._clock() if self.started is None else self.started
            deadlines.append(started + self._seconds)
        upper_deadline = None if self._parent is None else self._parent.deadline
        if upper_deadline is not None:
            deadlines.append(upper_deadline)
        return min(deadlines) - self._closing if deadlines else None

    @property
    def seconds_left(self) -> float | None:
        """The seconds until the deadline, at least 0; None: time is not limited."""
        deadline = self.deadline
        return None if deadline is None else max(0.0, deadline - self._clock())

    @property
    def elapsed(self) -> float:
        """The seconds since the account's `seconds` began to count."""
        return 0.0 if self.started is None else self._clock() - self.started

    def keep_for_closing(self, seconds: float) -> None:
        """Keep seconds for the work that follows the search: at most a tenth of the limit."""
        self._closing = 0.0 if self._least_seconds is None else min(seconds, self._least_seconds / _CLOSING_SHARE)

    def check_time(self) -> None:
        """Raise Exhausted where the deadline has passed."""
        if self._least_seconds is not None and self.seconds_left == 0:
            raise Exhausted("seconds")

    # Parts ------------------------------------------------------------------------------------------------------------

    def part(self, *, name: str = "", strict: bool = False, **limits: float) -> Account:
        """Return an account whose limits are taken from this account; `close` gives the unspent amounts back.

        A unit that is not given stays limited by this account alone. Where less is left than requested, the part gets
        all that is left, and its attribute `shortened` has both amounts.

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
        """Return a part that has all that is left of every limit; the parent's deadline still holds."""
        self.check_usable()
        with self._lock:
            is_timed = self._is_timed(self._payers)
            part = self._divide({unit: max(0, self.available(unit)) for unit in self._payers})
            part._is_cut_by_time = part._is_cut_by_time or is_timed
        return part

    def _is_timed(self, units: Iterable[str]) -> bool:
        """Whether the amounts left of some units depend on the time at which other accounts pay."""
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
        """Return a part with limits in whole units, cut to the amounts left; see `part`."""
        self.check_usable()
        with self._lock:
            granted = {
                unit: min(amount, max(0, self.available(unit))) if unit in self._payers else amount
                for unit, amount in amounts.items()
            }
            short_units = [unit for unit, amount in amounts.items() if granted[unit] < amount]
            shortened = {  # by unit: the requested and the granted amount
                unit: (to_user_amount(unit, amounts[unit]), to_user_amount(unit, granted[unit])) for unit in short_units
            }
            if strict and short_units:
                unit = short_units[0]
                requested, left = shortened[unit]
                raise ConfigError(
                    f"the part asks for {requested:,.12g} {unit}, but {left:,.12g} are left of {self._label()}",
                    hint="ask for less, or leave strict out",
                )
            is_cut_by_time = self._is_cut_by_time or self._is_timed(short_units)
            is_contended = self._is_timed(unit for unit in self._payers if unit not in granted)
            self._change_held(granted)
            part = Account.__new__(Account)
            part._open(granted, seconds, parent=self, name=name, clock=self._clock, started=started, noted=noted)
            part._is_cut_by_time, part._is_contended = is_cut_by_time, is_contended
        part.shortened = shortened
        return part

    def open_search(self, *, noted: Callable[[Call], None] | None = None) -> Account:
        """Return the part for one search: it has the same limits, and a ledger of its own."""
        part = self._divide({}, started=self._clock(), noted=noted)
        part._is_search = True
        self._count_search(1)
        return part

    def _count_search(self, change: int) -> None:
        """Count an open search (1), or a closed one (-1), here and in all accounts above."""
        with self._lock:
            for account in self._chain:
                account._num_searches += change

    def draw(self, amounts: Amounts) -> None:
        """Take more from the parent into the limits of this part, in whole units.

        Raises:
            Exhausted: The parent cannot pay the amounts. Then nothing is taken.
        """
        assert self._parent is not None, "a part draws on its parent"
        with self._lock:
            short_unit = self._parent.short_of(amounts)
            if short_unit is not None:
                raise Exhausted(short_unit)
            self._parent._change_held(amounts)
            for unit, amount in amounts.items():
                self._books.widen(unit, amount)

    def refund(self) -> None:
        """Give the amounts of this part's limits that are neither spent nor held back to its parent."""
        with self._lock:
            remainders = {unit: self._books.remainder(unit) for unit in self._books.limits}
            free_amounts = {unit: amount for unit, amount in remainders.items() if amount > 0}
            for unit, amount in free_amounts.items():
                self._books.widen(unit, -amount)
            if self._parent is not None:
                self._parent.free(free_amounts)

    def close(self) -> None:
        """Close this account and give the unspent amounts back to its parent."""
        with self._lock:
            if self._is_closed:
                return
            for unit, owner in self._shared.items():
                if self._is_disturbed(unit):
                    owner._is_contended = self._is_contended = True
            self._is_closed = True
            if self._parent is None:
                return
            if self._is_search:
                self._parent._count_search(-1)
            self.refund()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __str__(self) -> str:
        """Return the spend of each limit, in one line."""
        unspent, name = self.remainder(), f"the account {self.name!r}" if self.name else "an account"
        spends = [f"{most - unspent[unit]:,.12g} of {most:,.12g} {unit}" for unit, most in self.limits.items()]
        state = ", closed" if self._is_closed else ""
        return f"{name}: {', '.join(spends) or 'nothing'} spent{state}"

    def __repr__(self) -> str:
        return f"<tts.Account: {self}>"

    def _repr_html_(self) -> str:
        spent, left = self.spent, self.left
        rows: list[tuple[str, str, str, str]] = []
        for unit, limit in self.limits.items():
            unit_spent = self.elapsed if unit == "seconds" else spent[unit]
            rows.append((unit, f"{limit:,.12g}", f"{unit_spent:,.12g}", f"{left[unit]:,.12g}"))
        return grid((self._label(), "limit", "spent", "left"), rows)

    def _label(self) -> str:
        """Return the account's name for messages, or its limits if the account has no name."""
        if self.name:
            return f"the account {self.name!r}"
        return f"an account of {format_limits(self.limits) or 'no limit'}"

    def __reduce__(self) -> NoReturn:
        raise ConfigError(
            f"{self._label()} cannot be pickled: its books are in this process",
            hint="give each process a part of its own, or share a store",
        )

    def check_usable(self) -> None:
        """Raise ConfigError if this account, or an account above, is closed or of another process."""
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

    # One call ---------------------------------------------------------------------------------------------------------

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
        """Return a lease for one call, which holds amounts until the end of its block.

        The block's end books the spend of the call.

        Args:
            amounts: The most that the call may spend, in whole units. Units without a limit are free.
            kind: The kind of the call, for the ledger.
            model: The role that is called.
            rows: The sequences in the call.
            granted: The most tokens that the rows may generate.
            rates: The rates of the model, from which flops and dollars follow; None: the call costs neither.

        Raises:
            ConfigError: The account is closed or of another process.
            Exhausted: A limit cannot pay its amount, or the time is over.
        """
        self.check_usable()
        for account in self._chain:
            if account.started is None:
                account.started = account._clock()
        self.check_time()
        held = {unit: amount for unit, amount in amounts.items() if unit in self._payers}
        lacking_unit = self.hold(held)
        if lacking_unit is not None:
            raise Exhausted(lacking_unit)
        return Lease(self, held, (kind, model, rows, granted), rates)

    def hold(self, amounts: Amounts) -> str | None:
        """Hold amounts of limited units for later, or none of them; return the first unit that lacks."""
        with self._lock:
            lacking_unit = self.short_of(amounts)
            if lacking_unit is None:
                self._change_held(amounts)
            return lacking_unit

    def free(self, amounts: Amounts) -> None:
        """Free amounts that were held, and let the calls that wait for them try again."""
        with self._lock:
            for unit in self._change_held({unit: -amount for unit, amount in amounts.items()}):
                owner = self._payers[unit][-1]
                owner._wake(unit)
                if owner._is_closed:  # the account was closed while this call was under way
                    owner.refund()

    def _change_held(self, amounts: Amounts) -> Amounts:
        """Change the held amounts of each account that pays for this one, and return the changes of limited units."""
        changed = {unit: amount for unit, amount in amounts.items() if amount and unit in self._payers}
        if not changed:
            return changed
        for account, units in self._levels:
            account_changes = {unit: amount for unit, amount in changed.items() if unit in units}
            if account_changes:
                account._books.hold(account_changes)
                for unit in account_changes:
                    account._changes[unit] += 1
        for unit, amount in changed.items():
            self._note_held(unit, amount)
        return changed

    def _note_held(self, unit: str, amount: int) -> None:
        """Change the amount that this account itself holds of an account above."""
        owner = self._payers[unit][-1]
        if owner is not self:
            holders = owner._holders[unit]
            holders[self] = holders.get(self, 0) + amount
            if not holders[self]:
                del holders[self]

    def _pay(self, spent: Amounts) -> None:
        """Count a spend here and in all accounts above. A parent no longer holds the spent part of a limit."""
        spent = {unit: amount for unit, amount in spent.items() if amount}
        for account in self._chain:
            books, parent = account._books, account._parent
            spent_of_limits: dict[str, int] = {}
            if parent is not None:
                for unit, amount in spent.items():
                    if unit in books.limits:
                        spent_of_limits[unit] = max(0, min(amount, books.limits[unit] - books.spent[unit]))
            books.pay(spent)
            if parent is None or not spent_of_limits:
                continue
            for upper_account, units in parent._levels:
                upper_account._books.hold({unit: -amount for unit, amount in spent_of_limits.items() if unit in units})
            for unit, amount in spent_of_limits.items():
                if unit in parent._payers:
                    parent._note_held(unit, -amount)

    def settle(self, held: Amounts, spent: Amounts, entry: Entry) -> None:
        """Free the amounts that were held for a call, and book its spend and its row of the ledger.

        Raises:
            BudgetExceeded: The call spent more than was held. The spend is booked all the same.
        """
        with self._lock:
            self._pay(spent)
            self.free(held)
            for account in self._chain:
                account.ledger.add(entry)
        exceeded = [unit for unit in self._payers if spent.get(unit, 0) > held.get(unit, 0)]
        if exceeded:
            texts = [f"{spent[unit]} {unit} where {held.get(unit, 0)} were granted" for unit in exceeded]
            raise BudgetExceeded(
                f"a call spent {' and '.join(texts)}", hint="the backend or verifier breaks its stated bound"
            )

    def book(self, kind: str, model: str = "", rows: int = 0, **counts: Any) -> None:
        """Book a call that needed no lease: work outside of models, which time alone limits.

        Args:
            kind: The kind of the call.
            model: The role that was called.
            rows: The sequences in the call.
            counts: The cost, by the fields of `Entry`.
        """
        self.settle({}, {}, Entry(kind, model, rows, 0, **counts))

    # Waiting for amounts that siblings hold ---------------------------------------------------------------------------

    async def wait_to_pay(self, amounts: Amounts) -> None:
        """Wait until amounts of limited units can be paid; see `wait_for`."""
        while (lacking_unit := self.short_of(amounts)) is not None:
            await self.wait_for(lacking_unit, amounts[lacking_unit])

    async def lease_in_turn(self, amounts: Amounts, **call: Any) -> Lease:
        """Return a lease as `lease` does, once others have freed what it needs; see `wait_for`."""
        while True:
            await self.wait_to_pay(amounts)
            try:
                return self.lease(amounts, **call)
            except Exhausted as end:
                if not self.is_shared or end.unit not in self._payers:
                    raise  # else another thread took the amount meanwhile

    async def wait_for(self, unit: str, amount: int = 1) -> None:
        """Wait until other accounts free enough of a unit.

        Args:
            unit: The unit that is short.
            amount: The least amount that is needed, in whole units.

        Raises:
            Exhausted: The amounts that others hold would not suffice, the time is over, or every holder waits and this
                account is the youngest.
        """
        if unit not in self._payers:
            raise Exhausted(unit)
        with self._lock:
            waiter = self._begin_waiting(unit, amount)
        await self._wait(unit, waiter)

    async def wait_for_more(self, unit: str) -> None:
        """Wait until more of a unit is left than now, for calls that are planned by the amounts left.

        Raises:
            Exhausted: No other account holds any, the time is over, or every holder waits and this account is the
                youngest.
        """
        await self.wait_for(unit, self.available(unit) + 1 if unit in self._payers else 1)

    def _begin_waiting(self, unit: str, amount: int) -> Waiter:
        """Return a new waiter for an amount of a unit; raise Exhausted if others hold too little of the unit."""
        owner = self._payers[unit][-1]
        held_by_others = sum(held for holder, held in owner._holders[unit].items() if self not in holder._chain)
        if not held_by_others or amount > owner._books.remainder(unit) + held_by_others:
            raise Exhausted(unit)
        loop = asyncio.get_running_loop()
        leases = (lease for lease in ENCLOSING.get() if lease.is_open and lease.account._lock is self._lock)
        enclosing: tuple[Account, ...] = tuple(lease.account for lease in leases)
        waiter = Waiter(self, amount, loop, loop.create_future(), enclosing)
        owner._waiting[unit][waiter] = None
        for account in waiter.sleepers:
            account.num_asleep += 1
        owner._wake(unit)
        return waiter

    async def _wait(self, unit: str, waiter: Waiter) -> None:
        """Wait until a waiter is woken; raise Exhausted if the time is over or the waiter was refused."""
        owner = self._payers[unit][-1]
        try:
            async with asyncio.timeout(self.seconds_left):
                await waiter.future
        except TimeoutError:
            raise Exhausted("seconds") from None
        finally:
            with self._lock:
                waiter.wake()
                del owner._waiting[unit][waiter]
                owner._wake(unit)  # the next waiting call may take the amounts that this one leaves
        if waiter.is_refused:
            raise Exhausted(unit, owner._label() if waiter.enclosing else "")

    def _wake(self, unit: str) -> None:
        """Let calls that wait for a unit try again: the oldest calls whose amounts fit into the amount left.

        If no call is about to try, and every holder of the unit waits, the call of the youngest account is refused. If
        no account holds any of the unit, all calls are refused.
        """
        waiting = self._waiting[unit]
        if not waiting:
            return
        left = self._books.remainder(unit)
        for waiter in itertools.islice(waiting, _MOST_WOKEN):
            if waiter.amount <= left:
                left -= waiter.amount
                waiter.wake()
        if any(waiter.is_woken for waiter in waiting) or any(not one.num_asleep for one in self._holders[unit]):
            return
        refused = list(waiting)
        if self._holders[unit]:
            refused = [max(refused, key=lambda waiter: waiter.account._number)]
        for waiter in refused:
            waiter.is_refused = True
            waiter.wake()
