"""Particle Gibbs: particle filters one after another.

Each filter is conditioned on a reference, a trajectory drawn from the particles of the filter before.

Source: algorithm A10, Puri et al. (2502.01618), Algorithm 2, verified in the paper and its code. In every sweep but the
first one place belongs to the reference. At level t it stands for its first t steps, with their weight. Free places
draw their ancestors among all. A free copy of the reference goes on from those t steps as an ordinary particle. With
one sweep it is particle filtering, seed for seed. Differs:
- The departures of all particle methods are in `tts.search.strategies._common.particles`.
- The reference code weighs the reference one step late, and loses the policy's temperature after the first step.
  Neither is followed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from tts.checks import Count, choice
from tts.search.search import Search
from tts.search.strategies._common.particles import ParticleMethod, WeightTemperature, draw_reference, sweep
from tts.search.strategies._common.stepping import spent_amounts
from tts.types import Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class ParticleGibbs(ParticleMethod):
    """Sweeps of N particles, N - 1 of them free from the second on.

    Args:
        sweeps: The number of sweeps (S in the paper), at least 1; 1 is particle filtering.
        weight_temperature: The temperature of the weights (tau).
        returned: The particles to return. "all": those of every sweep; "last": those of the last sweep.
        n: As in `ParticleMethod`, shared out over the sweeps.

    Cost: n x sweeps solutions, less the references; verifier calls as in particle filtering, for each sweep.
    Random: the ancestors, addressed by sweep and step, and the references.

    Example:
        >>> import tts
        >>> found = tts.solve(
        ...     "3 + 4 - 2 + 9", 400, model="toy", strategy="particle_gibbs(n=3, sweeps=2)", verifier="toy(error=0.1)"
        ... )
        >>> found.answer, found.usage.samples, found.usage.tokens
        ('14', 7, 210)
    """

    registered_as = "particle_gibbs"
    sweeps: Count = 4
    weight_temperature: WeightTemperature = 1.0
    returned: Annotated[str, choice("all", "last")] = "all"

    @property
    def sweeps_in_all(self) -> int:
        """The number of sweeps that share the budget."""
        return self.sweeps

    async def sweep(self, search: Search, n: int, first: int) -> Sequence[Trajectory]:
        """Sweep, draw a reference, and sweep again."""
        paths: list[Trajectory] = []
        reference: Trajectory | None = None
        for sweep_number in range(first, first + self.sweeps):
            spent_before = spent_amounts(search)
            address = (0, sweep_number)
            particles = await sweep(
                search, self, n, lambda _log_weights, _t: self.weight_temperature, address=address, reference=reference
            )
            if self.returned == "last":
                paths = []
            paths += particles.paths
            if spent_before == spent_amounts(search):  # the only particle is the reference
                break
            place = draw_reference(search, particles, self.weight_temperature, address)
            reference = particles.paths[place]
        return paths
