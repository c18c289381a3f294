"""Policies on a toy world: the best with the same information, the allocator, and its baselines.

Each returns how many samples it drew of each problem, [P].
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from research.allocation.baselines import binned_counts, oracle_counts
from research.allocation.greedy import coverage_gains, greedy_counts
from research.allocation.world import MOST, World
from tts.allocator.allocate import Allocator
from tts.allocator.difficulty import Population
from tts.allocator.values import Checked, Values, Voted
from tts.allocator.votes import Votes
from tts.search.stop_rules.posterior import overtaking_probability

Counts = NDArray[np.int64]


def allocate(world: World, allocator: Allocator, total: int, *, checked: bool, learn: bool = False) -> Counts:
    """Return the counts of the allocator itself, wave by wave.

    Args:
        world: The problems.
        allocator: The allocator.
        total: The samples of all problems.
        checked: Whether a checker is there.
        learn: Whether the allocator fits its population to the problems as their samples come.
    """
    samples, seen = np.zeros(world.problems, np.int64), 1
    while True:
        state = world.state(samples, total - float(samples.sum()), checked=checked)
        if learn and samples.sum() >= seen * world.problems:  # after 1, 2, 4, … samples a problem
            allocator, seen = allocator.adapt(state), seen * 2
        grant = allocator.next(state)
        if grant.reason:
            return samples
        samples = np.minimum(samples + grant.samples, MOST)


def draw_sequentially(world: World, values: Values, total: int, *, checked: bool, pilots: int) -> Counts:
    """Return the counts of drawing one sample at a time, the greatest index first.

    With the true population, this is the best policy with the same information.
    """
    return count_first(index_order(world, values, checked=checked, pilots=pilots), world.problems, total)


def index_order(world: World, values: Values, *, checked: bool, pilots: int) -> Counts:
    """Return samples, as problem x MOST + place, in the order in which the greatest index draws them.

    A problem is served up to where its index falls below the price. So the least index so far decides.
    """
    lowest, gone = np.full(world.problems, np.inf), np.zeros((world.problems, MOST))
    for n in range(MOST):
        index = values.worth(world.state(np.full(world.problems, n), 1.0, checked=checked)).rate
        lowest = np.minimum(lowest, index) if n >= pilots else lowest
        gone[:, n] = lowest
    return _sort(gone)


def count_first(order: Counts, problems: int, total: int) -> Counts:
    """Return how many samples of each problem are among the first `total`."""
    return np.bincount(order[:total] // MOST, minlength=problems)


def _sort(gone: NDArray[np.float64]) -> Counts:
    flat = gone.ravel()
    order = np.argsort(-flat, kind="stable")
    return order[: int((flat > 0).sum())]


def stop_rule(world: World, total: int) -> Counts:
    """Return the counts of the best threshold in hindsight of ASC's rule (algorithm B1).

    The threshold is the same for all problems. Only thresholds that spend at most the total are tried.
    """
    tables = np.array([[overtaking_probability(a, b) for b in range(129)] for a in range(MOST + 1)])
    best = np.full(world.problems, total // world.problems)
    for threshold in (0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999):
        stopped, counts = np.zeros(world.problems, np.bool_), np.full(world.problems, MOST)
        for n in range(1, MOST + 1):
            state = world.state(np.full(world.problems, n), 1.0, checked=False)
            now = ~stopped & (tables[state.leader, np.minimum(n - state.leader, 128)] <= 1 - threshold)
            counts[now], stopped = n, stopped | now
        low, high = 1, MOST
        while low < high:  # the greatest cap that the total pays
            middle = (low + high + 1) // 2
            low, high = (middle, high) if np.minimum(counts, middle).sum() <= total else (low, middle - 1)
        counts_within = np.minimum(counts, low)
        if (
            counts_within.sum() <= total
            and world.score(counts_within, checked=False).mean() > world.score(best, checked=False).mean()
        ):
            best = counts_within
    return best


def vote_gains(population: Population, most: int) -> NDArray[np.float64]:
    """Return the gains [Z, most] of each further vote for every kind, if the kind were known."""
    kinds = len(population.weight)
    gains = np.zeros((kinds, most))
    for z in range(kinds):
        alone = Population(population.rate[[z]], population.lure[[z]], np.ones(1))
        gains[z] = np.diff(accuracies(alone, most))
    return gains


def accuracies(population: Population, most: int) -> NDArray[np.float64]:
    """Return the accuracy of a majority of 0 to `most` votes under a population."""
    from tts.allocator.votes import _marginals  # pyright: ignore[reportPrivateUsage] - the sums over states, which only this needs

    good = _marginals(population, most)[1]
    return np.concatenate([[0.0], [_sum_states(good[n], n) for n in range(1, most + 1)]])


def _sum_states(good: NDArray[np.float64], n: int) -> float:
    from scipy.special import gammaln

    a, b = np.nonzero(good > 0)
    lead = np.where(a == 1, 1, a)
    ways = gammaln(n + 1) - gammaln(lead + 1) - gammaln(b + 1) - gammaln(n - lead - b + 1)
    ways = np.where((a == 1) & (b == 0), 0.0, ways)
    return float((np.exp(ways) * good[a, b]).sum())


def divide_after_pilots(world: World, gains: NDArray[np.float64], total: int, *, checked: bool, pilots: int) -> Counts:
    """Return the counts of a total divided in one wave after pilots (algorithm A16, online).

    The wave goes by the posterior mean gains. The pilots only inform, and are not counted.
    """
    samples = np.full(world.problems, pilots)
    population = world.population
    right = world.right[np.arange(world.problems), samples].astype(np.int64)
    votes = world.state(samples, 1.0, checked=checked).votes()
    known = population.verdict_likelihood(right, samples - right) if checked else population.vote_likelihood(*votes)
    return greedy_counts(population.posterior(known) @ gains, total)


def divide_by_bins(
    world: World, gains: NDArray[np.float64], total: int, *, checked: bool, pilots: int | None
) -> Counts:
    """Return the counts of algorithm A14 with five bins.

    Args:
        world: The problems.
        gains: The gains of further samples, by kind.
        total: The samples of all problems.
        checked: Whether a checker is there.
        pilots: The pilots that predict the success rates, which are not charged; None: the true rates are known.
    """
    population = world.population
    if pilots is None:
        difficulty = population.rate[world.kind]
    else:
        samples = np.full(world.problems, pilots)
        state = world.state(samples, 1.0, checked=checked)
        right = world.right[np.arange(world.problems), samples].astype(np.int64)
        known = (
            population.verdict_likelihood(right, samples - right)
            if checked
            else population.vote_likelihood(*state.votes())
        )
        difficulty = population.mean_rate(population.posterior(known))
    return binned_counts(difficulty, gains[world.kind], total)


def static_oracle(world: World, gains: NDArray[np.float64], total: int) -> Counts:
    """Return the counts of greedy on the true gains of every problem's kind, before anything is drawn."""
    return oracle_counts(gains[world.kind], total)


