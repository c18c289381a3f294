"""How long it takes to decide."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.allocation.world import MOST, World, population
from tts.allocator.allocate import Allocator
from tts.allocator.greedy import coverage_gains, greedy
from tts.allocator.values import Checked, Voted


def deciding() -> dict[str, str]:
    """A whole division in waves, one wave of it, the table of votes, and 100,000 problems divided at once: what, and how long."""
    rng, found = np.random.default_rng(0), dict[str, str]()
    world = World.drawn(population(), 10_000, rng)
    for name, values in (("a checker", Checked(world.population)), ("votes", Voted(world.population, 64))):
        checked = name == "a checker"
        state = world.state(rng.integers(1, 33, world.problems), 50_000.0, checked=checked)
        started = time.perf_counter()
        Allocator(values=values).next(state)
        found[f"one wave over 10,000 problems, {name}"] = f"{(time.perf_counter() - started) / world.problems * 1e6:.2f} µs a problem"
        found[f"all waves, 10,000 problems at 16 samples, {name}"] = _whole(world, Allocator(values=values), checked=checked)
    started = time.perf_counter()
    Voted(world.population, 64)
    found["the table of votes up to 64, once"] = f"{time.perf_counter() - started:.2f} s"
    gains = coverage_gains(rng.beta(0.5, 0.8, 100_000), 128)
    started = time.perf_counter()
    greedy(gains, 1_600_000)
    found["100,000 problems of 128 samples at most, divided at once"] = f"{time.perf_counter() - started:.2f} s"
    return found


def _whole(world: World, allocator: Allocator, *, checked: bool) -> str:
    samples, waves, took = np.zeros(world.problems, np.int64), 0, 0.0
    while True:
        state = world.state(samples, 16.0 * world.problems - float(samples.sum()), checked=checked)
        started = time.perf_counter()
        grant = allocator.next(state)
        took += time.perf_counter() - started
        if grant.reason:
            return f"{took / world.problems * 1e3:.3f} ms a problem, {waves} waves"
        samples, waves = np.minimum(samples + grant.samples, MOST), waves + 1
