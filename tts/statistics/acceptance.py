"""Repeated attempts until an imperfect verifier accepts.

The module has what that reaches however long one tries, and how often it pays to try.

Source: algorithm A19; Stroebl, Kapoor and Narayanan, "Inference scaling fLaws: the limits of LLM resampling with
imperfect verifiers"
    (2024), arXiv:2411.17501, abstract and notebooks, verified.
Words: completeness c = P(accept | right); soundness s = P(reject | wrong); a problem type t has the share right r_t and
the prior pi_t.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from tts.errors import ConfigError
from tts.statistics.proportions import LEVEL, Estimate, numbers
from tts.statistics.resampling import RESAMPLES, Floats, bootstrap, ratio, vector


def accuracy_given_acceptance(rate: float, completeness: float, soundness: float) -> float:
    """Return the share of right samples among the accepted ones, p c / (p c + (1 - p)(1 - s)).

    This share is the same after any number of tries.

    Args:
        rate: The share of samples that are right, p.
        completeness: P(accept | right), in [0, 1].
        soundness: P(reject | wrong), in [0, 1].

    Returns:
        A share in [0, 1]; NaN where nothing is ever accepted.

    Raises:
        ConfigError: an argument is outside [0, 1].
    """
    _check(rate=rate, completeness=completeness, soundness=soundness)
    accepted_right, accepted_wrong = rate * completeness, (1 - rate) * (1 - soundness)
    accepted = accepted_right + accepted_wrong
    return accepted_right / accepted if accepted > 0 else math.nan


def attempt_values(
    rates: ArrayLike,
    completeness: float,
    soundness: float,
    num: int,
    *,
    prior: ArrayLike | None = None,
    right: float = 1.0,
    wrong: float = 0.0,
) -> Floats:
    """Return the mean values of attempts 1 to `num`.

    Attempt k is made only where attempts 1 to k - 1 were rejected.

    EV_k = sum over t of pi_t beta_t^(k - 1) [right c r_t + wrong (1 - s)(1 - r_t)], with beta_t = (1 - c) r_t + s (1 -
    r_t). With `right` 1 and `wrong` 0 the sum of the first k values is the accuracy of k attempts.

    Args:
        rates: [T], the share r_t of right samples of each problem type.
        completeness: The completeness c.
        soundness: The soundness s.
        num: The number of attempts.
        prior: [T], the share pi_t of each problem type, summing to one; None: equal shares.
        right: The worth of an accepted right answer.
        wrong: The worth of an accepted wrong answer, negative where it does harm.

    Raises:
        ConfigError: there is no problem type, or a rate, prior, completeness or soundness is outside [0, 1].
    """
    rate = vector("rates", rates)
    weights = np.full(len(rate), 1 / max(1, len(rate))) if prior is None else vector("prior", prior)
    _check(rates=rate, prior=weights, completeness=completeness, soundness=soundness)
    if not len(rate) or len(rate) != len(weights) or num < 1:
        raise ConfigError(
            f"there are {len(rate)} rates, {len(weights)} priors and {num} attempts, but must be as many rates as "
            "priors, "
            "and at least one of all"
        )
    rejection_chances = (1 - completeness) * rate + soundness * (1 - rate)
    worth = right * completeness * rate + wrong * (1 - soundness) * (1 - rate)
    reach_chances = rejection_chances[:, None] ** np.arange(num)[None, :]  # [types, attempts]
    return (weights * worth) @ reach_chances


def best_tries(values: ArrayLike) -> int:
    """Return the number of attempts whose values sum highest; 0 where every sum is negative.

    Among several such numbers the greatest is returned.
    """
    sums = np.cumsum(vector("values", values))
    if not len(sums) or sums.max() < 0:
        return 0
    num_after_best = int(sums[::-1].argmax())
    return len(sums) - num_after_best


def clustered_ceiling(
    num: ArrayLike,
    num_right: ArrayLike,
    accepted_right: ArrayLike,
    accepted_wrong: ArrayLike,
    *,
    rng: np.random.Generator,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> Estimate:
    """Return the accuracy that no number of tries passes, with an interval from problems drawn again.

    Each problem is a type of its own: r_t is its share of right samples. Completeness and soundness are estimated from
    all samples, anew in each resample. The sum of `attempt_values` over all attempts is the mean of c r_t / (1 -
    beta_t). So a problem without a right sample adds nothing, and neither does a problem without an accepted sample.

    Args:
        num: [P], the samples of each problem.
        num_right: [P], the right samples.
        accepted_right: [P], the accepted right samples.
        accepted_wrong: [P], the accepted wrong samples.
        rng: As in `bootstrap`.
        level: As in `bootstrap`.
        resamples: As in `bootstrap`.

    Raises:
        ConfigError: lengths that differ, a problem without samples, or counts that do not fit each other.
    """
    samples, right = vector("num", num), vector("num_right", num_right)  # [P]
    taken_right = vector("accepted_right", accepted_right)
    taken_wrong = vector("accepted_wrong", accepted_wrong)
    if not len(samples) == len(right) == len(taken_right) == len(taken_wrong):
        raise ConfigError(
            "num, num_right, accepted_right and accepted_wrong must be of one length: a number for each problem"
        )
    wrong = samples - right
    are_right_counts = ((taken_right >= 0) & (taken_right <= right)).all()
    are_wrong_counts = ((taken_wrong >= 0) & (taken_wrong <= wrong)).all()
    if (samples < 1).any() or not are_right_counts or not are_wrong_counts:
        raise ConfigError(
            "the counts of a problem do not fit each other",
            hint="0 <= accepted <= of that kind, and one sample at least",
        )
    rate = right / np.maximum(samples, 1)

    def ceiling_of(counts: Floats) -> Floats:
        # a resample without right samples, or without wrong samples, accepts none of the kind that it lacks
        completeness = np.nan_to_num(ratio(counts @ taken_right, counts @ right))[:, None]
        false_acceptance = np.nan_to_num(ratio(counts @ taken_wrong, counts @ wrong))[:, None]
        accepted = completeness * rate + false_acceptance * (1 - rate)
        ceilings = np.nan_to_num(ratio(completeness * rate, accepted))  # [R, P]
        return (counts * ceilings).sum(axis=1) / counts.sum(axis=1)

    return bootstrap(ceiling_of, len(samples), rng, level=level, resamples=resamples, width=4 * max(1, len(samples)))


def _check(**shares: ArrayLike) -> None:
    for name, values in shares.items():
        array = numbers(name, values)
        if not ((array >= 0) & (array <= 1)).all():
            raise ConfigError(f"{name} is {values!r}, but must be from 0 to 1")
