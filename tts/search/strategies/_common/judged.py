"""Common parameters of strategies that draw solutions from the root and judge them with one verifier."""

from __future__ import annotations

from dataclasses import dataclass

from tts.checks import Count, Text
from tts.search.needs import Needs
from tts.search.parameters import Aggregate, Temperature
from tts.search.parts import Selection, Strategy
from tts.search.selections.best import Best
from tts.search.selections.majority import Majority


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged(Strategy):
    """The parameters of a strategy that judges whole solutions.

    Args:
        n: The solutions to begin, at least 1; None: as many as the budget pays.
        temperature: The temperature of the policy; None: the run's.
        verifier: The role that scores.
        aggregate: The aggregate that makes one score of the scores of steps.
    """

    n: Count | None = None
    temperature: Temperature | None = None
    verifier: Text = "main"
    aggregate: Aggregate = "last"

    def needs(self) -> Needs:
        """Return the needs: a verifier."""
        return Needs(verifiers=(self.verifier,))

    def default_selection(self, *, verified: bool) -> Selection:
        """Return `best` by the strategy's own score; `majority` where there is no verifier."""
        return Best(verifier=self.verifier, aggregate=self.aggregate) if verified else Majority()
