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

_MEAN, _KAPPA, _NU, _TAU2 = 0.0, 1.0, 1.0, 0.1  # of the normal-inverse-chi-squared prior
_HALF = 0.5  # both parameters of the Beta prior
_CENTRE, _CENTRE_SPREAD = 0.5, 0.2  # of the mean of all arms: N(0.5, 0.2)
_ARM_SPREAD, _NOISE = 0.2, 0.3  # scales of the half-normal spreads, between arms and within one
# values of a spread in units of its scale, with even logarithms; a spread is greater with probability 0.0005
_GRID = np.geomspace(1e-3, 3.5, 40)


def normal_posterior(scores: Sequence[float]) -> tuple[float, float, float, float]:
    """Return m, kappa, nu and tau squared of the posterior of an arm's mean and variance.

    The posterior is normal-inverse-chi-squared.
    """
    n = len(scores)
    mean = math.fsum(scores) / n if n else 0.0
    sum_of_squares = math.fsum((score - mean) ** 2 for score in scores)
    kappa, nu = _KAPPA + n, _NU + n
    m = (_KAPPA * _MEAN + n * mean) / kappa
    tau2 = (_NU * _TAU2 + sum_of_squares + n * _KAPPA * (_MEAN - mean) ** 2 / kappa) / nu
    return m, kappa, nu, tau2


def normal_draw(scores: Sequence[float], rng: np.random.Generator) -> float:
    """Draw an arm's mean from its posterior.

    Sigma squared comes from its scaled inverse chi-squared law, then mu from N(m, sigma squared / kappa).
    """
    m, kappa, nu, tau2 = normal_posterior(scores)
    return float(rng.normal(m, math.sqrt(nu * tau2 / rng.chisquare(nu) / kappa)))


def beta_draw(scores: Sequence[float], rng: np.random.Generator) -> float:
    """Draw an arm's mean from Beta(1/2 + sum of y, 1/2 + sum of 1 - y), for scores y in [0, 1]."""
    total = math.fsum(scores)
    return float(rng.beta(_HALF + total, _HALF + len(scores) - total))


def mixed_draws(arms: Sequence[Sequence[float]], rng: np.random.Generator, count: int = 1) -> NDArray[np.float64]:
    """Draw the next score of each arm, and the score of an arm not seen yet, by a mixed model.

    A score of arm j is y = a_j + noise. The level a_j of the arm is normal around mu, the mean of all arms, and mu ~
    N(0.5, 0.2). The spread between arms and the spread of the noise are half-normal, of scales 0.2 and 0.3. Each drawn
    score has a posterior draw of its own.

    Args:
        arms: The scores of each arm.
        rng: The generator of the draws.
        count: The number of draws, at least 1.

    Returns:
        The scores: [draws, arms + 1], the arm not seen yet last.
    """
    sizes = np.array([len(arm) for arm in arms], np.float64)
    means = np.array([math.fsum(arm) / len(arm) if arm else 0.0 for arm in arms])
    squares: list[float] = []  # of the deviations of all scores from the means of their arms
    for arm, mean in zip(arms, means.tolist(), strict=True):
        squares += [(score - mean) ** 2 for score in arm]
    # a cell of the grid is a pair of spreads: between arms, and within an arm (the noise); both [cells]
    between, within = (grid.ravel() for grid in np.meshgrid(_GRID * _ARM_SPREAD, _GRID * _NOISE, indexing="ij"))
    is_known = sizes > 0
    # the variance of each known arm's mean around mu: [cells, known arms]
    mean_variance = between[:, None] ** 2 + within[:, None] ** 2 / sizes[is_known]
    mu_precision = 1 / _CENTRE_SPREAD**2 + (1 / mean_variance).sum(1)
    mu_centre = (_CENTRE / _CENTRE_SPREAD**2 + (means[is_known] / mean_variance).sum(1)) / mu_precision
    weights = _log_weights(
        between,
        within,
        sizes[is_known],
        means[is_known],
        squares_within=math.fsum(squares),
        mean_variance=mean_variance,
        mu_precision=mu_precision,
        mu_centre=mu_centre,
    )
    cells = _choose(weights, (count, len(arms) + 1), rng)  # [draws, arms + 1], like the arrays below
    mu = rng.normal(mu_centre[cells], 1 / np.sqrt(mu_precision[cells]))
    level_variance, noise = between[cells] ** 2, within[cells]
    num_scores, arm_means = np.append(sizes, 0.0), np.append(means, 0.0)  # the arm not seen yet has no score
    weight = level_variance / (level_variance + noise**2 / np.maximum(num_scores, 1)) * (num_scores > 0)
    levels = rng.normal(mu + weight * (arm_means - mu), np.sqrt(level_variance * (1 - weight)))
    return rng.normal(levels, noise)


def _log_weights(
    between: NDArray[np.float64],
    within: NDArray[np.float64],
    sizes: NDArray[np.float64],
    means: NDArray[np.float64],
    *,
    squares_within: float,
    mean_variance: NDArray[np.float64],
    mu_precision: NDArray[np.float64],
    mu_centre: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the log of prior times likelihood of each cell. The levels of arms and mu are integrated out.

    Args:
        between: The spread between arms [cells].
        within: The spread of the noise [cells].
        sizes: The number of scores of each known arm [known arms].
        means: The mean score of each known arm [known arms].
        squares_within: The sum of squares of all scores around the means of their arms.
        mean_variance: The variance of each arm's mean around mu [cells, known arms].
        mu_precision: The precision of mu, given the scores [cells].
        mu_centre: The mean of mu, given the scores [cells].
    """
    log_cell_size = np.log(between * within)  # the grid is even by logarithms
    prior = -0.5 * ((between / _ARM_SPREAD) ** 2 + (within / _NOISE) ** 2) + log_cell_size
    scores_in_arms = -(sizes.sum() - len(sizes)) * np.log(within) - squares_within / (2 * within**2)
    log_determinant = np.log(mean_variance).sum(1) + np.log(mu_precision)
    squares_of_means = (means**2 / mean_variance).sum(1)
    arms_around_mu = -0.5 * (log_determinant + squares_of_means - mu_precision * mu_centre**2)
    return prior + scores_in_arms + arms_around_mu


def _choose(log_weights: NDArray[np.float64], shape: tuple[int, int], rng: np.random.Generator) -> NDArray[np.intp]:
    """Return an array of cells of a shape, drawn with replacement by their weights."""
    cumulative = np.cumsum(np.exp(log_weights - log_weights.max()))
    return np.searchsorted(cumulative, rng.random(shape) * cumulative[-1], side="right")
