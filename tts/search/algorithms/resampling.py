"""Resampling: draw ancestors from weights, so that particle i has N p_i descendants in the mean.

All four schemes are unbiased; they differ in how much the counts scatter. Every one inverts the cumulative weights, so
a weight of zero is never drawn.

Source: Douc, Cappe, Moulines, "Comparison of Resampling Schemes for Particle Filtering" (cs/0507025): `stratified` and
`residual` never scatter more than `multinomial`; `systematic` may, where the order of the particles conspires.

Shapes: N particles, M ancestors to draw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

Weights = NDArray[np.float64]  # [N], not negative, with a positive sum
Ancestors = NDArray[np.int64]  # [M], in [0, N), never decreasing


def softmax(log_weights: NDArray[np.float64], temperature: float = 1.0) -> Weights:
    """Return the weights [N] of natural log-weights [N] at a temperature above 0; the weights sum to 1.

    A log-weight of -inf gives the weight 0.
    """
    scaled = (log_weights - log_weights.max()) / temperature
    weights = np.exp(scaled)
    return weights / weights.sum()


def effective_sample_size(p: Weights) -> float:
    """Return (sum p)^2 / sum p^2, from 1 (one particle has all the weight) to N (all weights are equal)."""
    return float(p.sum() ** 2 / np.square(p).sum())


def multinomial(p: Weights, count: int, rng: np.random.Generator) -> Ancestors:
    """Draw each ancestor by itself."""
    return _invert(p, np.sort(rng.random(count)))


def stratified(p: Weights, count: int, rng: np.random.Generator) -> Ancestors:
    """Draw one ancestor in each of M equal slices of the cumulative weights."""
    return _invert(p, (np.arange(count) + rng.random(count)) / count)


def systematic(p: Weights, count: int, rng: np.random.Generator) -> Ancestors:
    """Draw one ancestor in each slice, all at the same place of their slices.

    Each particle gets floor(M p_i) or ceil(M p_i) descendants.
    """
    return _invert(p, (np.arange(count) + rng.random()) / count)


def residual(p: Weights, count: int, rng: np.random.Generator) -> Ancestors:
    """Give each particle floor(M p_i) descendants, and draw the others by the remainders of the shares."""
    shares = count * p / p.sum()
    counts = np.floor(shares + 1e-12).astype(np.int64)  # a share of 3 x 1/3 is one, however it was rounded
    num_to_draw = count - int(counts.sum())
    if num_to_draw > 0:
        remainders = np.clip(shares - counts, 0.0, None)
        counts += np.bincount(multinomial(remainders, num_to_draw, rng), minlength=len(p))
    return np.repeat(np.arange(len(p)), counts)


def _invert(p: Weights, points: NDArray[np.float64]) -> Ancestors:
    """Return the particle in whose part of the cumulative weights each sorted point of [0, 1) falls."""
    cumulative = np.cumsum(p)
    particles = np.searchsorted(cumulative, points * cumulative[-1], side="right")
    last_particle = np.flatnonzero(p)[-1]  # by rounding, a point may fall behind the last weight above zero
    return np.minimum(particles, last_particle)


SCHEMES: Mapping[str, Callable[[Weights, int, np.random.Generator], Ancestors]] = {
    "multinomial": multinomial,
    "stratified": stratified,
    "systematic": systematic,
    "residual": residual,
}
