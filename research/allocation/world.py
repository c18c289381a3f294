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
        leader: The votes of the most frequent answer of the first n samples [P, MOST + 1].
        second: The votes of the second answer [P, MOST + 1].
        leads: Whether the leading answer of the first n samples is right [P, MOST + 1].
        first: The place of the first right sample [P]; MOST: there is none.
    """

    population: Population
    kind: NDArray[np.int64]
    right: NDArray[np.int16]
    leader: NDArray[np.int16]
    second: NDArray[np.int16]
    leads: NDArray[np.bool_]
    first: NDArray[np.int64]

    @classmethod
    def draw(cls, population: Population, problems: int, rng: np.random.Generator) -> World:
        kind = rng.choice(len(population.weight), problems, p=population.weight)
        u = rng.random((problems, MOST), np.float32)
        rate, lure = population.rate[kind][:, None], population.lure[kind][:, None]
        is_right = u < rate
        is_lure = ~is_right & (u < rate + lure)
        right = _running_counts(is_right)
        first = np.where(is_right.any(axis=1), is_right.argmax(axis=1), MOST)
        if population.others:
            answers = _name(is_right, is_lure, population, rng)
            return cls(population, kind, right, *_count_votes(answers, population.others + 2), first=first)
        tempted = _running_counts(is_lure)
        other = np.where(is_lure.any(axis=1), is_lure.argmax(axis=1), MOST)
        leads = (right > tempted) | ((right == tempted) & (first < other)[:, None])
        alone = np.maximum(right, tempted) < 2  # then the first sample leads
        leads = np.where(alone, is_right[:, :1], leads)
        leads[:, 0] = False
        leader, second = np.maximum(right, tempted), np.minimum(right, tempted)
        samples = np.arange(MOST + 1, dtype=np.int16)
        leader = np.where(samples > 0, np.maximum(leader, 1), leader).astype(np.int16)
        second = np.where(samples > leader, np.maximum(second, 1), 0).astype(np.int16)  # a lone answer, if no other
        return cls(population, kind, right, leader, second, leads, first=first)

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
        solved = (self.first[which] < samples) if checked else np.zeros(len(which), np.bool_)
        return ProblemStates(
            samples=samples,
            leader=self.leader[which, samples].astype(np.int64),
            second=self.second[which, samples].astype(np.int64),
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


def draw_answers(
    population: Population, kind: NDArray[np.int64], samples: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return the answers of samples of problems of given kinds, [P, samples]."""
    u = rng.random((len(kind), samples), np.float32)
    rate, lure = population.rate[kind][:, None], population.lure[kind][:, None]
    return _name(u < rate, (u >= rate) & (u < rate + lure), population, rng)


def _name(
    is_right: NDArray[np.bool_], is_lure: NDArray[np.bool_], population: Population, rng: np.random.Generator
) -> NDArray[np.int64]:
    shape = is_right.shape
    alone = np.broadcast_to(np.arange(shape[1]), shape)  # where others never repeat
    others = rng.integers(population.others, size=shape) if population.others else alone
    return np.where(is_right, RIGHT, np.where(is_lure, LURE, others + 2))


def _count_votes(
    answers: NDArray[np.int64], number: int
) -> tuple[NDArray[np.int16], NDArray[np.int16], NDArray[np.bool_]]:
    """Return the leader's votes, the second answer's, and whether the leader is right, of the first n samples.

    Among equals, the answer that came first leads.

    Args:
        answers: The samples' answers, [P, MOST].
        number: The number of different answers.
    """
    rows = np.arange(len(answers))
    counts, came = np.zeros((len(answers), number), np.int16), np.full((len(answers), number), MOST)
    leader, second = np.zeros((2, len(answers), MOST + 1), np.int16)
    leads = np.zeros((len(answers), MOST + 1), np.bool_)
    for n in range(MOST):
        counts[rows, answers[:, n]] += 1
        came[rows, answers[:, n]] = np.minimum(came[rows, answers[:, n]], n)
        second[:, n + 1], leader[:, n + 1] = np.partition(counts, -2, axis=1)[:, -2:].T
        is_top = counts == leader[:, n + 1, None]
        leads[:, n + 1] = np.where(is_top, came, MOST + 1).argmin(axis=1) == RIGHT
    return leader, second, leads
