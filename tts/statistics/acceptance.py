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

    It is the same after any number of tries.

    Args:
        rate: The share of samples that are right, p.
        completeness: P(accept | right), in [0, 1].
        soundness: P(reject | wrong), in [0, 1].

    Returns:
        In [0, 1]; NaN where nothing is ever accepted.

    Raises:
        ConfigError: one of them is outside [0, 1].
    """
    _check(rate=rate, completeness=completeness, soundness=soundness)
    right, wrong = rate * completeness, (1 - rate) * (1 - soundness)
    return right / (right + wrong) if right + wrong > 0 else math.nan


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

    Each attempt is reached only where all before it were rejected.

    EV_k = sum over t of pi_t beta_t^(k - 1) [right c r_t + wrong (1 - s)(1 - r_t)], with beta_t = (1 - c) r_t + s (1 -
    r_t). With `right` 1 and `wrong` 0 their running sum is the accuracy of so many attempts.

    Args:
        rates: [T], r_t.
        completeness: The completeness c.
        soundness: The soundness s.
        num: K.
        prior: [T], pi_t, which sum to one; None: all alike.
        right: What a right answer that is accepted is worth.
        wrong: A wrong one; negative where it does harm.

    Raises:
        ConfigError: no type, or a number outside [0, 1] that must lie within.
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
    rejected = (1 - completeness) * rate + soundness * (1 - rate)
    worth = right * completeness * rate + wrong * (1 - soundness) * (1 - rate)
    return (weights * worth) @ (rejected[:, None] ** np.arange(num)[None, :])


def best_tries(values: ArrayLike) -> int:
    """Return the number of attempts whose values sum highest; 0 where every sum is negative.

    Of several such numbers it is the greatest.
    """
    sums = np.cumsum(vector("values", values))
    return len(sums) - int(sums[::-1].argmax()) if len(sums) and sums.max() >= 0 else 0


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

    Each problem is a type of its own: r_t is its share of right samples. Completeness and soundness are those of all
    samples, and are estimated anew in each resample. The sum of `attempt_values` over all attempts is the mean of c r_t
    / (1 - beta_t). So a problem of which no sample is right adds nothing. Nor does one of which nothing is ever
    accepted.

    Args:
        num: [P], samples of each problem.
        num_right: [P], those of them that are right.
        accepted_right: [P], right ones that were accepted.
        accepted_wrong: [P], wrong ones that were accepted.
        rng: As in `bootstrap`.
        level: As in `bootstrap`.
        resamples: As in `bootstrap`.

    Raises:
        ConfigError: lengths that differ, a problem without samples, or counts that do not fit each other.
    """
    total, good, taken, mistaken = (
        vector(name, values)
        for name, values in (
            ("num", num),
            ("num_right", num_right),
            ("accepted_right", accepted_right),
            ("accepted_wrong", accepted_wrong),
        )
    )
    if not len(total) == len(good) == len(taken) == len(mistaken):
        raise ConfigError(
            "num, num_right, accepted_right and accepted_wrong must be of one length: a number for each problem"
        )
    if (
        (total < 1).any()
        or (taken > good).any()
        or (mistaken > total - good).any()
        or min(taken.min(initial=0), mistaken.min(initial=0)) < 0
    ):
        raise ConfigError(
            "the counts of a problem do not fit each other",
            hint="0 <= accepted <= of that kind, and one sample at least",
        )
    rate = good / np.maximum(total, 1)

    def ceiling_of(counts: Floats) -> Floats:
        # none right, or none wrong: nothing of it is accepted
        complete = np.nan_to_num(ratio(counts @ taken, counts @ good))[:, None]
        passes = np.nan_to_num(ratio(counts @ mistaken, counts @ (total - good)))[:, None]
        ends = np.nan_to_num(ratio(complete * rate, complete * rate + passes * (1 - rate)))  # [R, P]
        return (counts * ends).sum(axis=1) / counts.sum(axis=1)

    return bootstrap(ceiling_of, len(total), rng, level=level, resamples=resamples, width=4 * max(1, len(total)))


def _check(**shares: ArrayLike) -> None:
    for name, values in shares.items():
        found = numbers(name, values)
        if not ((found >= 0) & (found <= 1)).all():
            raise ConfigError(f"{name} is {values!r}, but must be from 0 to 1")
