"""What one search spends: grants from the meter, what stays reserved for scoring, and a ledger row for every call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tts.backends.base import Backend
from tts.budget import USD_UNIT, Call, Exhausted, Grant, Ledger, Meter, Rates, RowCost
from tts.types import Usage
from tts.verifiers.base import Verifier


class Spending:
    """Books every call of one problem against its meter.

    Args:
        meter: of the problem's budget. verifiers: by role. declared: roles whose cost is reserved with every row.
        rates: cost of a verifier's tokens, by role.
    """

    def __init__(self, meter: Meter, verifiers: Mapping[str, Verifier], declared: Sequence[str], rates: Mapping[str, Rates]) -> None:
        self.meter = meter
        self.ledger = Ledger()
        self._verifiers = verifiers
        self._declared = [role for role in declared if role in verifiers]
        self._rates = rates
        self._reserves: dict[int, dict[str, int]] = {}

    def row_cost(self, backend: Backend, prefix: int, prefill: int = 0) -> RowCost:
        """Return the bound of a row behind `prefix` tokens, declared verifiers included."""
        declared = [self._verifiers[role] for role in self._declared]
        if not declared:
            return RowCost(backend.rates, prefill)
        dearest = [self._rates[role] for role in self._declared]
        return RowCost(
            backend.rates,
            prefill,
            lambda new: sum(verifier.bound(prefix, new) for verifier in declared),
            len(declared),
            Rates(max(r.flops or 0 for r in dearest), max(r.usd_in or 0 for r in dearest)),
        )

    def score_cost(self, role: str, tokens: int, calls: int) -> dict[str, int]:
        """Return the bound, in each limited unit, of scoring `calls` trajectories of `tokens` verifier tokens in all."""
        rates = self._rates[role]
        costs = {
            "tokens": tokens,
            "verifier_tokens": tokens,
            "verifier_calls": calls,
            "flops": tokens * (rates.flops or 0),
            "usd": tokens * (rates.usd_in or 0),
        }
        return {unit: costs[unit] for unit in self.meter.limits if costs.get(unit)}

    @property
    def holds_reserves(self) -> bool:
        """Whether anything is held for scoring."""
        return bool(self._reserves)

    def reserve(self, node: int, cost: RowCost, generated: int) -> bool:
        """Hold what scoring this node may cost; False where the limits cannot pay it."""
        amounts = {unit: amount for unit in self.meter.limits if (amount := cost.reserve(unit, generated))} if self._declared else None
        if not amounts:
            return True
        try:
            self._reserves[node] = self.meter.amounts(**amounts).held
        except Exhausted:
            return False
        return True

    def reserved(self) -> dict[str, int]:
        """Return what is held for scoring, by unit."""
        total: Counter[str] = Counter()
        for amounts in self._reserves.values():
            total.update(amounts)
        return dict(total)

    def free(self, node: int) -> None:
        """Release what is held for scoring a node."""
        if (amounts := self._reserves.pop(node, None)) is not None:
            self.meter.release(amounts)

    def free_all(self) -> None:
        """Release every reserve: the search is over."""
        for node in list(self._reserves):
            self.free(node)

    def book(self, kind: str, model: str, rows: int, usage: Usage, *, granted: int = 0, grant: Grant | None = None) -> None:
        """Add a ledger row and settle its grant.

        Raises:
            BudgetExceeded: the call spent more than granted.
        """
        self.ledger.add(Call(kind, model, rows, granted, usage))
        if grant is not None:
            usd = 0 if usage.usd is None else round(usage.usd * USD_UNIT)
            self.meter.settle(
                grant,
                {
                    "tokens": usage.tokens,
                    "generated_tokens": usage.generated_tokens + usage.cancelled_tokens,
                    "verifier_tokens": usage.verifier_tokens,
                    "verifier_calls": usage.verifier_calls,
                    "samples": usage.samples,
                    "flops": usage.flops or 0,
                    "usd": usd,
                },
            )


def priced(rates: Rates, *, computed: int, reused: int | None, generated: int) -> dict[str, Any]:
    """Return the `flops` and `usd` of tokens: None where the rates, or the reuse, are not known."""
    flops = None if rates.flops is None else rates.flops * (computed + generated)
    if rates.usd_in is None or rates.usd_out is None:
        return {"flops": flops, "usd": None}
    reused_rate = rates.usd_in if rates.usd_reused is None else rates.usd_reused
    usd = computed * rates.usd_in + (reused or 0) * reused_rate + generated * rates.usd_out
    return {"flops": flops, "usd": usd / USD_UNIT}
