"""Thresholds of confidence, calibrated to a level of wrong answers.

The answers that are given are wrong no more often than the level allows.

A chain asks one link after another: a link answers where its confidence reaches its threshold, else the next one is
asked, and after the last one the chain abstains. The thresholds of all links are calibrated together:

    a third of the problems, chosen without their outcomes, proposes: the thresholds of each link at which its answers
    have an error of
        at most tau, as these problems show it; a small tau answers little. tau rises from where the first test is
        likeliest to pass
    the other problems test, in that order: is the exact upper bound on the error of what the chain answers within the
    level? the last thresholds before the first test that fails

Source: Angelopoulos, Bates, Candès, Jordan, Lei, "Learn then Test: Calibrating Predictive Algorithms to Achieve Risk
Control" (2110.01052), fixed sequence testing with a split, from memory. Each test is the one-sided bound of Clopper and
Pearson at delta, on the answered problems, whose number of wrong ones is binomial. Errors need not fall with
confidence. Differs: tau ties several thresholds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr, bdtrik, betaincinv

from tts.checks import check_number
from tts.errors import ConfigError
from tts.randomness import hash64

PROPOSING: Final = 3  # one in so many problems proposes
_STEPS = 200  # thresholds that are tested at most


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedChain:
    """The thresholds of a chain, and what they did on the problems that tested them.

    Args:
        thresholds: The least confidence at which each link answers; infinite where it never does.
        tested: The problems that tested.
        answered: Those of them that the chain answers.
        wrong: Those of these whose answer is wrong.
        bound: The upper bound on the share of wrong answers, at most the level.
    """

    thresholds: tuple[float, ...]
    tested: int
    answered: int
    wrong: int
    bound: float


def least_answers(level: float, delta: float) -> int:
    """Return how many answers, all of them right, prove a level."""
    return math.ceil(math.log(delta) / math.log1p(-level) - 1e-9)


def proposers(names: list[str]) -> NDArray[np.bool_]:
    """Return which problems propose: a third, by a hash of their names.

    The order and the outcomes of problems then do not count.
    """
    order = np.argsort([hash64("calibration", name) for name in names], kind="stable")
    chosen = np.zeros(len(names), np.bool_)
    chosen[order[: len(names) // PROPOSING]] = True
    return chosen


def calibrate_chain(
    confidences: ArrayLike, right: ArrayLike, proposes: ArrayLike, level: float, delta: float
) -> CalibratedChain:
    """Return the thresholds of a chain for which the share of wrong answers is at most `level`.

    The bound holds with probability 1 - delta.

    Args:
        confidences: The confidence of each link on each problem [links, problems]; NaN: it has no answer.
        right: Whether each answer is right [links, problems].
        proposes: Whether a problem proposes thresholds; the others test them [problems].
        level: The share of wrong answers, above 0 and below 1.
        delta: The probability, over sets of problems, that the level is exceeded, above 0 and below 1.

    Raises:
        ConfigError: A number is out of its range; the problems are too few; or no thresholds keep the level. The text
            says how many problems would do.
    """
    for name, value in (("risk", level), ("delta", delta)):
        check_number(name, value, 0, 1, optional=False)
        if not 0 < value < 1:
            raise ConfigError(f"{name} is {value}, but must be above 0 and below 1")
    sure = np.array(confidences, np.float64)
    sure[np.isnan(sure)] = -math.inf
    correct, proposing = np.array(right, np.bool_), np.array(proposes, np.bool_)
    least, tested = least_answers(level, delta), int((~proposing).sum())
    if tested < least:
        raise ConfigError(
            f"risk is {level:g}, but {proposing.size} problems are too few to prove it, even if all answers are right",
            hint=f"calibrate on {_problems(least)} problems at least, or on more where some have no sure answer",
        )
    path = _path(sure[:, proposing], correct[:, proposing])
    start = _start(
        *_outcomes(path, sure[:, proposing], correct[:, proposing]), tested / max(1, int(proposing.sum())), level, delta
    )
    answered, wrong = _outcomes(path[start:], sure[:, ~proposing], correct[:, ~proposing])
    bounds = upper_bounds(wrong, answered, delta)
    kept = int(np.argmax(np.append(bounds > level, True)))  # how many tests pass before the first that fails
    if kept == 0:
        raise _level_error(level, delta, int(answered[0]), int(wrong[0]), tested, float(bounds[0]))
    last = kept - 1
    return CalibratedChain(
        thresholds=tuple(path[start + last].tolist()),
        tested=tested,
        answered=int(answered[last]),
        wrong=int(wrong[last]),
        bound=float(bounds[last]),
    )


def _path(sure: NDArray[np.float64], right: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return thresholds from those that answer least to those that answer most [steps, links]."""
    errors, least = [], []
    for confidence, correct in zip(sure, right, strict=True):
        order = np.argsort(-confidence, kind="stable")
        ordered = confidence[order]
        ends = np.append(ordered[1:] != ordered[:-1], True) & np.isfinite(ordered)  # of runs of equal confidences
        error = (np.cumsum(~correct[order]) + 1) / (np.arange(len(order)) + 2)
        errors.append(error[ends])
        least.append(ordered[ends])
    steps = np.unique(np.concatenate(errors)) if any(map(len, errors)) else np.ones(1)
    steps = steps[np.unique(np.linspace(0, len(steps) - 1, _STEPS).round().astype(np.intp))]
    columns = [_lowest(step_errors, confidence, steps) for step_errors, confidence in zip(errors, least, strict=True)]
    return np.stack(columns, axis=1)


