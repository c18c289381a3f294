"""Apportionment: divide a whole number of children among nodes by the softmax of their scores.

The sum of the parts is exact.

Source: the allocation of REBASE and ETS (algorithm dossier 0.7, verified in their code): nodes in order of falling
score each take ceil(R w / W) of the R that remain, w their weight and W the weight that remains; the weakest get
nothing. The paper's text rounds each share by itself, which does not conserve the sum. Differs:
- Among equal scores the earlier node is served first. In the reference it is the later one.
- An unknown score (NaN) weighs nothing. Where all are unknown, they are equal.

Shapes: N nodes.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

_JUST_BELOW = 1 - 1e-12  # a third of three is one, however the third was rounded


def apportion(scores: NDArray[np.float64], total: int, temperature: float) -> NDArray[np.int64]:
    """Return how many of `total` each node gets.

    Args:
        scores: [N], NaN or -inf where unknown.
        total: The number of continuations to share out.
        temperature: The temperature, above 0 (T_b in the papers); small ones give all to the best.

    Returns:
        Counts [N] that sum to `total`, where there is a node.
    """
    counts = np.zeros(len(scores), dtype=np.int64)
    order = np.argsort(-replace_nan(scores), kind="stable")
    weights = softmax_weights(scores, temperature)[order]
    # summed from the smallest on: the last one that is left has exactly its own weight
    remaining = np.cumsum(weights[::-1])[::-1]
    left = total
    for place, weight, rest in zip(order.tolist(), weights.tolist(), remaining.tolist(), strict=True):
        if left == 0 or weight == 0.0:
            break
        counts[place] = min(left, math.ceil(left * weight / rest * _JUST_BELOW))
        left -= int(counts[place])
    return counts


def softmax_weights(scores: NDArray[np.float64], temperature: float) -> NDArray[np.float64]:
    """Return the weights [N] relative to the greatest, which is 1.

    Unknown scores weigh nothing, or all the same.
    """
    ranked = replace_nan(scores)
    if not len(ranked) or np.isneginf(ranked).all():
        return np.ones(len(ranked))
    with np.errstate(over="ignore"):  # a difference that a small temperature makes infinite weighs nothing
        return np.exp((ranked - ranked.max()) / temperature)


def replace_nan(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return scores with -inf for NaN."""
    return np.where(np.isnan(scores), -np.inf, scores)
