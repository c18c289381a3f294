r"""Importance weights of the paths of a search that multiplies and drops paths.

With these weights, sums over the paths are unbiased.

Particle methods: let G be the product of what all levels weigh of a path, each to the power 1 / temperature. With N
particles and the weights w_i that they have since the last resampling, the normalizing constant is estimated by Z =
product over resampled levels of mean(w), times mean(w) at the end. E[Z] is the mean of G under the model, and E[sum_i
W_i f(x_i)] with W_i = Z w_i / sum(w) is the mean of G f. The self-normalized W_i / sum(W) estimate the mean of f under
the law proportional to the model's times G; that estimate is consistent, not unbiased.

REBASE and other splits: a path that goes on in c paths has 1 / c of its weight in each. E[sum_i W_i f(x_i)] is then the
model's mean of f, as long as no path of weight is dropped, for the numbers of continuations depend on the past alone.

Source: Del Moral, "Feynman-Kac Formulae" (2004), theorem 7.4.2, for the product of means; splitting: Kahn, Harris
(1951). Differs: several sweeps with their own particles are averaged.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby

import numpy as np

from tts.search.ends import Level


def importance_weights(levels: Sequence[Level], paths: Sequence[Sequence[int]]) -> Mapping[int, float]:
    """Return the importance weight of each path, summed over its copies, by its last node.

    Args:
        levels: How a search divided what it writes, in order.
        paths: The paths that ended, by their nodes from the root on.

    Returns:
        The weights; none where the law of the weights is not fixed. That is so if a level depends on how long other
        paths took, a path of weight was dropped or failed, or temperatures differ. It is also so if a sweep did not
        come to its end, or the search divided nothing by weights.
    """
    temperatures = {level.temperature for level in levels}
    if not levels or not all(level.is_fixed for level in levels) or len(temperatures) > 1:
        return {}
    if all(level.kind == "split" for level in levels):
        return _split_weights(levels, paths)
    sweeps = [list(levels_of_sweep) for _, levels_of_sweep in groupby(levels, key=lambda level: level.sweep)]
    if any(sweep[-1].kind != "ended" for sweep in sweeps):
        return {}
    weights = defaultdict[int, float](float)
    for sweep in sweeps:
        last_level = sweep[-1]
        log_weights = np.array(last_level.log_weights) / last_level.temperature  # [particles]
        relative_weights = np.exp(log_weights - _log_mean(last_level) + log_normalizer(sweep))
        shares = relative_weights / len(log_weights) / len(sweeps)
        for node, share in zip(last_level.nodes, shares.tolist(), strict=True):
            weights[node] += share
    return weights


def _split_weights(levels: Sequence[Level], paths: Sequence[Sequence[int]]) -> Mapping[int, float]:
    """Return the weight of each path by its last node: each split divides the weight evenly."""
    if len(paths) != sum(levels[0].counts):  # a row failed, or was never begun
        return {}
    continuations: dict[int, int] = {}  # node -> the number of its continuations
    for level in levels:
        continuations.update(zip(level.nodes, level.counts, strict=True))
    weights: dict[int, float] = {}
    for path in paths:
        split_nodes = [node for node in path[:-1] if node in continuations]
        weights[path[-1]] = math.prod(1 / continuations[node] for node in split_nodes)
    return weights


def log_normalizer(sweep: Sequence[Level]) -> float:
    """Return the natural logarithm of the estimated normalizing constant of one completed sweep."""
    return sum(_log_mean(level) for level in sweep if level.kind in ("resampled", "ended"))


def _log_mean(level: Level) -> float:
    log_weights = np.array(level.log_weights) / level.temperature
    return float(np.logaddexp.reduce(log_weights) - np.log(len(log_weights)))
