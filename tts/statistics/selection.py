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

    The `value` is NaN where it is undefined. The `error` is the standard error over random subsets; 0: all subsets
    were counted.
    """

    value: Floats
    error: Floats


def majority_at_k(answers: ArrayLike, right: ArrayLike, k: ArrayLike) -> Floats:
    """Return the probability that the most frequent answer of k samples is right (maj@k), exactly.

    Idea: the classes are merged one by one. For all s and m a chance is carried: that s samples of the merged classes
        hold no class more often than m times. A class that ties adds a factor y. The integral of y^t over [0, 1], which
        Gauss's rule has exactly, is 1/(t + 1): the chance that the right answer wins against t others.

    Args:
        answers: [n], index of each sample's class of equivalent answers, -1 without an answer.
        right: [n], 0 or 1, ignored without an answer. Where members of a class differ, the class is right as often as
            its members are.
        k: Numbers of samples, an array of any shape.

    Returns:
        Probabilities in [0, 1], of k's shape; NaN where k is no whole number with 1 <= k <= n.

    Raises:
        ConfigError: lists of different lengths, an answer below -1, or a `right` that is not known.

    Cost: of the order of n max(k)^2, for all k together.
    """
    classes, is_right = _pool(answers, right)
    sizes, right_counts = _count_classes(classes, is_right)
    ks, is_valid = _subset_sizes(k, len(classes))
    greatest_k = int(ks[is_valid].max(initial=0))
    chances = np.zeros(greatest_k + 1)
    num_silent = int((classes < 0).sum())
    for i in np.flatnonzero(right_counts):
        win_chances = _wins(int(sizes[i]), np.delete(sizes, i), num_silent, greatest_k)
        chances += right_counts[i] / sizes[i] * win_chances
    places = np.where(is_valid, ks, 0).astype(np.int64)
    return np.where(is_valid, chances[places], np.nan)


def best_at_k(answers: ArrayLike, scores: ArrayLike, right: ArrayLike, k: ArrayLike) -> Floats:
    """Return the probability that best-of-k is right, exactly.

    Best-of-k takes the answer of the highest score among k samples.

    Among samples of one score the first wins. An unknown score (NaN) is the mean of the known ones of all n; without a
    known one the most frequent answer wins. A sample without an answer never wins. Samples of one score are a level.
    The best of k samples is of a level if k samples have a member of this level and none of a higher level: a
    difference of two hypergeometric chances.

    Args:
        scores: [n], the score of each sample.
        answers: As in `majority_at_k`; only the absence of an answer counts.
        right: As in `majority_at_k`.
        k: As in `majority_at_k`.

    Returns:
        As `majority_at_k`. With `right` as the scores the result is that of `pass_at_k`.

    Raises:
        ConfigError: as `majority_at_k`.
    """
    classes, is_right = _pool(answers, right)
    score = _scores("scores", scores, len(classes))
    ks, _ = _subset_sizes(k, len(classes))
    if not len(classes):
        return np.full(ks.shape, np.nan)
    if np.isnan(score).all():
        return majority_at_k(classes, is_right, k)
    has_answer = classes >= 0
    levels = np.where(has_answer, -_estimates(score), np.inf)  # samples without an answer come last
    _, level_of = np.unique(levels, return_inverse=True)  # the best level is 0
    level_sizes = np.bincount(level_of.ravel())
    right_shares = np.bincount(level_of.ravel(), np.where(has_answer, is_right, 0)) / level_sizes
    num_up_to_level = np.r_[0, np.cumsum(level_sizes)]
    reach_chances = pass_at_k(len(classes), num_up_to_level, ks[..., None])  # [..., levels + 1]
    return np.diff(reach_chances, axis=-1) @ right_shares


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

    The probability is exact where all weights are equal, which is a vote of the majority, and where there are at most
    `draws` subsets. Else it is a mean over `draws` random orders of the samples, whose first k samples are the subset.

    Args:
        weights: [n], at least 0; NaN: unknown, which counts as the mean of the known weights of all n.
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
    classes, is_right = _pool(answers, right)
    sample_weights = _scores("weights", weights, len(classes))
    if (sample_weights < 0).any() or np.isinf(sample_weights).any():
        raise ConfigError(
            "weights has a negative or infinite value, but must be at least 0", hint="map scores to [0, 1] first"
        )
    if draws < 2:
        raise ConfigError(f"draws is {draws}, but must be at least 2")
    sample_weights = np.ones(len(classes)) if np.isnan(sample_weights).all() else _estimates(sample_weights)
    if (sample_weights == sample_weights[:1]).all() and (sample_weights[:1] > 0).all():
        value = majority_at_k(classes, is_right, k)
        return Averaged(value, np.where(np.isnan(value), np.nan, 0.0))
    n = len(classes)
    ks, is_valid = _subset_sizes(k, n)
    ranks = rng.permuted(np.tile(np.arange(n), (draws, 1)), axis=1)
    value, error = np.full(ks.shape, np.nan), np.full(ks.shape, np.nan)
    for size in np.unique(ks[is_valid]).astype(int).tolist():
        is_exact = math.comb(n, size) <= draws
        masks = _subsets(n, size) if is_exact else ranks < size  # [S, n], all subsets or random subsets
        right_chances = _weigh(masks, classes, sample_weights, is_right)
        value[ks == size] = right_chances.mean()
        error[ks == size] = 0.0 if is_exact else right_chances.std(ddof=1) / math.sqrt(draws)
    return Averaged(value, error)


def _wins(own: int, others: Whole, silent: int, most: int) -> Floats:
    """Return, for each number of samples up to `most`, the chance that a class is the most frequent.

    Ties are shared evenly. A lane is one height m, the frequency of the class, with one of Gauss's nodes for its ties.

    Args:
        own: The number of samples of the class.
        others: The number of samples of each other class.
        silent: The number of samples without an answer.
        most: The greatest number of drawn samples.
    """
    lanes: list[Floats] = []
    for m in range(1, min(own, most) + 1):
        num_possible_ties = min(int((others >= m).sum()), most // m - 1)
        lanes.append(_lane(m, max(0, num_possible_ties)))
    if not lanes:
        return np.zeros(most + 1)
    heights, tie_nodes, node_weights = np.concatenate(lanes, axis=1)[:, :, None]
    lane_starts = np.searchsorted(heights[:, 0], np.arange(most + 2)).tolist()  # the first lane of each height
    # [lanes, most + 1]: for each size of a subset of the merged samples, the chance that no class is above the height,
    # times the node for each class that ties
    chances = np.repeat((np.arange(most + 1) <= silent)[None, :].astype(np.float64), len(heights), axis=0)
    num_merged = silent
    for size in others.tolist():
        table = _hypergeometric(num_merged, size, most)
        earlier_chances, chances = chances, table[:, 0] * chances
        for j in range(1, min(size, own, most) + 1):
            tied, above = slice(lane_starts[j], lane_starts[j + 1]), slice(lane_starts[j + 1], None)
            chances[above, j:] += table[j:, j] * earlier_chances[above, : most + 1 - j]
            chances[tied, j:] += table[j:, j] * tie_nodes[tied] * earlier_chances[tied, : most + 1 - j]
        num_merged += size
    table, win_chances = _hypergeometric(num_merged, own, most), np.zeros(most + 1)
    for m in range(1, min(own, most) + 1):
        of_height = slice(lane_starts[m], lane_starts[m + 1])
        tie_integral = (node_weights[of_height] * chances[of_height, : most + 1 - m]).sum(axis=0)
        win_chances[m:] += table[m:, m] * tie_integral
    return win_chances


@functools.lru_cache(maxsize=4096)
def _lane(height: int, ties: int) -> Floats:
    """Return [3, Q]: a height, and Gauss's nodes and weights on [0, 1], exact for polynomials of degree `ties`."""
    nodes, weights = np.polynomial.legendre.leggauss(ties // 2 + 1)
    return np.stack([np.full(len(nodes), float(height)), (1 + nodes) / 2, weights / 2])


def _hypergeometric(num_rest: int, size: int, greatest: int) -> Floats:
    """Return a table [s, j]: the chance that s of `num_rest` + `size` samples have j of the latter.

    The numbers go up to `greatest`. The chance is 0 where no such samples exist.
    """
    s, j = np.arange(greatest + 1)[:, None], np.arange(min(size, greatest) + 1)[None, :]
    is_possible = (j <= s) & (s - j <= num_rest)
    num_drawn = np.minimum(s, num_rest + size)
    from_rest = np.where(is_possible, s - j, 0)
    log_chance = _log_choose(size, j) + _log_choose(num_rest, from_rest) - _log_choose(num_rest + size, num_drawn)
    return np.exp(np.where(is_possible, log_chance, -np.inf))


def _log_choose(n: int, k: Whole) -> Floats:
    return special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)


