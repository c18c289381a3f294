"""A toy world of problems with known truth: kinds, draws, and the score of any policy's counts.

Every policy sees the same draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tts.allocator.difficulty import LURES, RATES, Population
from tts.allocator.values import ProblemStates

MOST = 256  # samples that any policy may draw of a problem
RIGHT, LURE = 0, 1


def population() -> Population:
    """Return a population of mixed difficulty.

    A tenth of the problems is never solved, most are hard or easy, and wrong answers agree a little, a lot, or hardly
    at
    all.
    """
    bell = np.exp(-(((RATES - 0.25) / 0.25) ** 2)) + 0.7 * np.exp(-(((RATES - 0.85) / 0.12) ** 2))
    share = bell / bell.sum() * 0.9
    share[0] += 0.1
    return Population.from_rates(share, np.array([2, 3, 3, 2, 1, 0.3])[: len(LURES)])


@dataclass(frozen=True, eq=False)
class World:
    """P problems with all the samples that they will ever give.

    Attributes:
        population: The population that the problems are drawn from.
        kind: The kind of each problem in the population [P].
        right: The number of right ones among the first n samples [P, MOST + 1].
        lure: The number of lures among the first n samples [P, MOST + 1].
        first: The place of the first right sample [P]; MOST: there is none.
        leads: Whether the leading answer of the first n samples is right [P, MOST + 1].
    """

    population: Population
    kind: NDArray[np.int64]
    right: NDArray[np.int16]
    lure: NDArray[np.int16]
    first: NDArray[np.int64]
    leads: NDArray[np.bool_]

    @classmethod
    def draw(cls, population: Population, problems: int, rng: np.random.Generator) -> World:
        kind = rng.choice(len(population.weight), problems, p=population.weight)
        u = rng.random((problems, MOST), np.float32)
        rate, lure = population.rate[kind][:, None], population.lure[kind][:, None]
        is_right = u < rate
        is_lure = ~is_right & (u < rate + lure)
        right, tempted = (_running_counts(each) for each in (is_right, is_lure))
        first = np.where(is_right.any(axis=1), is_right.argmax(axis=1), MOST)
        other = np.where(is_lure.any(axis=1), is_lure.argmax(axis=1), MOST)
        leads = (right > tempted) | ((right == tempted) & (first < other)[:, None])
        alone = np.maximum(right, tempted) < 2  # then the first sample leads
        leads = np.where(alone, is_right[:, :1], leads)
        leads[:, 0] = False
        return cls(population, kind, right, tempted, first, leads)

    @property
    def problems(self) -> int:
        return len(self.kind)

    def state(
        self, samples: NDArray[np.int64], left: float, *, checked: bool, of: NDArray[np.int64] | None = None
    ) -> ProblemStates:
        """Return what an allocator may know after some samples of each problem.

        Args:
            samples: The samples of each problem.
            left: The cost that is left.
            checked: Whether a checker is there.
            of: The problems; None: all of them.
        """
        which = np.arange(self.problems) if of is None else of
        right, lure = self.right[which, samples].astype(np.int64), self.lure[which, samples].astype(np.int64)
        leader = np.where(samples > 0, np.maximum(np.maximum(right, lure), 1), 0)
        second = np.where(np.minimum(right, lure) > 1, np.minimum(right, lure), 0)
        solved = (self.first[which] < samples) if checked else np.zeros(len(which), np.bool_)
        return ProblemStates(
            samples=samples,
            leader=leader,
            second=second,
            solved=solved,
            open=samples < MOST,
            cost=np.ones(len(which)),
            left=left,
            checked=checked,
        )

    def score(self, samples: NDArray[np.int64], *, checked: bool) -> NDArray[np.float64]:
        """Return whether each problem is answered rightly after some samples, [P]."""
        if checked:
            return (self.first < samples).astype(np.float64)
        return self.leads[np.arange(self.problems), samples].astype(np.float64)


def _running_counts(hits: NDArray[np.bool_]) -> NDArray[np.int16]:
    return np.concatenate([np.zeros((len(hits), 1), np.int16), np.cumsum(hits, axis=1, dtype=np.int16)], axis=1)
