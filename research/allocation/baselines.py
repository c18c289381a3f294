"""What an allocation is measured against: divisions of one total that know less, or more, than it does.

Shapes: P problems, B units that each may get at most.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from research.allocation.greedy import greedy_counts, offline_counts
from tts.allocator.difficulty import Floats, Whole
from tts.errors import ConfigError


def random_counts(problems: int, total: int, rng: np.random.Generator, *, least: int = 1) -> Whole:
    """Return counts [P] by throwing each unit at a problem drawn at random, after `least` for each."""
    return least + rng.multinomial(total - least * problems, np.full(problems, 1 / problems)).astype(np.int64)


def bins(difficulty: Floats, num: int = 5) -> Whole:
    """Return the quantile bin [P] of each problem, 0 the easiest; sizes differ by at most one (algorithm A14, line 2).

    Args:
        difficulty: [P], success rates or scores, higher is easier. Equal ones are told apart by their order.
    """
    if num < 1:
        raise ConfigError(f"num is {num}, but must be at least 1 bin")
    order = np.argsort(-np.asarray(difficulty, np.float64), kind="stable")
    found = np.empty(len(order), np.int64)
    found[order] = np.arange(len(order)) * num // max(1, len(order))
    return found


def binned_counts(difficulty: ArrayLike, gains: Floats, total: int, num: int = 5) -> Whole:
    """Return counts [P] that are equal within bins of difficulty, best for the bins' mean gains.

    Source: algorithm A14 (Snell et al. 2408.03314): quantile bins by difficulty; with true success rates they are
    oracle bins, with
        estimates predicted ones. Differs: what is chosen for a bin is its number of samples, among strategies of one
        kind.

    Args:
        difficulty: [P], higher is easier.
        gains: [P, B], of problems that the choice is fitted to
        total: over all.
    """
    of = bins(np.asarray(difficulty, np.float64), num)
    share = np.bincount(of, minlength=num)
    held = np.flatnonzero(share)
    means = np.stack([gains[of == each].mean(axis=0) for each in held])
    table = np.zeros(num, np.int64)
    table[held] = offline_counts(means, share[held], total / len(of))
    return table[of]


def oracle_counts(gains: Floats, total: int, *, least: int = 0) -> Whole:
    """Return the best counts [P] for true expected gains [P, B], known before anything is drawn: the static oracle."""
    return greedy_counts(gains, total, least=least)
