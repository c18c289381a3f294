"""Accuracy of a selection among k samples, averaged over all subsets of k of n drawn samples.

That average is unbiased: it estimates what k fresh samples would give, for every k up to n, from one pool. Samples are
taken to come in any order alike. Where rules of `tts.search.selections` let the first among equals win, a class wins in
proportion to its samples among those that tie.

Shapes: n samples of one problem, A classes of answers, S subsets.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from tts.errors import ConfigError
from tts.statistics.proportions import numbers, pass_at_k
from tts.statistics.resampling import Floats, Whole

DRAWS = 2000
# sums of weights that differ by less, as a share, are equal: they are of the same numbers in another order
_EQUAL = 1e-12


class Averaged(NamedTuple):
    """Averages over subsets, with their errors.

    The `value` is NaN where it is undefined. The `error` is the standard error of what was drawn; 0: all subsets were
    counted.
    """

    value: Floats
    error: Floats


def majority_at_k(answers: ArrayLike, right: ArrayLike, k: ArrayLike) -> Floats:
    """Return the probability that the most frequent answer of k samples is right (maj@k), exactly.

    Idea: the classes are merged one by one. What is carried, for all s and m, is a chance: that s samples of those
        merged so far hold no class more often than m times. A class that ties adds a factor y. The integral of y^t over
        [0, 1], which Gauss's rule has exactly, is 1/(t + 1): the chance that the right answer wins against t others.

    Args:
        answers: [n], index of each sample's class of equivalent answers, -1 without an answer.
        right: [n], 0 or 1 (ignored without an answer); where members of a class differ, the class is right as often
            as its members are.
        k: How many samples, of any shape.

    Returns:
        Of k's shape, in [0, 1]; NaN where k is no whole number with 1 <= k <= n.

    Raises:
        ConfigError: lists of different lengths, an answer below -1, or a `right` that is not known.

    Cost: of the order of n max(k)^2, for all k together.
    """
    answer, good = _pool(answers, right)
    sizes, rights = _count_classes(answer, good)
    ks, valid = _subset_sizes(k, len(answer))
    most = int(ks[valid].max(initial=0))
    curve = np.zeros(most + 1)
    for i in np.flatnonzero(rights):
        curve += rights[i] / sizes[i] * _wins(int(sizes[i]), np.delete(sizes, i), int((answer < 0).sum()), most)
    return np.where(valid, curve[np.where(valid, ks, 0).astype(np.int64)], np.nan)


def best_at_k(answers: ArrayLike, scores: ArrayLike, right: ArrayLike, k: ArrayLike) -> Floats:
    """Return the probability that best-of-k is right, exactly.

    Best-of-k takes the answer of the highest score among k samples.

    Among samples of one score the first wins. A sample of unknown score (NaN) wins only where no score is known, and
    one without an answer never does. The best of k is of a level where k samples hold one of it and none above: a
    difference of two hypergeometric chances.

    Args:
        scores: [n].
        answers: As in `majority_at_k`; only their absence counts.
        right: As in `majority_at_k`.
        k: As in `majority_at_k`.

    Returns:
        As `majority_at_k`. With scores that are `right` it is `pass_at_k`.

    Raises:
        ConfigError: as `majority_at_k`.
    """
    answer, good = _pool(answers, right)
    score = _scores("scores", scores, len(answer))
    ks, _ = _subset_sizes(k, len(answer))
    if not len(answer):
        return np.full(ks.shape, np.nan)
    unknown = np.isnan(score)
    tier = np.where(answer < 0, 2, np.where(unknown, 1, 0))
    _, level = np.unique(np.c_[tier, np.where(unknown | (answer < 0), 0, -score)], axis=0, return_inverse=True)
    sizes = np.bincount(level.ravel())
    shares = np.bincount(level.ravel(), np.where(answer < 0, 0, good)) / sizes
    # [..., levels + 1], of the first so many samples
    reached = pass_at_k(len(answer), np.r_[0, np.cumsum(sizes)], ks[..., None])
    return np.diff(reached, axis=-1) @ shares


def weighted_at_k(
    answers: ArrayLike,
    weights: ArrayLike,
    right: ArrayLike,
    k: ArrayLike,
    *,
    rng: np.random.Generator,
    draws: int = DRAWS,
) -> Averaged:
    """Return the probability that the answer of the greatest summed weight among k samples is right.

    It is exact where the weights are all alike, which makes it a majority, and where there are no more than `draws`
    subsets; else that many subsets are drawn, the same for all k, each with its first k samples.

    Args:
        weights: [n], at least 0; NaN: unknown, which counts 0, or 1 each where no weight of the subset is known.
        answers: As in `majority_at_k`.
        right: As in `majority_at_k`.
        k: As in `majority_at_k`.
        rng: The generator of the subsets.
        draws: The number of random subsets, at least 2.

    Returns:
        As `majority_at_k`, each with its standard error.

    Raises:
        ConfigError: as `majority_at_k`; a weight that is negative or infinite, or fewer than two draws.
    """
    answer, good = _pool(answers, right)
    weight = _scores("weights", weights, len(answer))
    if (weight < 0).any() or np.isinf(weight).any():
        raise ConfigError(
            "weights has a negative or infinite value, but must be at least 0", hint="map scores to [0, 1] first"
        )
    if draws < 2:
        raise ConfigError(f"draws is {draws}, but must be at least 2")
    known = weight[~np.isnan(weight)]
    if not len(known) or (len(known) == len(weight) and known[0] > 0 and (known == known[0]).all()):
        value = majority_at_k(answer, good, k)
        return Averaged(value, np.where(np.isnan(value), np.nan, 0.0))
    n = len(answer)
    ks, valid = _subset_sizes(k, n)
    ranks = rng.permuted(np.tile(np.arange(n), (draws, 1)), axis=1)
    value, error = np.full(ks.shape, np.nan), np.full(ks.shape, np.nan)
    for each in np.unique(ks[valid]).astype(int).tolist():
        exact = math.comb(n, each) <= draws
        found = _weigh(_subsets(n, each) if exact else ranks < each, answer, weight, good)
        value[ks == each] = found.mean()
        error[ks == each] = 0.0 if exact else found.std(ddof=1) / math.sqrt(draws)
    return Averaged(value, error)


def _wins(own: int, others: Whole, silent: int, most: int) -> Floats:
    """Return, for each number of samples up to `most`, the chance that a class is the most frequent.

    Ties are shared evenly.

    Args:
        own: Samples of the class.
        others: The samples of each other class.
        silent: The samples without an answer.
        most: The greatest number of samples.
    """
    lanes = [_lane(m, max(0, min(int((others >= m).sum()), most // m - 1))) for m in range(1, min(own, most) + 1)]
    if not lanes:
        return np.zeros(most + 1)
    height, tie, weight = np.concatenate(lanes, axis=1)[:, :, None]
    first = np.searchsorted(height[:, 0], np.arange(most + 2)).tolist()  # the lanes of height m start at first[m]
    # [lanes, most + 1], over subsets of each size of what is merged: no class above `height`, and `tie` for each class
    # at it
    chance = np.repeat((np.arange(most + 1) <= silent)[None, :].astype(np.float64), len(height), axis=0)
    merged = silent
    for size in others.tolist():
        table = _hypergeometric(merged, size, most)
        before, chance = chance, table[:, 0] * chance
        for j in range(1, min(size, own, most) + 1):
            at, above = slice(first[j], first[j + 1]), slice(first[j + 1], None)
            chance[above, j:] += table[j:, j] * before[above, : most + 1 - j]
            chance[at, j:] += table[j:, j] * tie[at] * before[at, : most + 1 - j]
        merged += size
    table, found = _hypergeometric(merged, own, most), np.zeros(most + 1)
    for m in range(1, min(own, most) + 1):
        at = slice(first[m], first[m + 1])
        found[m:] += table[m:, m] * (weight[at] * chance[at, : most + 1 - m]).sum(axis=0)
    return found


@functools.lru_cache(maxsize=4096)
def _lane(height: int, ties: int) -> Floats:
    """Return [3, Q]: a height, and Gauss's nodes and weights on [0, 1], exact for polynomials of degree `ties`."""
    nodes, weights = np.polynomial.legendre.leggauss(ties // 2 + 1)
    return np.stack([np.full(len(nodes), float(height)), (1 + nodes) / 2, weights / 2])


def _hypergeometric(rest: int, size: int, most: int) -> Floats:
    """Return [most + 1, min(size, most) + 1]: the chance that s samples of `rest` and `size` hold j of the latter.

    It is 0 where there are no such samples.
    """
    s, j = np.arange(most + 1)[:, None], np.arange(min(size, most) + 1)[None, :]
    possible = (j <= s) & (s - j <= rest)
    all_of_s = np.minimum(s, rest + size)
    log = _log_choose(size, j) + _log_choose(rest, np.where(possible, s - j, 0)) - _log_choose(rest + size, all_of_s)
    return np.exp(np.where(possible, log, -np.inf))


def _log_choose(n: int, k: Whole) -> Floats:
    return special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)


