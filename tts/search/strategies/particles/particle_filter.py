"""Particle filtering: sample from the policy reweighted by the verifier, without maximising it.

N particles take a step at a time. After each step every particle is weighed by the odds that its prefix is right, and N
ancestors are drawn in proportion. Likely prefixes multiply and unlikely ones mostly die. Randomness keeps a mistaken
verifier from deciding alone.

Source: algorithm A9: Puri et al., "A Probabilistic Inference Approach to Inference-Time Scaling of LLMs using
Particle-Based Monte Carlo Methods" (2502.01618, NeurIPS 2025); verified in the paper and its code. The weight is a
logit, as in the code, although the text writes softmax of the score: p_i is proportional to the odds r_i / (1 - r_i).
Differs:
- The departures of all particle methods are in `tts.search.strategies._common.particles`.
- Copies of one finished particle are one candidate.
- A particle that stopped and died later is no candidate, unless the budget ended the sweep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tts.search.search import Search
from tts.search.strategies._common.particles import ParticleMethod, WeightTemperature, sweep
from tts.types import Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class ParticleFilter(ParticleMethod):
    """One sweep of N particles, resampled after each step by the odds of their scores.

    Each particle is a path.

    Args:
        weight_temperature: The temperature of the resampling weights (tau), at least 0.001. 1 is the paper's
            distribution. Large values resample evenly; small values copy the best particle.
        resample_below: As in `ParticleMethod`.
        target: As in `ParticleMethod`.
        twist: As in `ParticleMethod`.
        lookahead: As in `ParticleMethod`.

    Cost: about n x mean length generated tokens. One verifier call for each new step, at most n x max_steps. In
    samples: n, plus one for
        each copy that goes on. A search with a larger n does not contain one with a smaller n.
    Random: the ancestors, addressed by step.

    Example:
        >>> import tts
        >>> found = tts.solve(
        ...     "3 + 4 - 2 + 9", 400, model="toy", strategy="particle_filter(n=4)", verifier="toy(error=0.1)"
        ... )
        >>> found.answer, found.usage.samples, found.usage.tokens
        ('14', 4, 126)
    """

    registered_as = "particle_filter"
    weight_temperature: WeightTemperature = 1.0

    async def sweep(self, search: Search, n: int, first: int) -> Sequence[Trajectory]:
        """Sweep once. The selection finds the heaviest particle."""
        particles = await sweep(search, self, n, lambda _log_weights, _t: self.weight_temperature, address=(0, first))
        return particles.paths
