"""Costs: prices of rows and scores, the account that pays for both, and what it owes for scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from tts.backends.base import Backend
from tts.budget.account import Account
from tts.budget.budget import Rates
from tts.budget.ledger import Amounts
from tts.budget.units import PRICED_UNITS
from tts.search.plan_rows import Price, Scores
from tts.verifiers.base import Verifier, most_requests, stated_bound, traits_of

_MOST_PRICES = 1000  # prices that are kept for further calls


class Costs:
    """Bounds of rows and scores of one search.

    What a score will cost is owed by its node: it is held from the end of the node's row until the score is made, or is
    no longer wanted.

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
        self.declared = [role for role in declared if role in verifiers]
        self._pairs = pairs or {}
        self._requests = {role: most_requests(verifier) for role, verifier in verifiers.items()}  # of one score
        # by role whose verifier has a model of its own: the most tokens that the model reads of a prompt
        self._prompt_bounds: dict[str, Callable[[int], int]] = {}
        for role, verifier in verifiers.items():
            prompt_bound = traits_of(verifier).prompt_bound
            if prompt_bound is not None:
                self._prompt_bounds[role] = prompt_bound
        # (role, root): the own model of the role's verifier has read the root's prompt
        self._read_prompts: set[tuple[str, int]] = set()
        self._owed: dict[int, tuple[Account, Amounts]] = {}  # by node: who holds what for its scores
        self._prices: dict[tuple[Backend, int, int, int], Price] = {}

    @contextmanager
    def pay_from(self, part: Account) -> Generator[Account]:
        """Let a part of the account pay in the block. The part is closed after the block.

        The outer account then holds what the part held for scores.
        """
        outer_account = self.account
        self.account = part
        try:
            yield part
        finally:
            self.account = outer_account
            owed_nodes = [node for node, (payer, _amounts) in self._owed.items() if payer is part]
            for node in owed_nodes:
                part.free(self._owed[node][1])
            part.close()
            for node in owed_nodes:
                _part, amounts = self._owed.pop(node)
                self._owe(node, amounts)

    # Prices of rows ---------------------------------------------------------------------------------------------------

    def price(
        self,
        backend: Backend,
        prefix: int,
        computed: int = 0,
        written: int = 0,
        prompts: Mapping[int, int] | None = None,
    ) -> Price:
        """Return the price of a row after `prefix` tokens, with the scores by the declared verifiers.

        For its score a verifier's own model may have to read the prompt first. Each row of a call has this bound,
        because any row may be scored first. After the call, the cost to read one prompt stays owed by each root.

        Args:
            backend: The backend that writes the row.
            prefix: The tokens before the row.
            computed: The tokens of the prefix that the backend may compute again.
            written: The tokens that the row has already. Verifiers read them together with the new tokens.
            prompts: The tokens of the prompts, by root; None: no prompt is to be read.
        """
        reading: dict[str, int] = {}  # the cost to read the dearest prompt
        if self._prompt_bounds and prompts:
            dearest = {u: max(self._reading(u, root, n) for root, n in prompts.items()) for u in PRICED_UNITS}
            reading = dearest if any(dearest.values()) else reading
        key = (backend, prefix, computed, written)
        price = None if reading else self._prices.get(key)
        if price is None:
            scores = self._score_bound(prefix, written) if self.declared else None
            reused = 0 if computed else prefix + written
            price = Price(self.account.units, backend.rates, computed, reused, scores, reading)
            if not reading:
                if len(self._prices) >= _MOST_PRICES:
                    self._prices.clear()
                self._prices[key] = price
        return price

    def _score_bound(self, prefix: int, written: int) -> Scores:
        """Return the bound of the declared scores of a row, by unit and the row's new tokens."""
        bounds = {role: self._bound_of(role) for role in self.declared}
        num_calls = sum(self._pairs.get(role, 1) for role in self.declared)

        num_requests = sum(map(self._requests_of, self.declared))
        only_bound = next(iter(bounds.values()))

        def scores(unit: str, new: int) -> int:
            if unit in ("tokens", "verifier_tokens"):
                if len(bounds) == 1:
                    return only_bound(prefix, written + new)
                return sum([bound(prefix, written + new) for bound in bounds.values()])
            if unit == "verifier_calls":
                return num_calls
            if unit == "requests":
                return num_requests
            if unit not in PRICED_UNITS:
                return 0
            tokens = written + new
            return sum(
                [self._verifying(role, unit, bound(prefix, tokens), prefix + tokens) for role, bound in bounds.items()]
            )

        return scores

    def _bound_of(self, role: str) -> Callable[[int, int], int]:
        """Return the bound of a role's verifier tokens for a path, as a function of prefix and new tokens."""
        comparison = traits_of(self._verifiers[role]).comparison if role in self._pairs else None
        if comparison is None:
            return partial(stated_bound, self._verifiers[role])
        compared_tokens = self._pairs[role] * comparison.pair_bound
        return lambda prefix, new: compared_tokens  # noqa: ARG005 - a comparison's prompt has a bound of its own

    def _requests_of(self, role: str) -> int:
        """Return the most requests that a role's verifier takes for a path."""
        comparison = traits_of(self._verifiers[role]).comparison if role in self._pairs else None
        return self._requests[role] if comparison is None else self._pairs[role] * comparison.most_requests

    def _reading(self, unit: str, root: int, tokens: int) -> int:
        """Return the bound of the declared verifiers' cost to read a prompt.

        The bound is 0 where the unit has no limit, or where the root's reserve is held already.
        """
        if unit not in self.account.units or root in self._owed:
            return 0
        return sum(
            self.rates[role].cost(unit, computed=self.unread_prompt(role, root, tokens)) for role in self.declared
        )

    def unread_prompt(self, role: str, root: int, tokens: int, *, again: bool = False) -> int:
        """Return the most tokens that a verifier's own model has yet to read of a prompt.

        With `again` the model reads the prompt even if it has read the prompt before.
        """
        if role not in self._prompt_bounds or ((role, root) in self._read_prompts and not again):
            return 0
        return self._prompt_bounds[role](tokens)

    @property
    def reads(self) -> bool:
        """Whether some verifier's own model reads prompts."""
        return bool(self._prompt_bounds)

    def reads_prompts(self, role: str) -> bool:
        """Whether a verifier's own model reads prompts."""
        return role in self._prompt_bounds

    def note_prompts_read(self, role: str, roots: Iterable[int], tokens: int) -> None:
        """Note the prompts that a verifier's own model has read.

        The model reads each prompt once, with the first text after the prompt.

        Args:
            role: The role of the verifier.
            roots: The roots whose paths with text were scored.
            tokens: The prompt tokens that the model read in this call; 0 where it had read the problem before.
        """
        has_read_before = any(reader == role for reader, _root in self._read_prompts)
        if tokens or has_read_before:
            self._read_prompts.update((role, root) for root in roots)

    def score_cost(
        self, role: str, tokens: int, calls: int, paths: int, prompts: int, requests: int | None = None
    ) -> dict[str, int]:
        """Return the bound, in each limited unit, of scoring `calls` trajectories.

        Args:
            role: The role of the verifier.
            tokens: The verifier tokens of all trajectories together.
            calls: The number of trajectories to score.
            paths: The tokens of all trajectories together, with their prompts.
            prompts: The tokens of prompts that the verifier's own model may have to read first.
            requests: The most requests of one verdict; None: those of a score.
        """
        costs = {"tokens": tokens, "verifier_tokens": tokens, "verifier_calls": calls}
        if "requests" in self.account.units:
            costs["requests"] = calls * (self._requests[role] if requests is None else requests)
        for unit in PRICED_UNITS:
            if unit in self.account.units:
                reading_cost = self.rates[role].cost(unit, computed=prompts)
                costs[unit] = self._verifying(role, unit, tokens, paths) + reading_cost
        return {unit: costs[unit] for unit in self.account.units if unit in costs}

    def _verifying(self, role: str, unit: str, tokens: int, path: int) -> int:
        """Return the most that a verifier's tokens may cost, in a unit.

        The tokens are all read, or all written by a judge. Later calls may read the tokens and the path again.
        """
        if not traits_of(self._verifiers[role]).calls_models:
            return 0
        rates = self.rates[role]
        dearest = max(rates.cost(unit, computed=tokens), rates.cost(unit, generated=tokens))
        return dearest + rates.cost(unit, reused=tokens + path)

    # What scores will cost --------------------------------------------------------------------------------------------

    @property
    def keeps_scores(self) -> bool:
        """Whether rows keep a reserve for the scores of some role."""
        return bool(self.declared)

    @property
    def owes(self) -> bool:
        """Whether anything is held for scores."""
        return bool(self._owed)

    def is_owed(self, node: int) -> bool:
        """Whether an amount is held for the scores of a node."""
        return node in self._owed

    def reserves(self) -> dict[str, int]:
        """Return the amounts that are held for scores, by unit."""
        total: Counter[str] = Counter()
        for _account, amounts in self._owed.values():
            total.update(amounts)
        return dict(total)

    def add_reserve(self, node: int, left: dict[str, int]) -> None:
        """Add what is held for a node's scores to amounts that are left of the account that pays now."""
        account, amounts = self._owed.get(node, (self.account, {}))
        for unit, amount in amounts.items():
            if account is self.account or account.pays(unit) is self.account.pays(unit):
                left[unit] += amount

    def owe(self, price: Price, new_tokens: Mapping[int, int], prompts: Mapping[int, int]) -> None:
        """Hold the cost of scoring some nodes, and of reading their prompts first.

        Nodes and prompts whose cost the limits cannot pay get no reserve.

        Args:
            price: The price of a row.
            new_tokens: The tokens of each node's row that the price does not count as written.
            prompts: The tokens of each prompt, by root.
        """
        if self.account.seconds_left == 0:
            return
        if self._prompt_bounds:
            for root in sorted(prompts):
                self._owe(root, {unit: self._reading(unit, root, prompts[root]) for unit in PRICED_UNITS})
        scores: dict[int, Amounts] = {}  # by number of tokens: nodes of equal size cost the same
        for node, tokens in new_tokens.items():
            if tokens not in scores:
                scores[tokens] = price.scores(tokens)
            self._owe(node, scores[tokens])

    def _owe(self, key: int, amounts: Amounts) -> None:
        """Hold amounts under a key if the limits pay all of them."""
        account = self.account
        wanted = {unit: amount for unit, amount in amounts.items() if amount and unit in account.units}
        if wanted and account.hold(wanted) is None:
            before = self._owed.get(key, (account, {}))[1]
            self._owed[key] = (account, dict(Counter(before) + Counter(wanted)) if before else wanted)

    def free(self, nodes: Iterable[int]) -> None:
        """Free what is held for the scores of some nodes: they are about to be paid, or are not wanted."""
        if self._owed:
            for node in nodes:
                account, amounts = self._owed.pop(node, (self.account, {}))
                if amounts:
                    account.free(amounts)

    def free_all(self) -> None:
        """Free all that is held for scores."""
        self.free(list(self._owed))
