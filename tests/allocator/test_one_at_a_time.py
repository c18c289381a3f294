"""Problems served one at a time: a price made beforehand from the population stands for the others that there are to
trade with.
"""

from __future__ import annotations

import numpy as np
import pytest

from tts.allocator.allocate import Allocator
from tts.allocator.difficulty import Population
from tts.allocator.values import Checked, Voted

POPULATION = Population.beta(0.4, 1.0)


def served(world, allocator, *, checked):
    """Samples of each problem, each decided by itself, at a price."""
    samples = np.ones(world.problems, np.int64)
    while True:
        rate = allocator.values.worth(world.state(samples, 1.0, checked=checked)).rate
        on = (rate > allocator.price) & (samples < 256)
        if not on.any():
            return samples
        samples = samples + on


@pytest.mark.parametrize("checked", [True, False])
def test_it_keeps_to_the_mean_and_is_better_than_that_many_for_each(checked):
    worlds = pytest.importorskip("research.allocation.world")
    world = worlds.World.draw(POPULATION, 2000, np.random.default_rng(0))
    values = Checked(POPULATION) if checked else Voted(POPULATION, 96)
    prices = [values.price(mean) for mean in (2, 4, 8, 16)]
    assert prices == sorted(prices, reverse=True)
    for mean in (4, 8):
        counts = served(world, Allocator(values=values, price=values.price(mean)), checked=checked)
        assert 0.7 * mean < counts.mean() < 1.5 * mean
        each = round(counts.mean())
        even = world.score(np.full(world.problems, each), checked=checked).mean()
        assert world.score(counts, checked=checked).mean() > even + 0.01


def test_what_helps_nobody_has_no_price_that_is_worth_it():
    hopeless = Population(np.array([0.0]), np.array([0.5]), np.array([1.0]))
    assert Checked(hopeless).price(4) == 0
    assert Voted(hopeless, 16).price(4) < 1e-3
