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

_ROUNDING_FACTOR = 1 - 1e-12  # a factor against rounding: a share of exactly one must not become two


def apportion(scores: NDArray[np.float64], total: int, temperature: float) -> NDArray[np.int64]:
    """Return the number of continuations that each node gets.

    Args:
        scores: The score of each node [N]; NaN or -inf where it is unknown.
        total: The number of continuations to share out.
        temperature: The temperature, above 0 (T_b in the papers); a small temperature gives all to the best node.

    Returns:
        Counts [N] that sum to `total`, where there is a node.
    """
    counts = np.zeros(len(scores), dtype=np.int64)
    order = np.argsort(-replace_nan(scores), kind="stable")  # [N], the best node first
    weights = softmax_weights(scores, temperature)[order]
    # the weight of each node and of all nodes after it; the sum begins with the smallest, so that the last is exact
    remaining_weights = np.cumsum(weights[::-1])[::-1]
    remaining_count = total
    for node, weight, remaining_weight in zip(
        order.tolist(), weights.tolist(), remaining_weights.tolist(), strict=True
    ):
        if remaining_count == 0 or weight == 0.0:
            break
        share = math.ceil(remaining_count * weight / remaining_weight * _ROUNDING_FACTOR)
        counts[node] = min(remaining_count, share)
        remaining_count -= int(counts[node])
    return counts


def softmax_weights(scores: NDArray[np.float64], temperature: float) -> NDArray[np.float64]:
    """Return the softmax weight of each score [N], relative to the greatest weight, which is 1.

    An unknown score weighs 0. Where all scores are unknown, each weighs 1.
    """
    known_scores = replace_nan(scores)
    if not len(known_scores) or np.isneginf(known_scores).all():
        return np.ones(len(known_scores))
    with np.errstate(over="ignore"):  # a small temperature may make a difference infinite: its weight is 0
        return np.exp((known_scores - known_scores.max()) / temperature)


def replace_nan(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return scores with -inf for NaN."""
    return np.where(np.isnan(scores), -np.inf, scores)
