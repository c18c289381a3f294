"""Estimates with their intervals, each from a generator of its own.

So no table depends on which other tables are made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tts.randomness import generator
from tts.statistics import Estimate, clustered_auc, clustered_auc_within, clustered_calibration_error, clustered_mean


@dataclass(frozen=True, slots=True)
class Observed:
    """A score, the truth that it predicts, and the number of the problem."""

    score: float
    label: bool
    problem: int


@dataclass(frozen=True, slots=True)
class Intervals:
    """Makes estimates.

    Args:
        seed: The seed of the resamples.
    """

    seed: int = 0

    def rng(self, *address: str | int) -> np.random.Generator:
        """Return the generator of one entry of one table."""
        return generator(self.seed, 0, "bootstrap", *address)

    def share(self, values: Sequence[float], *address: str | int) -> Estimate:
        """Return the mean of a share over the problems; NaN: a problem has no share."""
        known = [value for value in values if not math.isnan(value)]
        return clustered_mean(known, rng=self.rng(*address), bounds=(0, 1))

    def difference(self, first: Sequence[float], second: Sequence[float], *address: str | int) -> Estimate:
        """Return the mean of first - second over the problems that have both, paired."""
        both = [a - b for a, b in zip(first, second, strict=True) if not math.isnan(a - b)]
        return clustered_mean(both, rng=self.rng(*address), bounds=(-1, 1))

    def auc(self, observed: Sequence[Observed], *address: str | int) -> Estimate:
        """Return the AUC of scores that are known."""
        known = _drop_unknown(observed)
        return clustered_auc(*_columns(known), rng=self.rng(*address))

    def auc_within(self, observed: Sequence[Observed], *address: str | int) -> Estimate:
        """Return the AUC of known scores among those of one problem.

        The AUC is averaged over the problems that have both labels.
        """
        known = _drop_unknown(observed)
        return clustered_auc_within(*_columns(known), rng=self.rng(*address))

    def ece(self, observed: Sequence[Observed], *address: str | int) -> Estimate:
        """Return the calibration error of scores that are known, in ten bins of equal width."""
        known = _drop_unknown(observed)
        return clustered_calibration_error(*_columns(known), rng=self.rng(*address))


def base_rate(observed: Sequence[Observed]) -> float:
    """Return the share of label 1; NaN without any observation."""
    return sum(each.label for each in observed) / len(observed) if observed else math.nan


def _drop_unknown(observed: Sequence[Observed]) -> list[Observed]:
    return [each for each in observed if not math.isnan(each.score)]


def _columns(observed: Sequence[Observed]) -> tuple[list[float], list[bool], list[int]]:
    return [each.score for each in observed], [each.label for each in observed], [each.problem for each in observed]
