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

    It is estimated from n samples of which c are right.

    The estimate is the share of right ones among all subsets of k of the n samples; 1 - (1 - c/n)^k would be biased.

    Source: Chen et al., "Evaluating large language models trained on code" (2021), arXiv:2107.03374, equation 1:
        1 - C(n - c, k) / C(n, k), here as a product of min(c, k) factors.
    Shapes: n, c and k are broadcast against each other.

    Returns:
        Probabilities in [0, 1]; NaN where n, c and k are not whole numbers with 0 <= c <= n and 1 <= k <= n.

    Raises:
        ConfigError: values that are no numbers, or of shapes that do not fit each other.
    """
    given = [numbers(name, values) for name, values in (("n", n), ("c", c), ("k", k))]
    try:
        n_, c_, k_ = np.broadcast_arrays(*given)
    except ValueError:
        raise ConfigError(
            f"n, c and k are of the shapes {', '.join(str(each.shape) for each in given)}, but must fit each other"
        ) from None
    valid = (c_ >= 0) & (c_ <= n_) & (k_ >= 1) & (k_ <= n_) & np.isfinite(n_)
    valid &= (n_ == np.floor(n_)) & (c_ == np.floor(c_)) & (k_ == np.floor(k_))
    few, many = np.where(valid, np.minimum(c_, k_), 0), np.where(valid, np.maximum(c_, k_), 0)
    size = np.where(valid, n_, 1)
    missed = np.ones(size.shape)
    for i in range(int(few.max(initial=0))):
        missed *= np.where(i < few, np.maximum(size - many - i, 0) / np.maximum(size - i, 1), 1)
    return np.where(valid, 1 - missed, np.nan)


def pass_hat_k(n: ArrayLike, c: ArrayLike, k: ArrayLike) -> NDArray[np.float64]:
    """Return the probability that all of k samples are right (pass^k), without bias.

    It is estimated from n samples of which c are right.

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

    At least one of them must be right.

    The estimate is the share of subsets of k of the n samples, of which c are right. With a share of 0 it is
    `pass_at_k`, with 1 `pass_hat_k`.

    Source: Liu et al., "Are Your LLMs Capable of Stable Reasoning?" (2412.13147), equations 2 to 4: sum of the
        hypergeometric law from max(1, ceil(share k)). Differs: share k is rounded at nine decimals, since 0.28 x 25 is
        above 7 in floating point.
    Shapes: n, c and k are broadcast against each other.

    Args:
        n: Samples of each problem.
        c: Right samples of each problem.
        k: Samples of a subset.
        share: The least share of right ones, in [0, 1] (tau in the paper).

    Returns:
        As `pass_at_k`. `clustered_mean` of the values of problems, with bounds=(0, 1), gives the interval.

    Raises:
        ConfigError: values that are no numbers, or of shapes that do not fit each other; a share outside of [0, 1].
    """
    check_number("share", share, 0, 1, optional=False)
    return _share_of_subsets(n, c, k, share)


def max_at_k(values: ArrayLike, k: ArrayLike) -> NDArray[np.float64]:
    """Return the expected greatest value of k samples (max@k), without bias, from the values of n samples.

    It is the mean over all subsets of k: sum_i v_(i) (C(i, k) - C(i - 1, k)) / C(n, k), with the values in rising
    order. Of values 0 and 1 it is `pass_at_k`.

    Source: Chen et al., "Evaluating large language models trained on code" (2107.03374), equation 1, for any reward.

    Args:
        values: [n], such as scores or rewards of the samples of one problem.
        k: Samples of a subset, of any shape.

    Returns:
        Of k's shape; NaN where k is no whole number with 1 <= k <= n.

    Raises:
        ConfigError: values that are no list of finite numbers.
    """
    rising = np.sort(numbers("values", values))
    if rising.ndim != 1 or not np.isfinite(rising).all():
        raise ConfigError(f"values is {quote(values)}, but must be a list of finite numbers")
    ks = numbers("k", k)
    # [..., n + 1]: all k among the i lowest
    below = 1 - pass_at_k(len(rising), len(rising) - np.arange(len(rising) + 1), ks[..., None])
    return np.diff(below, axis=-1) @ rising if len(rising) else np.full(ks.shape, np.nan)


def _share_of_subsets(n: ArrayLike, c: ArrayLike, k: ArrayLike, share: float) -> NDArray[np.float64]:
    """Return the share of subsets of k of n in which at least a share, and at least one, is of the c right ones; NaN as
    `pass_at_k`.
    """
    unknown = np.isnan(pass_at_k(n, c, k))
    n_, c_, k_ = (
        np.where(unknown, 1, each)
        for each in np.broadcast_arrays(*(numbers(*one) for one in (("n", n), ("c", c), ("k", k))))
    )
    least = np.maximum(np.ceil(np.round(share * k_, 9)), 1)
    return np.where(unknown, np.nan, stats.hypergeom.sf(least - 1, n_, c_, k_))


def wilson(successes: float, n: float, level: float = LEVEL) -> Estimate:
    """Return a proportion with Wilson's interval.

    The interval keeps within [0, 1] and does not shrink to a point at its ends.

    Source: Wilson, "Probable inference, the law of succession, and statistical inference" (1927).

    Args:
        successes: The number of successes of `n` independent trials. Both may be fractions, as effective numbers are.
        n: The number of trials, above 0.
        level: The level of the interval, in (0, 1).

    Returns:
        With n = 0 a value of NaN in [0, 1]: nothing is known.

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
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # at the ends the interval reaches them exactly, whatever the rounding
    return Estimate(
        share, 0.0 if successes == 0 else centre - half, 1.0 if successes == n else centre + half, level, int(n)
    )


def check_level(level: float) -> None:
    """Refuse a level of confidence outside (0, 1)."""
    if not 0 < level < 1:
        raise ConfigError(f"level is {level!r}, but must be between 0 and 1, such as 0.95")
