"""The threshold of selective answering: chosen on calibration data, so that answers are wrong no more often than is wanted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import betaincinv

from tts.checks import check_number
from tts.errors import ConfigError

_COVERAGES = 20  # shares of the calibration data, evenly spaced, that are tried


class Threshold(NamedTuple):
    """A threshold and what it did on the calibration data.

    Args:
        value: for `selective(threshold=…)`; infinite where no share of the data keeps the risk. coverage: share that is answered.
        risk: share of these that is wrong; NaN where none is answered. bound: what the risk is at most, at the stated level.
    """

    value: float
    coverage: float
    risk: float
    bound: float


def choose_threshold(confidences: Sequence[float], right: Sequence[bool], risk: float, delta: float = 0.05) -> Threshold:
    """Return the threshold that answers most while at most `risk` of its answers are wrong, with probability 1 - delta over the data.

    Each of 20 shares of the data, the most confident first, has an exact upper bound on the risk of answering it. The threshold is that of
    the largest share whose bound is within the wanted risk. All 20 bounds hold together, at delta / 20 each.

    Source: Geifman, El-Yaniv, "Selective Classification for Deep Neural Networks" (1705.08500), selection with guaranteed risk. Differs:
    evenly spaced shares in place of a binary search, which loses its way where the risk is not monotone. UNVERIFIED (from memory).

    Args:
        confidences: of calibration problems, none of which is to be reported on; NaN: unknown, never answered.
        right: whether each answer was right. risk: wanted, above 0 and below 1. delta: above 0 and below 1.

    Raises:
        ConfigError: the lists differ in length or are empty, or a number is out of its range.
    """
    for name, value in (("risk", risk), ("delta", delta)):
        check_number(name, value, 0, 1, optional=False)
        if not 0 < value < 1:
            raise ConfigError(f"{name} is {value}, but must be above 0 and below 1")
    if len(confidences) != len(right) or not confidences:
        raise ConfigError(f"right has {len(right)} entries for {len(confidences)} confidences, but must have as many, and at least one")
    known = np.array(confidences, np.float64)
    known[np.isnan(known)] = -math.inf
    order = np.argsort(-known, kind="stable")
    sure, correct = known[order], np.array(right, np.bool_)[order]
    best = Threshold(math.inf, 0.0, math.nan, math.nan)
    for share in range(1, _COVERAGES + 1):
        least = sure[math.ceil(len(sure) * share / _COVERAGES) - 1]
        if math.isinf(least):
            break
        count = int((sure >= least).sum())
        wrong = int((~correct[:count]).sum())
        bound = upper_bound(wrong, count, delta / _COVERAGES)
        if bound <= risk:
            best = Threshold(float(least), count / len(sure), wrong / count, bound)
    return best


def upper_bound(wrong: int, count: int, delta: float) -> float:
    """Return the largest rate under which `wrong` of `count` or fewer still has probability delta (Clopper and Pearson, one-sided)."""
    return 1.0 if wrong == count else float(betaincinv(wrong + 1, count - wrong, 1 - delta))
