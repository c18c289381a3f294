"""The sums of an account: what is spent and held of each limit."""

from __future__ import annotations

from collections.abc import Mapping

Amounts = Mapping[str, int]  # whole numbers by unit; dollars in 1e-15
UNITS = ("tokens", "generated_tokens", "verifier_tokens", "verifier_calls", "samples", "flops", "usd")


class Books:
    """Where the sums of one account are kept: in this process's memory.

    `Account(books=…)` takes any callable from limits to an object with these members, which may keep them elsewhere. All amounts are whole
    units. The account calls it under its own lock, and a part has books in memory.

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

    def left(self, unit: str) -> int:
        """Return what is neither spent nor held of a limited unit."""
        return self.limits[unit] - self.spent[unit] - self.held[unit]

    def hold(self, unit: str, amount: int) -> None:
        """Hold an amount; a negative one is freed."""
        self.held[unit] += amount

    def pay(self, unit: str, amount: int) -> None:
        """Count an amount as spent."""
        self.spent[unit] += amount

    def widen(self, unit: str, amount: int) -> None:
        """Raise a limit; a negative amount lowers it."""
        self.limits[unit] += amount
