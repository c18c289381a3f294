"""What one search spends: grants from the meter, what stays reserved for scoring, and a ledger row for every call."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

from tts.backends.base import Backend
from tts.budget import USD_UNIT, Exhausted, Grant, Meter, Rates, RowCost
from tts.ledger import Call, Ledger
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

    def row_cost(self, backend: Backend, prefix: int, computed: int = 0) -> RowCost:
        """Return the bound of a row behind `prefix` tokens, of which it may compute `computed` again; declared verifiers included."""
        reused = 0 if computed else prefix
        if not self._declared:
            return RowCost(backend.rates, computed, reused)
        bounds = [(role, self._verifiers[role].bound) for role in self._declared]
        return RowCost(
            backend.rates,
            computed,
            reused,
            lambda new: sum(bound(prefix, new) for _, bound in bounds),
            len(bounds),
            lambda unit, new: sum(self._verifying(role, unit, bound(prefix, new), prefix + new) for role, bound in bounds),
        )

    def score_cost(self, role: str, tokens: int, calls: int, paths: int) -> dict[str, int]:
        """Return the bound, in each limited unit, of scoring `calls` trajectories.

        Args:
            tokens: verifier tokens in all. paths: tokens of the trajectories, prompts included, in all.
        """
        costs = {"tokens": tokens, "verifier_tokens": tokens, "verifier_calls": calls}
        for unit in ("flops", "usd"):
            if unit in self.meter.limits:
                costs[unit] = self._verifying(role, unit, tokens, paths)
        return {unit: costs[unit] for unit in self.meter.limits if unit in costs}

    def _verifying(self, role: str, unit: str, tokens: int, path: int) -> int:
        """Return what a verifier's tokens may cost at most: all read, or all written by a judge; all read again, and the path."""
        rates = self._rates[role]
        dearest = max(rates.cost(unit, computed=tokens), rates.cost(unit, generated=tokens))
        return dearest + rates.cost(unit, reused=tokens + path)

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

    def book(
        self,
        kind: str,
        model: str,
        rows: int,
        usage: Usage,
        *,
        rates: Rates | None = None,
        written: int = 0,
        granted: int = 0,
        grant: Grant | None = None,
    ) -> None:
        """Price a call, add its ledger row and settle its grant.

        Args:
            rates: of the model that was called; None: no model was. written: verifier tokens that a judge generated.

        Raises:
            BudgetExceeded: the call spent more than granted.
        """
        flops = usd = 0
        if rates is not None:
            computed = usage.prompt_tokens + usage.verifier_tokens - written
            reused = (usage.reused_tokens or 0) + usage.verifier_reused_tokens
            generated = usage.generated_tokens + usage.cancelled_tokens + written
            flops = rates.cost("flops", computed=computed, generated=generated)
            usd = rates.cost("usd", computed=computed, reused=reused, generated=generated)
            unpriced = rates.usd_in is None or rates.usd_out is None
            usage = dataclasses.replace(usage, flops=None if rates.flops is None else flops, usd=None if unpriced else usd / USD_UNIT)
        self.ledger.add(Call(kind, model, rows, granted, usage))
        if grant is not None:
            self.meter.settle(
                grant,
                {
                    "tokens": usage.tokens,
                    "generated_tokens": usage.generated_tokens + usage.cancelled_tokens,
                    "verifier_tokens": usage.verifier_tokens,
                    "verifier_calls": usage.verifier_calls,
                    "samples": usage.samples,
                    "flops": flops,
                    "usd": usd,
                },
            )
