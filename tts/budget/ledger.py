"""The record of an account: its sums, and a row for every call."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tts.budget.budget import Rates
from tts.budget.units import UNITS, USD_UNIT
from tts.errors import EngineError
from tts.types import Usage

Amounts = Mapping[str, int]  # whole numbers by unit; dollars in 1e-15


class Books:
    """The sums of one account, in this process's memory.

    `Account(books=…)` takes any callable from limits to an object with these members, which may keep the sums
    elsewhere. All amounts are whole units. The account calls its books under its own lock. A part always has books in
    memory.

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
        """Return the amount of a limited unit that is neither spent nor held."""
        return self.limits[unit] - self.spent[unit] - self.held[unit]

    def hold(self, amounts: Amounts) -> None:
        """Hold amounts, all at once; negative amounts are freed."""
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

    A call of the kind "cancel" moves tokens of earlier calls from generated to cancelled tokens, after a stop rule
    fired before the rows of these calls were used.

    Args:
        kind: One of "open", "expand", "extend", "ask", "hidden", "rollout", "score", "compare", "cancel", "embed" and
            "search".
        model: The role that was called.
        rows: The sequences in the call.
        granted: The most tokens that the rows might have generated.
        usage: The cost of the call.
        readings: The number of times that `usage` counts the input; None: once for each row.
    """

    kind: str
    model: str
    rows: int
    granted: int
    usage: Usage
    readings: int | None = None


class Entry(NamedTuple):
    """One row of a ledger as plain numbers, in the order of `Call` and `Usage`.

    Flops and dollars are in whole units; None: not known.
    """

    kind: str
    model: str
    rows: int
    granted: int
    readings: int | None = None
    prompt_tokens: int = 0
    reused_tokens: int | None = 0
    generated_tokens: int = 0
    cancelled_tokens: int = 0
    verifier_tokens: int = 0
    verifier_reused_tokens: int = 0
    verifier_calls: int = 0
    samples: int = 0
    requests: int = 0
    flops: int | None = 0
    usd: int | None = 0
    seconds: float = 0.0
    work_seconds: float = 0.0
    kv_bytes_per_token: int | None = None
    estimated: bool = False

    def call(self) -> Call:
        """Return the row as readers of a ledger see it."""
        usage: dict[str, Any] = dict(zip(_USAGE_NAMES, self[_NUM_CALL_FIELDS:], strict=True))
        usage["usd"] = None if self.usd is None else self.usd / USD_UNIT
        return Call(self.kind, self.model, self.rows, self.granted, Usage(**usage), self.readings)


_NUM_CALL_FIELDS = Entry._fields.index("prompt_tokens")  # the fields before are of the call, the others of its usage
_USAGE_NAMES = Entry._fields[_NUM_CALL_FIELDS:]


class Ledger:
    """Every call that an account paid, in order.

    Args:
        noted: A function that gets each call that is added.

    Attributes:
        entries: The rows, as plain numbers.
    """

    __slots__ = ("_noted", "entries")

    def __init__(self, noted: Callable[[Call], None] | None = None) -> None:
        self.entries: list[Entry] = []
        self._noted = noted

    def add(self, entry: Entry) -> None:
        """Append a row."""
        self.entries.append(entry)
        if self._noted is not None:
            self._noted(entry.call())

    @property
    def calls(self) -> list[Call]:
        """The calls."""
        return [entry.call() for entry in self.entries]

    def total(self) -> Usage:
        """Return the sum of all rows; a number that is unknown (None) in one row is unknown in the sum."""
        columns = list(zip(*self.entries, strict=True))[_NUM_CALL_FIELDS:]
        totals: dict[str, Any] = {}
        for name, values in zip(_USAGE_NAMES, columns, strict=False):  # no columns where there is no row
            if name == "usd":
                known = [value / USD_UNIT for value in values if value is not None]
                totals[name] = sum(known, 0.0) if len(known) == len(values) else None
            else:
                totals[name] = _sum_field(name, values)
        return Usage(**totals)


# the getter of each field; made once, because each reply of several searches sums usages
_FIELDS: Mapping[str, Callable[[Usage], Any]] = {
    field.name: operator.attrgetter(field.name) for field in dataclasses.fields(Usage)
}
_FLOATS = ("usd", "seconds", "work_seconds")


def sum_usage(usages: Sequence[Usage]) -> Usage:
    """Return the sum of usages.

    Peaks are not added: the greatest counts. An unknown (None) term makes its sum unknown.
    """
    return Usage(**{name: _sum_field(name, [get(usage) for usage in usages]) for name, get in _FIELDS.items()})


def _sum_field(name: str, values: Sequence[Any]) -> Any:
    """Return the sum of the values of one field of usages; see `sum_usage`."""
    if name in ("peak_kv_tokens", "saved_kv_tokens"):
        return max(values, default=0)
    if name == "kv_bytes_per_token":
        return next((value for value in values if value is not None), None)
    if name == "estimated":
        return any(values)
    return None if None in values else sum(values, 0.0 if name in _FLOATS else 0)


_COUNTS = frozenset(
    ("prompt_tokens", "reused_tokens", "generated_tokens", "cancelled_tokens", "verifier_tokens",
     "verifier_reused_tokens", "verifier_calls", "samples", "requests")
)  # fmt: skip


def check_counts(counts: Mapping[str, Any], priced: Mapping[str, int] | None) -> None:
    """Check the counts and prices of a call before they are booked.

    Raises:
        EngineError: A count or a price is no whole number of at least 0; `reused_tokens` may be None, too.
    """
    for name, amount in {**{name: counts[name] for name in counts if name in _COUNTS}, **(priced or {})}.items():
        if (type(amount) is not int or amount < 0) and not (amount is None and name == "reused_tokens"):
            rule = "a whole number of at least 0"
            raise EngineError(f"a call reports {name} = {amount!r}, but must report {rule}", kind="BadReply")


def sum_known(counts: Sequence[int | None]) -> int | None:
    """Return the sum of counts; None where a count is not known."""
    return None if None in counts else sum(count or 0 for count in counts)


def price_counts(
    call: tuple[str, str, int, int], counts: Mapping[str, Any], rates: Rates | None, known: Mapping[str, int] | None
) -> tuple[Entry, dict[str, int]]:
    """Return the row of a call with its flops and dollars, and the spent amounts by unit.

    Args:
        call: The kind, the role, the rows and the granted tokens.
        counts: The cost of the call by the fields of `Entry`.
        rates: The rates of the model that was called; None: no model was called.
        known: The flops and dollars in whole units, where they do not follow from the rates.
    """
    get = counts.get
    generated = get("generated_tokens", 0) + get("cancelled_tokens", 0)
    verifier_tokens = get("verifier_tokens", 0)
    spent = {
        "tokens": generated + verifier_tokens,
        "generated_tokens": generated,
        "verifier_tokens": verifier_tokens,
        "verifier_calls": get("verifier_calls", 0),
        "samples": get("samples", 0),
        "requests": get("requests", 0),
    }
    if rates is None:
        return Entry(*call, **counts), spent
    if known is None:
        computed = get("prompt_tokens", 0) + verifier_tokens
        reused = (get("reused_tokens", 0) or 0) + get("verifier_reused_tokens", 0)
        known = rates.costs(computed=computed, reused=reused, generated=generated)
    spent["flops"], spent["usd"] = known["flops"], known["usd"]
    is_unpriced = rates.usd_in is None or rates.usd_out is None
    flops, usd = None if rates.flops is None else spent["flops"], None if is_unpriced else spent["usd"]
    return Entry(*call, flops=flops, usd=usd, **counts), spent
