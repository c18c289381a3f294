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
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tts.experiments.analysis.curves import Floats, Whole
from tts.experiments.verifier_report.scores import VerifierScores
from tts.randomness import generator
from tts.search.algorithms.aggregation import AGGREGATIONS, aggregate_scores
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
from tts.verifiers.base import StepScores

COSTS: Final = (0.0, -1.0, -2.0, -4.0, -8.0)  # of a wrong answer, where a right one is worth 1: those of algorithm A19
MOST_TRIES: Final = 200  # as there
_THRESHOLDS: Final = (0.5, 0.8, 0.9, 0.95, 0.99)  # of probabilities; of other scores, the same shares of them
_FIRST_SPANS: Final = ((1, 1), (2, 2), (3, 3), (4, 5), (6, 8))  # steps are fewer the later they are

# Given the cell's key and the candidate's place in it, whether each of its steps is right; None: unknown.
StepGold = Callable[[str, int], Sequence[bool] | None]
_Rng = Callable[..., np.random.Generator]  # from the rest of an estimate's address to its generator


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
    """Scores at steps from `first` to `last`, counted from 1.

    `gold` names the labels: "answer", or "step" for the steps themselves.
    """

    first: int
    last: int
    gold: str
    quality: Quality


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """Rank correlation of scores with tokens.

    `plain` is over all candidates, `given_right` among candidates with equal verdicts, and `within` among candidates of
    one problem with equal verdicts.
    """

    plain: Estimate
    given_right: Estimate
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
        aggregations: The AUC within problems by the way step scores are aggregated.
        reliability: The bins of the calibration error.
        length: The correlation with length; see `Length`.
        ceilings: The results of acceptance, for each threshold; see `Ceiling`.
        unknown: The reason why a measure is NaN, by its name.
    """

    quality: Quality
    positions: Sequence[Position]
    aggregations: Mapping[str, Estimate]
    reliability: Sequence[Bin]
    length: Length
    ceilings: Sequence[Ceiling]
    unknown: Mapping[str, str]


def measure_verifier(
    scored: VerifierScores, gold: StepGold, *, thresholds: Sequence[float] = (), seed: int = 0
) -> VerifierMeasures:
    """Return the measures of a verifier's scores.

    Args:
        scored: The scores of the verifier, with verdicts on the samples.
        gold: A function that returns the labels of steps.
        thresholds: The least scores at which samples are accepted; none: 0.5, 0.8, 0.9, 0.95 and 0.99, as far as some
            score reaches them. Where scores are not probabilities, or reach no threshold, these quantiles of the
            scores are taken.
        seed: The seed of the intervals.
    """
    rng: _Rng = partial(generator, seed, 0, "trust", scored.role)  # each estimate has its own generator
    right, at = scored.right, scored.at
    by_kind = {
        name: clustered_auc_within(*_drop_unknown(_aggregate(scored, name), right, at), rng=rng("aggregation", name))
        for name in (AGGREGATIONS if any(len(steps) > 1 for steps in scored.steps) else ())
    }
    quality = _quality(scored.scores, right, at, probabilities=scored.probabilities, rng=partial(rng, "whole"))
    table = expected_calibration_error(scored.scores, right).table if scored.probabilities else ()
    length = Length(
        plain=clustered_correlation(scored.scores, scored.tokens, at, rng=rng("length")),
        given_right=clustered_correlation(scored.scores, scored.tokens, at, right, rng=rng("length", "right")),
        within=clustered_correlation(scored.scores, scored.tokens, at, 2 * at + right, rng=rng("length", "within")),
    )
    return VerifierMeasures(
        quality=quality,
        positions=list(_positions(scored, gold, rng)),
        aggregations=by_kind,
        reliability=table,
        length=length,
        ceilings=[_ceiling(scored, cut, rng("ceiling", f"{cut!r}")) for cut in thresholds or _cuts(scored)],
        unknown=dict(_reasons(scored, quality, length)),
    )


def _quality(scores: Floats, labels: Floats, at: Whole, *, probabilities: bool, rng: _Rng) -> Quality:
    nothing = Estimate(math.nan, math.nan, math.nan)
    return Quality(
        num=len(scores),
        share=float(labels.mean()) if len(labels) else math.nan,
        auc=clustered_auc(scores, labels, at, rng=rng("auc")),
        within=clustered_auc_within(scores, labels, at, rng=rng("within")),
        error=clustered_calibration_error(scores, labels, at, rng=rng("error")) if probabilities else nothing,
    )


def _aggregate(scored: VerifierScores, how: str) -> Floats:
    return np.array([aggregate_scores(StepScores(steps=steps), how) if steps else math.nan for steps in scored.steps])


def _drop_unknown(scores: Floats, labels: Floats, at: Whole) -> tuple[Floats, Floats, Whole]:
    is_known = ~np.isnan(scores)
    return scores[is_known], labels[is_known], at[is_known]


def _positions(scored: VerifierScores, gold: StepGold, rng: _Rng) -> Iterator[Position]:
    """Yield the quality of step scores by position, against answers and against labels of steps.

    Positions without scores, or without labels, are left out.
    """
    if not (longest := max(map(len, scored.steps))):
        return
    verdicts = [gold(*place) if steps else None for steps, place in zip(scored.steps, scored.places, strict=True)]
    places = np.concatenate([np.arange(1, len(steps) + 1) for steps in scored.steps])
    sample_index = np.repeat(np.arange(len(scored.steps)), [len(steps) for steps in scored.steps])
    scores = np.concatenate([np.asarray(steps, np.float64) for steps in scored.steps])
    by_step = np.concatenate([_pad(verdict, len(steps)) for verdict, steps in zip(verdicts, scored.steps, strict=True)])
    for name, labels in (("answer", scored.right[sample_index]), ("step", by_step)):
        is_known = ~np.isnan(scores) & ~np.isnan(labels)
        for first, last in _spans(longest):
            rows = is_known & (places >= first) & (places <= last)
            if rows.any():
                columns = scores[rows], labels[rows], scored.at[sample_index][rows]
                quality = _quality(*columns, probabilities=scored.probabilities, rng=partial(rng, name, first))
                yield Position(first=first, last=last, gold=name, quality=quality)


def _pad(verdict: Sequence[bool] | None, length: int) -> Floats:
    """Return labels as numbers; NaN for all steps where labels are missing or have another number."""
    return np.array(verdict, np.float64) if verdict is not None and len(verdict) == length else np.full(length, np.nan)


def _spans(most: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of positions up to the last step, of growing width."""
    spans = list(_FIRST_SPANS)
    while spans[-1][1] < most:
        spans.append((spans[-1][1] + 1, 2 * spans[-1][1]))
    yield from ((first, min(last, most)) for first, last in spans if first <= most)


