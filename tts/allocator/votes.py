"""The value of further votes where there is no verifier.

Values and indices are exact, for every state that votes can be in.

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

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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

        Args:
            population: The population, with Z difficulties and K kinds of wrong answers.
            most: N, greatest number of samples of a problem; each gets one, whatever it shows.

        Raises:
            ConfigError: `most` is below 1 or above 256, where tables get large.
        """
        if not 1 <= most <= 256:
            raise ConfigError(f"most is {most}, but must be from 1 to 256 samples of a problem")
        seen, right = _marginals(population, most)
        with np.errstate(invalid="ignore", divide="ignore"):
            chance = np.where(seen > 0, right / seen, np.nan)
        index = np.zeros(seen.shape, np.float32)
        after = np.repeat(np.nan_to_num(chance[most])[..., None], len(PRICES), axis=-1)
        for n in range(most - 1, -1, -1):
            high, wide = n + 1, n // 2 + 1  # no state of n samples is beyond
            go_on = _next(seen, after, n) - PRICES
            stop = np.nan_to_num(chance[n, :high, :wide])[..., None] if n else np.zeros((1, 1, 1))
            index[n, :high, :wide] = _crossing(go_on - stop)
            after = np.maximum(go_on, stop) if n else go_on
        return cls(most, chance, index, after[0, 0])

    def price(self, samples: float) -> float:
        """Return the price at which the best policy comes nearest to so many samples a problem, on average.

        After one or two votes problems can hardly be told apart, and all of them stop or all go on: small averages can
        be off by half.

        Source: the table that algorithm A16 makes beforehand for problems served one at a time ("offline", unverified,
            from memory), with a price in place of bins: it needs no others to trade with, only the population.
        """
        drawn = -np.diff(self.worth) / np.diff(PRICES)  # a policy's worth falls with the price by what it draws
        nearest = int(np.abs(np.log(np.maximum(drawn, 1.0) / samples)).argmin())
        return float(np.sqrt(PRICES[nearest] * PRICES[nearest + 1]))

    def look(self, leader: Whole, second: Whole, samples: Whole) -> tuple[Floats, Floats]:
        """Return chance and index of problems' states, [P] each.

        Chances are read at N samples at most, and indices at three quarters of N, where a third as many samples are
        still to come. Larger numbers of votes are shrunk so that the lead keeps its significance, which goes with the
        root of their number (the limit of many votes, which is a diffusion). A sample is worth less in proportion. So
        no number is too large for the table.
        """
        last = max(1, 3 * self.most // 4)
        chance = _read(self.chance, leader, second, samples, self.most)
        index = _read(self.index, leader, second, samples, last) / np.maximum(1.0, samples / last)
        return np.where(samples > 0, chance, 0.0), index


def _read(table: Floats | NDArray[np.float32], leader: Whole, second: Whole, samples: Whole, most: int) -> Floats:
    """Return what a table holds of states, [P]; those of more than `most` samples are shrunk to it."""
    shrink = np.maximum(1.0, samples / most)
    n = np.minimum(samples, most)
    gap = (leader - second) / np.sqrt(shrink)
    b = np.where(shrink > 1, np.rint(np.maximum(0.0, ((leader + second) / shrink - gap) / 2)), second).astype(np.int64)
    b = np.where(b >= 2, np.minimum(b, n // 2), 0)
    lead = np.where(shrink > 1, b + gap, leader)
    lead = np.where(n > 0, np.clip(lead, np.maximum(1, b), np.maximum(1, n - b)), 0.0)
    low = np.floor(lead).astype(np.int64)
    high, share = np.ceil(lead).astype(np.int64), lead - low
    return np.nan_to_num((1 - share) * table[n, low, b] + share * table[n, high, b])


def _marginals(population: Population, most: int) -> tuple[Floats, Floats]:
    """Return the chance of one row of samples in each state, [N+1, N+1, N//2+1].

    The second result is the chance of that with the leading answer right.
    """
    power = np.arange(most + 1)
    right, lure, lone = (
        np.power(chance[None, :], power[:, None]) for chance in (population.rate, population.lure, population.scattered)
    )
    pairs = (right * population.weight)[:, None, :] * lure[None, :, :]
    cube = (pairs.reshape(-1, pairs.shape[-1]) @ lone.T).reshape(most + 1, most + 1, most + 1)  # [right, lure, alone]
    seen = np.zeros((most + 1, most + 1, most // 2 + 1))
    good = np.zeros_like(seen)
    seen[0, 0, 0] = 1.0
    for n in range(1, most + 1):
        good[n, 1, 0] = cube[1, 0, n - 1] + ((n - 1) * cube[1, 1, n - 2] if n > 1 else 0.0)
        both = n * (n - 1) * cube[1, 1, n - 2] if n > 1 else 0.0
        seen[n, 1, 0] = both + n * (cube[1, 0, n - 1] + cube[0, 1, n - 1]) + cube[0, 0, n]
        a = np.arange(2, n + 1)
        m = n - a
        one = np.maximum(m - 1, 0)  # times m, which is 0 where there is none
        good[n, a, 0] = m * cube[a, np.minimum(1, m), one] + cube[a, 0, m]
        seen[n, a, 0] = good[n, a, 0] + m * cube[np.minimum(1, m), a, one] + cube[0, a, m]
        a, b = (axis.ravel() for axis in np.meshgrid(np.arange(2, n - 1), np.arange(2, n // 2 + 1), indexing="ij"))
        a, b = (axis[(b <= a) & (a + b <= n)] for axis in (a, b))
        good[n, a, b] = cube[a, b, n - a - b]
        seen[n, a, b] = cube[a, b, n - a - b] + cube[b, a, n - a - b]
    return seen, good


def _next(seen: Floats, value: Floats, n: int) -> Floats:
    """Return the expected value [n+1, n//2+1, K] of the state after one more sample, from each state of n samples."""
    high, wide = n + 1, n // 2 + 1
    now, then = seen[n, :high, :wide], seen[n + 1, : high + 1, : (n + 1) // 2 + 1]
    mass = then[..., None] * value[: high + 1, : then.shape[1]]  # [a, b, K]
    if n == 0:
        return mass[1:, :]
    found = mass[:high, :wide] + mass[1:, :wide]  # another that stands alone, or one for the leader
    some = mass.shape[1] - 1
    found[:, 2:some] += mass[:high, 3:]  # one for the second answer; `seen` is 0 where that would be ahead
    even = np.arange(2, wide)
    found[even, even] += mass[even + 1, even]  # where they are even, it leads then
    if mass.shape[1] > 2:
        found[2:, 0] += (n - np.arange(2, high))[:, None] * mass[2:high, 2]  # one that meets any of the lone ones
    found[1, 0] = mass[1, 0] + n * mass[2, 0]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(now[..., None] > 0, found / now[..., None], 0.0)


def _crossing(gain: Floats) -> Floats:
    """Return the price at which the gain of going on reaches 0; [..., K] to [...].

    The gain falls with the price.
    """
    positive = gain > _LEAST_GAIN
    last = positive.sum(axis=-1) - 1
    at = np.clip(last, 0, len(PRICES) - 2)
    above, below = (np.take_along_axis(gain, (at + i)[..., None], axis=-1)[..., 0] for i in (0, 1))
    share = np.clip(above / np.where(above > below, above - below, 1.0), 0.0, 1.0)
    return np.where(last < 0, 0.0, PRICES[at] + share * (PRICES[at + 1] - PRICES[at]))
