"""Costs: upper bounds of the costs of rows and scores, and the account that pays for both."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from tts.backends.base import Backend
from tts.budget.account import Account
from tts.budget.budget import Rates, RowCost
from tts.verifiers.base import Verifier, stated_bound, traits_of


class Costs:
    """Bounds of rows and scores of one search.

    Args:
        account: The account of the search.
        verifiers: The verifiers by role.
        declared: The roles for whose scores every row keeps a reserve.
        rates: The cost of a verifier's tokens, by role.
        pairs: The number of comparisons that every row reserves in place of a score, by role.

    Attributes:
        account: The account that pays now: that of the search, or a part of it for a round.
        whole: The account of the search.
        rates: The cost of a verifier's tokens, by role.
    """

    def __init__(
        self,
        account: Account,
        verifiers: Mapping[str, Verifier],
        declared: Sequence[str],
        rates: Mapping[str, Rates],
        pairs: Mapping[str, int] | None = None,
    ) -> None:
        self.account = self.whole = account
        self.rates = rates
        self._verifiers = verifiers
        self._declared = [role for role in declared if role in verifiers]
        self._pairs = pairs or {}
        self._prompt_bounds = {
            role: bound
            for role, verifier in verifiers.items()
            if (bound := traits_of(verifier).prompt_bound) is not None
        }
        self._read: set[tuple[str, int]] = set()  # (role, root) whose prompt a verifier's own model has read

    @contextmanager
    def pay_from(self, part: Account) -> Generator[Account]:
        """Let a part of the account pay in the block. The part is closed after the block."""
        outer, self.account = self.account, part
        try:
            yield part
        finally:
            self.account = outer
            part.close()

    def row_cost(self, backend: Backend, prefix: int, computed: int = 0, written: int = 0) -> RowCost:
        """Return the bound of a row after `prefix` tokens, declared verifiers included.

        The row may compute `computed` of these tokens again.

        Args:
            backend: The backend that writes the row.
            prefix: The tokens before the row.
            computed: The tokens that may be computed again.
            written: The tokens that the row has already. Verifiers read them together with the new tokens.
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
                self._verifying(role, unit, bound(prefix, written + new), prefix + written + new)
                for role, bound in bounds
            ),
        )

    def _bound_of(self, role: str) -> Callable[[int, int], int]:
        """Return the bound of a role's verifier tokens for a path, as a function of prefix and new tokens."""
        comparison = traits_of(self._verifiers[role]).comparison if role in self._pairs else None
        if comparison is None:
            return partial(stated_bound, self._verifiers[role])
        most = self._pairs[role] * comparison.pair_bound
        return lambda prefix, new: most  # noqa: ARG005 - a comparison's prompt has a bound of its own

    def add_prompt_reading(self, cost: RowCost, prompts: Mapping[int, int]) -> RowCost:
        """Return the bound of a row that may have to pay verifiers' reading of its prompt.

        Verifiers' own models read the prompt. Each row of a call has this bound, because any row may be the first.
        After the call, one such amount for each root stays reserved (see `keep_scores`).

        Args:
            cost: The bound of the row without this reading.
            prompts: The tokens of the prompts, by root.
        """
        if not self._prompt_bounds:
            return cost
        dearest = {
            unit: max(self._prompts_cost(unit, *prompt) for prompt in prompts.items()) for unit in ("flops", "usd")
        }
        if not any(dearest.values()):
            return cost
        return dataclasses.replace(cost, verifier_cost=lambda unit, new: dearest[unit] + cost.verifier_cost(unit, new))

    def _prompts_cost(self, unit: str, root: int, tokens: int) -> int:
        """Return the bound of the declared verifiers' cost to read a prompt.

        The bound is 0 where the unit has no limit, or where a reserve is held already.
        """
        if unit not in self.account.units or self.account.keeps(root):
            return 0
        return sum(
            self.rates[role].cost(unit, computed=self.unread_prompt(role, root, tokens)) for role in self._declared
        )

    def unread_prompt(self, role: str, root: int, tokens: int, *, again: bool = False) -> int:
        """Return the most tokens that a verifier's own model has yet to read of a prompt.

        With `again` the prompt is opened anew.
        """
        if role not in self._prompt_bounds or ((role, root) in self._read and not again):
            return 0
        return self._prompt_bounds[role](tokens)

    def reads_prompts(self, role: str) -> bool:
        """Whether a verifier's own model reads prompts."""
        return role in self._prompt_bounds

    def note_prompts_read(self, role: str, roots: Iterable[int], tokens: int) -> None:
        """Note the prompts that a verifier's own model has read.

        The model reads each prompt once, with the first text after the prompt.

        Args:
            role: The role of the verifier.
            roots: The roots whose paths with text were scored.
            tokens: The prompt tokens that the model read now; 0 where it has read the problem before.
        """
        if tokens or any(reader == role for reader, _ in self._read):
            self._read.update((role, root) for root in roots)

    @property
    def keeps_scores(self) -> bool:
        """Whether rows keep a reserve for the scores of some role."""
        return bool(self._declared)

    def keep_scores(self, cost: RowCost, tokens: Mapping[int, int], prompts: Mapping[int, int]) -> None:
        """Reserve the cost of scoring some nodes, and of reading their prompts first.

        A limit that has too little left reserves what it has.

        Args:
            cost: The bound of a row.
            tokens: The tokens of each node.
            prompts: The tokens of each prompt, by root.
        """
        units = self.account.units
        amounts: dict[object, Mapping[str, int]] = {
            root: {unit: self._prompts_cost(unit, root, prompts[root]) for unit in ("flops", "usd")}
            for root in sorted(prompts)
        }
        by_size: dict[int, Mapping[str, int]] = {}  # nodes of equal size cost the same
        for node, number in tokens.items():
            if (reserve := by_size.get(number)) is None:
                reserve = by_size[number] = cost.reserves(units, number)
            amounts[node] = reserve
        self.account.keep(amounts)

    def score_cost(self, role: str, tokens: int, calls: int, paths: int, prompts: int) -> dict[str, int]:
        """Return the bound, in each limited unit, of scoring `calls` trajectories.

        Args:
            role: The role of the verifier.
            tokens: The verifier tokens of all trajectories together.
            calls: The number of trajectories to score.
            paths: The tokens of all trajectories together, with their prompts.
            prompts: The tokens of prompts that the verifier's own model may have to read first.
        """
        costs = {"tokens": tokens, "verifier_tokens": tokens, "verifier_calls": calls}
        for unit in ("flops", "usd"):
            if unit in self.account.units:
                costs[unit] = self._verifying(role, unit, tokens, paths) + self.rates[role].cost(unit, computed=prompts)
        return {unit: costs[unit] for unit in self.account.units if unit in costs}

    def _verifying(self, role: str, unit: str, tokens: int, path: int) -> int:
        """Return the most that a verifier's tokens may cost.

        The tokens are all read, or all written by a judge. Afterwards the tokens and the path may be read again.
        """
        rates = self.rates[role]
        dearest = max(rates.cost(unit, computed=tokens), rates.cost(unit, generated=tokens))
        return dearest + rates.cost(unit, reused=tokens + path)