def _subsets(n: int, k: int) -> NDArray[np.bool_]:
    """Return all subsets of k of n samples as masks, [S, n]."""
    members = np.array(list(itertools.combinations(range(n), k)))
    masks = np.zeros((len(members), n), np.bool_)
    np.put_along_axis(masks, members, values=True, axis=1)
    return masks


def _weigh(masks: NDArray[np.bool_], class_of: Whole, sample_weights: Floats, is_right: Floats) -> Floats:
    """Return, for each subset [S], the chance that the class of greatest weight is right."""
    members = masks.astype(np.float64)  # [S, n]
    is_of_class = (class_of[:, None] == np.unique(class_of[class_of >= 0])).astype(np.float64)  # [n, A]
    class_counts, right_counts = members @ is_of_class, members @ (is_of_class * is_right[:, None])  # [S, A]
    class_weights = members @ (is_of_class * sample_weights[:, None])
    class_weights = np.where(class_counts > 0, class_weights, -1.0)  # so that absent classes never win
    greatest_weights = class_weights.max(axis=1, initial=0, keepdims=True)
    is_tied = (class_counts > 0) & (class_weights >= greatest_weights * (1 - _EQUAL))
    tied_counts, tied_right_counts = (class_counts * is_tied).sum(axis=1), (right_counts * is_tied).sum(axis=1)
    return tied_right_counts / np.maximum(tied_counts, 1)


