"""RPC: votes weighed by the model's own probabilities of paths.

Before the vote, the paths of the less probable mode are dropped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import gamma

from tts.checks import whole
from tts.search.parts import Selected
from tts.search.search import Search
from tts.search.selections._common import Ballot, ByBallot, warn_of_scores

_LEAST = 1e-12  # a smaller probability is raised to this one: the law has no density at 0
# the share, and then shape and scale of each law: the start of the fit, and its limits
_START = (0.5, 1.0, 1.0, 1.5, 2.0)
_LIMITS = ((0.2, 0.8), *((0.01, None),) * 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rpc(ByBallot):
    """Drops the paths of the low mode of the probabilities, and votes with the others.

    The answer with the highest sum of probabilities over its distinct paths is chosen.

    Source: algorithm B3, Zhou et al., "Bridging Internal Probability and Self-Consistency for Effective and Efficient
    LLM Reasoning" (2502.00511), from code: length-normalised probabilities (the paper writes path probabilities), two
    Weibull laws fitted by maximum likelihood, the second test that guards against a bad fit, each path text counted
    once. Differs:
    - The probabilities are the scores of `verifier`, which should be `confidence`: its default is this probability.
    - Below `least` paths nothing is dropped.
    - Scores outside [0, high] are mapped to [0, 1] first.
    - An unknown score is the mean of the known ones. Without a single known one it is a majority vote.

    A warning names the paper's score where the role `main` has another verifier.

    Args:
        least: Known probabilities below which the fit means nothing, and nothing is dropped.
        verifier: As in `ByScore`.
        aggregate: As in `ByScore`.
        truncated: As in `ByScore`.

    Cost: one verifier call a candidate, without tokens for `confidence`; a fit of five numbers.

    Example:
        >>> import tts
        >>> found = tts.solve("3 + 4 - 2 + 9", 400, model="toy", strategy="best_of_n(n=8) | rpc", verifier="confidence")
        >>> found.answer, round(found.confidence, 2), found.usage.verifier_calls
        ('14', 0.54, 8)
    """

    registered_as = "rpc"
    least: Annotated[int, whole(2)] = 10

    async def choose(self, ballot: Ballot, search: Search) -> Selected:
        """Choose by the summed probability of distinct paths."""
        warn_of_scores(self, search, "confidence")
        weights = ballot.units  # [candidates]
        known = np.flatnonzero(~np.isnan(ballot.scores[1]))  # the indices of known probabilities
        if len(known) >= self.least:
            is_dropped = await search.run(improbable, weights[known])
            weights[known[is_dropped]] = 0.0
        texts: set[str] = set()
        for i, candidate in enumerate(ballot.candidates):
            text = candidate.trajectory.response
            if text in texts:  # each text counts once
                weights[i] = 0.0
            texts.add(text)
        return ballot.select_class(weights)


class Mixture(NamedTuple):
    """Two Weibull laws: the share of the first, and each law's shape and scale."""

    share: float
    shapes: tuple[float, float]
    scales: tuple[float, float]

    def density(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the log-density of each law, times its share: [2, values]."""
        log_shares = np.log([self.share, 1 - self.share])
        return np.stack([log_shares[i] + _log_weibull(values, self.shapes[i], self.scales[i]) for i in (0, 1)])

    @property
    def high(self) -> int:
        """The index of the law with the larger mean, 0 or 1."""
        means = [scale * gamma(1 + 1 / shape) for shape, scale in zip(self.shapes, self.scales, strict=True)]
        return int(np.argmax(means))


def fit(values: NDArray[np.float64]) -> Mixture:
    """Return the mixture that makes values above 0 most likely.

    The fit begins at the paper's start and stays within the paper's limits. The order of the values does not count.
    """
    ordered = np.sort(values)  # so that no rounding depends on the order

    def surprise(parameters: NDArray[np.float64]) -> float:
        """Return the negative log-likelihood of the values."""
        return -float(np.logaddexp.reduce(_mixture(parameters).density(ordered), axis=0).sum())

    optimum = minimize(surprise, np.array(_START), method="L-BFGS-B", bounds=_LIMITS)
    return _mixture(optimum.x)


def improbable(likely: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return whether each path belongs to the low mode.

    Such a path has a greater density under the low law than under the high law, and a probability below the mean.

    Args:
        likely: The probability of each path [paths].
    """
    values = np.maximum(likely, _LEAST)
    if np.ptp(values) == 0:
        return np.zeros(len(values), np.bool_)
    mixture = fit(values)
    density = mixture.density(values)  # [2, paths]
    high, low = mixture.high, 1 - mixture.high
    mean = math.fsum(likely.tolist()) / len(likely)
    return (density[high] < density[low]) & (likely < mean)


def _mixture(parameters: NDArray[np.float64]) -> Mixture:
    """Return the mixture of five numbers: the share, and shape and scale of each law."""
    share, shape1, scale1, shape2, scale2 = parameters.tolist()
    return Mixture(share, shapes=(shape1, shape2), scales=(scale1, scale2))


def _log_weibull(values: NDArray[np.float64], shape: float, scale: float) -> NDArray[np.float64]:
    relative = np.log(values / scale)
    with np.errstate(over="ignore"):
        return math.log(shape / scale) + (shape - 1) * relative - np.exp(np.minimum(shape * relative, 700))
