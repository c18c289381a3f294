"""Thresholds of confidence, calibrated to a level of wrong answers.

The answers that are given are wrong no more often than the level allows.

A chain asks one link (a model or a method) after another. A link answers where its confidence reaches its threshold.
Otherwise the next link is asked. After the last link the chain abstains. The thresholds of all links are calibrated
together:

    a third of the problems, chosen without their outcomes, proposes thresholds: for each tau, each link answers where
        its answers have an error of at most tau on these problems; a small tau answers little. tau rises from where
        the first test is likeliest to pass
    the other problems test the thresholds, by rising tau: is the exact upper bound on the error of the chain's answers
        within the level? the last thresholds before the first test that fails are chosen

A single link whose confidences are shares j / n needs no proposals, because its thresholds are known beforehand. All
problems test them, from 1 down. Each has a part of delta, half as much as the one before. A test that passes hands its
part on, and one that fails loses it. The least threshold that passes is chosen.

Source: Angelopoulos, Bates, Candès, Jordan, Lei, "Learn then Test: Calibrating Predictive Algorithms to Achieve Risk
Control" (2110.01052), fixed sequence testing with a split, from memory. Each test is the one-sided bound of Clopper and
Pearson at delta, on the answered problems, whose number of wrong ones is binomial. Errors need not fall with
confidence. Differs: tau ties several thresholds. The test of shares is Wiens' fallback procedure (2003), from memory,
and the parts of delta are ours.
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

PROPOSING: Final = 3  # one in so many problems proposes thresholds
_MOST_STEPS = 200  # the most values of tau that are tested
_MOST_SHARES = 32  # the greatest n for which confidences are shares j / n


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedChain:
    """The thresholds of a chain, and their outcomes on the problems that tested them.

    Args:
        thresholds: The least confidence at which each link answers; infinite where the link never answers.
        tested: The number of problems that tested the thresholds.
        answered: The number of these problems that the chain answers.
        wrong: The number of wrong answers among the answers.
        bound: The upper bound on the share of wrong answers, at most the level.
        delta: The probability at which the bound was tested.
    """

    thresholds: tuple[float, ...]
    tested: int
    answered: int
    wrong: int
    bound: float
    delta: float


def least_answers(level: float, delta: float) -> int:
    """Return the least number of answers that prove a level where all of them are right."""
    return math.ceil(math.log(delta) / math.log1p(-level) - 1e-9)


def proposers(names: list[str]) -> NDArray[np.bool_]:
    """Return whether each problem proposes thresholds.

    A third of the problems proposes, chosen by a hash of their names. The choice depends neither on the order of the
    problems nor on their outcomes.
    """
    order = np.argsort([hash64("calibration", name) for name in names], kind="stable")
    is_proposer = np.zeros(len(names), np.bool_)
    is_proposer[order[: len(names) // PROPOSING]] = True
    return is_proposer


def calibrate_chain(
    confidences: ArrayLike, right: ArrayLike, proposes: ArrayLike, level: float, delta: float
) -> CalibratedChain:
    """Return the thresholds of a chain for which the share of wrong answers is at most `level`.

    The bound holds with probability 1 - delta.

    Args:
        confidences: The confidence of each link on each problem [links, problems]; NaN: the link has no answer.
        right: Whether each answer is right [links, problems].
        proposes: Whether each problem proposes thresholds [problems]; the other problems test the thresholds.
        level: The share of wrong answers, above 0 and below 1.
        delta: The probability, over sets of problems, that the level is exceeded, above 0 and below 1.

    Raises:
        ConfigError: A number is out of its range; the problems are too few; or no thresholds keep the level. The hint
            names a sufficient number of problems.
    """
    for name, value in (("risk", level), ("delta", delta)):
        check_number(name, value, 0, 1, optional=False)
        if not 0 < value < 1:
            raise ConfigError(f"{name} is {value}, but must be above 0 and below 1")
    known_confidences = np.array(confidences, np.float64)  # [links, problems], -inf without an answer
    known_confidences[np.isnan(known_confidences)] = -math.inf
    is_right, is_proposer = np.array(right, np.bool_), np.array(proposes, np.bool_)
    num_problems = is_proposer.size
    shares = _shares(known_confidences)
    if shares is not None:
        return _calibrate_shares(shares, known_confidences[0], is_right[0], level, delta)
    num_tested = int((~is_proposer).sum())
    fewest_tested = least_answers(level, delta)
    fewest = _problems(fewest_tested)
    if num_tested < fewest_tested:
        raise _too_few(level, num_problems, fewest)
    proposing_confidences, proposing_right = known_confidences[:, is_proposer], is_right[:, is_proposer]
    thresholds = _propose_thresholds(proposing_confidences, proposing_right)  # [steps, links], a step for each tau
    answered, wrong = _outcomes(thresholds, proposing_confidences, proposing_right)
    tested_per_proposer = num_tested / max(1, int(is_proposer.sum()))
    first_step = _choose_first_step(answered, wrong, tested_per_proposer, level, delta)
    thresholds = thresholds[first_step:]
    answered, wrong = _outcomes(thresholds, known_confidences[:, ~is_proposer], is_right[:, ~is_proposer])
    bounds = upper_bounds(wrong, answered, delta)
    num_passed = int(np.argmax(np.append(bounds > level, True)))  # the tests before the first that fails
    if num_passed == 0:
        problems_per_answer = _problems(num_tested) / max(1, int(answered[0]))
        raise _level_error(level, delta, int(answered[0]), int(wrong[0]), problems_per_answer)
    last_passed = num_passed - 1
    return CalibratedChain(
        thresholds=tuple(thresholds[last_passed].tolist()),
        tested=num_tested,
        answered=int(answered[last_passed]),
        wrong=int(wrong[last_passed]),
        bound=float(bounds[last_passed]),
        delta=delta,
    )


def _shares(confidences: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return the possible thresholds j / n of a single link whose confidences are shares, from 1 down.

    None: there are several links, or the confidences are no shares of a small n. The outcomes are not looked at.
    """
    known = confidences[np.isfinite(confidences)]
    if len(confidences) > 1 or not known.size or known.min() < 0 or known.max() > 1:
        return None
    for n in range(1, _MOST_SHARES + 1):
        if np.allclose(known * n, np.round(known * n), rtol=0, atol=1e-9):
            return np.arange(n, 0, -1) / n
    return None


