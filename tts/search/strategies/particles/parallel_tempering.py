"""Parallel tempering: chains of particle Gibbs at different temperatures, which swap their references.

Hot chains move freely, and cold chains keep good references. A swap hands a good reference down and a stuck one up.

Source: algorithm A11, Puri et al. (2502.01618), Algorithm 3, verified; the paper's own experiments only run chains of
one sweep, so that tempering has no reported number. The swap ratio is derived: with pi_k(x) proportional to p_M(x)
exp(w(x) / T_k) the policy's probabilities cancel. Here w(x) is the sum of the log-weights of all levels. Differs:
- The paper leaves the ladder of temperatures open. Here it is geometric, from the hottest down.
- Chains run one after another within a sweep. With one chain it is particle Gibbs, seed for seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

from tts.checks import Count, number
from tts.search.search import Search
from tts.search.strategies._common.particles import ParticleMethod, WeightTemperature, draw_reference, sweep
from tts.search.strategies._common.stepping import spent_amounts
from tts.types import Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelTempering(ParticleMethod):
    """M chains of S sweeps of N particles.

    Args:
        chains: The number of chains (M), at least 1; 1 is particle Gibbs.
        sweeps: The number of sweeps (S), at least 1.
        hottest: The temperature of the first chain's weights, as a multiple of the last chain's, at least 1. The
            temperatures between are a geometric ladder.
        weight_temperature: The temperature of the last, coldest chain's weights.
        n: As in `ParticleMethod`, shared out over chains and sweeps.

    Cost: n x sweeps x chains solutions, less the references; verifier calls as in particle filtering, for each sweep of
    each chain. Random: the ancestors, addressed by chain, sweep and step, the references and the swaps.

    Example:
        >>> import tts
        >>> found = tts.solve(
        ...     "3 + 4 - 2 + 9", 400, model="toy", strategy="parallel_tempering(n=2)", verifier="toy(error=0.1)"
        ... )
        >>> found.answer, found.usage.samples, found.usage.tokens
        ('14', 13, 252)
    """

    registered_as = "parallel_tempering"
    chains: Count = 2
    sweeps: Count = 2
    hottest: Annotated[float, number(1)] = 4.0
    weight_temperature: WeightTemperature = 1.0

    @property
    def sweeps_in_all(self) -> int:
        """The number of sweeps that share the budget."""
        return self.chains * self.sweeps

    @property
    def temperatures(self) -> tuple[float, ...]:
        """The temperatures of the weights, by chain, falling."""
        return tuple(map(self._temperature, range(self.chains)))

    def _temperature(self, chain: int) -> float:
        return self.weight_temperature * self.hottest ** ((self.chains - 1 - chain) / max(1, self.chains - 1))

    async def sweep(self, search: Search, n: int, first: int) -> Sequence[Trajectory]:
        """Sweep every chain, then swap references between neighbours, `sweeps` times."""
        paths: list[Trajectory] = []
        chains: list[_Chain] = []  # a chain is made when its first sweep begins, as the budget may not pay all chains
        for sweep_number in range(first, first + self.sweeps):
            spent_before = spent_amounts(search)
            for k in range(self.chains):
                if sweep_number == first:
                    chains.append(_Chain(self._temperature(k)))
                references = [chain.reference for chain in chains if chain.reference is not None]
                paths += await chains[k].sweep(search, self, n, (k, sweep_number), references)
            if spent_before == spent_amounts(search):  # each chain's only particle is its reference
                break
            for k, (hot, cold) in enumerate(pairwise(chains)):
                chance = swap_chance(hot.weight, cold.weight, hot.temperature, cold.temperature)
                if search.rng("swap", k, sweep_number).random() < chance:
                    hot.reference, cold.reference = cold.reference, hot.reference
                    hot.weight, cold.weight = cold.weight, hot.weight
        return paths


@dataclass(slots=True)
class _Chain:
    """A chain between its sweeps: its temperature, its reference, and the reference's log-weight."""

    temperature: float
    reference: Trajectory | None = None
    weight: float = 0.0

    async def sweep(
        self, search: Search, method: ParallelTempering, n: int, address: tuple[int, int], beside: Sequence[Trajectory]
    ) -> Sequence[Trajectory]:
        """Sweep once, draw the next reference, and return the paths of the particles.

        `beside` has the references of all chains, which stay alive.
        """
        particles = await sweep(
            search, method, n, lambda _w, _t: self.temperature, address=address, reference=self.reference, beside=beside
        )
        place = draw_reference(search, particles, self.temperature, address)
        self.reference, self.weight = particles.paths[place], float(particles.totals[place])
        return particles.paths


def swap_chance(hot: float, cold: float, hot_temperature: float, cold_temperature: float) -> float:
    """Return min(1, exp((w_cold - w_hot) (1/T_hot - 1/T_cold))), the chance of a swap.

    The log-weights w are those of the two chains' references.
    """
    return math.exp(min(0.0, (cold - hot) * (1 / hot_temperature - 1 / cold_temperature)))
