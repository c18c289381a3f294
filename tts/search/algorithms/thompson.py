"""Draws from posteriors of mean scores, for Thompson sampling.

They are of one arm, and of arms that are like each other.

Source: algorithm B15; the priors of AB-MCTS-A and -M, and that each arm has a posterior draw of its own, were read in
the code of treequest (Inoue et al., 2503.04412). Differs: the posterior of AB-MCTS-M is integrated over a grid of its
two spreads, where the paper runs a Markov chain. Where the scores of each arm are all equal, its mass near no noise is
infinite, and the least noise of the grid decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_MEAN, _KAPPA, _NU, _TAU2 = 0.0, 1.0, 1.0, 0.1  # normal-inverse-chi-squared
_HALF = 0.5  # both parameters of the Beta prior
_CENTRE, _CENTRE_SPREAD = 0.5, 0.2  # of the mean of all arms: N(0.5, 0.2)
_ARM_SPREAD, _NOISE = 0.2, 0.3  # scales of the half-normal spreads, between arms and within one
# of a spread, in units of its scale, evenly by its logarithm: the tail beyond holds 0.05 %
_GRID = np.geomspace(1e-3, 3.5, 40)


def normal_posterior(scores: Sequence[float]) -> tuple[float, float, float, float]:
    """Return m, kappa, nu and tau squared of the posterior of an arm's mean and variance.

    The posterior is normal-inverse-chi-squared.
    """
    n = len(scores)
    mean = math.fsum(scores) / n if n else 0.0
    spread = math.fsum((y - mean) ** 2 for y in scores)
    kappa, nu = _KAPPA + n, _NU + n
    tau2 = (_NU * _TAU2 + spread + n * _KAPPA * (_MEAN - mean) ** 2 / kappa) / nu
    return (_KAPPA * _MEAN + n * mean) / kappa, kappa, nu, tau2


def normal_draw(scores: Sequence[float], rng: np.random.Generator) -> float:
    """Draw an arm's mean from its posterior.

    Sigma squared comes from its scaled inverse chi-squared law, then mu from N(m, sigma squared / kappa).
    """
    m, kappa, nu, tau2 = normal_posterior(scores)
    return float(rng.normal(m, math.sqrt(nu * tau2 / rng.chisquare(nu) / kappa)))


def beta_draw(scores: Sequence[float], rng: np.random.Generator) -> float:
    """Draw an arm's mean from Beta(1/2 + sum of y, 1/2 + sum of 1 - y); scores in [0, 1]."""
    won = math.fsum(scores)
    return float(rng.beta(_HALF + won, _HALF + len(scores) - won))


def mixed_draws(arms: Sequence[Sequence[float]], rng: np.random.Generator, count: int = 1) -> NDArray[np.float64]:
    """Draw the next score of each arm, and that of an arm not seen yet, by a mixed model.

    Each has a posterior draw of its own.

    y = a_j + noise, a_j = mu + spread between arms; mu ~ N(0.5, 0.2), both spreads half-normal, of scales 0.2 and 0.3.

    Args:
        arms: The scores of each arm.
        rng: The generator of the draws.
        count: The number of draws, at least 1.

    Returns:
        The scores: [draws, arms + 1], the arm not seen yet last.
    """
    sizes = np.array([len(arm) for arm in arms], np.float64)
    means = np.array([math.fsum(arm) / len(arm) if arm else 0.0 for arm in arms])
    inner = math.fsum((y - mean) ** 2 for arm, mean in zip(arms, means.tolist(), strict=True) for y in arm)
    between, within = (grid.ravel() for grid in np.meshgrid(_GRID * _ARM_SPREAD, _GRID * _NOISE, indexing="ij"))
    known = sizes > 0
    # of each cell of the grid and each known arm: the variance of the arm's mean around mu
    around = between[:, None] ** 2 + within[:, None] ** 2 / sizes[known]
    precision = 1 / _CENTRE_SPREAD**2 + (1 / around).sum(1)
    centre = (_CENTRE / _CENTRE_SPREAD**2 + (means[known] / around).sum(1)) / precision
    weights = _log_weights(between, within, sizes[known], means[known], inner, around, precision, centre)
    cells = _choose(weights, (count, len(arms) + 1), rng)
    mu = rng.normal(centre[cells], 1 / np.sqrt(precision[cells]))
    arm2, noise = between[cells] ** 2, within[cells]
    seen = np.append(sizes, 0.0)
    weight = arm2 / (arm2 + noise**2 / np.maximum(seen, 1)) * (seen > 0)
    levels = rng.normal(mu + weight * (np.append(means, 0.0) - mu), np.sqrt(arm2 * (1 - weight)))
    return rng.normal(levels, noise)


def _log_weights(
    between: NDArray[np.float64],
    within: NDArray[np.float64],
    sizes: NDArray[np.float64],
    means: NDArray[np.float64],
    inner: float,
    around: NDArray[np.float64],
    precision: NDArray[np.float64],
    centre: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the logarithm of prior times likelihood of each cell, arms' levels and their mean integrated out."""
    # a cell's size grows with both
    prior = -0.5 * ((between / _ARM_SPREAD) ** 2 + (within / _NOISE) ** 2) + np.log(between * within)
    inside = -(sizes.sum() - len(sizes)) * np.log(within) - inner / (2 * within**2)
    outside = -0.5 * (np.log(around).sum(1) + np.log(precision) + (means**2 / around).sum(1) - precision * centre**2)
    return prior + inside + outside


def _choose(log_weights: NDArray[np.float64], shape: tuple[int, int], rng: np.random.Generator) -> NDArray[np.intp]:
    """Return so many cells, drawn with replacement by their weights."""
    weights = np.cumsum(np.exp(log_weights - log_weights.max()))
    return np.searchsorted(weights, rng.random(shape) * weights[-1], side="right")