def _start(answered: NDArray[np.int64], wrong: NDArray[np.int64], scale: float, level: float, delta: float) -> int:
    """Return the step whose test is most likely to pass, as the proposing problems show it; of equals the one that
    answers least.

    Args:
        answered: The proposing problems that are answered at each step.
        wrong: Those of them that are answered wrongly.
        scale: The number of testing problems for each proposing one.
        level: The share of wrong answers.
        delta: The probability of each test.
    """
    count = np.maximum(np.floor(answered * scale), 1).astype(np.int64)
    can_pass = (1 - level) ** count <= delta
    allowed = np.floor(bdtrik(delta, count, level) + 1e-9)
    passes = np.where(can_pass, bdtr(np.where(can_pass, allowed, 0), count, (wrong + 1) / (answered + 2)), 0.0)
    return int(np.argmax(passes)) if can_pass.any() else int(np.argmax(answered))


def _lowest(
    errors: NDArray[np.float64], confidences: NDArray[np.float64], steps: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return for each step the lowest confidence from which on the error is within it; infinite where there is none."""
    order = np.argsort(errors, kind="stable")
    lowest = np.minimum.accumulate(np.append(math.inf, confidences[order]))
    return lowest[np.searchsorted(errors[order], steps, side="right")]


def _outcomes(
    path: NDArray[np.float64], sure: NDArray[np.float64], right: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how many problems the chain answers at each step of a path, and how many of them wrongly."""
    reaches = sure[None, :, :] >= np.where(np.isneginf(path), math.inf, path)[:, :, None]  # [steps, links, problems]
    first = reaches.argmax(1)
    answers = reaches.any(1)
    is_right = np.take_along_axis(right, first, axis=0)
    return answers.sum(1), (answers & ~is_right).sum(1)


def upper_bounds(wrong: ArrayLike, count: ArrayLike, delta: float) -> NDArray[np.float64]:
    """Return upper confidence bounds of error rates (Clopper and Pearson, one-sided).

    A bound is the largest rate under which so many wrong ones, or fewer, still have probability delta.

    Args:
        wrong: The numbers of wrong ones.
        count: The numbers of all.
        delta: The probability.
    """
    bad, of = np.array(wrong, np.float64), np.array(count, np.float64)
    full = bad >= of
    return np.where(full, 1.0, betaincinv(bad + 1, np.where(full, 1, of - bad), 1 - delta))


def _problems(tested: float) -> int:
    """Return of how many problems so many test."""
    return math.ceil(tested * PROPOSING / (PROPOSING - 1))


def _level_error(level: float, delta: float, answered: int, wrong: int, tested: int, bound: float) -> ConfigError:
    """Return the error of a level that no thresholds reach."""
    share = wrong / max(1, answered)
    cause = (
        f"risk is {level:g}, but no threshold keeps it: {wrong} of the {answered} surest answers are wrong, at "
        f"most {bound:.3g} of all"
    )
    if share >= level:
        return ConfigError(
            cause, hint=f"more problems would not help; name a risk above {share:.2g}, or a better strategy or model"
        )
    need = answered
    while float(upper_bounds(round(share * need), need, delta)) > level:
        need = math.ceil(need * 1.05) + 1
    return ConfigError(
        cause, hint=f"with that share of wrong answers, about {_problems(need * tested / answered)} problems would do"
    )