def _subsets(n: int, k: int) -> NDArray[np.bool_]:
    """Return [S, n]: which samples each of all subsets of k has."""
    members = np.array(list(itertools.combinations(range(n), k)))
    masks = np.zeros((len(members), n), np.bool_)
    np.put_along_axis(masks, members, values=True, axis=1)
    return masks


def _weigh(masks: NDArray[np.bool_], answer: Whole, weight: Floats, good: Floats) -> Floats:
    """Return [S]: the chance that the class of greatest weight is right in each subset."""
    taken = masks.astype(np.float64)
    classes = (answer[:, None] == np.unique(answer[answer >= 0])).astype(np.float64)  # [n, A]
    counts, rights = taken @ classes, taken @ (classes * good[:, None])
    totals = taken @ (classes * np.nan_to_num(weight)[:, None])
    totals = np.where((taken @ ~np.isnan(weight) > 0)[:, None], totals, counts)
    totals = np.where(counts > 0, totals, -1.0)
    tied = (counts > 0) & (totals >= totals.max(axis=1, initial=0, keepdims=True) * (1 - _EQUAL))
    among = (counts * tied).sum(axis=1)
    return (rights * tied).sum(axis=1) / np.maximum(among, 1)


def _count_classes(answer: Whole, good: Floats) -> tuple[Whole, Floats]:
    """Return how many samples each class has, and how many of those are right."""
    answered = answer >= 0
    _, at = np.unique(answer[answered], return_inverse=True)
    return np.bincount(at).astype(np.int64), np.bincount(at, good[answered]).astype(np.float64)


