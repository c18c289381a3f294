"""Grants against a budget, which never overrun its limits.

The meter works in whole numbers throughout (dollars as 1e-15), so that no rounding can carry a spend past a limit.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tts.budget.budget import USD_UNIT, Budget
from tts.errors import BudgetExceeded


@dataclass(frozen=True, slots=True)
class Rates:
    """What one token of a model costs, in the meter's whole units; None where the model's record has no rate.

    Args:
        flops: floating-point operations a computed token. usd_in, usd_reused, usd_out: 1e-15 dollars a token; `usd_reused`
            None: as `usd_in`.
    """

    flops: int | None = None
    usd_in: int | None = None
    usd_reused: int | None = None
    usd_out: int | None = None

    def cost(self, unit: str, *, computed: int = 0, reused: int = 0, generated: int = 0) -> int:
        """Return what input tokens, computed and reused, and generated tokens cost in `flops` or `usd`; unknown rates count as 0."""
        if unit == "flops":
            return (computed + generated) * (self.flops or 0)
        usd_in = self.usd_in or 0
        usd_reused = usd_in if self.usd_reused is None else self.usd_reused
        return computed * usd_in + reused * usd_reused + generated * (self.usd_out or 0)


@dataclass(frozen=True, slots=True)
class RowCost:
    """An upper bound of what one row costs, as a function of the tokens it may generate.

    Args:
        rates: of the model that generates. computed, reused: input tokens that starting the row may compute, and reuse.
        verifier_tokens: bound on what declared verifiers compute for a row of so many new tokens; never decreasing.
        verifier_calls: how often declared verifiers will score it.
        verifier_cost: what those tokens may cost in `flops` or `usd`, the path they reuse included; never decreasing.
    """

    rates: Rates = Rates()
    computed: int = 0
    reused: int = 0
    verifier_tokens: Callable[[int], int] = lambda _new: 0
    verifier_calls: int = 0
    verifier_cost: Callable[[str, int], int] = lambda _unit, _new: 0

    def bare(self) -> RowCost:
        """Return the cost without verification."""
        return RowCost(self.rates, self.computed, self.reused)

    def of(self, unit: str, generated: int) -> int:
        """Return the bound in one unit for a row of `generated` tokens."""
        return self.generation(unit, generated) + self.reserve(unit, generated)

    def generation(self, unit: str, generated: int) -> int:
        """Return the part of the bound that generating spends."""
        if unit in ("tokens", "generated_tokens"):
            return generated
        if unit in ("flops", "usd"):
            return self.rates.cost(unit, computed=self.computed, reused=self.reused, generated=generated)
        return 0

    def reserve(self, unit: str, generated: int) -> int:
        """Return the part of the bound that is kept for scoring the row."""
        if unit == "verifier_calls":
            return self.verifier_calls
        if unit in ("tokens", "verifier_tokens"):
            return self.verifier_tokens(generated)
        return self.verifier_cost(unit, generated) if unit in ("flops", "usd") else 0


@dataclass(slots=True)
class Grant:
    """Permission to start rows. `caps` are their token caps, in order; `held` is what stays blocked until `Meter.settle`."""

    caps: list[int]
    held: dict[str, int]


class Exhausted(Exception):
    """Not one row can start. `unit` names the limit."""

    def __init__(self, unit: str) -> None:
        super().__init__(unit)
        self.unit = unit


class Meter:
    """Hands out grants against a budget: what is spent plus what is held never passes a limit.

    Args:
        budget: the limits. clock: seconds. started: the clock's reading from which `seconds` count; None: now.
    """

    def __init__(self, budget: Budget, clock: Callable[[], float], started: float | None = None) -> None:
        self.budget = budget
        self._clock = clock
        self._seconds = budget.seconds
        self._closing = 0.0
        self.started = clock() if started is None else started
        self.limits: dict[str, int] = budget.whole_units()
        self.spent: dict[str, int] = dict.fromkeys(self.limits, 0)
        self.held: dict[str, int] = dict.fromkeys(self.limits, 0)

    @property
    def deadline(self) -> float | None:
        """The clock's reading at which the search must end for the `seconds` limit to hold; None without one."""
        return None if self._seconds is None else self.started + self._seconds - self._closing

    @property
    def seconds_left(self) -> float | None:
        """What is left of the `seconds` limit for the search, at least 0; None without one."""
        return None if self._seconds is None else max(0.0, self._seconds - self._closing - (self._clock() - self.started))

    def keep_for_closing(self, seconds: float) -> None:
        """Keep seconds, at most a tenth of the limit, for what comes after the search; 0: the search is over."""
        self._closing = 0.0 if self._seconds is None else min(seconds, self._seconds / 10)

    def left(self, unit: str) -> int:
        """Return what may still be granted of a limited unit."""
        return self.limits[unit] - self.spent[unit] - self.held[unit]

    def remaining(self) -> dict[str, float]:
        """Return what is not spent of every limit, in the caller's units; `seconds` may have run out but is never below 0."""
        rest: dict[str, float] = {u: self.limits[u] - self.spent[u] for u in self.limits}
        if "usd" in rest:
            rest["usd"] /= USD_UNIT
        if self.seconds_left is not None:
            rest["seconds"] = self.seconds_left
        return rest

    def check_time(self) -> None:
        """Raise Exhausted when the `seconds` limit has been met."""
        if self._seconds is not None and self._clock() - self.started >= self._seconds - self._closing:
            raise Exhausted("seconds")

    def rows(self, cost: RowCost, samples: Sequence[int], *, cap: int, typical: int, hold: int = 0, whole: bool = False) -> Grant:
        """Grant as many rows of one call as the limits allow.

        r = min(m, max(1, floor(left / t))) rows start, each capped at min(cap, the largest k that r rows can pay), for every
        limit at once; t is the cost of a row of `typical` tokens, its verification included.

        Args:
            cost: the bound a row. samples: what each of the m rows costs in samples, in order.
            cap: the rows' own token cap. typical: expected tokens of such a row.
            hold: tokens of a row that must stay payable beside this call.
            whole: grant one row all that it may need, if must be without its verification: so that an answer comes whenever one
                plain sample would give one.

        Raises:
            Exhausted: not one row can start.
        """
        self.check_time()
        left = {unit: self.left(unit) - (cost.bare().of(unit, hold) if hold else 0) for unit in self.limits}
        count = _affordable_samples(samples, left.get("samples"))
        verified = True
        if whole:
            caps = _fit(cost.bare(), 1, cap, 1, left)
            verified = all(cost.of(unit, caps[0]) <= left[unit] for unit in left)
        else:
            caps = _fit(cost, count, cap, typical, left)
        each = {unit: cost.of(unit, caps[0]) if verified else cost.generation(unit, caps[0]) for unit in self.limits}
        held = {unit: len(caps) * amount for unit, amount in each.items()}
        if "samples" in held:
            held["samples"] = sum(samples[: len(caps)])
        return self._hold(Grant(caps, held))

    def payable_samples(self, samples: Sequence[int]) -> int:
        """Return how many rows of these costs in samples may start, in order.

        Raises:
            Exhausted: none may.
        """
        return _affordable_samples(samples, self.left("samples") if "samples" in self.limits else None)

    def payable(self, cost: RowCost, tokens: int) -> float:
        """Return how many rows of so many tokens the limits on tokens, and on what tokens cost, pay; infinity where there is none."""
        each = {unit: cost.of(unit, tokens) for unit in self.limits if unit != "samples"}
        return min((self.left(unit) // amount for unit, amount in each.items() if amount > 0), default=math.inf)

    def scarcest(self, cost: RowCost, tokens: int) -> str:
        """Return the limit that pays the fewest rows of so many tokens."""
        each = {unit: amount for unit in self.limits if unit != "samples" and (amount := cost.of(unit, tokens)) > 0}
        return min(each, key=lambda unit: self.left(unit) / each[unit])

    def share(self, cost: RowCost, part: float, cap: int) -> int:
        """Return the most tokens, at most `cap`, of a row that costs no more than a part of what is left of each limit."""
        for unit in self.limits:
            cap = _largest(cost, unit, cap, int(self.left(unit) * part)) if unit != "samples" else cap
        return cap

    def short_of(self, amounts: Mapping[str, int]) -> str | None:
        """Return the first limit that cannot pay its amount; None: all can."""
        for unit, amount in amounts.items():
            if amount > self.left(unit):
                return unit
        return None

    def amounts(self, **amounts: int) -> Grant:
        """Grant fixed amounts by unit (those without a limit are free).

        Raises:
            Exhausted: a limit cannot pay its amount.
        """
        self.check_time()
        held = {unit: amount for unit, amount in amounts.items() if unit in self.limits}
        if (short := self.short_of(held)) is not None:
            raise Exhausted(short)
        return self._hold(Grant([], held))

    def _hold(self, grant: Grant) -> Grant:
        for unit, amount in grant.held.items():
            self.held[unit] += amount
        return grant

    def settle(self, grant: Grant, spent: Mapping[str, int], *, keep: Mapping[str, int] | None = None) -> None:
        """Turn a grant into a spend; what was not spent is free again, but for `keep`, which stays held (see `release`).

        Raises:
            BudgetExceeded: more was spent than granted. It is booked all the same: the record stays true.
        """
        over: list[str] = []
        for unit in self.limits:
            held, amount = grant.held.get(unit, 0), spent.get(unit, 0)
            kept = keep.get(unit, 0) if keep else 0
            self.held[unit] += kept - held
            self.spent[unit] += amount
            if amount + kept > held:
                over.append(f"{amount} {unit} where {held - kept} were granted")
        grant.held = {}
        if over:
            raise BudgetExceeded(f"a call spent {' and '.join(over)}", hint="the backend or verifier breaks its stated bound")

    def release(self, amounts: Mapping[str, int]) -> None:
        """Free amounts that `settle` kept."""
        for unit, amount in amounts.items():
            self.held[unit] -= amount


def _affordable_samples(samples: Sequence[int], left: int | None) -> int:
    if left is None:
        return len(samples)
    count = bisect.bisect_right(list(itertools.accumulate(samples)), left)
    if samples and not count:
        raise Exhausted("samples")
    return count


def _fit(cost: RowCost, rows: int, cap: int, typical: int, left: Mapping[str, int]) -> list[int]:
    """Return the caps of the rows that fit, at least one; Exhausted if none does."""
    typical = max(1, min(cap, typical))
    count = rows
    for unit, amount in left.items():
        if (each := cost.of(unit, typical)) > 0:
            count = min(count, max(1, amount // each))
    for unit, amount in left.items():
        cap = _largest(cost, unit, cap, amount // count)
        if cap < 1:
            raise Exhausted(unit)
    return [cap] * count


def _largest(cost: RowCost, unit: str, cap: int, each: int) -> int:
    """Return the largest k <= cap with cost(k) <= each, by bisection: the cost never decreases in k. 0: none."""
    low, high = 0, min(cap, each) if unit in ("tokens", "generated_tokens") else cap
    if cost.of(unit, high) <= each:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if cost.of(unit, middle) <= each else (low, middle - 1)
    return low