def _estimates(values: Floats) -> Floats:
    """Return values, at least one of them known, with the mean of the known ones in place of each NaN."""
    is_unknown = np.isnan(values)
    return np.where(is_unknown, values[~is_unknown].mean(), values)


def _count_classes(classes: Whole, is_right: Floats) -> tuple[Whole, Floats]:
    """Return the number of samples of each class, and the number of right samples of each class."""
    has_answer = classes >= 0
    _, class_of = np.unique(classes[has_answer], return_inverse=True)
    return np.bincount(class_of).astype(np.int64), np.bincount(class_of, is_right[has_answer]).astype(np.float64)


def _subset_sizes(k: ArrayLike, n: int) -> tuple[Floats, NDArray[np.bool_]]:
    """Return k as numbers, and for each whether it is the size of a subset of n samples."""
    ks = numbers("k", k)
    return ks, (ks >= 1) & (ks <= n) & (ks == np.floor(ks))


def _pool(answers: ArrayLike, right: ArrayLike) -> tuple[Whole, Floats]:
    """Return the classes of answers [n] and whether they are right [n], once both are checked."""
    classes, is_right = numbers("answers", answers), numbers("right", right)
    if classes.ndim != 1 or classes.shape != is_right.shape:
        raise ConfigError(
            f"answers is of shape {classes.shape} and right of {is_right.shape}, but must be two lists of one length"
        )
    if not ((classes >= -1) & (classes == np.floor(classes))).all():
        raise ConfigError("answers has a value that is no whole number of at least -1", hint="-1 stands for no answer")
    if not ((is_right >= 0) & (is_right <= 1))[classes >= 0].all():
        raise ConfigError(
            "right has a value that is not from 0 to 1", hint="without reference answers only coverage is known"
        )
    return classes.astype(np.int64), is_right


def _scores(name: str, values: ArrayLike, length: int) -> Floats:
    array = numbers(name, values)
    if array.shape != (length,):
        raise ConfigError(f"{name} is of shape {array.shape}, but must have a number for each of {length} answers")
    return array