def oracle_order(world: World, *, checked: bool, most: int) -> Counts:
    """Return samples in order as `index_order` does, for the best policy that knows every problem's kind.

    The policy never knows the answer of a problem.

    Args:
        world: The problems.
        checked: Whether a checker is there.
        most: The most votes of a problem.
    """
    gone = np.zeros((world.problems, MOST))
    for z in np.unique(world.kind):
        places = np.flatnonzero(world.kind == z)
        alone = Population(world.population.rate[[z]], world.population.lure[[z]], np.ones(1))
        table, lowest = None if checked else Votes.of(alone, most), np.full(len(places), np.inf)
        for n in range(MOST if checked else most):
            state = world.state(np.full(len(places), n), 1.0, checked=checked, of=places)
            index = np.where(state.solved, 0.0, alone.rate[0]) if table is None else table.look(*state.votes())[1]
            lowest = np.minimum(lowest, index)
            gone[places, n] = lowest
    return _sort(gone)


def values_of(population: Population, most: int, *, checked: bool) -> Values:
    """Return the values that the allocator goes by in either setting."""
    return Checked(population) if checked else Voted(population, most)


def checked_gains(population: Population, most: int) -> NDArray[np.float64]:
    """Return the gains [Z, most] of further samples for every kind where a checker is there."""
    return coverage_gains(population.rate, most)
