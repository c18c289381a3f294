r"""Importance weights of the paths of a search that multiplies and drops paths.

With these weights, sums over the paths are unbiased.

Particle methods: let G be the product of what all levels weigh of a path, each to the power 1 / temperature. With N
particles and the weights w_i that they have since the last resampling, the normalizing constant is estimated by Z =
product over resampled levels of mean(w), times mean(w) at the end. E[Z] is the mean of G under the model, and E[sum_i
W_i f(x_i)] with W_i = Z w_i / sum(w) is the mean of G f. The self-normalized W_i / sum(W) estimate the mean of f under
the law proportional to the model's times G; that estimate is consistent, not unbiased.

There are no such weights where a path of weight is dropped by a rule, as in REBASE. There are none either where the
number of levels of a path depends on other paths, as with `target="levels"`. To give weights only to the searches in
which this did not happen is no way out: these searches are not like the others, and their sums are biased.

Source: Del Moral, "Feynman-Kac Formulae" (2004), theorem 7.4.2, for the product of means. Differs: several sweeps
with their own particles are averaged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby

import numpy as np

from tts.search.ends import Level
from tts.search.strategies._common.particles import log_normalizer


def importance_weights(levels: Sequence[Level]) -> Mapping[int, float]:
    """Return the importance weight of each path, summed over its copies, by its last node.

    Args:
        levels: How a search divided what it writes, in order.

    Returns:
        The weights; none where the law of the weights is not fixed. That is so for every method but particles with
        `target="last"` and a fixed temperature. It is also so if a row failed, or a sweep did not come to its end.
    """
    temperatures = {level.temperature for level in levels}
    if not levels or not all(level.is_fixed for level in levels) or len(temperatures) > 1:
        return {}
    sweeps = [list(levels_of_sweep) for _, levels_of_sweep in groupby(levels, key=lambda level: level.sweep)]
    if any(sweep[-1].kind != "ended" for sweep in sweeps):
        return {}
    weights = defaultdict[int, float](float)
    for sweep in sweeps:
        last_level = sweep[-1]
        log_weights = np.array(last_level.log_weights) / last_level.temperature  # [particles]
        relative_weights = np.exp(log_weights + log_normalizer(sweep[:-1]))
        shares = relative_weights / len(log_weights) / len(sweeps)
        for node, share in zip(last_level.nodes, shares.tolist(), strict=True):
            weights[node] += share
    return weights
