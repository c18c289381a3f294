"""Adaptive sampling: solutions are drawn one after another until a verifier scores one high enough.

Source: algorithm A13, Manvi, Singh, Ermon, "Adaptive Inference-Time Compute: LLMs Can Predict if They Can Do Better,
Even Mid-Generation" (2410.02725). From the abstract: sampling that adapts to the model's own prediction, with the
temperature annealed; the rule and the schedule are unverified (from memory). The prediction is the verifier
`self_evaluation`, or any other verifier of whole solutions. Early pruning, the paper's other half, is `early_pruning`.

Differs:
- The temperature goes from `start` up to the run's. By default it is not annealed, so that one sample is a plain
  sample. The paper starts from a greedy one: start=0.0.
- A score that is unknown does not stop the search.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from tts.checks import number
from tts.errors import ConfigError
from tts.search.ends import SearchEnded
from tts.search.search import Search
from tts.search.strategies._common.judged import Judged
from tts.search.strategies._common.stepping import draw, rounds
from tts.types import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptive(Judged):
    """Samples drawn and judged one at a time.

    Args:
        threshold: The score that ends the search (theta). The lowest of the verifier's range takes one sample, a score
            beyond the range takes all. `threshold_for` finds the threshold for a wanted mean number of samples.
        start: The temperature of the first sample. Later samples are annealed: T_k = T - (T - start) / 2^(k-1), so 0,
            .5, .75, … for start 0 and T 1. None: all are drawn at T.
        n: As in `Judged`; the most samples.
        temperature: As in `Judged`; T in the formula.
        verifier: As in `Judged`.
        aggregate: As in `Judged`.

    Cost: the expected number of samples, at most n, and a verifier call each.

    Example:
        >>> import tts
        >>> found = tts.solve(
        ...     "3 + 4 - 2 + 9", 400, model="toy", strategy="adaptive(n=8, threshold=0.8)", verifier="toy(error=0.1)"
        ... )
        >>> found.answer, found.usage.samples, found.usage.tokens
        ('14', 2, 84)
    """

    registered_as = "adaptive"
    threshold: Annotated[float, number()] = 0.8
    start: Annotated[float, number(0, 100)] | None = None

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Draw and judge until a score reaches the threshold."""
        for k in rounds(search, self.n):
            (candidate,) = await draw(search, [search.root], self._annealed_temperature(search, k))
            scores = await search.score([candidate.trajectory], self.verifier, self.aggregate)
            if (scores >= self.threshold).any():
                raise SearchEnded("score")
        return search.candidates

    def _annealed_temperature(self, search: Search, k: int) -> float | None:
        """Return the temperature of sample k, from 0; None: the run's."""
        if self.start is None:
            return self.temperature
        target = search.rows.sampling_at(self.temperature).temperature
        return target - (target - self.start) / 2**k


def threshold_for(scores: NDArray[np.float64], samples: float) -> float:
    """Return the greatest threshold at which problems take at most `samples` samples on average.

    Shapes: P calibration problems, N samples of each.

    Args:
        scores: The scores [P, N] of the samples, in the order of their draws. NaN reaches no threshold.
        samples: The wanted mean number of samples a problem, from 1 to N.

    Raises:
        ConfigError: there is no score, `samples` is out of its range, or even the lowest threshold takes more.
    """
    most_samples = scores.shape[1] if scores.ndim == 2 else 0
    if np.isnan(scores).all() or not 1 <= samples <= most_samples:
        raise ConfigError(
            f"samples is {samples}, but must be between 1 and the {most_samples} that were scored of each problem"
        )
    levels = np.unique(scores[~np.isnan(scores)])
    # the mean never falls as the threshold rises
    num_within = bisect_right(range(len(levels)), samples, key=lambda i: mean_samples(scores, float(levels[i])))
    if not num_within:
        lowest_mean = mean_samples(scores, float(levels[0]))
        raise ConfigError(
            f"samples is {samples}, but the lowest threshold takes {lowest_mean:.2f}: some samples have no score"
        )
    return float(levels[num_within - 1])


def mean_samples(scores: NDArray[np.float64], threshold: float) -> float:
    """Return the mean number of samples that a threshold takes of scores [P, N].

    A problem takes its samples up to the first that reaches the threshold; if no sample reaches it, all N.
    """
    reaches_threshold = scores >= threshold
    num_up_to_first = reaches_threshold.argmax(axis=1) + 1
    num_taken = np.where(reaches_threshold.any(axis=1), num_up_to_first, scores.shape[1])
    return float(num_taken.mean())