def _subset_sizes(k: ArrayLike, n: int) -> tuple[Floats, NDArray[np.bool_]]:
    """Return k as numbers, and which of them are sizes of subsets."""
    ks = numbers("k", k)
    return ks, (ks >= 1) & (ks <= n) & (ks == np.floor(ks))


def _pool(answers: ArrayLike, right: ArrayLike) -> tuple[Whole, Floats]:
    answer, good = numbers("answers", answers), numbers("right", right)
    if answer.ndim != 1 or answer.shape != good.shape:
        raise ConfigError(
            f"answers is of shape {answer.shape} and right of {good.shape}, but must be two lists of one length"
        )
    if not ((answer >= -1) & (answer == np.floor(answer))).all():
        raise ConfigError("answers has a value that is no whole number of at least -1", hint="-1 stands for no answer")
    if not ((good >= 0) & (good <= 1))[answer >= 0].all():
        raise ConfigError(
            "right has a value that is not from 0 to 1", hint="without reference answers only coverage is known"
        )
    return answer.astype(np.int64), good


def _scores(name: str, values: ArrayLike, length: int) -> Floats:
    found = numbers(name, values)
    if found.shape != (length,):
        raise ConfigError(f"{name} is of shape {found.shape}, but must have a number for each of {length} answers")
    return found
