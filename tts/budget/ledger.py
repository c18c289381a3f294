"""The record of a search's spend: a row for every call."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tts.types import Usage


@dataclass(frozen=True, slots=True)
class Call:
    """One row of the ledger: a call to a model, a verifier or the search's own CPU work.

    Args:
        kind: "open", "expand", "extend", "ask", "hidden", "rollout", "score", "cancel", "embed" or "search". model: the role that was
            called.
        rows: sequences in the call. granted: tokens that its rows might have generated at most. usage: what it cost.
            "cancel" moves tokens of earlier calls from generated to cancelled ones: a stop rule fired before their rows were used.
    """

    kind: str
    model: str
    rows: int
    granted: int
    usage: Usage


@dataclass(slots=True)
class Ledger:
    """Every call of one problem, in order. noted: called with each row that is added."""

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
