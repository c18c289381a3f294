"""The difficulty of problems: a prior over kinds of problems, and likelihoods for each kind.

The likelihoods are those of samples, scores and votes.

Idea: a problem is of one of finitely many kinds. A kind has a success rate (the chance that one sample is right) and a
    lure (the chance that it is the most tempting wrong answer). The other wrong answers are equally likely. Their
    number is one for all problems, and is learnt from samples with verdicts (`tts.allocator.repeats`). Where it is
    unknown, they never repeat. So every posterior is a row of weights over kinds, made by Bayes's rule without sampling
    or iteration. The prior is a row of weights too: given, or fitted to many problems at once (a hierarchical model, by
    expectation and maximisation).
Source: difficulty as the success rate of the policy itself is that of algorithm A14 (Snell et al. 2408.03314) and A15
(Liu et al.
    2502.06703); a posterior over it in place of a point estimate from 2,048 samples, and kinds with lures, are ours to
    decide.

Shapes: P problems, Z kinds, S observations.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tts.allocator import repeats
from tts.checks import check_int
from tts.errors import ConfigError, quote

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
_CONVERGED = 1e-7
_MOST_SAMPLES = 128  # of a problem, whose votes are told apart where wrong answers repeat


@dataclass(frozen=True, eq=False)
class Population:
    """The distribution of problems over kinds: the prior for one problem, which is learnt from many.

    Args:
        rate: [Z], chance in [0, 1] that a sample of this kind is right.
        lure: [Z], chance that it is the most tempting wrong answer; rate + lure is at most 1.
        weight: [Z], share of problems, summing to 1.
        problems: Number of problems that it was fitted to; 0: it was given.
        others: Number of wrong answers that a problem has beside the lure, all equally likely; 0: infinitely many, so
            that none is given twice. None: unknown, and counted as 0. Then more votes look better than they are where
            wrong answers repeat.

    Raises:
        ConfigError: shapes differ, a chance is outside its range, weights are negative or do not sum to 1, or others is
            below 0.
    """

    rate: Floats
    lure: Floats
    weight: Floats
    problems: int = 0
    others: int | None = None

    def __post_init__(self) -> None:
        check_int("others", self.others, 0)
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
        """Return the population with the kinds of the grid: each pair of a rate and a lure.

        Args:
            share: The share of problems at each of `RATES`.
            lures: The share of problems at each of `LURES`; None: equal shares.

        Raises:
            ConfigError: the shares are not as many as the grid has, are negative, or are all zero.
        """
        rate_shares = _shares("share", share, len(RATES))
        lure_shares = _shares("lures", np.ones(len(LURES)) if lures is None else lures, len(LURES))
        rates, fractions = np.meshgrid(RATES, LURES, indexing="ij")
        rate = rates.ravel()
        weight = np.outer(rate_shares, lure_shares).ravel()
        return cls(rate=rate, lure=(1 - rate) * fractions.ravel(), weight=weight)

    @classmethod
    def beta(
        cls, mean: float = 0.5, strength: float = 1.0, *, hopeless: float = 0.05, trivial: float = 0.02
    ) -> Population:
        """Return a population whose success rates have a Beta distribution, except for some extreme problems.

        Args:
            mean: The mean of the Beta distribution, in (0, 1): the estimate of a user or a probe.
            strength: The number of samples that this estimate is worth, above 0. A small number puts most problems near
                the rates 0 and 1.
            hopeless: The further share of problems at a rate of exactly 0.
            trivial: The further share of problems at a rate of exactly 1.

        Raises:
            ConfigError: a value is outside its range.
        """
        if not (0 < mean < 1 and strength > 0 and np.isfinite(strength)):
            raise ConfigError(f"mean is {mean} and strength {strength}, but must be in (0, 1) and a number above 0")
        if not (hopeless >= 0 and trivial >= 0 and hopeless + trivial <= 1):
            raise ConfigError(f"hopeless is {hopeless} and trivial {trivial}, but must be shares that sum to at most 1")
        from scipy import special

        edges = np.concatenate([[0.0], (RATES[1:] + RATES[:-1]) / 2, [1.0]])
        beta_share = np.diff(special.betainc(mean * strength, (1 - mean) * strength, edges))  # between two edges
        share = beta_share * (1 - hopeless - trivial)
        share[0] += hopeless
        share[-1] += trivial
        return cls.from_rates(share)

    def with_twins(self) -> Population:
        """Return the population in which no votes tell a kind from its twin.

        The twin of a kind has its success rate and its lure exchanged.

        Votes that no verifier weighs show how often two answers are given, and never which of the answers is right. So
        a kind and its twin divide their weight in a proportion that no number of votes changes. The proportion is that
        of two densities: success rates have a Beta(.5, .5) distribution, and lures are evenly distributed over the
        remaining chance. The kind whose wrong answer leads counts 1.5 times. That factor is our choice. With it, an
        answer of half the votes beside an answer of a seventh is right as often as not, so more votes gain nothing.
        """

        def density(rate: Floats) -> Floats:
            inner_rate = np.clip(rate, _LEAST_RATE, 1 - _LEAST_RATE)
            return 1 / (np.sqrt(inner_rate * (1 - inner_rate)) * (1 - inner_rate))

        right_leads = self.rate >= self.lure  # [Z]; in the twin the wrong answer leads then
        own_odds = np.where(right_leads, density(self.rate), density(self.rate) * _LURED_ODDS)
        twin_odds = np.where(right_leads, density(self.lure) * _LURED_ODDS, density(self.lure))
        own_weight = self.weight * own_odds / (own_odds + twin_odds)
        return dataclasses.replace(
            self,
            rate=np.concatenate([self.rate, self.lure]),
            lure=np.concatenate([self.lure, self.rate]),
            weight=np.concatenate([own_weight, self.weight - own_weight]),
        )

    # Likelihoods ------------------------------------------------------------------------------------------------------

    def verdict_likelihood(self, right: ArrayLike, wrong: ArrayLike) -> Floats:
        """Return the log-likelihood [S, Z] of samples that a perfect checker judged.

        It is -inf for kinds that cannot give the samples.

        Args:
            right: Numbers of right samples, [S].
            wrong: Numbers of wrong samples, [S].
        """
        from scipy import special

        num_right, num_wrong = _counts("right", right), _counts("wrong", wrong)
        return special.xlogy(num_right[:, None], self.rate) + special.xlog1py(num_wrong[:, None], -self.rate)

    def vote_likelihood(self, leader: ArrayLike, second: ArrayLike, samples: ArrayLike) -> Floats:
        """Return the log-likelihood [S, Z] of votes.

        The right answer is unknown, so the likelihood is a sum over the classes (groups of equal answers) that may be
        right.

        Args:
            leader: Numbers of samples with the most frequent answer, [S].
            second: Numbers of samples with the second most frequent answer, [S].
            samples: Numbers of all samples, [S]. Samples without an answer, or in smaller classes, count as scattered:
                each stands alone. Where `others` is above 0, smaller classes may be any.

        Raises:
            ConfigError: counts are negative or inconsistent.
        """
        from scipy import special

        a, b, n = _votes(leader, second, samples)
        if self.others:
            states = zip(a.tolist(), b.tolist(), n.tolist(), strict=True)
            return np.array([_log_pattern(self, *state) for state in states]).reshape(-1, len(self.rate))
        num_lone = n - a  # samples outside the leading class, if each of them stands alone

        def log_chance(right: Whole, lure: Whole, ways: ArrayLike = 1.0) -> Floats:
            """Return the log-chance of so many right, luring and otherwise scattered samples, in `ways` orders."""
            num_scattered = n - right - lure
            of_samples = special.xlogy(right[:, None], self.rate) + special.xlogy(lure[:, None], self.lure)
            of_samples = of_samples + special.xlogy(np.maximum(num_scattered, 0)[:, None], self.scattered)
            with np.errstate(divide="ignore"):
                log_ways = np.log(np.broadcast_to(np.asarray(ways, np.float64), n.shape))
            return np.where(num_scattered[:, None] >= 0, of_samples + log_ways[:, None], -np.inf)

        zero, one = np.zeros_like(n), np.ones_like(n)
        two_classes = np.logaddexp(log_chance(a, b), log_chance(b, a))
        one_class = np.logaddexp.reduce(
            [
                log_chance(a, one, num_lone),
                log_chance(a, zero),
                log_chance(one, a, num_lone),
                log_chance(zero, a),
            ]
        )
        all_alone = np.logaddexp.reduce(
            [
                log_chance(one, one, n * (n - 1.0)),
                log_chance(one, zero, n),
                log_chance(zero, one, n),
                log_chance(zero, zero),
            ]
        )
        one_or_none = np.where((a >= 2)[:, None], one_class, all_alone)
        return np.where((b >= 2)[:, None], two_classes, one_or_none)

    def posterior(self, log_likelihood: Floats) -> Floats:
        """Return the posterior weights [S, Z] of kinds given observations.

        They are the weights of the prior if no kind can give the observations.

        Args:
            log_likelihood: [S, Z], of `verdict_likelihood` or `vote_likelihood`.
        """
        with np.errstate(divide="ignore"):
            log_joint = log_likelihood + np.log(self.weight)
        log_max = log_joint.max(axis=1, keepdims=True)  # subtracted, so that no exponential vanishes
        weights = np.exp(log_joint - np.where(np.isfinite(log_max), log_max, 0.0))
        total = weights.sum(axis=1, keepdims=True)
        return np.where(total > 0, weights / np.where(total > 0, total, 1.0), self.weight)

    def mean_rate(self, posterior: Floats) -> Floats:
        """Return the expected success rate, [S]."""
        return posterior @ self.rate

    # Learning ---------------------------------------------------------------------------------------------------------

    def fit(self, log_likelihood: Floats, count: ArrayLike | None = None) -> Population:
        """Return the population of maximum posterior for observations.

        The prior is this population, with the weight of ten problems.

        Source: expectation and maximisation for mixing weights, with Dirichlet pseudo-counts of mean `weight`
            (Dempster, Laird and Rubin 1977); it rises in likelihood at each round and its maximum is the only one.

        Args:
            log_likelihood: [S, Z], of `verdict_likelihood` or `vote_likelihood`.
            count: [S], the number of problems that show each observation; None: one each.
        """
        num_problems = np.ones(len(log_likelihood)) if count is None else np.asarray(count, np.float64)
        total = float(num_problems.sum())
        log_max = log_likelihood.max(axis=1, keepdims=True)
        is_possible = np.isfinite(log_max[:, 0])  # for some kind
        chance = np.exp(log_likelihood[is_possible] - log_max[is_possible])
        num_possible = num_problems[is_possible]
        weight = self.weight
        for _ in range(_ROUNDS):
            marginal = chance @ weight
            expected_problems = weight * (chance.T @ (num_possible / np.maximum(marginal, 1e-300)))  # of each kind
            new_weight = (expected_problems + _PRIOR * self.weight) / (expected_problems.sum() + _PRIOR)
            change = float(np.abs(new_weight - weight).sum())
            weight = new_weight
            if change < _CONVERGED:
                break
        return dataclasses.replace(self, weight=weight, problems=self.problems + int(total))


def shift(population: Population, leader: ArrayLike, second: ArrayLike, samples: ArrayLike) -> float:
    """Return the p-value of a posterior predictive check of votes on new problems.

    The check tests whether the votes look like those that the population was fitted to.

    Idea: problems are grouped by the number of votes for their most frequent answer. Under the population each group
        has a known expected size, and Pearson's statistic compares these with the observed sizes. If nearly all
        problems are expected in one group, the binomial tail of the number outside that group is taken instead.

    Args:
        population: The population.
        leader: The votes for the most frequent answer of each problem, [P].
        second: The votes for the second most frequent answer, [P].
        samples: The samples of each problem, [P]; one number for all, at least two.

    Raises:
        ConfigError: numbers of samples differ, or are below two.
    """
    from scipy import special

    a, _second, n = _votes(leader, second, samples)
    if not len(n) or n.min() != n.max() or n[0] < 2:
        raise ConfigError("samples differs between problems or is below 2, but must be one number for all, at least 2")
    size = int(n[0])
    expected = np.zeros(size + 1)  # the share of problems by the votes of their leading answer
    for num_leading in range(2, size + 1):
        for num_second in range(min(num_leading, size - num_leading) + 1):
            if num_second == 1:
                continue  # a lone answer forms no class: it is counted where the second class has 0 votes
            ways = _patterns(num_leading, num_second, size - num_leading - num_second)
            (log_chances,) = population.vote_likelihood([num_leading], [num_second], [size])
            expected[num_leading] += ways * float(np.exp(log_chances) @ population.weight)
    expected[1] = max(0.0, 1.0 - expected[2:].sum())
    observed = np.bincount(a, minlength=size + 1).astype(np.float64)  # the number of problems
    groups = _merge(expected * len(n), observed)
    if len(groups) < 2:
        usual = int(expected.argmax())
        num_outside = len(n) - int(observed[usual])
        if not num_outside:
            return 1.0
        return float(special.betainc(num_outside, len(n) - num_outside + 1, 1.0 - expected[usual]))
    statistic = sum((num_observed - num_expected) ** 2 / num_expected for num_expected, num_observed in groups)
    return float(special.chdtrc(len(groups) - 1, statistic))


@lru_cache(maxsize=1 << 12)
def _log_pattern(population: Population, leader: int, second: int, samples: int) -> Floats:
    """Return the mean log-chance [Z] of a pattern of samples with these votes, where wrong answers repeat.

    More than 128 samples are shrunk to 128, for the cost grows with the square of votes. This is our choice.
    """
    if not samples:
        return np.zeros(len(population.rate))
    shrinkage = max(1.0, samples / _MOST_SAMPLES)
    leader, second, samples = max(1, int(leader / shrinkage)), int(second / shrinkage), round(samples / shrinkage)
    paired = second if second > 1 else 0
    ways = _patterns(leader, paired, samples - leader - paired) if leader > 1 else 1.0
    chance = repeats.state_chance(population.rate, population.lure, population.others or 0, leader, second, samples)
    with np.errstate(divide="ignore"):
        return np.log(chance) - math.log(ways)


def _patterns(first: int, other: int, rest: int) -> float:
    """Return the number of ways in which samples form classes of given sizes, with `rest` samples alone."""
    n = first + other + rest
    ways = math.comb(n, first) * math.comb(n - first, other)
    return ways / 2 if first == other else ways


def _merge(expected: Floats, observed: Floats) -> list[tuple[float, float]]:
    """Merge neighbouring groups until at least five problems are expected in each.

    Args:
        expected: The expected numbers of problems in groups.
        observed: The observed numbers.

    Returns:
        The expected and the observed number of each merged group.
    """
    groups: list[tuple[float, float]] = []
    sum_expected = sum_observed = 0.0
    for num_expected, num_observed in zip(expected.tolist(), observed.tolist(), strict=True):
        sum_expected += num_expected
        sum_observed += num_observed
        if sum_expected >= 5:
            groups.append((sum_expected, sum_observed))
            sum_expected = sum_observed = 0.0
    if groups and (sum_expected or sum_observed):
        last_expected, last_observed = groups.pop()
        groups.append((last_expected + sum_expected, last_observed + sum_observed))
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
