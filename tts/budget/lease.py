"""The lease of one call: the amounts that the call may spend, and the booking of its spend."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Final, Self

from tts.budget.budget import Rates
from tts.budget.ledger import Amounts, Call, check_usage, price_usage
from tts.errors import BudgetExceeded, EngineError
from tts.types import Usage

# The leases of the calls that run this code: a model or a verifier may itself be a search.
ENCLOSING: Final[ContextVar[tuple[Lease, ...]]] = ContextVar("enclosing", default=())


class Lease:
    """The amounts that one call may spend, for the block of an `async with`; see `Account.lease`.

    Attributes:
        account: The account that pays.
        is_open: Whether the call is under way.
        usage: The spend of the call so far, without flops and dollars.
    """

    __slots__ = (
        "_acquire",
        "_amounts",
        "_call",
        "_is_unknown",
        "_is_void",
        "_priced",
        "_rates",
        "_settle",
        "_token",
        "account",
        "is_open",
        "usage",
    )

    def __init__(
        self,
        amounts: Amounts,
        *,
        account: Any,
        acquire: Callable[[Amounts], Awaitable[None]],
        settle: Callable[[Amounts, Amounts | None, Call | None], None],
        call: Call,
        rates: Rates | None,
    ) -> None:
        self.account, self.is_open = account, False
        self._amounts, self._acquire, self._settle = amounts, acquire, settle
        self._call, self._rates = call, rates
        self._priced: Amounts | None = None
        self._is_unknown = self._is_void = False
        self._token: Token[tuple[Lease, ...]] | None = None
        self.usage = Usage()

    async def __aenter__(self) -> Self:
        await self._acquire(self._amounts)
        self.is_open, self._token = True, ENCLOSING.set((*ENCLOSING.get(), self))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.is_open = False
        if self._token is not None:
            with suppress(ValueError):  # the block ends in another task than it began in
                ENCLOSING.reset(self._token)
        if self._is_void:
            self._settle(self._amounts, None, None)
            return
        usage, spent = price_usage(self.usage, self._rates, self._priced)
        spent = self._amounts if self._is_unknown else spent
        try:
            self._settle(self._amounts, spent, dataclasses.replace(self._call, usage=usage))
        except BudgetExceeded:
            if kind is None or not issubclass(kind, asyncio.CancelledError):
                raise

    def spend(self, usage: Usage, *, priced: Amounts | None = None, readings: int | None = None) -> None:
        """Note the spend of the call so far.

        Args:
            usage: The whole cost of the call so far.
            priced: The flops and dollars of the call in whole units, if they do not follow from the rates of the lease.
            readings: The number of times that `usage` counts the input; None: once for each row.

        Raises:
            EngineError: A count or a price is no whole number of at least 0. The whole lease is spent then.
        """
        try:
            check_usage(usage, priced or {})
        except EngineError:
            tokens, samples = self._amounts.get("tokens", self._call.granted), self._amounts.get("samples", 0)
            self.usage, self._is_unknown = Usage(generated_tokens=tokens, samples=samples, estimated=True), True
            raise
        self.usage, self._priced = usage, priced
        self._call = dataclasses.replace(self._call, readings=readings)

    def void(self) -> None:
        """Take the lease back: nothing was called, and no row is added to the ledger."""
        self._is_void = True