def _ceiling(scored: VerifierScores, threshold: float, rng: np.random.Generator) -> Ceiling:
    """Return the results of acceptance from a threshold on. Candidates without an answer are never accepted."""
    accepted: NDArray[np.bool_] = scored.answered & (scored.scores >= threshold)
    right = scored.right == 1
    num, num_right, accepted_right, accepted_wrong = (
        np.bincount(scored.at, rows, len(scored.problems))
        for rows in (np.ones(len(right)), right, accepted & right, accepted & ~right)
    )
    completeness, soundness = _share(accepted[right]), _share(~accepted[~right])
    complete, sound = (0.0 if math.isnan(completeness) else completeness), (1.0 if math.isnan(soundness) else soundness)
    values = {cost: attempt_values(num_right / num, complete, sound, MOST_TRIES, wrong=cost) for cost in COSTS}
    return Ceiling(
        threshold=float(threshold),
        accepted=_share(accepted),
        completeness=completeness,
        soundness=soundness,
        precision=_share(right[accepted]),
        accuracy=clustered_ceiling(num, num_right, accepted_right, accepted_wrong, rng=rng),
        tries={cost: best_tries(attempt) if attempt.any() else 0 for cost, attempt in values.items()},
    )


def _cuts(scored: VerifierScores) -> Sequence[float]:
    thresholds = [cut for cut in _THRESHOLDS if scored.probabilities and cut <= scored.scores.max()]
    return thresholds or list(dict.fromkeys(np.quantile(scored.scores, _THRESHOLDS, method="inverted_cdf").tolist()))


def _share(rows: NDArray[np.bool_]) -> float:
    return float(rows.mean()) if len(rows) else math.nan


def _reasons(scored: VerifierScores, quality: Quality, length: Length) -> Iterator[tuple[str, str]]:
    """Yield the reasons why measures are NaN, with their names."""
    if math.isnan(quality.auc.value):
        yield "auc", f"all {len(scored.scores):,} candidates are {'right' if quality.share else 'wrong'}"
    if math.isnan(quality.within.value):
        yield "auc within problems", "no problem has both right and wrong candidates"
    if scored.range is None:
        yield "calibration error", f"the verifier {scored.verifier!r} cannot be made here, so its range is not known"
    elif not scored.probabilities:
        low, high = scored.range
        yield "calibration error", f"scores go from {low:g} to {high:g}, so they are no probabilities"
    kinds = {
        "length": (length.plain, ""),
        "length given right or wrong": (length.given_right, " among candidates that are right or wrong alike"),
        "length within problems": (length.within, " among candidates of one problem that are right or wrong alike"),
    }
    for name, (estimate, among) in kinds.items():
        if math.isnan(estimate.value):
            yield name, f"scores or lengths do not vary{among}"
    if len(scored.problems) == 1:
        yield "intervals", "there is one problem only, and an interval says what other problems might give"
