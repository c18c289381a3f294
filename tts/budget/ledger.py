"""The record of an account: its sums, and a row for every call."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tts.budget.budget import USD_UNIT, Rates
from tts.types import Usage

Amounts = Mapping[str, int]  # whole numbers by unit; dollars in 1e-15
UNITS = ("tokens", "generated_tokens", "verifier_tokens", "verifier_calls", "samples", "flops", "usd")


class Books:
    """Where the sums of one account are kept: in this process's memory.

    `Account(books=…)` takes any callable from limits to an object with these members, which may keep them elsewhere.
    All amounts are whole units. The account calls it under its own lock, and a part has books in memory.

    Args:
        limits: The limits, by unit; `seconds` are not among them.

    Attributes:
        limits: The limits, by unit.
        spent: What was spent, by unit, limited or not.
        held: What is reserved, by limited unit.
    """

    __slots__ = ("held", "limits", "spent")

    def __init__(self, limits: Amounts) -> None:
        self.limits = dict(limits)
        self.spent: dict[str, int] = dict.fromkeys(UNITS, 0)
        self.held: dict[str, int] = dict.fromkeys(UNITS, 0)

    def remainder(self, unit: str) -> int:
        """Return what is neither spent nor held of a limited unit."""
        return self.limits[unit] - self.spent[unit] - self.held[unit]

    def hold(self, amounts: Amounts) -> None:
        """Hold amounts, all at once; negative ones are freed."""
        for unit, amount in amounts.items():
            self.held[unit] += amount

    def pay(self, amounts: Amounts) -> None:
        """Count amounts as spent, all at once."""
        for unit, amount in amounts.items():
            self.spent[unit] += amount

    def widen(self, unit: str, amount: int) -> None:
        """Raise a limit; a negative amount lowers it."""
        self.limits[unit] += amount


@dataclass(frozen=True, slots=True)
class Call:
    """One row of the ledger: a call to a model, a verifier or the search's own CPU work.

    A "cancel" moves tokens of earlier calls from generated to cancelled ones: a stop rule fired before their rows were
    used.

    Args:
        kind: One of "open", "expand", "extend", "ask", "hidden", "rollout", "score", "compare", "cancel", "embed" and
            "search".
        model: The role that was called.
        rows: The sequences in the call.
        granted: The tokens that its rows might have generated at most.
        usage: What it cost.
    """

    kind: str
    model: str
    rows: int
    granted: int
    usage: Usage


@dataclass(slots=True)
class Ledger:
    """Every call that an account paid, in order.

    Args:
        calls: The rows.
        noted: A function that gets each row that is added.
    """

    calls: list[Call] = field(default_factory=list[Call])
    noted: Callable[[Call], None] | None = None

    def add(self, call: Call) -> None:
        """Append a row."""
        self.calls.append(call)
        if self.noted is not None:
            self.noted(call)

    def total(self) -> Usage:
        """Return the sum of all rows; what is unknown (None) in one row is unknown in the sum."""
        return sum_usage([call.usage for call in self.calls])


_FIELDS: tuple[tuple[str, Any, Callable[[Usage], Any]], ...] = tuple(
    (f.name, f.default, operator.attrgetter(f.name)) for f in dataclasses.fields(Usage)
)


def sum_usage(usages: Sequence[Usage]) -> Usage:
    """Return the sum of usages; peaks are maxima; an unknown (None) term makes its sum unknown."""
    totals: dict[str, Any] = {}
    for name, default, read in _FIELDS:  # made once: each solution and each reply of a gateway sums
        values = [*map(read, usages)]
        if name in ("peak_kv_tokens", "saved_kv_tokens"):
            totals[name] = max(values, default=0)
        elif name == "kv_bytes_per_token":
            totals[name] = next((value for value in values if value is not None), None)
        elif name == "estimated":
            totals[name] = any(values)
        else:
            totals[name] = None if None in values else sum(values, default)
    return Usage(**totals)


def sum_known(counts: Sequence[int | None]) -> int | None:
    """Return the sum of counts; None where one is not known."""
    return None if None in counts else sum(count or 0 for count in counts)


def price_usage(
    usage: Usage, rates: Rates | None, known: Mapping[str, int] | None = None
) -> tuple[Usage, dict[str, int]]:
    """Return a usage with its flops and dollars, and what it spends by unit.

    Args:
        usage: The tokens and seconds of a call.
        rates: The rates of the model that was called; None: none was.
        known: The flops and dollars in whole units, where they do not follow from the rates.
    """
    flops = usd = 0
    if rates is not None:
        if known is None:
            computed = usage.prompt_tokens + usage.verifier_tokens
            reused = (usage.reused_tokens or 0) + usage.verifier_reused_tokens
            generated = usage.generated_tokens + usage.cancelled_tokens
            known = rates.costs(computed=computed, reused=reused, generated=generated)
        flops, usd = known["flops"], known["usd"]
        is_unpriced = rates.usd_in is None or rates.usd_out is None
        usage = dataclasses.replace(
            usage, flops=None if rates.flops is None else flops, usd=None if is_unpriced else usd / USD_UNIT
        )
    return usage, {
        "tokens": usage.tokens,
        "generated_tokens": usage.generated_tokens + usage.cancelled_tokens,
        "verifier_tokens": usage.verifier_tokens,
        "verifier_calls": usage.verifier_calls,
        "samples": usage.samples,
        "flops": flops,
        "usd": usd,
    }
