"""Votes where wrong answers repeat: the chances of states, and the number of wrong answers.

Idea: beside the right answer and the lure, a problem has m other wrong answers, all equally likely. How k samples
    spread over m answers is a table of chances without the success rate: that no answer has more than c votes. A state
    is (leading votes, second votes, samples), so it is a difference of such chances, exactly. Its next state is not
    exact: third and further votes are forgotten. Samples are exchangeable, so the last one is any of them. Hence of
    n + 1 samples with a + 1 leading votes, the last one was for the leader with the chance (a + 1) / (n + 1). What
    passes from b second votes to b + 1 is what then lacks below. These mean flows need nothing but chances of states.
Source: derived here. With m = 0 (answers never repeat) `tts.allocator.votes` has states that forget nothing.

Shapes: Z kinds, N greatest number of samples, C limits of votes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_LEAST_CHANCE = 1e-12  # of a state: below it, differences are noise of rounding
_NUMBERS = (*range(1, 11), 12, 15, 20, 25, 30, 40, 50, 70, 100, 150, 200, 300, 500, 1000, 10_000)
_ROUNDS = 50
_LEAST, _IMPOSSIBLE = 1e-300, -1e12  # in place of a likelihood of 0, and of its logarithm
_TOLD_APART = 1.92  # by which log-likelihoods differ, at 95 %


def spread(others: int, limits: Sequence[int], shares: Sequence[float], most: int) -> Floats:
    """Return the chance [C, N+1] that 0 to N samples over equally likely answers keep within a limit.

    Args:
        others: The number of answers.
        limits: The greatest number of votes that an answer may have, [C].
        shares: The factor for each answer that has as many votes as the limit, [C]; 1: none.
        most: N, the greatest number of samples.
    """
    votes, limit = np.arange(most + 1), np.asarray(limits)[:, None]
    single = np.where(votes == limit, np.asarray(shares)[:, None], (votes < limit).astype(np.float64))
    if not others:
        return (votes == 0) * np.ones_like(single)
    found, answers = single, 1
    for digit in f"{others:b}"[1:]:  # the number of answers doubles, and grows by 1 at each binary digit of 1
        found, answers = _join(found, answers, found, answers), 2 * answers
        if digit == "1":
            found, answers = _join(found, answers, single, 1), answers + 1
    return found


def _join(one: Floats, one_answers: int, other: Floats, other_answers: int) -> Floats:
    """Return the chances [C, N+1] for the answers of two groups together."""
    most = one.shape[1] - 1
    of_one = _binomial(most, one_answers / (one_answers + other_answers))  # [samples, samples of the first group]
    found = np.zeros_like(one)
    for i in range(most + 1):
        found[:, i:] += of_one[i:, i] * one[:, i : i + 1] * other[:, : most + 1 - i]
    return found


@lru_cache(maxsize=64)
def _binomial(most: int, chance: float) -> Floats:
    """Return the chance [N+1, N+1] of each number of hits, by the number of trials."""
    from scipy import special

    trials, hits = np.arange(most + 1)[:, None], np.arange(most + 1)
    misses = np.maximum(trials - hits, 0)
    ways = special.gammaln(trials + 1) - special.gammaln(hits + 1) - special.gammaln(misses + 1)
    log_chance = ways + special.xlogy(hits, chance) + special.xlog1py(misses, -chance)
    return np.where(hits <= trials, np.exp(log_chance), 0.0)


def _one_over(others: int, most: int, below: Floats) -> Floats:
    """Return the chance [C, N+1, N+1] that one answer has a votes and the others keep within a limit, by a and samples.

    Args:
        others: The number of answers.
        most: N, the greatest number of samples.
        below: The chances of one answer less, by `spread`, [C, N+1].
    """
    of_one = _binomial(most, 1 / others)  # [samples, votes of the one]
    found = np.zeros((len(below), most + 1, most + 1))
    for a in range(most + 1):
        found[:, a, a:] = others * of_one[a:, a] * below[:, : most + 1 - a]
    return found


def state_chance(rate: Floats, lure: Floats, others: int, leader: int, second: int, samples: int) -> Floats:
    """Return the chance [Z] of a state of votes under each kind.

    Args:
        rate: The success rates, [Z].
        lure: The chances of the lure, [Z].
        others: The number of other wrong answers, at least 1.
        leader: The leading votes; 1: all samples differ.
        second: The second votes; 0 and 1 are one state.
        samples: The number of samples, at least 1.
    """
    from scipy import special

    a, b, n = leader, max(1, second), samples
    limits = [b, b - 1]
    within = spread(others, limits, [1.0, 1.0], n)
    one = _one_over(others, n, spread(others - 1, limits, [1.0, 1.0], n))[:, a]  # one of the others leads
    i, j = (each[..., None] for each in np.meshgrid(np.arange(a + 1), np.arange(a + 1), indexing="ij"))
    k = np.maximum(n - i - j, 0)
    log_chance = special.gammaln(n + 1) - special.gammaln(i + 1) - special.gammaln(j + 1) - special.gammaln(k + 1)
    log_chance = log_chance + special.xlogy(i, rate) + special.xlogy(j, lure)
    log_chance = log_chance + special.xlogy(k, np.maximum(0.0, 1 - rate - lure))
    chance = np.where(i + j <= n, np.exp(log_chance), 0.0)  # of i right, j luring and k other samples, [a+1, a+1, Z]

    def all_within(row: int) -> Floats:
        few = slice(limits[row] + 1)
        return (chance[few, few] * within[row][k[few, few]]).sum(axis=(0, 1))

    def one_leads(row: int) -> Floats:
        """Return the chance that one answer has a votes and every other at most the limit."""
        few = slice(limits[row] + 1)
        by_right = (chance[a, few] * within[row][k[a, few]]).sum(axis=0)
        by_lure = (chance[few, a] * within[row][k[few, a]]).sum(axis=0)
        return by_right + by_lure + (chance[few, few] * one[row][k[few, few]]).sum(axis=(0, 1))

    if a == b:
        found = all_within(0) - (all_within(1) + one_leads(1) if a > 1 else 0.0)
    else:
        found = one_leads(0) - (one_leads(1) if b > 1 else 0.0)
    return np.maximum(found, 0.0)


def wrong_likelihood(lure: Floats, scattered: Floats, others: int, votes: Sequence[int]) -> Floats:
    """Return the log-likelihood [Z] of the votes of a problem's wrong answers.

    Verdicts show that they are wrong. Any of the answers may be the lure, or none of them.

    Args:
        lure: The chances of the lure, [Z].
        scattered: The chances of all other wrong answers together, [Z].
        others: The number of other wrong answers; 0: infinitely many.
        votes: The votes of each wrong answer that was given.
    """
    from scipy import special

    rows = [
        special.xlogy(n, lure) + _log_chance_of_others(scattered, others, len(votes) - 1, sum(votes) - n) for n in votes
    ]
    return np.logaddexp.reduce([_log_chance_of_others(scattered, others, len(votes), sum(votes)), *rows])


def _log_chance_of_others(scattered: Floats, others: int, answers: int, samples: int) -> Floats:
    """Return the log-likelihood [Z] of so many samples that give so many of the other wrong answers."""
    from scipy import special

    if answers > others > 0 or (samples > answers and not others):
        return np.full(len(scattered), -np.inf)
    log_ways = special.gammaln(others + 1) - special.gammaln(others - answers + 1) if others else 0.0
    return log_ways + special.xlogy(samples, scattered / (others or 1))


def estimate(wrong_votes: Sequence[Sequence[int]], lures: Floats) -> int | None:
    """Return the number of other wrong answers of maximum likelihood, for problems with verdicts.

    0: they never repeat. None: the votes do not tell numbers apart. Their log-likelihoods then differ by less than
    1.92, half of the 95 % quantile of a chi-squared law.

    Idea: how often wrong samples agree is known where they are known to be wrong, without the success rate. The lure's
    share of them differs between problems, and its law is fitted for each number by expectation and maximisation.

    Args:
        wrong_votes: The votes of each wrong answer, by problem.
        lures: The possible shares of the lure among wrong samples.
    """
    known = [votes for votes in wrong_votes if sum(votes) > 1] or [[1]]  # one vote tells nothing
    likelihood: list[float] = []
    for others in (*_NUMBERS, 0):
        log_chance = np.stack([wrong_likelihood(lures, 1 - lures, others, votes) for votes in known])
        log_most = np.maximum(log_chance.max(axis=1, keepdims=True), _IMPOSSIBLE)
        chance, weight = np.exp(log_chance - log_most), np.full(len(lures), 1 / len(lures))
        for _ in range(_ROUNDS):
            weight = weight * (chance / np.maximum(chance @ weight, _LEAST)[:, None]).mean(axis=0)
        likelihood.append(float(log_most.sum() + np.log(np.maximum(chance @ weight, _LEAST)).sum()))
    best = int(np.argmax(likelihood))
    return (*_NUMBERS, 0)[best] if likelihood[best] - min(likelihood) >= _TOLD_APART else None


def marginals(rate: Floats, lure: Floats, weight: Floats, others: int, most: int) -> tuple[Floats, Floats]:
    """Return the chance of each state of votes, [N+1, N+1, N//2+1], by samples, leading and second votes.

    The second result is the chance of the state with a right leading answer. Among answers of equally many votes, each
    leads with the same chance, as if the first one to be drawn led. States of a chance below 1e-12 count as impossible.

    Args:
        rate: The success rates, [Z].
        lure: The chances of the lure, [Z].
        weight: The shares of the kinds, [Z].
        others: The number of other wrong answers, at least 1.
        most: N, the greatest number of samples, at least 2.
    """
    from scipy import special

    half, votes = most // 2, np.arange(most + 1)
    # by numbers of right, luring and other samples, the chance that Poisson numbers of mean `most` would have
    scale = special.xlogy(votes, most) - special.gammaln(votes + 1)
    powers = [
        np.exp(scale[:, None] + special.xlogy(votes[:, None], chances))
        for chances in (rate, lure, np.maximum(0.0, 1 - rate - lure))
    ]
    pairs = (powers[0] * weight)[:, None, :] * powers[1][None, :, :]
    joint = (pairs.reshape(-1, pairs.shape[-1]) @ powers[2].T).reshape(most + 1, most + 1, most + 1)

    limits = range(half + 1)
    within = spread(others, limits, np.ones(half + 1).tolist(), most)
    one_of_others = _one_over(others, most, spread(others - 1, limits, np.ones(half + 1).tolist(), most))
    by_right, by_lure = _shear(joint, half), _shear(joint.transpose(1, 0, 2), half)
    few = np.zeros((most + 1, most + 1))  # by right and luring samples together, and others, within the limit
    all_within = np.zeros((half + 1, most + 1))
    one_leads, right_leads = np.zeros((2, half + 1, most + 1, most + 1))  # [limit, samples, leading votes]
    for c in limits:
        few[c : 2 * c + 1] += joint[c, : c + 1]
        few[c : 2 * c] += joint[:c, c]
        by_samples = _shift(few.T).T  # [samples, others]
        all_within[c] = by_samples @ within[c]
        right_leads[c] = _shift(_chance_of_leading(by_right, within[c], within[c], c)).T
        one_leads[c] = right_leads[c] + _shift(_chance_of_leading(by_lure, within[c], within[c], c)).T
        one_leads[c] += by_samples @ one_of_others[c].T
    even = np.zeros((half + 1, most + 1))  # the right answer leads, among equals or alone: [votes, samples]
    for a in range(1, half + 1):
        # the mean of share^(equals - 1) over shares in [0, 1] is 1 / equals, a polynomial that few nodes integrate
        nodes, node_weight = np.polynomial.legendre.leggauss(most // (2 * a) + 1)
        shares = (nodes + 1) / 2
        tables = spread(others, [a] * len(shares), shares.tolist(), most) * (node_weight / 2)[:, None]
        led = _chance_of_leading(by_right[a : a + 1], tables.sum(axis=0), shares @ tables, a)
        even[a, a:] = led[0, : most + 1 - a]

    state_chances = np.zeros((most + 1, most + 1, half + 1))
    right_chances = np.zeros_like(state_chances)
    for found, leads in ((state_chances, one_leads), (right_chances, right_leads)):
        found[:, 2:, 0] = leads[1][:, 2:]
        for b in range(2, half + 1):
            found[:, b + 1 :, b] = (leads[b] - leads[b - 1])[:, b + 1 :]
    for a in range(2, half + 1):
        state_chances[:, a, a] = all_within[a] - all_within[a - 1] - one_leads[a - 1][:, a]
        right_chances[:, a, a] = even[a] - right_leads[a - 1][:, a]
    state_chances[:, 1, 0], right_chances[:, 1, 0] = all_within[1], even[1]
    state_chances *= np.exp(-scale)[:, None, None]  # given n samples, in place of Poisson numbers
    right_chances *= np.exp(-scale)[:, None, None]
    state_chances[state_chances < _LEAST_CHANCE] = 0.0
    state_chances[0] = votes[:, None] + np.arange(half + 1) == 0
    return state_chances, np.clip(right_chances, 0.0, state_chances)


def _shear(joint: Floats, half: int) -> Floats:
    """Return [a, j, t - j] of a table at [a, j, t], for j up to `half`."""
    found = np.zeros((len(joint), half + 1, joint.shape[2]))
    for j in range(half + 1):
        found[:, j, j:] = joint[:, j, : joint.shape[2] - j]
    return found


def _shift(table: Floats) -> Floats:
    """Return a table whose row a begins a places later."""
    return _shear(np.broadcast_to(table[None], (1, *table.shape)), len(table) - 1)[0]


def _chance_of_leading(leads: Floats, within: Floats, at_limit: Floats, limit: int) -> Floats:
    """Return the chance of leading votes, by further samples: none of the other answers has more votes than the limit.

    Args:
        leads: The chances of leading votes, votes of the other named answer, and further samples, by `_shear`.
        within: That the other wrong answers keep within the limit, by their samples, [N+1].
        at_limit: The same where the other named answer has as many votes as the limit.
        limit: The limit.
    """
    tables = np.stack([within] * limit + [at_limit])
    return np.einsum("ajt,jt->at", leads[:, : limit + 1], _shift(tables))


def expected_next(state_chances: Floats, value: Floats, n: int) -> Floats:
    """Return the expected value of the state after one more sample, from each state of n samples.

    Differs: the exact process also has the third and further votes; here their law is that of all sequences that have
    the state, whatever states came before.

    Args:
        state_chances: The chances of states, by `marginals`.
        value: The values of states of n + 1 samples, [.., K].
        n: The number of samples.

    Returns:
        The expected values [n+1, n//2+1, K].
    """
    if n == 0:
        return value[1:2, :1]  # the first sample leads
    num_leading, num_second, width = n + 1, n // 2 + 1, (n + 1) // 2 + 1
    a, b = np.arange(n + 2)[:, None], np.arange(width)
    here = np.zeros((n + 2, width))
    here[:num_leading, :num_second] = state_chances[n, :num_leading, :num_second]
    there = state_chances[n + 1, : n + 2, :width]
    here_below, there_below = (np.cumsum(chance * (b < a), axis=1) for chance in (here, there))
    leader_gains = (there * a / (n + 1))[1:]  # by the state that is left
    from_leader = there_below * a / (n + 1)
    passes = np.where(b < a, here_below - there_below + from_leader, 0.0)[:-1] - from_leader[1:]
    passes = np.where((b < a[:-1]) & (a[:-1] > 1) & (b != 1), np.maximum(passes, 0.0), 0.0)
    stays = np.maximum(here[:-1] - leader_gains - passes, 0.0)
    above = np.minimum(np.where(b == 0, 2, b + 1), width - 1)  # second votes after one more
    mass = leader_gains[..., None] * value[1 : n + 2, :width] + passes[..., None] * value[:num_leading, above]
    mass += stays[..., None] * value[:num_leading, :width]
    total = (leader_gains + passes + stays)[..., None]
    return np.divide(mass, total, out=np.zeros_like(mass), where=total > 0)[:, :num_second]
