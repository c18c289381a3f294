"""Finite log-probabilities: reports of models and servers are made safe for sums and means."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tts.types import Spread

LEAST_LOGPROB = -9999.0  # the value in place of the logarithm of 0, as servers report it


def clean_logprobs(values: Sequence[float]) -> tuple[float, ...]:
    """Return log-probabilities clipped to [LEAST_LOGPROB, 0]; () if one of them is unknown.

    Rounding may give a value above 0, and a token of probability 0 has the logarithm -inf.

    Args:
        values: The log-probability of each token; None and NaN are unknown.
    """
    return _clip_values(values, LEAST_LOGPROB, 0.0) if values else ()


def clean_spreads(values: Sequence[Spread]) -> tuple[Spread, ...]:
    """Return spreads with finite values of at least 0; () if a spread's `top` is unknown.

    Tops and certainties are clipped to -LEAST_LOGPROB. If one certainty is unknown, all certainties become NaN, and
    likewise for entropies.

    Args:
        values: The spread of each token. The certainty is NaN for a backend that shows the most likely tokens alone.
    """
    if not values:
        return ()
    tops = _clip_values([spread.top for spread in values], 0.0, -LEAST_LOGPROB)
    if not tops:
        return ()
    unknown = (math.nan,) * len(tops)
    certainties = _clip_values([spread.certainty for spread in values], 0.0, -LEAST_LOGPROB) or unknown
    entropies = _clip_values([spread.entropy for spread in values], 0.0, math.inf) or unknown
    return tuple(map(Spread, certainties, tops, entropies))


def clean_law(values: Sequence[object]) -> NDArray[np.float64]:
    """Return log-probabilities of next tokens as an array of values of at most 0; NaN stays NaN.

    Args:
        values: The log-probabilities of tokens after a path; None is unknown, and becomes NaN.
    """
    return np.minimum(np.array(values, np.float64), 0.0)


def _clip_values(values: Sequence[float], low: float, high: float) -> tuple[float, ...]:
    """Return values clipped to a range; () if one of them is no number."""
    try:
        if all([low <= value <= high for value in values]):  # noqa: C419 - a list takes half the time
            return tuple(values)
        numbers = [float(value) for value in values]
    except (TypeError, ValueError, OverflowError):
        return ()
    if any(map(math.isnan, numbers)):
        return ()
    return tuple(min(high, max(low, number)) for number in numbers)
