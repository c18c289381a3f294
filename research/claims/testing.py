"""Estimates with intervals over problems and one-sided p-values, from the same resamples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tts.statistics import Estimate, Statistic, bootstrap, holm

Floats = NDArray[np.float64]
Unit = Literal["points", "times"]
LEVEL = 0.05
_NOTHING: Mapping[Unit, float] = {"points": 0.0, "times": 1.0}
_RESAMPLES = 4000


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure of a claim.

    Args:
        where: The budget, verifier or method of the figure.
        found: The estimate with its interval.
        bound: The bound that the claim states.
        unit: The unit. "points": a difference of accuracies, in points. "times": a ratio.
        opposite: The value at which, and below which, the figure says the opposite: no difference, or the loss that the
            claim allows.
        p: The share of resamples at the opposite or below.
        corrected: The p-value that Holm's method corrected over all figures of all claims.
    """

    where: str
    found: Estimate
    bound: float
    unit: Unit
    opposite: float
    p: float
    corrected: float = math.nan

    @property
    def holds(self) -> bool:
        """Whether the figure reaches the bound, and the corrected p-value excludes the opposite."""
        return self.found.value >= self.bound and self.corrected < LEVEL

    def __str__(self) -> str:
        """Return the figure in words."""
        if math.isnan(self.found.value):
            return f"{self.where}: not reached by one of the two"
        bound = f"{self.bound:+g}" if self.unit == "points" else f"{self.bound:g}"
        p = (
            ""
            if math.isnan(self.corrected)
            else f", p {'< 0.001' if self.corrected < 0.001 else f'{self.corrected:.3f}'}"
        )
        return f"{self.where}: {self.value}, asked {bound}{p}"

    @property
    def value(self) -> str:
        """Return the figure with its interval and unit."""
        value, low, high = self.found.value, self.found.low, self.found.high
        if self.unit == "points":
            return f"{value:+.1f} [{low:+.1f}, {high:+.1f}] points"
        return f"{value:.2f} [{low:.2f}, {high:.2f}] times"


def figure_of(
    where: str, statistic: Statistic, num: int, bound: float, unit: Unit, opposite: float | None = None
) -> Figure:
    """Return a test of a statistic of problems.

    Args:
        where: The budget, verifier or method of the figure.
        statistic: The function from counts [R, P] to values [R], in the unit.
        num: The number of problems P.
        bound: The bound that the claim states.
        unit: The unit of the values.
        opposite: The value at which the figure says the opposite; None: no difference.
    """
    least, drawn = _NOTHING[unit] if opposite is None else opposite, list[Floats]()

    def keep_values(counts: Floats) -> Floats:
        drawn.append(np.asarray(statistic(counts), np.float64))
        return drawn[-1]

    found = bootstrap(keep_values, num, np.random.default_rng(0), resamples=_RESAMPLES)
    values = np.concatenate(drawn[1:]) if len(drawn) > 1 else np.array([math.nan])
    below = np.count_nonzero(~(values > least))  # an unknown value says the opposite
    return Figure(
        where=where, found=found, bound=bound, unit=unit, opposite=least, p=float((1 + below) / (1 + len(values)))
    )


def unknown_figure(where: str, bound: float, unit: Unit) -> Figure:
    """Return the test of a figure that is unknown, because one method never reaches what the other does."""
    nothing = Estimate(math.nan, math.nan, math.nan, 0.95, 0)
    return Figure(where=where, found=nothing, bound=bound, unit=unit, opposite=_NOTHING[unit], p=1.0)


def difference(where: str, mine: Floats, theirs: Floats, bound: float, opposite: float | None = None) -> Figure:
    """Return the test of a mean difference of shares [P] of the same problems, in points."""
    gap = 100 * (mine - theirs)
    return figure_of(where, lambda counts: counts @ gap / counts.sum(axis=1), len(gap), bound, "points", opposite)


def correct(families: Sequence[Sequence[Figure]]) -> list[list[Figure]]:
    """Return tests with their p-values corrected by Holm over all of them."""
    values = holm([one.p for tests in families for one in tests]).tolist()
    return [[replace(one, corrected=values.pop(0)) for one in tests] for tests in families]
