"""The lease of one call, which holds amounts and books their spend, and a call that waits for amounts."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import ContextVar, Token
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from tts.budget.budget import Rates
from tts.budget.ledger import Amounts, check_counts, price_counts
from tts.budget.units import PLACE_UNITS
from tts.errors import BudgetExceeded, EngineError

# the leases of the calls that run this code: a model or a verifier may itself be a search
ENCLOSING: Final[ContextVar[tuple[Lease, ...]]] = ContextVar("enclosing", default=())


class Exhausted(Exception):
    """A limit cannot pay a call.

    Attributes:
        unit: The unit of the limit.
        enclosing: The account whose own call waits for this one, as it is named in errors; "": no call does.
    """

    def __init__(self, unit: str, enclosing: str = "") -> None:
        super().__init__(unit)
        self.unit = unit
        self.enclosing = enclosing


class Lease:
    """The amounts that one call may spend, for the block of a `with`; see `Account.lease`.

    A block that says no spend leaves no row in the ledger.

    Attributes:
        account: The account that pays (an `Account`).
        is_open: Whether the call is under way.
    """

    __slots__ = ("_amounts", "_call", "_counts", "_is_unknown", "_priced", "_rates", "_token", "account", "is_open")

    def __init__(self, account: Any, amounts: Amounts, call: tuple[str, str, int, int], rates: Rates | None) -> None:
        self.account = account
        self.is_open = False
        self._amounts = amounts
        self._call = call
        self._rates = rates
        self._counts: dict[str, Any] | None = None
        self._priced: Amounts | None = None
        self._is_unknown = False
        self._token: Token[tuple[Lease, ...]] | None = None

    def __enter__(self) -> Self:
        self.is_open = True
        if self.account.is_shared:
            self._token = ENCLOSING.set((*ENCLOSING.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.is_open = False
        if self._token is not None:
            with suppress(ValueError):  # the block ends in another task than it began in
                ENCLOSING.reset(self._token)
        if self._counts is None:
            self.account.free(self._amounts)
            return
        entry, spent = price_counts(self._call, self._counts, self._rates, self._priced)
        try:
            self.account.settle(self._amounts, self._amounts if self._is_unknown else spent, entry)
        except BudgetExceeded:
            if kind is None or not issubclass(kind, asyncio.CancelledError):
                raise

    def reduce(self, amounts: Amounts) -> bool:
        """Free a part of what the lease holds; return False, and free nothing, where the lease has less."""
        freed = {unit: amount for unit, amount in amounts.items() if unit in self._amounts}
        if any(amount > self._amounts[unit] for unit, amount in freed.items()):
            return False
        self._amounts = {unit: amount - freed.get(unit, 0) for unit, amount in self._amounts.items()}
        self.account.free(freed)
        return True

    def spend(self, *, priced: Amounts | None = None, **counts: Any) -> None:
        """Note the whole cost of the call so far.

        Args:
            priced: The flops and dollars of the call in whole units, if they do not follow from the rates of the lease.
            counts: The cost by the fields of `Entry`, without flops and dollars.

        Raises:
            EngineError: A count or a price is no whole number of at least 0. The whole lease is spent then.
        """
        try:
            check_counts(counts, priced)
        except EngineError:
            tokens = self._amounts.get("tokens", self._call[3])
            by_place = {unit: self._amounts.get(unit, 0) for unit in PLACE_UNITS}
            self._counts = {"generated_tokens": tokens, **by_place, "estimated": True}
            self._is_unknown = True
            raise
        self._counts, self._priced = counts, priced


@dataclass(slots=True, eq=False)
class Waiter:
    """A call of an account that waits for an amount of a unit.

    `enclosing` has the accounts whose own calls run the code that waits. They wait as well.
    """

    account: Any
    amount: int
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[None]
    enclosing: tuple[Any, ...] = ()
    is_woken: bool = False
    is_refused: bool = False

    @property
    def sleepers(self) -> tuple[Any, ...]:
        """The accounts that can free nothing while the call waits."""
        return (self.account, *self.enclosing)

    def wake(self) -> None:
        """End the wait, in the loop of the waiting call."""
        if self.is_woken:
            return
        self.is_woken = True
        for account in self.sleepers:
            account.num_asleep -= 1
        with suppress(RuntimeError):  # the loop of the call has ended
            self.loop.call_soon_threadsafe(lambda: self.future.done() or self.future.set_result(None))
