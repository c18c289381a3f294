"""Limits with units, grants within these limits, and the ledger of what was spent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tts.lazy import lazy_exports

if TYPE_CHECKING:
    from tts.budget.budget import USD_UNIT as USD_UNIT
    from tts.budget.budget import Budget as Budget
    from tts.budget.meter import Exhausted as Exhausted
    from tts.budget.meter import Grant as Grant
    from tts.budget.meter import Meter as Meter
    from tts.budget.meter import Rates as Rates
    from tts.budget.meter import RowCost as RowCost

__getattr__, __dir__, __all__ = lazy_exports(__name__)