def _calibrate_shares(
    thresholds: NDArray[np.float64],
    confidences: NDArray[np.float64],
    right: NDArray[np.bool_],
    level: float,
    delta: float,
) -> CalibratedChain:
    """Return the least of the thresholds that passes its test, with all problems as tests.

    Args:
        thresholds: The thresholds, from the greatest down [thresholds].
        confidences: The confidence of each problem [problems]; -inf without an answer.
        right: Whether each answer is right [problems].
        level: The share of wrong answers.
        delta: The probability that the level is exceeded.

    Raises:
        ConfigError: The problems are too few, or no threshold keeps the level.
    """
    parts = 0.5 ** np.arange(len(thresholds))
    parts *= delta / parts.sum()
    fewest = least_answers(level, float(parts[0]))
    if confidences.size < fewest:
        raise _too_few(level, confidences.size, fewest)
    reaches = confidences >= thresholds[:, None] - 1e-9  # [thresholds, problems]
    answered, wrong = reaches.sum(1), (reaches & ~right).sum(1)
    chosen: CalibratedChain | None = None
    carried = 0.0  # from the tests before, as far as they passed
    for threshold, num_answered, num_wrong, part in zip(thresholds, answered, wrong, parts, strict=True):
        tested_at = float(part) + carried
        bound = float(upper_bounds(num_wrong, num_answered, tested_at)) if num_answered else 1.0
        carried = tested_at if bound <= level else 0.0
        if carried:
            chosen = CalibratedChain(
                thresholds=(float(threshold),),
                tested=confidences.size,
                answered=int(num_answered),
                wrong=int(num_wrong),
                bound=bound,
                delta=tested_at,
            )
    if chosen is None:
        nearest = int(np.argmin(upper_bounds(wrong, answered, parts[0])))
        num_answered = int(answered[nearest])
        problems_per_answer = confidences.size / max(1, num_answered)
        raise _level_error(level, float(parts[nearest]), num_answered, int(wrong[nearest]), problems_per_answer)
    return chosen


