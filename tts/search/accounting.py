"""What one search spends: grants from the meter, what stays reserved for scoring, and a ledger row for every call."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from tts.backends.protocol import BackendProtocol
from tts.budget.budget import USD_UNIT
from tts.budget.ledger import Call, Ledger
from tts.budget.meter import Exhausted, Grant, Meter, Rates, RowCost
from tts.types import Usage
from tts.verifiers.base import VerifierProtocol, stated_bound, traits_of


class Accounting:
    """Books every call of one problem against its meter.

    Args:
        meter: of the problem's budget. verifiers: by role. declared: roles whose cost is reserved with every row.
        rates: cost of a verifier's tokens, by role. noted: called with each row of the ledger.
        pairs: comparisons that are reserved with every row in place of a score, by role.

    Attributes:
        rates: as given. spent: so far, in the units of tokens, calls and samples, limited or not.
    """

    def __init__(
        self,
        meter: Meter,
        verifiers: Mapping[str, VerifierProtocol],
        declared: Sequence[str],
        rates: Mapping[str, Rates],
        noted: Callable[[Call], None] | None = None,
        pairs: Mapping[str, int] | None = None,
    ) -> None:
        self.meter = meter
        self.ledger = Ledger(noted=noted)
        self.spent: dict[str, int] = dict.fromkeys(("tokens", "generated_tokens", "verifier_tokens", "verifier_calls", "samples"), 0)
        self._verifiers = verifiers
        self._declared = [role for role in declared if role in verifiers]
        self.rates = rates
        self._pairs = pairs or {}
        self._reserves: dict[int, dict[str, int]] = {}
        self._prompt_bounds = {role: bound for role, one in verifiers.items() if (bound := traits_of(one).prompt_bound) is not None}
        self._read: set[tuple[str, int]] = set()  # (role, root) whose prompt a verifier's own model has read

    def row_cost(self, backend: BackendProtocol, prefix: int, computed: int = 0, written: int = 0) -> RowCost:
        """Return the bound of a row after `prefix` tokens, of which it may compute `computed` again; declared verifiers included.

        Args:
            written: tokens that the row has already; they are verified with the new ones.
        """
        reused = 0 if computed else prefix + written
        if not self._declared:
            return RowCost(backend.rates, computed, reused)
        bounds = [(role, self._bound_of(role)) for role in self._declared]
        first = bounds[0][1]
        return RowCost(
            backend.rates,
            computed,
            reused,
            (lambda new: first(prefix, written + new))
            if len(bounds) == 1
            else (lambda new: sum(bound(prefix, written + new) for _, bound in bounds)),
            sum(self._pairs.get(role, 1) for role in self._declared),
            lambda unit, new: sum(
                self._verifying(role, unit, bound(prefix, written + new), prefix + written + new) for role, bound in bounds
            ),
        )

    def _bound_of(self, role: str) -> Callable[[int, int], int]:
        """Return the most verifier tokens of a role for a path, by the tokens of its prefix and those after it."""
        comparison = traits_of(self._verifiers[role]).comparison if role in self._pairs else None
        if comparison is None:
            return partial(stated_bound, self._verifiers[role])
        most = self._pairs[role] * comparison.pair_bound
        return lambda prefix, new: most  # noqa: ARG005 - a comparison reads what its prompt has room for

    def before_prompts(self, cost: RowCost, prompts: Mapping[int, int]) -> RowCost:
        """Return the bound of a row that may have to pay what verifiers' own models read of its prompt; tokens by root.

        Each row of a call has this bound, because any of them may be the first. After the call, one such amount a root stays held (see
        `reserve_prompt`).
        """
        dearest = {unit: max(self._prompts_cost(unit, *one) for one in prompts.items()) for unit in ("flops", "usd")}
        if not any(dearest.values()):
            return cost
        return dataclasses.replace(cost, verifier_cost=lambda unit, new: dearest[unit] + cost.verifier_cost(unit, new))

    def _prompts_cost(self, unit: str, root: int, tokens: int) -> int:
        """Return what declared verifiers' own models may yet cost to read a prompt; 0 where that is held already, or not limited."""
        if root in self._reserves or unit not in self.meter.limits:
            return 0
        return sum(self.rates[role].cost(unit, computed=self.unread_prompt(role, root, tokens)) for role in self._declared)

    def unread_prompt(self, role: str, root: int, tokens: int, *, again: bool = False) -> int:
        """Return the most tokens that a verifier's own model has yet to read of a prompt; `again`: whether it is opened anew."""
        if role not in self._prompt_bounds or ((role, root) in self._read and not again):
            return 0
        return self._prompt_bounds[role](tokens)

    def reads_prompts(self, role: str) -> bool:
        """Whether a verifier's own model reads prompts."""
        return role in self._prompt_bounds

    def prompts_were_read(self, role: str, roots: Iterable[int], tokens: int) -> None:
        """Note which prompts a verifier's own model has read: it reads each once, with the first text after it.

        Args:
            roots: whose paths with text were scored. tokens: of prompts that it read; models that read the problem once read none later.
        """
        if tokens or any(of == role for of, _ in self._read):
            self._read.update((role, root) for root in roots)

    def reserve_prompt(self, root: int, tokens: int) -> None:
        """Hold what declared verifiers' own models may cost to read a prompt, if it can be paid and is not held already."""
        amounts = {unit: amount for unit in ("flops", "usd") if (amount := self._prompts_cost(unit, root, tokens))}
        if amounts:
            with suppress(Exhausted):
                self._reserves[root] = self.meter.amounts(**amounts).held

    def score_cost(self, role: str, tokens: int, calls: int, paths: int, prompts: int) -> dict[str, int]:
        """Return the bound, in each limited unit, of scoring `calls` trajectories.

        Args:
            tokens: verifier tokens in all. paths: tokens of the trajectories, prompts included, in all.
            prompts: tokens of prompts that the verifier's own model may have to read first.
        """
        costs = {"tokens": tokens, "verifier_tokens": tokens, "verifier_calls": calls}
        for unit in ("flops", "usd"):
            if unit in self.meter.limits:
                costs[unit] = self._verifying(role, unit, tokens, paths) + self.rates[role].cost(unit, computed=prompts)
        return {unit: costs[unit] for unit in self.meter.limits if unit in costs}

    def _verifying(self, role: str, unit: str, tokens: int, path: int) -> int:
        """Return what a verifier's tokens may cost at most: all read, or all written by a judge; all read again, and the path."""
        rates = self.rates[role]
        dearest = max(rates.cost(unit, computed=tokens), rates.cost(unit, generated=tokens))
        return dearest + rates.cost(unit, reused=tokens + path)

    @property
    def holds_reserves(self) -> bool:
        """Whether anything is held for scoring."""
        return bool(self._reserves)

    def is_reserved(self, node: int) -> bool:
        """Whether something is held for scoring a node."""
        return node in self._reserves

    def reserve(self, node: int, cost: RowCost, generated: int) -> bool:
        """Hold what scoring this node may cost; False where the limits cannot pay it."""
        if not self._declared:
            return True
        amounts = {unit: amount for unit in self.meter.limits if (amount := cost.reserve(unit, generated))}
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

    def cancel(self, model: str, rows: int, tokens: int) -> None:
        """Book tokens that were generated, for rows that a stop rule left without a use, as cancelled ones."""
        self.ledger.add(Call("cancel", model, rows, 0, Usage(generated_tokens=-tokens, cancelled_tokens=tokens)))

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
        priced: Mapping[str, int] | None = None,
        granted: int = 0,
        grant: Grant | None = None,
    ) -> None:
        """Price a call, add its ledger row and settle its grant.

        Args:
            rates: of the model that was called; None: no model was. priced: what it cost, in `flops` and `usd`, where that is known.

        Raises:
            BudgetExceeded: the call spent more than granted.
        """
        flops = usd = 0
        if rates is not None:
            computed = usage.prompt_tokens + usage.verifier_tokens
            reused = (usage.reused_tokens or 0) + usage.verifier_reused_tokens
            generated = usage.generated_tokens + usage.cancelled_tokens
            if priced is None:
                priced = {unit: rates.cost(unit, computed=computed, reused=reused, generated=generated) for unit in ("flops", "usd")}
            flops, usd = priced["flops"], priced["usd"]
            unpriced = rates.usd_in is None or rates.usd_out is None
            usage = dataclasses.replace(usage, flops=None if rates.flops is None else flops, usd=None if unpriced else usd / USD_UNIT)
        self.ledger.add(Call(kind, model, rows, granted, usage))
        spent = {
            "tokens": usage.tokens,
            "generated_tokens": usage.generated_tokens + usage.cancelled_tokens,
            "verifier_tokens": usage.verifier_tokens,
            "verifier_calls": usage.verifier_calls,
            "samples": usage.samples,
        }
        for unit, amount in spent.items():
            self.spent[unit] += amount
        if grant is not None:
            self.meter.settle(grant, spent | {"flops": flops, "usd": usd})


def sum_known(counts: Sequence[int | None]) -> int | None:
    """Return the sum of counts; None where one is not known."""
    return None if None in counts else sum(count or 0 for count in counts)
