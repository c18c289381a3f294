"""Pandora: stop where the next sample is expected to raise the best score by less than it costs."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from tts.checks import Text, number, number_above, whole
from tts.search.ends import StopDecision
from tts.search.needs import Needs
from tts.search.parameters import Aggregate
from tts.search.parts import StopRule
from tts.types import Candidate

_LEAST_DISTANCE = 1e-6  # a score of 0 or 1 has the odds of this distance from it
_NODES = 48
_PART = 5  # the reference is the expected largest of so small a part of `horizon`, as in the authors' code


@dataclass(frozen=True, slots=True, kw_only=True)
class Pandora(StopRule):
    """Stops where the index of the next sample is no higher than the best score so far.

    The index is Weitzman's reservation value.

        x_i = exp(score_i) ; m = their median ; s = mean of the x above it, less m ; e = sqrt(ln n ln(1/delta) / n)
        reference = m + s (1 - e) ln(horizon / 5) ; utility of x = x / (x + reference), its chance against the reference
        stop where E[utility of max(X, best)] - utility of best <= price, with X above m exponential of mean s (1 + e)

    Source: Kalayci, Raman, Dughmi, "Optimal Stopping vs Best-of-N for Inference Time Optimization" (2510.01394), read
    in the authors' code. Differs:
    - Half of the law lies above the median; the code counts the tail as all of it, which doubles the gain.
    - The tail's mean is its upper bound, as in the paper; the code computes the bound and uses the estimate.
    - The condition is evaluated at the best score. It is the same as a best score above the index, without a root to be
      found.
    - Scores that all lie in [0, 1] are taken as probabilities, by their log-odds. Candidates without an answer are
      samples, but not best.

    Args:
        price: The cost of a sample, above 0, in units of the chance to beat the reference. The paper's are from 0.00006
            to 0.008.
        least: Samples before it may stop, at least 2.
        horizon: Samples to which the reference belongs, at least 6: what a long run of best-of-n would draw.
        delta: The chance that the bound is too low, above 0 and below 1.
        verifier: The role that scores.
        aggregate: The way in which step scores are combined.

    Cost: one verifier call a candidate. Whole solutions are drawn one after another.

    Example:
        >>> import tts
        >>> found = tts.solve(
        ...     "3 + 4 - 2 + 9",
        ...     800,
        ...     model="toy",
        ...     strategy="best_of_n(n=32) | pandora(price=0.05, least=4) | best",
        ...     verifier="toy(error=0.1)",
        ... )
        >>> found.answer, found.usage.samples, found.stopped_by
        ('14', 4, 'pandora')
    """

    registered_as = "pandora"
    price: Annotated[float, number_above(0)] = 0.001
    least: Annotated[int, whole(2)] = 20
    horizon: Annotated[int, whole(6)] = 100
    delta: Annotated[float, number(1e-12, 1 - 1e-12)] = 0.05
    verifier: Text = "main"
    aggregate: Aggregate = "last"

    def needs(self) -> Needs:
        """Return the needs: scores of the candidates."""
        return Needs(verifiers=(self.verifier,), aggregate=self.aggregate)

    def should_stop(self, candidates: Sequence[Candidate]) -> StopDecision | None:
        """Return a stop when the next sample is not worth its cost."""
        scores = np.array([c.scores.get(self.verifier, math.nan) for c in candidates], np.float64)
        is_known = ~np.isnan(scores)
        if is_known.sum() < self.least:
            return None
        has_answer = np.array([c.answer_class is not None for c in candidates])
        if not (is_known & has_answer).any():
            return None
        values = exponentials(scores[is_known])
        best_value = float(values[has_answer[is_known]].max())
        gain = self.gain(values, best_value)
        return StopDecision("pandora") if gain <= self.price else None

    def gain(self, values: NDArray[np.float64], best: float) -> float:
        """Return the expected rise of the utility of the best value by one more sample.

        Args:
            values: The values so far, above 0; at least two.
            best: The best value among the candidates with an answer.
        """
        count, median = len(values), float(np.median(values))
        mean_excess = float(values[values >= median].mean()) - median
        error = math.sqrt(math.log(count) * math.log(1 / self.delta) / count)  # the relative error of the mean excess
        reference = median + mean_excess * max(0.0, 1 - error) * math.log(self.horizon / _PART)
        return tail_gain(max(best, median), median, mean_excess * (1 + error), reference)


def tail_gain(best: float, median: float, mean: float, reference: float) -> float:
    """Return the expected gain E[(u(X) - u(best))+] for the utility u(x) = x / (x + reference).

    The next value X is above `median` with probability 1/2. Its excess then has an exponential law.

    Args:
        best: The value to beat, at least the median.
        median: The median of the law.
        mean: The mean excess over the median; 0: no value is above the median.
        reference: The value of utility 1/2, above 0.
    """
    if mean == 0:
        return 0.0
    nodes, weights = _laguerre()
    values = best + mean * nodes  # of X, given that X is above `best`
    gains = values / (values + reference) - best / (best + reference)
    chance_above = 0.5 * math.exp(-(best - median) / mean)
    return chance_above * float(weights @ gains)


def exponentials(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the exponentials of scores up to a factor.

    If all scores lie in [0, 1], they are taken as probabilities, and their odds are returned.
    """
    logs = scores
    if scores.min() >= 0 and scores.max() <= 1:
        probabilities = np.clip(scores, _LEAST_DISTANCE, 1 - _LEAST_DISTANCE)
        logs = np.log(probabilities) - np.log1p(-probabilities)
    return np.exp(np.maximum(logs - logs.max(), -700.0))  # values below e^-700 would be 0


@functools.cache
def _laguerre() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return nodes and weights of Gauss's rule for the weight exp(-t) on [0, inf)."""
    return np.polynomial.laguerre.laggauss(_NODES)
