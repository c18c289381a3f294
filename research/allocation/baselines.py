"""Divisions of one total that know less, or more, than the allocator: the baselines of an allocation.

Shapes: P problems, B units that each may get at most.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from research.allocation.greedy import greedy_counts, offline_counts
from tts.allocator.difficulty import Floats, Whole
from tts.errors import ConfigError


def random_counts(problems: int, total: int, rng: np.random.Generator, *, least: int = 1) -> Whole:
    """Return counts [P] of a random division.

    Each problem gets `least` units. Each further unit goes to a problem drawn at random.
    """
    return least + rng.multinomial(total - least * problems, np.full(problems, 1 / problems)).astype(np.int64)


def bins(difficulty: Floats, num: int = 5) -> Whole:
    """Return the quantile bin [P] of each problem, 0 the easiest (algorithm A14, line 2).

    Sizes of bins differ by at most one.

    Args:
        difficulty: Success rates or scores [P]; higher is easier. Equal values are ordered by their places.
        num: The number of bins.
    """
    if num < 1:
        raise ConfigError(f"num is {num}, but must be at least 1 bin")
    order = np.argsort(-np.asarray(difficulty, np.float64), kind="stable")
    found = np.empty(len(order), np.int64)
    found[order] = np.arange(len(order)) * num // max(1, len(order))
    return found


def binned_counts(difficulty: ArrayLike, gains: Floats, total: int, num: int = 5) -> Whole:
    """Return counts [P] that are equal within bins of difficulty, and best for the mean gains of the bins.

    Source: algorithm A14 (Snell et al. 2408.03314): quantile bins by difficulty. Bins by true success rates are oracle
    bins, and bins by estimates are predicted ones. Differs: the choice for a bin is its number of samples, among
    strategies of one kind.

    Args:
        difficulty: Success rates or scores [P]; higher is easier.
        gains: The gains [P, B] of the problems that the choice is fitted to.
        total: The units for all problems.
        num: The number of bins.
    """
    bin_of = bins(np.asarray(difficulty, np.float64), num)
    sizes = np.bincount(bin_of, minlength=num)
    filled = np.flatnonzero(sizes)
    means = np.stack([gains[bin_of == each].mean(axis=0) for each in filled])
    table = np.zeros(num, np.int64)
    table[filled] = offline_counts(means, sizes[filled], total / len(bin_of))
    return table[bin_of]


def oracle_counts(gains: Floats, total: int, *, least: int = 0) -> Whole:
    """Return the best counts [P] for true expected gains [P, B], which are known before anything is drawn.

    This division is the static oracle.
    """
    return greedy_counts(gains, total, least=least)
