"""Whether difficulty is estimated rightly: expected success rates after pilots against true ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from research.allocation.world import World
from tts.allocator.difficulty import Population
from tts.allocator.values import evidence_of, fit_population, likelihood

GROUPS = 10


class Told(NamedTuple):
    """Ten groups of equally many problems, by expected success rate.

    Args:
        expected: The mean expected rate of each group [10].
        true: The mean true rate of each group [10].
        error: The mean difference of the two.
    """

    expected: NDArray[np.float64]
    true: NDArray[np.float64]
    error: float


def reliability(world: World, *, checked: bool) -> dict[str, Told]:
    """Return expected and true success rates after 1 to 16 pilots of each problem.

    Rates are expected under the true population, and under one that is learnt from the pilots.
    """
    groups: dict[str, Told] = {}
    for pilots in (1, 4, 16):
        # a checker ends a problem
        samples = np.minimum(pilots, world.first + 1) if checked else np.full(world.problems, pilots)
        state = world.state(samples, 1.0, checked=checked)
        for name, population in (("known", world.population), ("learnt", fit_population(Population.beta(), state))):
            expected = population.mean_rate(
                population.posterior(likelihood(population, evidence_of(state), checked=checked))
            )
            parts = np.array_split(np.argsort(expected, kind="stable"), GROUPS)
            true = world.population.rate[world.kind]
            means = (np.array([values[part].mean() for part in parts]) for values in (expected, true))
            expected_means, true_means = means
            groups[f"{pilots} pilots, population {name}"] = Told(
                expected_means, true_means, float(np.abs(expected_means - true_means).mean())
            )
    return groups
