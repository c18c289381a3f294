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
        Nothing where the law of the weights is not fixed: a level depends on how long other paths took, a path of
        weight was dropped or failed, temperatures differ, a sweep did not come to its end, or the search divided
        nothing by weights.
    """
    if not levels or not all(level.is_fixed for level in levels) or len({level.temperature for level in levels}) > 1:
        return {}
    if all(level.kind == "split" for level in levels):
        return _split_weights(levels, paths)
    sweeps = [list(of) for _, of in groupby(levels, key=lambda level: level.sweep)]
    if any(sweep[-1].kind != "ended" for sweep in sweeps):
        return {}
    weights = defaultdict[int, float](float)
    for sweep in sweeps:
        log_weights = np.array(sweep[-1].log_weights) / sweep[-1].temperature
        shares = np.exp(log_weights - _log_mean(sweep[-1]) + log_normalizer(sweep)) / len(log_weights) / len(sweeps)
        for node, share in zip(sweep[-1].nodes, shares.tolist(), strict=True):
            weights[node] += share
    return weights


def _split_weights(levels: Sequence[Level], paths: Sequence[Sequence[int]]) -> Mapping[int, float]:
    continuations = {node: count for level in levels for node, count in zip(level.nodes, level.counts, strict=True)}
    weights = {
        path[-1]: math.prod(1 / continuations[node] for node in path[:-1] if node in continuations) for path in paths
    }
    return weights if len(paths) == sum(levels[0].counts) else {}  # else a row failed, or was never begun


def log_normalizer(sweep: Sequence[Level]) -> float:
    """Return the natural logarithm of the estimated normalizing constant of one completed sweep."""
    return sum(_log_mean(level) for level in sweep if level.kind in ("resampled", "ended"))


def _log_mean(level: Level) -> float:
    log_weights = np.array(level.log_weights) / level.temperature
    return float(np.logaddexp.reduce(log_weights) - np.log(len(log_weights)))
