"""Limits with units, accounts that are never overdrawn, and the ledger of what was spent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tts._core.lazy import lazy_exports

if TYPE_CHECKING:
    from tts.budget.account import Account as Account
    from tts.budget.account import Exhausted as Exhausted
    from tts.budget.account import Lease as Lease
    from tts.budget.budget import Budget as Budget
    from tts.budget.budget import Rates as Rates
    from tts.budget.ledger import Books as Books
    from tts.budget.units import USD_UNIT as USD_UNIT

__getattr__, __dir__, __all__ = lazy_exports(__name__)
