"""Blend-ASC: its two errors from counting coins, its blend by hand, and fewer samples for the same vote."""

from __future__ import annotations

import itertools
from fractions import Fraction
from math import comb

import numpy as np
import pytest

import tts
from research.allocation.lured import divide
from research.allocation.world import World
from tts.allocator.allocate import Allocator
from tts.allocator.auto import Auto
from tts.allocator.blend_asc import Blended, martingale_error, posterior_error
from tts.allocator.difficulty import Population
from tts.allocator.values import ProblemStates
from tts.errors import ConfigError

COUNTS = [(0, 0), (1, 0), (1, 1), (3, 1), (4, 4), (9, 2), (12, 0)]


def tail(a, b):
    """Of the order statistics of a + b + 1 uniform numbers, that number a + 1 is below a half: a count of coins."""
    n = a + b + 1
    return float(Fraction(sum(comb(n, k) for k in range(a + 1, n + 1)), 2**n))


def density(a, b):
    """The posterior density of a half, as the chance of the votes from a fair coin over that from any coin."""
    fair, any_coin = Fraction(comb(a + b, a), 2 ** (a + b)), Fraction(1, a + b + 1)
    return float(min(Fraction(1), fair / any_coin))


def test_errors_are_counts_of_coins():
    a, b = np.array(COUNTS).T
    assert posterior_error(a, b) == pytest.approx([tail(*each) for each in COUNTS])
    assert martingale_error(a, b) == pytest.approx([density(*each) for each in COUNTS])


@pytest.mark.parametrize("error", [0.05, 0.1, 0.3])
def test_a_fair_vote_is_rarely_decided_at_any_time(error):
    decided = 0
    for row in itertools.product((0, 1), repeat=14):
        ahead = np.cumsum(row)
        n = np.arange(1, 15)
        decided += bool((martingale_error(ahead, n - ahead) < error).any())
    assert 0 < decided / 2**14 <= error


def test_the_blend_goes_from_one_error_to_the_other():
    def worth(left):
        votes = {"leader": [3, 2, 5], "second": [1, 2, 0]}
        return Blended().worth(ProblemStates.of([5, 5, 5], left, solved=[False, False, True], **votes)).rate

    posterior, martingale = np.array([tail(3, 1), tail(2, 2), 0.0]), np.array([density(3, 1), density(2, 2), 0.0])
    assert worth(1e12) == pytest.approx(posterior)
    assert worth(0.0) == pytest.approx(martingale)
    assert worth(45.0) == pytest.approx(0.75 * posterior + 0.25 * martingale)  # 15 of 60 samples are spent


def aligned(seed):
    """Problems whose right answer is the most frequent one."""
    rates = np.linspace(0.3, 0.98, 35)
    population = Population(rates, (1 - rates) * 0.2, np.full(35, 1 / 35), others=4)
    return World.draw(population, 150, np.random.default_rng(seed))


def test_the_same_vote_takes_half_as_many_samples():
    blend, uniform, twice = [], [], []
    for seed in range(4):
        world = aligned(seed)
        samples = divide(world, 8, Auto(division="blend_asc").allocator(alone=False), checked=False)
        assert samples.sum() == 8 * world.problems
        assert samples.min() >= 1
        blend.append(world.score(samples, checked=False).mean())
        uniform.append(world.score(np.full(world.problems, 8), checked=False).mean())
        twice.append(world.score(np.full(world.problems, 16), checked=False).mean())
    assert np.mean(blend) > np.mean(uniform) + 0.02
    assert np.mean(blend) > np.mean(twice) - 0.01


def test_waves_do_as_well_as_single_samples():
    world = aligned(9)
    waves, single = (
        world.score(divide(world, 6, allocator, checked=False), checked=False).mean()
        for allocator in (Allocator(values=Blended()), Allocator(values=Blended(), share=1e-9))
    )
    assert waves == pytest.approx(single, abs=0.04)


def test_a_total_is_a_hard_limit_and_a_seed_gives_the_same_division():
    def model(ask):
        rng = np.random.default_rng(ask.seed % 2**63)
        text = ask.prompt if isinstance(ask.prompt, str) else ask.prompt[-1].content
        split = int(text.split("#")[1].split()[0]) % 2
        return tts.Answer(f"The answer is {rng.integers(3) if split else 7}.", tokens=10)

    def samples():
        with tts.Solver(model, task="math", strategy="auto(division='blend_asc')", expected_tokens=10) as solver:
            solved = solver.solve_many([f"problem #{i}" for i in range(12)], tts.Budget(samples=60), seed=3)
        return [one.usage.samples for one in solved]

    found = samples()
    assert sum(found) == 60
    assert found == samples()
    assert sum(found[1::2]) > 2 * sum(found[::2])  # split votes get more


@pytest.mark.parametrize("other", [{"price": 0.1}, {"mean": 3.0}, {"expected": 0.5}, {"model": "x.json"}])
def test_what_reads_votes_alone_takes_no_estimates(other):
    with pytest.raises(ConfigError, match=rf"division is 'blend_asc'.*{next(iter(other))}"):
        Auto(division="blend_asc", **other)
