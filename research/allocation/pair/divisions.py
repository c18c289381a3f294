"""The accuracy of divisions that know less, or more, than the allocator, over recorded samples.

The samples of a problem are those of its pools, and a greedy one where the allocator begins with that. One half of the
samples decides, and the other half counts, both ways round. So nothing is chosen by the luck that it is then measured
with.

Shapes: P problems, N samples of a half, R orders of the samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from research.allocation.baselines import binned_counts, bins, random_counts
from research.allocation.greedy import greedy_counts
from tts.allocator.difficulty import Population, Whole
from tts.experiments.analysis.pools import ProblemPool
from tts.experiments.study.record import RecordedSample

Floats = NDArray[np.float64]
Division = Callable[["Half", np.random.Generator], Whole]
ORDERS = 64
PILOTS = 4  # samples that difficulty is predicted from; they are among those that are paid for
BINS = 5  # of difficulty (algorithm A14)


@dataclass(frozen=True, eq=False)
class Half:
    """What half of the samples of every problem say.

    Args:
        right: The chance [P, N] that the vote of the first n samples is right.
        cost: The tokens [P, N] of the first n samples.
        rate: The share [P] of right samples.
        predicted: The success rate [P] that the first votes predict, under the population of all problems.
    """

    right: Floats
    cost: Floats
    rate: Floats
    predicted: Floats

    @property
    def gains(self) -> Floats:
        """The gain [P, N] of each further sample."""
        return np.diff(self.right, axis=1, prepend=0.0)


def halves(
    pools: Sequence[ProblemPool], greedy_first: Mapping[str, RecordedSample] | None
) -> tuple[list[str], Half, Half]:
    """Return the problems, and both halves of their samples; a greedy sample is the first of each half."""
    samples_of: dict[str, list[RecordedSample]] = {}
    for pool in pools:
        samples_of.setdefault(pool.cell.problem, []).extend(pool.drawn)
    problems = list(samples_of)
    firsts = [None if greedy_first is None else greedy_first[problem] for problem in problems]
    both = [_half([samples_of[problem][start::2] for problem in problems], firsts) for start in (0, 1)]
    return problems, both[0], both[1]


def _half(samples: Sequence[Sequence[RecordedSample]], firsts: Sequence[RecordedSample | None]) -> Half:
    rng = np.random.default_rng(0)
    most = min(map(len, samples))
    first_votes = [_votes(list(drawn[:most]), first, rng) for drawn, first in zip(samples, firsts, strict=True)]
    votes = np.array([[one[1] for one in first_votes], [one[2] for one in first_votes]])
    likelihood = Population.beta().vote_likelihood(votes[0], votes[1], np.full(len(first_votes), PILOTS))
    population = Population.beta().fit(likelihood)
    tokens = np.array([np.mean([one.tokens for one in drawn]) for drawn in samples])
    right = np.array([one[0] for one in first_votes])
    cost = tokens[:, None] * np.arange(1, right.shape[1] + 1)
    if firsts[0] is not None:
        cost += (np.array([first.tokens for first in firsts if first is not None]) - tokens)[:, None]
    return Half(
        right=right,
        cost=cost,
        rate=np.array([float(np.mean([one.right is True for one in drawn])) for drawn in samples]),
        predicted=population.mean_rate(population.posterior(likelihood)),
    )


def _votes(
    samples: list[RecordedSample], first: RecordedSample | None, rng: np.random.Generator
) -> tuple[Floats, int, int]:
    """Return the chance [N] that the vote of the first n samples is right, and two counts of early votes.

    The chance is a mean over random orders. The counts are the two greatest among the first `PILOTS` samples of the
    first
    order.
    """
    every = samples if first is None else [first, *samples]
    kinds = {answer: i for i, answer in enumerate(dict.fromkeys(one.answer for one in every if one.answer is not None))}
    right = np.array([False, *(next(one.right is True for one in every if one.answer == answer) for answer in kinds)])
    kind = np.array([0 if one.answer is None else 1 + kinds[one.answer] for one in every])  # 0: without an answer
    start = 0 if first is None else 1
    orders = np.stack(
        [np.concatenate([np.arange(start), start + rng.permutation(len(samples))]) for _ in range(ORDERS)]
    )
    drawn = np.eye(len(kinds) + 1)[kind[orders]]  # [R, N, kinds]
    drawn[:, :, 0] = 0
    counts = np.cumsum(drawn, axis=1)
    # ties go to the answer that came first
    appeared = np.where(drawn.any(axis=1), drawn.argmax(axis=1), len(every))[:, None, :]
    leads = (counts - appeared / (len(every) + 1.0)).argmax(axis=2)
    chance = (right[leads] & (counts.max(axis=2) > 0)).mean(axis=0)
    ordered = np.sort(counts[0, min(PILOTS, len(every)) - 1])[::-1]
    leader, second = int(ordered[0]), int(ordered[1]) if len(ordered) > 1 else 0
    return chance, leader, second


def measure_division(halves: tuple[Half, Half], divide: Division) -> tuple[Floats, float]:
    """Return the chance [P] that each problem is right under a division, and the mean tokens of a problem.

    One half of the samples decides, and the other one counts.
    """
    shares, cost = [], []
    for known, counted in (halves, halves[::-1]):
        counts = divide(known, np.random.default_rng(1))
        at = np.arange(len(counts)), np.clip(counts, 1, counted.right.shape[1]) - 1
        shares.append(np.where(counts > 0, counted.right[at], 0.0))
        cost.append(np.where(counts > 0, counted.cost[at], 0.0).mean())
    return np.mean(shares, axis=0), float(np.mean(cost))


def random_division(mean: float) -> Division:
    """Return the division that throws samples at problems, after one for each."""
    return lambda half, rng: np.minimum(
        random_counts(len(half.rate), round(mean * len(half.rate)), rng), half.right.shape[1]
    )


def oracle_division(mean: float) -> Division:
    """Return the best division for known chances, in tokens: the static oracle."""

    def divide(half: Half, _: np.random.Generator) -> Whole:
        each = half.cost[:, -1] / half.cost.shape[1]
        return greedy_counts(half.gains, mean * float(each.sum()), cost=each, least=1)

    return divide


def binned_division(mean: float, *, predicted: bool) -> Division:
    """Return the division of algorithm A14: equal counts within five bins by difficulty.

    The problems are in two folds. The bins of one fold decide for the other.

    Args:
        mean: The samples of a problem, on average.
        predicted: Whether the difficulty is predicted from pilots; otherwise it is the true one.
    """

    def divide(half: Half, rng: np.random.Generator) -> Whole:
        difficulty = half.predicted if predicted else half.rate
        least = PILOTS if predicted and mean >= PILOTS else 1
        fold, counts = rng.permutation(len(difficulty)) % 2, np.zeros(len(difficulty), np.int64)
        for own in (0, 1):
            here, there = np.flatnonzero(fold == own), np.flatnonzero(fold != own)
            table = binned_counts(difficulty[there], half.gains[there], round(mean * len(there)), BINS)
            of = bins(difficulty[there], BINS)
            chosen = np.array([table[of == each].max(initial=1) for each in range(BINS)])
            counts[here] = chosen[bins(difficulty[here], BINS)]
        return np.maximum(counts, least)

    return divide
