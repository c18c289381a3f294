"""How long decisions take."""

from __future__ import annotations

import time

import numpy as np

from research.allocation.greedy import coverage_gains, greedy_counts
from research.allocation.world import MOST, World, population
from tts.allocator.allocate import Allocator
from tts.allocator.values import Checked, Voted


def time_decisions(problems: int) -> dict[str, str]:
    """Return how long decisions take, by their names.

    Timed are one wave, a whole division in waves, the table of votes, and ten times as many problems at once.
    """
    rng, timings = np.random.default_rng(0), dict[str, str]()
    world = World.draw(population(), problems, rng)
    for name, values in (("a checker", Checked(world.population)), ("votes", Voted(world.population, 64))):
        checked = name == "a checker"
        state = world.state(rng.integers(1, 33, world.problems), 5.0 * problems, checked=checked)
        if isinstance(values, Voted):
            started = time.perf_counter()
            assert values.table  # it is made at its first use
            timings["the table of votes up to 64, once"] = f"{time.perf_counter() - started:.2f} s"
        started = time.perf_counter()
        Allocator(values=values).next(state)
        timings[f"one wave over {problems:,} problems, {name}"] = (
            f"{(time.perf_counter() - started) / world.problems * 1e6:.2f} µs a problem"
        )
        timings[f"all waves, {problems:,} problems at 16 samples, {name}"] = _time_division(
            world, Allocator(values=values), checked=checked
        )
    gains = coverage_gains(rng.beta(0.5, 0.8, 10 * problems), 128)
    started = time.perf_counter()
    greedy_counts(gains, 160 * problems)
    timings[f"{10 * problems:,} problems of 128 samples at most, divided at once"] = (
        f"{time.perf_counter() - started:.2f} s"
    )
    return timings


def _time_division(world: World, allocator: Allocator, *, checked: bool) -> str:
    samples, waves, took = np.zeros(world.problems, np.int64), 0, 0.0
    while True:
        state = world.state(samples, 16.0 * world.problems - float(samples.sum()), checked=checked)
        started = time.perf_counter()
        grant = allocator.next(state)
        took += time.perf_counter() - started
        if grant.reason:
            return f"{took / world.problems * 1e3:.3f} ms a problem, {waves} waves"
        samples, waves = np.minimum(samples + grant.samples, MOST), waves + 1
