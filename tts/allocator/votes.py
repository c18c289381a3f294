"""The value of further votes where there is no verifier.

Values and indices are exact, for every state that votes can be in. Where wrong answers repeat, chances are exact and
indices nearly so (`tts.allocator.repeats`).

Idea: without a verifier the answer is that of most votes, and whether it is right is known only through the population:
    votes that agree are more likely right. All that matters of the votes so far is their state: how many gave the
    leading answer, how many the second, how many stand alone. The chance of the next state is a ratio of marginal
    likelihoods, so the best time to stop at a price a sample is found by dynamic programming, backwards from the
    greatest number of samples. A state's index is the highest price at which one should go on: to serve the highest
    index first is best for many problems under one total, and it needs no price.
Source: stopping of votes goes back to ASC and ESC (algorithms B1, B2), whose rules have no prior and no price; the
    index is that of Whittle, "Restless bandits" (1988). The states and the recursion are derived here.

Shapes: Z kinds, N greatest number of samples, K prices.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tts.allocator import repeats
from tts.allocator.difficulty import Floats, Population, Whole
from tts.errors import ConfigError

PRICES: Floats = np.concatenate([[0.0], np.geomspace(1e-6, 0.5, 40)])  # gain that one sample must bring
_LEAST_GAIN = 1e-12


@dataclass(frozen=True, eq=False)
class Votes:
    """The value of every state of votes up to N samples.

    A state is (leading votes, second votes, samples); where at most one class has more than one vote, its second is 0.

    Attributes:
        chance: [N+1, N+1, N//2+1], that the leading answer is right, by samples, leading and second votes; NaN: no such
            state.
        index: The index of the same shape, gain a sample at which going on is just worth it; 0 at N samples.
        worth: [K], best expected chance less price times samples, from the first sample on, at each of `PRICES`.
    """

    most: int
    chance: Floats
    index: NDArray[np.float32]
    worth: Floats

    @classmethod
    def of(cls, population: Population, most: int) -> Votes:
        """Return the values under a population; O(N^3 (Z + K)) operations, a second for N = 128.

        Where wrong answers repeat, it takes two.

        Args:
            population: The population, with Z kinds of problems.
            most: N, the greatest number of samples of a problem; each problem gets at least one.

        Raises:
            ConfigError: `most` is below 1 or above 256, where tables get large.
        """
        if not 1 <= most <= 256:
            raise ConfigError(f"most is {most}, but must be from 1 to 256 samples of a problem")
        if population.others and most > 1:  # one sample repeats nothing
            expected_next, kinds = repeats.expected_next, (population.rate, population.lure, population.weight)
            state_chance, right_chance = repeats.marginals(*kinds, population.others, most)
        else:
            expected_next, (state_chance, right_chance) = _next, _marginals(population, most)
        with np.errstate(invalid="ignore", divide="ignore"):
            chance = np.where(state_chance > 0, right_chance / state_chance, np.nan)
        index = np.zeros(state_chance.shape, np.float32)
        # the value of each state of n + 1 samples at each of `PRICES`, by induction from n + 1 = N down to 1
        value = np.repeat(np.nan_to_num(chance[most])[..., None], len(PRICES), axis=-1)
        for n in range(most - 1, -1, -1):
            num_leading, num_second = n + 1, n // 2 + 1  # votes that a state of n samples can have, with 0
            value_of_going_on = expected_next(state_chance, value, n) - PRICES
            if n:
                value_of_stopping = np.nan_to_num(chance[n, :num_leading, :num_second])[..., None]
                value = np.maximum(value_of_going_on, value_of_stopping)
            else:
                value_of_stopping = np.zeros((1, 1, 1))
                value = value_of_going_on  # the first sample is always drawn
            index[n, :num_leading, :num_second] = _crossing(value_of_going_on - value_of_stopping)
        if population.others:  # states of more answers than there are: as if wrong answers never repeated
            never = cls.of(dataclasses.replace(population, others=0), most)
            chance = np.where(np.isnan(chance), never.chance, chance)
            index = np.where(state_chance > 0, index, never.index)
        return cls(most=most, chance=chance, index=index, worth=value[0, 0])

    def price(self, samples: float) -> float:
        """Return the price at which the best policy draws most nearly so many samples a problem, on average.

        After one or two votes problems can hardly be told apart, and either all stop or all go on. So small averages
        can be off by half.

        Source: the table that algorithm A16 makes beforehand for problems served one at a time ("offline", unverified,
            from memory), with a price in place of bins: it needs no others to trade with, only the population.
        """
        mean_samples = -np.diff(self.worth) / np.diff(PRICES)  # the slope of a policy's worth is what it draws
        nearest = int(np.abs(np.log(np.maximum(mean_samples, 1.0) / samples)).argmin())
        return float(np.sqrt(PRICES[nearest] * PRICES[nearest + 1]))

    def look(self, leader: Whole, second: Whole, samples: Whole) -> tuple[Floats, Floats]:
        """Return chance and index of problems' states, [P] each.

        Chances are read at N samples at most, and indices at three quarters of N at most. There the table still has a
        third as many samples to come. Larger numbers of votes are shrunk so that the lead keeps its significance, which
        goes with the root of their number (the limit of many votes is a diffusion). A sample is worth less in
        proportion. So no number is too large for the table.

        Samples without a single answer have the chance 0, and any first answer would raise it. So one more sample is
        worth a problem's first one, times the chance of an answer: after n samples without one it is 1 / (2n + 2) under
        Jeffreys' prior, against 1 / 2 at first.
        """
        most_for_index = max(1, 3 * self.most // 4)
        chance = _read(self.chance, leader, second, samples, self.most)
        index_read = _read(self.index, leader, second, samples, most_for_index)
        index = index_read / np.maximum(1.0, samples / most_for_index)
        first_index = self.index[0, 0, 0] / (samples + 1)
        return np.where(leader > 0, chance, 0.0), np.where(leader > 0, index, first_index)


def _read(table: Floats | NDArray[np.float32], leader: Whole, second: Whole, samples: Whole, most: int) -> Floats:
    """Return the entries of a table for states, [P]; states of more than `most` samples are shrunk to `most`."""
    shrinkage = np.maximum(1.0, samples / most)
    n = np.minimum(samples, most)
    lead = (leader - second) / np.sqrt(shrinkage)
    shrunk_second = np.rint(np.maximum(0.0, ((leader + second) / shrinkage - lead) / 2))
    b = np.where(shrinkage > 1, shrunk_second, second).astype(np.int64)
    b = np.where(b >= 2, np.minimum(b, n // 2), 0)
    a = np.where(shrinkage > 1, b + lead, leader)  # no whole number where votes were shrunk
    a = np.where(n > 0, np.clip(a, np.maximum(1, b), np.maximum(1, n - b)), 0.0)
    low, high = np.floor(a).astype(np.int64), np.ceil(a).astype(np.int64)
    share_of_high = a - low
    return np.nan_to_num((1 - share_of_high) * table[n, low, b] + share_of_high * table[n, high, b])


def _marginals(population: Population, most: int) -> tuple[Floats, Floats]:
    """Return the chance of one sequence of samples in each state, [N+1, N+1, N//2+1].

    The axes are samples, leading votes and second votes. The second result is the chance of such a sequence whose
    leading answer is right.
    """
    exponents = np.arange(most + 1)[:, None]
    right_powers = np.power(population.rate[None, :], exponents)  # [N+1, Z], as the others
    lure_powers = np.power(population.lure[None, :], exponents)
    lone_powers = np.power(population.scattered[None, :], exponents)
    pairs = (right_powers * population.weight)[:, None, :] * lure_powers[None, :, :]
    by_pair = pairs.reshape(-1, pairs.shape[-1]) @ lone_powers.T
    # the chance of so many right, luring and lone samples, in one order
    chance = by_pair.reshape(most + 1, most + 1, most + 1)
    state_chance = np.zeros((most + 1, most + 1, most // 2 + 1))
    right_chance = np.zeros_like(state_chance)
    state_chance[0, 0, 0] = 1.0
    for n in range(1, most + 1):
        # every answer stands alone: at most one is right, and at most one is the lure
        right_and_lure = chance[1, 1, n - 2] if n > 1 else 0.0
        right_chance[n, 1, 0] = chance[1, 0, n - 1] + (n - 1) * right_and_lure
        one_of_both = n * (chance[1, 0, n - 1] + chance[0, 1, n - 1])
        state_chance[n, 1, 0] = n * (n - 1) * right_and_lure + one_of_both + chance[0, 0, n]
        # one class of a votes, and m other samples that stand alone; one of these may be right or the lure
        a = np.arange(2, n + 1)
        m = n - a
        one = np.minimum(1, m)
        m_less_one = np.maximum(m - 1, 0)
        right_chance[n, a, 0] = m * chance[a, one, m_less_one] + chance[a, 0, m]
        state_chance[n, a, 0] = right_chance[n, a, 0] + m * chance[one, a, m_less_one] + chance[0, a, m]
        # two classes, of a and b votes
        a_grid, b_grid = np.meshgrid(np.arange(2, n - 1), np.arange(2, n // 2 + 1), indexing="ij")
        is_state = (b_grid <= a_grid) & (a_grid + b_grid <= n)
        a, b = a_grid[is_state], b_grid[is_state]
        right_chance[n, a, b] = chance[a, b, n - a - b]
        state_chance[n, a, b] = chance[a, b, n - a - b] + chance[b, a, n - a - b]
    return state_chance, right_chance


def _next(state_chance: Floats, value: Floats, n: int) -> Floats:
    """Return the expected value of the state after one more sample, from each state of n samples.

    Args:
        state_chance: The chance of one sequence of samples in each state, by `_marginals`.
        value: The value of each state of n + 1 samples at each of the K prices.
        n: The number of samples.

    Returns:
        The expected values by leading votes, second votes and price, [n+1, n//2+1, K].
    """
    num_leading, num_second = n + 1, n // 2 + 1
    chance_now = state_chance[n, :num_leading, :num_second]
    chance_then = state_chance[n + 1, : num_leading + 1, : (n + 1) // 2 + 1]
    mass = chance_then[..., None] * value[: num_leading + 1, : chance_then.shape[1]]  # [leading, second, K]
    if n == 0:
        return mass[1:, :]
    # the new sample stands alone, or votes for the leader
    total = mass[:num_leading, :num_second] + mass[1:, :num_second]
    # it votes for the second answer; the chance is 0 where that answer would then lead
    last_second = mass.shape[1] - 1
    total[:, 2:last_second] += mass[:num_leading, 3:]
    # it votes for the second answer where both are even, and that answer leads
    even = np.arange(2, num_second)
    total[even, even] += mass[even + 1, even]
    # it makes a second class with any of the lone samples
    if mass.shape[1] > 2:
        num_lone = n - np.arange(2, num_leading)
        total[2:, 0] += num_lone[:, None] * mass[2:num_leading, 2]
    # where all samples stand alone, it stands alone too, or makes a class with any of them
    total[1, 0] = mass[1, 0] + n * mass[2, 0]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(chance_now[..., None] > 0, total / chance_now[..., None], 0.0)


def _crossing(gain: Floats) -> Floats:
    """Return the price at which the gain of going on reaches 0, by linear interpolation; [..., K] to [...].

    The gain falls with the price.
    """
    is_positive = gain > _LEAST_GAIN
    last_positive = is_positive.sum(axis=-1) - 1
    place = np.clip(last_positive, 0, len(PRICES) - 2)
    gain_here = np.take_along_axis(gain, place[..., None], axis=-1)[..., 0]
    gain_next = np.take_along_axis(gain, (place + 1)[..., None], axis=-1)[..., 0]
    fall = np.where(gain_here > gain_next, gain_here - gain_next, 1.0)
    share = np.clip(gain_here / fall, 0.0, 1.0)
    crossing = PRICES[place] + share * (PRICES[place + 1] - PRICES[place])
    return np.where(last_positive < 0, 0.0, crossing)
