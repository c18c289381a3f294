"""A probability, its logarithm, and its log-odds."""

from __future__ import annotations

import math

_CERTAIN = -1e-7


def chance(log_odds: float) -> float:
    """Return a probability from its log-odds."""
    small = math.exp(-abs(log_odds))
    return (1.0 if log_odds >= 0 else small) / (1.0 + small)


def log_odds(logprob: float) -> float:
    """Return the log-odds of a probability from its logarithm; one above 1 - 1e-7 is taken as that."""
    logprob = min(logprob, _CERTAIN)
    return logprob - math.log(-math.expm1(logprob))
