"""Measures of one verifier's scores.

They are discrimination by step position, calibration, correlation with length, and acceptance by threshold. Every
interval is over problems. Every estimate has its own generator, so estimates do not depend on each other. Unknown
values are NaN, with the reason in `unknown`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tts.experiments.analysis.curves import Floats, Whole
from tts.experiments.verifier_report.scores import VerifierScores
from tts.randomness import generator
from tts.statistics import (
    Bin,
    Estimate,
    attempt_values,
    best_tries,
    clustered_auc,
    clustered_auc_within,
    clustered_calibration_error,
    clustered_ceiling,
    clustered_correlation,
    expected_calibration_error,
)

# values of a wrong answer, where a right answer is worth 1, as in algorithm A19
COSTS: Final = (0.0, -1.0, -2.0, -4.0, -8.0)
MOST_TRIES: Final = 200  # bound of the number of tries, as in algorithm A19
_THRESHOLDS: Final = (0.5, 0.8, 0.9, 0.95, 0.99)  # probabilities; for other scores, the quantiles of these shares
_FIRST_SPANS: Final = ((1, 1), (2, 2), (3, 3), (4, 5), (6, 8))  # steps are fewer the later they are

_Rng = Callable[..., np.random.Generator]  # a function from the name of an estimate to its generator


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """Discrimination and calibration of scores.

    Args:
        num: The number of scores.
        share: The share of label 1.
        auc: The AUC over all scores.
        within: The mean AUC within problems.
        error: The calibration error in ten bins of equal width; NaN where scores are not probabilities.
    """

    num: int
    share: float
    auc: Estimate
    within: Estimate
    error: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Scores at steps from `first` to `last`, counted from 1, against the candidates' answers."""

    first: int
    last: int
    quality: Quality


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """Rank correlation of scores with tokens.

    `plain` is over all candidates, and `within` among candidates of one problem with equal verdicts.
    """

    plain: Estimate
    within: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """Results of sampling until a score reaches a threshold (algorithm A19).

    Args:
        threshold: The least score at which a sample with an answer is accepted.
        accepted: The share of accepted samples.
        completeness: P(accept | right); NaN: there are no right samples.
        soundness: P(reject | wrong); NaN: there are no wrong samples.
        precision: P(right | accept).
        accuracy: The limit of the accuracy for unlimited tries.
        tries: The best number of tries by the value of a wrong answer, where a right answer is worth 1. `MOST_TRIES`
            stands for that many or more.
    """

    threshold: float
    accepted: float
    completeness: float
    soundness: float
    precision: float
    accuracy: Estimate
    tries: Mapping[float, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierMeasures:
    """Measures of a verifier by its scores alone.

    Args:
        quality: The quality of whole candidates against their answers.
        positions: The positions of steps.
        reliability: The bins of the calibration error.
        length: The correlation with length; see `Length`.
        ceilings: The results of acceptance, for each threshold; see `Ceiling`.
        unknown: The reason why a measure is NaN, by its name.
    """

    quality: Quality
    positions: Sequence[Position]
    reliability: Sequence[Bin]
    length: Length
    ceilings: Sequence[Ceiling]
    unknown: Mapping[str, str]


def measure_verifier(scored: VerifierScores, *, seed: int = 0) -> VerifierMeasures:
    """Return the measures of a verifier's scores.

    The least scores at which samples are accepted are 0.5, 0.8, 0.9, 0.95 and 0.99, as far as some score reaches them.
    Where scores are not probabilities, or reach none of these, these quantiles of the scores are taken.

    Args:
        scored: The scores of the verifier, with verdicts on the samples.
        seed: The seed of the intervals.
    """
    rng: _Rng = partial(generator, seed, 0, "trust", scored.role)  # each estimate has its own generator
    scores, right, problems = scored.scores, scored.right, scored.at  # [N] each
    quality = _quality(scores, right, problems, probabilities=scored.probabilities, rng=partial(rng, "whole"))
    reliability = expected_calibration_error(scores, right).table if scored.probabilities else ()
    problem_and_verdict = 2 * problems + right  # a number for each pair of problem and verdict
    length = Length(
        plain=clustered_correlation(scores, scored.tokens, problems, rng=rng("length")),
        within=clustered_correlation(scores, scored.tokens, problems, problem_and_verdict, rng=rng("length", "within")),
    )
    return VerifierMeasures(
        quality=quality,
        positions=list(_positions(scored, rng)),
        reliability=reliability,
        length=length,
        ceilings=[_ceiling(scored, threshold, rng("ceiling", f"{threshold!r}")) for threshold in _thresholds(scored)],
        unknown=dict(_reasons(scored, quality, length)),
    )


def _quality(scores: Floats, labels: Floats, problems: Whole, *, probabilities: bool, rng: _Rng) -> Quality:
    """Return the quality of scores.

    Args:
        scores: [N], the scores.
        labels: [N], 1 for right and 0 for wrong.
        problems: [N], the index of each score's problem.
        probabilities: Whether the scores are probabilities, so that they have a calibration error.
        rng: The function from the name of an estimate to its generator.
    """
    unknown = Estimate(math.nan, math.nan, math.nan)
    return Quality(
        num=len(scores),
        share=float(labels.mean()) if len(labels) else math.nan,
        auc=clustered_auc(scores, labels, problems, rng=rng("auc")),
        within=clustered_auc_within(scores, labels, problems, rng=rng("within")),
        error=clustered_calibration_error(scores, labels, problems, rng=rng("error")) if probabilities else unknown,
    )


def _positions(scored: VerifierScores, rng: _Rng) -> Iterator[Position]:
    """Yield the quality of step scores by position. Positions without scores are left out."""
    num_steps = [len(steps) for steps in scored.steps]  # of each candidate
    if max(num_steps) == 0:
        return
    # [steps of all candidates], one after another
    scores = np.concatenate([np.asarray(steps, np.float64) for steps in scored.steps])
    positions = np.concatenate([np.arange(1, num + 1) for num in num_steps])
    candidate_index = np.repeat(np.arange(len(num_steps)), num_steps)
    problems, labels = scored.at[candidate_index], scored.right[candidate_index]
    for first, last in _spans(max(num_steps)):
        rows = ~np.isnan(scores) & (positions >= first) & (positions <= last)
        if rows.any():
            quality = _quality(
                scores[rows],
                labels[rows],
                problems[rows],
                probabilities=scored.probabilities,
                rng=partial(rng, "answer", first),
            )
            yield Position(first=first, last=last, quality=quality)


def _spans(last_position: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of positions from 1 to the last position. Later ranges are wider."""
    spans = list(_FIRST_SPANS)
    while spans[-1][1] < last_position:
        _, previous_last = spans[-1]
        spans.append((previous_last + 1, 2 * previous_last))
    for first, last in spans:
        if first <= last_position:
            yield first, min(last, last_position)


def _ceiling(scored: VerifierScores, threshold: float, rng: np.random.Generator) -> Ceiling:
    """Return the results of sampling until a candidate's score reaches a threshold, so that it is accepted.

    Candidates without an answer are never accepted.
    """
    accepted: NDArray[np.bool_] = scored.answered & (scored.scores >= threshold)  # [N]
    right = scored.right == 1  # [N]

    def count(rows: NDArray[Any]) -> Floats:
        """Return the number of true rows of each problem, [P]."""
        return np.bincount(scored.at, rows, len(scored.problems)).astype(np.float64)

    num, num_right = count(np.ones(len(right))), count(right)  # [P] each
    completeness, soundness = _share(accepted[right]), _share(~accepted[~right])
    tries: dict[float, int] = {}
    for cost in COSTS:
        values = attempt_values(  # [attempts]
            num_right / num,
            0.0 if math.isnan(completeness) else completeness,
            1.0 if math.isnan(soundness) else soundness,
            MOST_TRIES,
            wrong=cost,
        )
        tries[cost] = best_tries(values) if values.any() else 0  # attempts that are all worth 0 are not made
    return Ceiling(
        threshold=float(threshold),
        accepted=_share(accepted),
        completeness=completeness,
        soundness=soundness,
        precision=_share(right[accepted]),
        accuracy=clustered_ceiling(num, num_right, count(accepted & right), count(accepted & ~right), rng=rng),
        tries=tries,
    )


def _thresholds(scored: VerifierScores) -> Sequence[float]:
    """Return the thresholds that some score reaches; quantiles of the scores where there is none."""
    if scored.probabilities:
        thresholds = [threshold for threshold in _THRESHOLDS if threshold <= scored.scores.max()]
        if thresholds:
            return thresholds
    return list(dict.fromkeys(np.quantile(scored.scores, _THRESHOLDS, method="inverted_cdf").tolist()))


def _share(rows: NDArray[np.bool_]) -> float:
    return float(rows.mean()) if len(rows) else math.nan


def _reasons(scored: VerifierScores, quality: Quality, length: Length) -> Iterator[tuple[str, str]]:
    """Yield the reasons why measures are NaN, with their names."""
    if math.isnan(quality.auc.value):
        verdict = "right" if quality.share else "wrong"
        yield "auc", f"all {len(scored.scores):,} candidates are {verdict}"
    if math.isnan(quality.within.value):
        yield "auc within problems", "no problem has both right and wrong candidates"
    if scored.range is None:
        yield "calibration error", f"the verifier {scored.verifier!r} cannot be made here, so its range is not known"
    elif not scored.probabilities:
        low, high = scored.range
        yield "calibration error", f"scores go from {low:g} to {high:g}, so they are no probabilities"
    correlations = {
        "length": (length.plain, ""),
        "length within problems": (length.within, " among candidates of one problem that are right or wrong alike"),
    }
    for name, (correlation, candidate_words) in correlations.items():
        if math.isnan(correlation.value):
            yield name, f"scores or lengths do not vary{candidate_words}"
    if len(scored.problems) == 1:
        yield "intervals", "there is one problem only, and an interval says what other problems might give"