def _propose_thresholds(confidences: NDArray[np.float64], is_right: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the thresholds of each link for each tau, by rising tau: [steps, links].

    Args:
        confidences: The confidence of each link on each proposing problem [links, problems]; -inf without an answer.
        is_right: Whether each answer is right [links, problems].
    """
    errors_by_link, thresholds_by_link = [], []  # the possible thresholds of a link, and the errors of its answers
    for link_confidences, link_is_right in zip(confidences, is_right, strict=True):
        order = np.argsort(-link_confidences, kind="stable")
        ordered = link_confidences[order]
        ends_tie = np.append(ordered[1:] != ordered[:-1], True)  # equal confidences have one threshold
        is_threshold = ends_tie & np.isfinite(ordered)
        errors = (np.cumsum(~link_is_right[order]) + 1) / (np.arange(len(order)) + 2)
        errors_by_link.append(errors[is_threshold])
        thresholds_by_link.append(ordered[is_threshold])
    has_answers = any(map(len, errors_by_link))
    taus = np.unique(np.concatenate(errors_by_link)) if has_answers else np.ones(1)
    chosen = np.linspace(0, len(taus) - 1, _MOST_STEPS).round().astype(np.intp)
    taus = taus[np.unique(chosen)]
    columns = [
        _lowest_thresholds(errors, thresholds, taus)
        for errors, thresholds in zip(errors_by_link, thresholds_by_link, strict=True)
    ]
    return np.stack(columns, axis=1)


def _choose_first_step(
    answered: NDArray[np.int64], wrong: NDArray[np.int64], tested_per_proposer: float, level: float, delta: float
) -> int:
    """Return the step whose test is most likely to pass, by the outcomes of the proposing problems.

    Among equally likely steps, the step that answers least is returned. Where no test can pass, the step that answers
    most is returned.

    Args:
        answered: The number of proposing problems that are answered at each step.
        wrong: The number of wrong answers at each step.
        tested_per_proposer: The number of testing problems for each proposing problem.
        level: The share of wrong answers.
        delta: The probability of each test.
    """
    expected_answers = np.maximum(np.floor(answered * tested_per_proposer), 1).astype(np.int64)
    can_pass = (1 - level) ** expected_answers <= delta  # a test without a wrong answer would pass
    allowed_wrong = np.floor(bdtrik(delta, expected_answers, level) + 1e-9)
    error = (wrong + 1) / (answered + 2)
    pass_probability = bdtr(np.where(can_pass, allowed_wrong, 0), expected_answers, error)
    if not can_pass.any():
        return int(np.argmax(answered))
    return int(np.argmax(np.where(can_pass, pass_probability, 0.0)))


def _lowest_thresholds(
    errors: NDArray[np.float64], thresholds: NDArray[np.float64], taus: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the lowest threshold of a link whose error is at most each tau; infinite where there is none: [steps]."""
    order = np.argsort(errors, kind="stable")
    lowest = np.minimum.accumulate(np.append(math.inf, thresholds[order]))
    return lowest[np.searchsorted(errors[order], taus, side="right")]


def _outcomes(
    thresholds: NDArray[np.float64], confidences: NDArray[np.float64], is_right: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the number of problems that the chain answers at each step, and the number of wrong answers.

    Args:
        thresholds: The thresholds [steps, links].
        confidences: The confidences [links, problems]; -inf without an answer.
        is_right: Whether each answer is right [links, problems].
    """
    finite_thresholds = np.where(np.isneginf(thresholds), math.inf, thresholds)
    reaches = confidences[None, :, :] >= finite_thresholds[:, :, None]  # [steps, links, problems]
    answering_link = reaches.argmax(1)  # [steps, problems]
    has_answer = reaches.any(1)
    answer_is_right = np.take_along_axis(is_right, answering_link, axis=0)
    return has_answer.sum(1), (has_answer & ~answer_is_right).sum(1)


def upper_bounds(wrong: ArrayLike, count: ArrayLike, delta: float) -> NDArray[np.float64]:
    """Return upper confidence bounds of error rates (Clopper and Pearson, one-sided).

    A bound is the largest rate under which at most so many wrong answers still have probability delta.

    Args:
        wrong: The numbers of wrong answers.
        count: The numbers of all answers.
        delta: The probability.
    """
    num_wrong, num_answers = np.array(wrong, np.float64), np.array(count, np.float64)
    is_all_wrong = num_wrong >= num_answers
    num_right = np.where(is_all_wrong, 1, num_answers - num_wrong)  # 1 avoids a division by zero, and is not used
    return np.where(is_all_wrong, 1.0, betaincinv(num_wrong + 1, num_right, 1 - delta))


def _problems(tested: float) -> int:
    """Return the number of all problems if `tested` of them test thresholds."""
    return math.ceil(tested * PROPOSING / (PROPOSING - 1))


def _too_few(level: float, problems: int, fewest: int) -> ConfigError:
    """Return the error of too few problems."""
    return ConfigError(
        f"risk is {level:g}, but {problems} problems are too few to prove it, even if all answers are right",
        hint=f"calibrate on {fewest} problems at least, or on more where some have no sure answer",
    )


def _level_error(level: float, delta: float, answered: int, wrong: int, problems_per_answer: float) -> ConfigError:
    """Return the error of a level that no thresholds keep.

    Args:
        level: The share of wrong answers.
        delta: The probability of the test.
        answered: The number of problems that the likeliest test answers.
        wrong: The number of its wrong answers.
        problems_per_answer: The number of calibration problems for each of these answers.
    """
    wrong_share = wrong / max(1, answered)
    cause = (
        f"risk is {level:g}, but no threshold keeps it: {wrong} of the {answered} surest answers are wrong, at "
        f"most {float(upper_bounds(wrong, answered, delta)):.3g} of all"
    )
    if wrong_share >= level:
        return ConfigError(
            cause,
            hint=f"more problems would not help; name a risk above {wrong_share:.2g}, or a better strategy or model",
        )
    needed_answers = answered
    while float(upper_bounds(round(wrong_share * needed_answers), needed_answers, delta)) > level:
        needed_answers = math.ceil(needed_answers * 1.05) + 1
    num_problems = math.ceil(needed_answers * problems_per_answer)
    return ConfigError(cause, hint=f"with that share of wrong answers, about {num_problems} problems would do")
