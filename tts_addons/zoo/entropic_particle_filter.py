"""Entropic particle filtering: a particle filter that flattens its weights in early steps.

Flat weights keep a few early favourites from replacing all other particles.

Source: algorithm A12, entropic annealing, Giannone et al. (2510.05825). The three rules and their thresholds were read
in its_hub's code, and the paper's own form beta_t^-1 = (N / ESS_t) (1 - t / T) in a secondary note.

Differs:
- Look-ahead modulation, the paper's other half, has no formula in what could be read. `lookahead` is ours.
- Annealing ends by the number of steps T. Where T is not given, it is the mean of the solutions so far.
- The departures of all particle methods are in `tts.search.strategies._common.particles`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tts.checks import Count, Proportion, choice, member
from tts.search.algorithms.resampling import SCHEMES, effective_sample_size, softmax
from tts.search.search import Search
from tts.search.strategies._common.particles import LogWeights, ParticleMethod, sweep
from tts.types import Trajectory

ANNEALINGS = ("ess", "entropy", "base")


@dataclass(frozen=True, slots=True, kw_only=True)
class EntropicParticleFilter(ParticleMethod):
    """One sweep of N particles with tempered resampling in early steps.

    The temperature is above 1 while few particles have most of the weight.

    Args:
        annealing: The rule of the temperature at step t, never below 1. "ess": (N / ESS) (1 - t/T), for the effective
            sample size ESS. "entropy": 1 / beta with beta = H + (1 - H) t/T, for the entropy H of the weights over ln
            N. "base": 2 - t/T.
        least_ess: The temperature is above 1 only where ESS is below this share of N, in [0, 1]; 0: never, which is
            particle filtering.
        early: The temperature is above 1 only before this share of T steps, in [0, 1].
        horizon: T, at least 1; None: the mean number of steps of the solutions so far, and before any the task's
            typical number.
        resampling: As in `ParticleMethod`, "systematic" by default. resample_below, target, twist, lookahead: as in
            `ParticleMethod`.

    Cost: as particle filtering.
    Random: the ancestors, addressed by step.

    Example:
        >>> import tts
        >>> found = tts.solve(
        ...     "3 + 4 - 2 + 9", 400, model="toy", strategy="entropic_particle_filter(n=4)", verifier="toy(error=0.1)"
        ... )
        >>> found.answer, found.usage.samples, found.usage.tokens
        ('14', 4, 126)
    """

    registered_as = "entropic_particle_filter"
    resampling: Annotated[str, member(SCHEMES)] = "systematic"
    annealing: Annotated[str, choice(*ANNEALINGS)] = "ess"
    least_ess: Proportion = 0.5
    early: Proportion = 0.5
    horizon: Count | None = None

    @property
    def has_fixed_temperature(self) -> bool:
        """Whether the temperature is independent of the weights: False."""
        return False

    async def sweep(self, search: Search, n: int, first: int) -> Sequence[Trajectory]:
        """Sweep once. The weights of the last level are not flattened."""

        def temperature(log_weights: LogWeights, t: int) -> float:
            progress = t / (self.horizon or self._steps(search))
            p = softmax(log_weights)
            if progress >= self.early or effective_sample_size(p) >= self.least_ess * len(p):
                return 1.0
            return annealing_temperature(log_weights, progress, self.annealing)

        particles = await sweep(search, self, n, temperature, address=(0, first))
        return particles.paths

    @staticmethod
    def _steps(search: Search) -> float:
        """Return the mean number of steps of the solutions so far; before any, the task's typical number."""
        if search.candidates:
            num_steps = [len(search.task.split(c.trajectory.full_text)) for c in search.candidates]
            return max(1.0, sum(num_steps) / len(num_steps))
        solution_tokens, step_tokens = search.task.typical_tokens("solve"), search.task.typical_tokens("step")
        return max(1, -(-solution_tokens // step_tokens))  # rounded up


def annealing_temperature(log_weights: LogWeights, progress: float, annealing: str) -> float:
    """Return the temperature, at least 1, of log-weights [N] after a share `progress` of the steps."""
    if progress >= 1:
        return 1.0
    p = np.clip(softmax(log_weights), 1e-7, None)
    if annealing == "base":
        temperature = 2 - progress
    elif annealing == "ess":
        temperature = len(p) * float(np.square(p).sum()) * (1 - progress)
    else:
        entropy = float(-(p * np.log(p)).sum()) / np.log(len(p)) if len(p) > 1 else 1.0  # as a share of the greatest
        temperature = 1 / (entropy + (1 - entropy) * progress)
    return max(1.0, float(temperature))
