"""The difficulty of problems: a prior over kinds of problems, and likelihoods for each kind.

The likelihoods are those of samples, scores and votes.

Idea: a problem is of one of finitely many kinds. A kind has a success rate (the chance that one sample is right) and a
    lure (the chance that it is the most tempting wrong answer); all other wrong answers differ from each other. So
    every posterior is a row of weights over kinds, made by Bayes's rule without sampling or iteration, and the prior is
    a row of weights too: given, or fitted to many problems at once (a hierarchical model, by expectation and
    maximisation).
Source: difficulty as the success rate of the policy itself is that of algorithm A14 (Snell et al. 2408.03314) and A15
(Liu et al.
    2502.06703); a posterior over it in place of a point estimate from 2,048 samples, and kinds with lures, are ours to
    decide.

Shapes: P problems, Z kinds, S observations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tts.errors import ConfigError, quote
from tts.renamed import refuse_old_members

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

# Evenly spaced in the angle whose squared sine they are, which is where a binomial rate is told apart equally well
# everywhere.
RATES: Floats = np.sin(np.linspace(0.0, np.pi / 2, 25)) ** 2
# share of a wrong answer's chance that the most tempting one has
LURES: Floats = np.array([0.02, 0.1, 0.25, 0.45, 0.7, 0.95])
_PRIOR = 10.0  # problems that a prior is worth
_LURED_ODDS = 1.5  # by which a kind whose wrong answer leads counts more than the density of success rates gives it
_LEAST_RATE = 0.004  # where that density is read at the nearest, for it is infinite at 0 and 1
_ROUNDS = 200
_SETTLED = 1e-7


@refuse_old_members
@dataclass(frozen=True, eq=False)
class Population:
    """The distribution of problems over kinds: the prior for one problem, which is learnt from many.

    Args:
        rate: [Z], chance in [0, 1] that a sample of this kind is right.
        lure: [Z], chance that it is the most tempting wrong answer; rate + lure is at most 1.
        weight: [Z], share of problems, summing to 1.
        problems: Number of problems that it was fitted to; 0: it was given.

    Raises:
        ConfigError: shapes differ, a chance is outside its range, or weights are negative or do not sum to 1.
    """

    rate: Floats
    lure: Floats
    weight: Floats
    problems: int = 0

    def __post_init__(self) -> None:
        shapes = {self.rate.shape, self.lure.shape, self.weight.shape}
        if len(shapes) != 1 or self.rate.ndim != 1 or not self.rate.size:
            raise ConfigError(
                f"rate, lure and weight have the shapes {sorted(shapes)}, but must be three lists of one length"
            )
        table = np.stack([self.rate, self.lure, self.weight])
        if not np.isfinite(table).all() or (table < 0).any() or (self.rate + self.lure > 1 + 1e-9).any():
            raise ConfigError(
                "a kind of problem has a chance outside [0, 1], but rate and lure are chances that sum to at most 1"
            )
        if abs(self.weight.sum() - 1) > 1e-6:
            raise ConfigError(f"the weights of the kinds sum to {self.weight.sum():.6g}, but must sum to 1")

    @property
    def scattered(self) -> Floats:
        """The chance of a wrong answer that no other sample gives, [Z]."""
        return np.maximum(0.0, 1.0 - self.rate - self.lure)

    @classmethod
    def from_rates(cls, share: ArrayLike, lures: ArrayLike | None = None) -> Population:
        """Return the kinds of the grid, from shares of problems at each success rate and each lure.

        The rates are `RATES` and the lures `LURES`. None as `lures` stands for equal shares.

        Raises:
            ConfigError: the shares are not as many as the grid, negative, or all zero.
        """
        shares = _shares("share", share, len(RATES))
        luring = _shares("lures", np.ones(len(LURES)) if lures is None else lures, len(LURES))
        rate, fraction = (axis.ravel() for axis in np.meshgrid(RATES, LURES, indexing="ij"))
        return cls(rate, (1 - rate) * fraction, np.outer(shares, luring).ravel())

    @classmethod
    def beta(
        cls, mean: float = 0.5, strength: float = 1.0, *, hopeless: float = 0.05, trivial: float = 0.02
    ) -> Population:
        """Return a Beta law of success rates, with some problems never solved and some always solved.

        Args:
            mean: The mean of the Beta law, in (0, 1): the estimate of a user or a probe.
            strength: The number of samples that it is worth, above 0; a small number puts most problems near 0 and 1.
            hopeless: The share of problems at a rate of exactly 0, on top.
            trivial: The share of problems at a rate of exactly 1, on top.

        Raises:
            ConfigError: a value is outside its range.
        """
        if not (0 < mean < 1 and strength > 0 and np.isfinite(strength)):
            raise ConfigError(f"mean is {mean} and strength {strength}, but must be in (0, 1) and a number above 0")
        if not (hopeless >= 0 and trivial >= 0 and hopeless + trivial <= 1):
            raise ConfigError(f"hopeless is {hopeless} and trivial {trivial}, but must be shares that sum to at most 1")
        from scipy import special

        edges = np.concatenate([[0.0], (RATES[1:] + RATES[:-1]) / 2, [1.0]])
        share = np.diff(special.betainc(mean * strength, (1 - mean) * strength, edges)) * (1 - hopeless - trivial)
        share[0] += hopeless
        share[-1] += trivial
        return cls.from_rates(share)

    def with_twins(self) -> Population:
        """Return the population in which no votes tell a kind from its twin.

        The twin of a kind has its success rate and its lure exchanged.

        Votes that no verifier weighs show how often two answers are given, and never which of them is right. So the two
        kinds share their weight in a proportion that no number of votes changes: by the density of Beta(.5, .5) success
        rates and lures that are evenly distributed over what is left, times 1.5 for the one whose wrong answer leads.
        That factor is our choice: with it an answer of half the votes beside one of a seventh is right as often as not,
        so that more of their votes gain nothing.
        """

        def density(rate: Floats) -> Floats:
            near = np.clip(rate, _LEAST_RATE, 1 - _LEAST_RATE)
            return 1 / (np.sqrt(near * (1 - near)) * (1 - near))

        own, twin = density(self.rate), density(self.lure)
        leads = self.rate >= self.lure
        own, twin = np.where(leads, own, own * _LURED_ODDS), np.where(leads, twin * _LURED_ODDS, twin)
        kept = self.weight * own / (own + twin)
        rates, lures = np.concatenate([self.rate, self.lure]), np.concatenate([self.lure, self.rate])
        return Population(rates, lures, np.concatenate([kept, self.weight - kept]), self.problems)

    # Likelihoods ------------------------------------------------------------------------------------------------------

    def verdict_likelihood(self, right: ArrayLike, wrong: ArrayLike) -> Floats:
        """Return the log-likelihood [S, Z] of samples that a perfect checker judged.

        It is -inf for kinds that cannot give the samples.
        """
        from scipy import special

        won, lost = _counts("right", right), _counts("wrong", wrong)
        return special.xlogy(won[:, None], self.rate) + special.xlog1py(lost[:, None], -self.rate)

    def vote_likelihood(self, leader: ArrayLike, second: ArrayLike, samples: ArrayLike) -> Floats:
        """Return the log-likelihood [S, Z] of votes.

        The right answer is unknown, so the likelihood is a sum over the possible ones.

        Args:
            leader: Numbers of samples with the most frequent answer, [S].
            second: Numbers of samples with the second most frequent answer, [S].
            samples: Numbers of all samples, [S]. Other samples (without an answer, or in smaller classes) count as
                scattered.

        Raises:
            ConfigError: counts are negative or inconsistent.
        """
        from scipy import special

        a, b, n = _votes(leader, second, samples)
        lone = n - a  # samples outside the leading class, where all of them stand alone

        def chance(right: Whole, lure: Whole, ways: ArrayLike = 1.0) -> Floats:
            rest = n - right - lure
            found = special.xlogy(right[:, None], self.rate) + special.xlogy(lure[:, None], self.lure)
            found = found + special.xlogy(np.maximum(rest, 0)[:, None], self.scattered)
            with np.errstate(divide="ignore"):
                choices = np.log(np.broadcast_to(np.asarray(ways, np.float64), n.shape))
            return np.where(rest[:, None] >= 0, found + choices[:, None], -np.inf)

        zero, one = np.zeros_like(n), np.ones_like(n)
        both = np.logaddexp(chance(a, b), chance(b, a))
        led = np.logaddexp.reduce([chance(a, one, lone), chance(a, zero), chance(one, a, lone), chance(zero, a)])
        alone = np.logaddexp.reduce(
            [chance(one, one, n * (n - 1.0)), chance(one, zero, n), chance(zero, one, n), chance(zero, zero)]
        )
        return np.where((b >= 2)[:, None], both, np.where((a >= 2)[:, None], led, alone))

    def posterior(self, log_likelihood: Floats) -> Floats:
        """Return the posterior weights [S, Z] of kinds given observations.

        They are the weights of the prior if no kind can give the observations.
        """
        with np.errstate(divide="ignore"):
            joint = log_likelihood + np.log(self.weight)
        top = joint.max(axis=1, keepdims=True)
        weights = np.exp(joint - np.where(np.isfinite(top), top, 0.0))
        total = weights.sum(axis=1, keepdims=True)
        return np.where(total > 0, weights / np.where(total > 0, total, 1.0), self.weight)

    def mean_rate(self, posterior: Floats) -> Floats:
        """Return the expected success rate, [S]."""
        return posterior @ self.rate

    # Learning ---------------------------------------------------------------------------------------------------------

    def fit(self, log_likelihood: Floats, count: ArrayLike | None = None) -> Population:
        """Return the population of maximum posterior for observations.

        Its prior is this population, worth ten problems.

        Source: expectation and maximisation for mixing weights, with Dirichlet pseudo-counts of mean `weight`
            (Dempster, Laird and Rubin 1977); it rises in likelihood at each round and its maximum is the only one.

        Args:
            log_likelihood: [S, Z], of `verdict_likelihood` or `vote_likelihood`.
            count: [S], how many problems show each observation; None: one each.
        """
        size = np.ones(len(log_likelihood)) if count is None else np.asarray(count, np.float64)
        total, weight = float(size.sum()), self.weight
        top = log_likelihood.max(axis=1, keepdims=True)
        known = np.isfinite(top[:, 0])
        chance, size = np.exp(log_likelihood[known] - top[known]), size[known]
        for _ in range(_ROUNDS):
            mixed = chance @ weight
            share = weight * (chance.T @ (size / np.maximum(mixed, 1e-300)))
            after = (share + _PRIOR * self.weight) / (share.sum() + _PRIOR)
            moved, weight = float(np.abs(after - weight).sum()), after
            if moved < _SETTLED:
                break
        return Population(self.rate, self.lure, weight, problems=self.problems + int(total))


def shift(population: Population, leader: ArrayLike, second: ArrayLike, samples: ArrayLike) -> float:
    """Return the p-value of a posterior predictive check of votes on new problems.

    It tests whether they look like the votes that the population was fitted to.

    Idea: problems are grouped by what share of their first samples agrees; under the population each group has a known
        expected size, and Pearson's statistic compares; where nearly all are expected in one group, the binomial tail
        of those outside it does. All problems must show equally many samples, at least two.

    Raises:
        ConfigError: numbers of samples differ, or are below two.
    """
    from scipy import special

    a, _, n = _votes(leader, second, samples)
    if not len(n) or n.min() != n.max() or n[0] < 2:
        raise ConfigError("samples differs between problems or is below 2, but must be one number for all, at least 2")
    size, expected = int(n[0]), np.zeros(int(n[0]) + 1)
    for first in range(1, size + 1):
        for other in range(min(first, size - first) + 1):
            if other == 1 or (first == 1 and other == 0 and size > 1):
                continue  # lone answers are counted once, with `second` 0
            ways = _patterns(first, other, size - first - other)
            expected[first] += ways * float(
                np.exp(population.vote_likelihood([first], [other], [size])[0]) @ population.weight
            )
    expected[1] = max(0.0, 1.0 - expected[2:].sum())
    found = np.bincount(a, minlength=size + 1).astype(np.float64)
    groups = _merge(expected * len(n), found)
    if len(groups) < 2:
        usual = int(expected.argmax())
        outside = len(n) - int(found[usual])
        return float(special.betainc(outside, len(n) - outside + 1, 1.0 - expected[usual])) if outside else 1.0
    statistic = sum((seen - wanted) ** 2 / wanted for wanted, seen in groups)
    return float(special.chdtrc(len(groups) - 1, statistic))


def _patterns(first: int, other: int, rest: int) -> float:
    """Return the number of ways in which samples form classes of given sizes, with `rest` samples alone."""
    n = first + other + rest
    ways = math.comb(n, first) * math.comb(n - first, other)
    return ways / 2 if first == other else ways


def _merge(expected: Floats, found: Floats) -> list[tuple[float, float]]:
    """Return groups (expected, found) with at least five expected each, by merging neighbours."""
    groups: list[tuple[float, float]] = []
    wanted = seen = 0.0
    for each, of_it in zip(expected.tolist(), found.tolist(), strict=True):
        wanted, seen = wanted + each, seen + of_it
        if wanted >= 5:
            groups.append((wanted, seen))
            wanted = seen = 0.0
    if groups and (wanted or seen):
        last = groups.pop()
        groups.append((last[0] + wanted, last[1] + seen))
    return groups


def _votes(leader: ArrayLike, second: ArrayLike, samples: ArrayLike) -> tuple[Whole, Whole, Whole]:
    a, b, n = _counts("leader", leader), _counts("second", second), _counts("samples", samples)
    if not len(a) == len(b) == len(n) or (b > a).any() or (a + b > n).any():
        raise ConfigError("votes do not add up: second must be at most leader, and both together at most samples")
    # samples that all lack an answer agree with nothing, as lone answers do
    return np.where(n > 0, np.maximum(a, 1), 0), b, n


def _counts(name: str, values: ArrayLike) -> Whole:
    found = np.atleast_1d(np.asarray(values, np.float64))
    if found.ndim != 1 or not np.isfinite(found).all() or (found < 0).any() or (found != np.floor(found)).any():
        raise ConfigError(f"{name} is {quote(values)}, but must be a list of whole numbers of at least 0")
    return found.astype(np.int64)


def _shares(name: str, values: ArrayLike | Sequence[float], length: int) -> Floats:
    found = np.asarray(values, np.float64)
    if found.shape != (length,) or not np.isfinite(found).all() or (found < 0).any() or found.sum() <= 0:
        raise ConfigError(f"{name} is {quote(values)}, but must be {length} numbers of at least 0, not all 0")
    return found / found.sum()
