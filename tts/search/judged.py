"""What strategies share that draw solutions from the root and judge them with one verifier: their common parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from tts.search.aggregation import check_aggregate
from tts.search.base import Named, Selection, check_bounded, check_temperature, nonempty_text, whole
from tts.search.selection import Best, Majority


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged(Named):
    """The parameters of such a strategy.

    Args:
        n: solutions to begin, at least 1; None: as many as the budget pays.
        temperature: of the policy; None: the run's. verifier: the role that scores. aggregate: step scores to one.
    """

    n: int | None = None
    temperature: float | None = None
    verifier: str = "main"
    aggregate: str = "last"

    def __post_init__(self) -> None:
        whole("n", self.n, 1)
        check_temperature(self.temperature)
        nonempty_text("verifier", self.verifier)
        check_aggregate(self.aggregate)

    @property
    def verifiers(self) -> tuple[str, ...]:
        """The role that scores."""
        return (self.verifier,)

    def size(self, units: int | None) -> Self:
        """Return itself: left out, n is whatever the budget turns out to pay.

        Raises:
            ConfigError: n is left out, and the budget does not bound it.
        """
        if self.n is None:
            check_bounded(self.registered_as, "n", units)
        return self

    def default_selection(self, *, verified: bool) -> Selection:
        """Return `best` by the score that it judges by; `majority` where there is no verifier."""
        return Best(verifier=self.verifier, aggregate=self.aggregate) if verified else Majority()
