"""Estimates with intervals, and proportions of independent trials.

The module has the share of problems that k samples solve, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from tts.checks import check_number
from tts.errors import ConfigError, quote

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its interval.

    Args:
        value: The estimate; NaN: undefined.
        low: The lower end of the interval; NaN: unknown.
        high: The upper end of the interval; NaN: unknown.
        level: The level of confidence.
        num: Independent units behind it: trials, or clusters.
    """

    value: float
    low: float
    high: float
    level: float = LEVEL
    num: int = 0

    def __contains__(self, value: float) -> bool:
        """Whether a value lies within the interval."""
        return self.low <= value <= self.high


def numbers(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return an array of numbers.

    Raises:
        ConfigError: a value is no number, or lists within a list are of different lengths.
    """
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise ConfigError(f"{name} is {quote(values)}, but must be numbers, in lists of one length") from None


def pass_at_k(n: ArrayLike, c: ArrayLike, k: ArrayLike) -> NDArray[np.float64]:
    """Return the probability that at least one of k samples is right, without bias.

    The probability is estimated from n samples, c of them right.

    The estimate is the share of subsets with a right sample among all subsets of k of the n samples. The simpler
    formula 1 - (1 - c/n)^k is biased.

    Source: Chen et al., "Evaluating large language models trained on code" (2021), arXiv:2107.03374, equation 1:
        1 - C(n - c, k) / C(n, k), here as a product of min(c, k) factors.
    Shapes: n, c and k are broadcast against each other.

    Returns:
        Probabilities in [0, 1]; NaN where n, c and k are not whole numbers with 0 <= c <= n and 1 <= k <= n.

    Raises:
        ConfigError: values that are no numbers, or of shapes that do not fit each other.
    """
    arrays = [numbers(name, values) for name, values in (("n", n), ("c", c), ("k", k))]
    try:
        n_, c_, k_ = np.broadcast_arrays(*arrays)
    except ValueError:
        raise ConfigError(
            f"n, c and k are of the shapes {', '.join(str(array.shape) for array in arrays)}, but must fit each other"
        ) from None
    is_valid = (c_ >= 0) & (c_ <= n_) & (k_ >= 1) & (k_ <= n_) & np.isfinite(n_)
    is_valid &= (n_ == np.floor(n_)) & (c_ == np.floor(c_)) & (k_ == np.floor(k_))
    smaller = np.where(is_valid, np.minimum(c_, k_), 0)  # the number of factors
    larger = np.where(is_valid, np.maximum(c_, k_), 0)
    num_samples = np.where(is_valid, n_, 1)
    miss_chance = np.ones(num_samples.shape)
    for i in range(int(smaller.max(initial=0))):
        factor = np.maximum(num_samples - larger - i, 0) / np.maximum(num_samples - i, 1)
        miss_chance *= np.where(i < smaller, factor, 1)
    return np.where(is_valid, 1 - miss_chance, np.nan)


def pass_hat_k(n: ArrayLike, c: ArrayLike, k: ArrayLike) -> NDArray[np.float64]:
    """Return the probability that all of k samples are right (pass^k), without bias.

    The probability is estimated from n samples, c of them right.

    The estimate is C(c, k) / C(n, k), the share of subsets of k without a wrong sample.

    Source: Yao et al., "tau-bench: A Benchmark for Tool-Agent-User Interaction in Real-World Domains" (2406.12045).
    Shapes: n, c and k are broadcast against each other.

    Returns:
        As `pass_at_k`. `clustered_mean` of the values of problems, with bounds=(0, 1), gives the interval.

    Raises:
        ConfigError: values that are no numbers, or of shapes that do not fit each other.
    """
    return _share_of_subsets(n, c, k, 1.0)


def g_pass_at_k(n: ArrayLike, c: ArrayLike, k: ArrayLike, share: float) -> NDArray[np.float64]:
    """Return the probability that at least a share of k samples is right (G-Pass@k), without bias.

    At least one of the k samples must be right, even with a share of 0.

    The probability is estimated by subsets of k of n samples, c of them right. With a share of 0 the result is that of
    `pass_at_k`, with a share of 1 that of `pass_hat_k`.

    Source: Liu et al., "Are Your LLMs Capable of Stable Reasoning?" (2412.13147), equations 2 to 4: sum of the
        hypergeometric law from max(1, ceil(share k)). Differs: share k is rounded at nine decimals, since 0.28 x 25 is
        above 7 in floating point.
    Shapes: n, c and k are broadcast against each other.

    Args:
        n: Samples of each problem.
        c: Right samples of each problem.
        k: Samples of a subset.
        share: The least share of right samples in a subset, in [0, 1] (tau in the paper).

    Returns:
        As `pass_at_k`. `clustered_mean` of the values of problems, with bounds=(0, 1), gives the interval.

    Raises:
        ConfigError: values that are no numbers, or of shapes that do not fit each other; a share outside of [0, 1].
    """
    check_number("share", share, 0, 1, optional=False)
    return _share_of_subsets(n, c, k, share)


def max_at_k(values: ArrayLike, k: ArrayLike) -> NDArray[np.float64]:
    """Return the expected greatest value of k samples (max@k), without bias, from the values of n samples.

    The result is the mean over all subsets of k: sum_i v_(i) (C(i, k) - C(i - 1, k)) / C(n, k), with the values in
    rising order. For values 0 and 1 it equals `pass_at_k`.

    Source: Chen et al., "Evaluating large language models trained on code" (2107.03374), equation 1, for any reward.

    Args:
        values: [n], such as scores or rewards of the samples of one problem.
        k: Samples of a subset, of any shape.

    Returns:
        An array of k's shape; NaN where k is no whole number with 1 <= k <= n.

    Raises:
        ConfigError: values that are no list of finite numbers.
    """
    sorted_values = np.sort(numbers("values", values))
    if sorted_values.ndim != 1 or not np.isfinite(sorted_values).all():
        raise ConfigError(f"values is {quote(values)}, but must be a list of finite numbers")
    ks = numbers("k", k)
    n = len(sorted_values)
    if n == 0:
        return np.full(ks.shape, np.nan)
    num_above = n - np.arange(n + 1)  # values above the i lowest
    none_above = 1 - pass_at_k(n, num_above, ks[..., None])  # [..., n + 1]: the chance that all k are of the i lowest
    return np.diff(none_above, axis=-1) @ sorted_values


def _share_of_subsets(n: ArrayLike, c: ArrayLike, k: ArrayLike, share: float) -> NDArray[np.float64]:
    """Return the share of subsets of k of n samples with enough right samples; NaN as `pass_at_k`.

    Enough are the given share of the k samples, and at least one sample.
    """
    is_undefined = np.isnan(pass_at_k(n, c, k))
    arrays = np.broadcast_arrays(numbers("n", n), numbers("c", c), numbers("k", k))
    n_, c_, k_ = (np.where(is_undefined, 1, array) for array in arrays)
    fewest_right = np.maximum(np.ceil(np.round(share * k_, 9)), 1)
    return np.where(is_undefined, np.nan, stats.hypergeom.sf(fewest_right - 1, n_, c_, k_))


def wilson(successes: float, n: float, level: float = LEVEL) -> Estimate:
    """Return a proportion with Wilson's interval.

    The interval keeps within [0, 1] and does not shrink to a point at its ends.

    Source: Wilson, "Probable inference, the law of succession, and statistical inference" (1927).

    Args:
        successes: The number of successes of `n` independent trials. Both numbers may be fractions, as effective sizes
            are.
        n: The number of trials, above 0.
        level: The level of the interval, in (0, 1).

    Returns:
        The share of successes with its interval; with n = 0, NaN with the interval [0, 1].

    Raises:
        ConfigError: not 0 <= successes <= n, or a level outside (0, 1).
    """
    check_level(level)
    if not (math.isfinite(n) and 0 <= successes <= n):
        raise ConfigError(f"successes is {successes!r} of n = {n!r}, but must be from 0 to n")
    if n == 0:
        return Estimate(math.nan, 0.0, 1.0, level, 0)
    z = float(stats.norm.isf((1 - level) / 2))
    share = successes / n
    center = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # an interval that ends at 0 or 1 ends there exactly, whatever the rounding
    low = 0.0 if successes == 0 else center - half
    high = 1.0 if successes == n else center + half
    return Estimate(share, low, high, level, int(n))


def check_level(level: float) -> None:
    """Refuse a level of confidence outside (0, 1)."""
    if not 0 < level < 1:
        raise ConfigError(f"level is {level!r}, but must be between 0 and 1, such as 0.95")
