"""The report on verifiers: each of its numbers against one that is worked out by hand or by looking at every subset."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.experiments.made import cell, result, sample
from tts.errors import ConfigError
from tts.experiments.study.record import RecordedSample, Result
from tts.experiments.verifier_report.report import Verdict, VerifierReport, as_json, as_text, verifier_report
from tts.experiments.verifier_report.selection_effect import SelectionEffect
from tts.statistics import roc_auc

UNBOUNDED = "confidence(measure='logprob')"


def pool(number: int, *samples: tuple[Any, ...], **given: Any) -> Result:
    """Return a problem's pool: for each sample its class (None: no answer; 0 is right), its score (None: not asked),
    tokens, steps.
    """
    drawn: list[RecordedSample] = []
    for kind, score, *rest in samples:
        tokens, steps = (*rest, *(10, ())[len(rest) :])
        scores, by_step = ({}, {}) if score is None else ({"main": score}, {"main": steps} if steps else {})
        drawn.append(sample(kind, tokens, scores=scores, steps=by_step))
    usual = {"strategy": "best_of_n", "budget": {"samples": len(drawn)}, "verifiers": {"main": "toy"}}
    return result(cell(number, **(usual | given)), drawn=tuple(drawn))


def told(results: Sequence[Result], **given: Any) -> Verdict:
    (verdict,) = verifier_report(results, **given).verdicts
    return verdict


def chosen(results: Sequence[Result], **given: Any) -> SelectionEffect:
    found = told(results, **given).selection
    assert found is not None
    return found


def many(law, problems: int = 30, size: int = 8, seed: int = 0) -> list[Result]:
    """Return pools whose samples are right by chance, scored (and, where it says so, made so long) by a law of whether
    they are.
    """
    rng = np.random.default_rng(seed)
    made = []
    for number in range(problems):
        right = rng.random(size) < rng.uniform(0.3, 0.7)
        made.append(pool(number, *((int(not good) * int(rng.integers(1, 4)), *law(good, rng)) for good in right)))
    return made


def test_quality_is_that_of_the_scores_as_drawn() -> None:
    pools = [pool(0, (0, 0.9), (1, 0.4), (0, 0.4)), pool(1, (1, 0.8), (2, 0.1), (0, 0.5)), pool(2, (0, 0.3), (0, 0.2))]
    found = told(pools)
    quality = found.measures.quality
    scores, labels = [0.9, 0.4, 0.4, 0.8, 0.1, 0.5, 0.3, 0.2], [1, 0, 1, 0, 0, 1, 1, 1]
    assert (quality.num, quality.share) == (8, 5 / 8)
    assert quality.auc.value == pytest.approx(roc_auc(scores, labels))
    assert quality.within.value == pytest.approx((0.75 + 0.5) / 2)
    assert quality.within.num == 2
    assert found.measures.positions == []


def test_steps_are_held_against_the_answer_position_by_position() -> None:
    rng = np.random.default_rng(1)
    lengths = [2, 3, 9, 9, 4, 1]
    samples = [(i % 2, 0.5, 10, tuple(rng.random(length))) for i, length in enumerate(lengths)]
    positions = told([pool(0, *samples), pool(1, *samples[::-1])]).measures.positions
    assert [(each.first, each.last) for each in positions] == [(1, 1), (2, 2), (3, 3), (4, 5), (6, 8), (9, 9)]
    assert [each.quality.num for each in positions] == [12, 10, 8, 10, 12, 4]
    late = [(score, i % 2 == 0) for i, length in enumerate(lengths) for score in samples[i][3][3:5]]
    assert positions[3].quality.auc.value == pytest.approx(roc_auc(*zip(*late, strict=True)))


def test_step_scores_are_made_one_as_it_is_asked() -> None:
    samples = [(0, 0.9, 10, (0.1, 0.9)), (1, 0.3, 10, (0.6, 0.3)), (0, 0.2, 10, (0.8, 0.2))]
    for aggregate, auc in {"last": 0.5, "min": 0.0, "prod": 0.0, "mean": 1.0}.items():
        assert told([pool(0, *samples)], aggregate=aggregate).measures.quality.within.value == auc


def by_subsets(samples: Sequence[tuple[Any, ...]], size: int) -> tuple[float, float]:
    """Return the mean known score and the accuracy of the highest score among those with an answer, over all subsets in
    all orders. An unknown score is the mean of all known ones.
    """
    mean = float(np.nanmean([score for _, score in samples]))
    proxies, right = [], []
    for subset in itertools.permutations(samples, size):
        answered = [(score, kind) for kind, score in subset if kind is not None]
        best = max(answered, key=lambda pair: mean if math.isnan(pair[0]) else pair[0], default=(math.nan, None))
        right.append(best[1] == 0)
        proxies.append(best[0])
    return float(np.nanmean(proxies)), float(np.mean(right))


def test_proxy_and_gold_are_the_averages_over_all_subsets() -> None:
    one = [(0, 0.2), (1, 0.9), (0, 0.5), (None, 0.95), (2, math.nan), (0, 0.5)]
    other = [(0, 0.6), (0, 0.1), (3, 0.3), (1, 0.3), (0, math.nan), (1, 0.8)]
    found = chosen([pool(0, *one), pool(1, *other)])
    assert found.sizes == [1, 2, 4, 6]
    for place, size in enumerate(found.sizes):
        expected = np.mean([by_subsets(samples, size) for samples in (one, other)], axis=0)
        assert (found.proxy[place].value, found.best[place].value) == pytest.approx(tuple(expected))
    assert found.coverage[-1].value == 1
    assert found.over_majority.value == pytest.approx(found.best[-1].value - found.majority[-1].value)


@pytest.mark.slow
def test_one_that_errs_at_the_top_is_seen_to_mislead() -> None:
    """Right ones score 0.5 to 0.9, wrong ones lower but for one in eight, which scores highest of all."""

    def law(good: bool, rng: np.random.Generator) -> tuple[float]:
        return (rng.uniform(0.5, 0.9) if good else 0.99 if rng.random() < 0.25 else rng.uniform(0.0, 0.5),)

    verdict = told(many(law, size=16))
    assert verdict.selection is not None
    assert verdict.selection.peak < 16
    assert verdict.selection.fall.high < 0
    assert f"misleads beyond {verdict.selection.peak} samples" in verdict.advice
    proxies = [each.value for each in verdict.selection.proxy]
    assert proxies == sorted(proxies)


@pytest.mark.slow
def test_advice_says_what_the_intervals_say() -> None:
    def perfect(good: bool, rng: np.random.Generator) -> tuple[float]:
        return (float(good),)

    def coin(good: bool, rng: np.random.Generator) -> tuple[float]:
        return (rng.random(),)

    def upside_down(good: bool, rng: np.random.Generator) -> tuple[float]:
        return (rng.random() * (0.5 if good else 1),)

    assert told(many(perfect)).advice.startswith(("Choose by its highest score", "Let it weigh votes"))
    assert "cannot be told from chance within a problem" in told(many(coin)).advice
    assert told(many(upside_down)).advice.startswith(
        "Do not use it: within a problem it puts wrong solutions before right ones"
    )
    assert told(many(lambda good, rng: (0.55 + 0.1 * good,))).advice.count("its scores are no frequencies") == 1
    assert "unknown, since no problem has both right and wrong candidates" in told([pool(0, (0, 0.5), (0, 0.6))]).advice
    seen = told([pool(0, (0, 0.5), (1, 0.6), verifiers={"main": "checker"})]).advice
    assert seen.startswith("It was shown the reference answers, so this is what a perfect verifier would reach; ")


def test_what_gains_nothing_over_the_vote_is_not_used() -> None:
    """Three of four samples are right, so the vote is never wrong; scores are right within each problem."""
    advice = told([pool(i, (0, 0.9), (0, 0.8), (0, 0.7), (1, 0.1)) for i in range(30)]).advice
    assert advice.startswith("Nothing is clearly gained over the majority of 4 (")
    assert "so vote, which costs no scores" in advice


@pytest.mark.slow
def test_a_taste_for_length_is_told_from_a_taste_for_what_is_right() -> None:
    def liking(good: bool, rng: np.random.Generator) -> tuple[float, int]:
        tokens = int(rng.integers(10, 100))
        return (0.5 + 0.3 * good - tokens / 500, tokens)

    def apart(good: bool, rng: np.random.Generator) -> tuple[float, int]:
        return (0.5 * good + rng.random() / 2, int(rng.integers(10, 50)) + 50 * good)

    bent, straight = told(many(liking)), told(many(apart))
    assert bent.measures.length.within.value == pytest.approx(-1, abs=0.15)
    assert "it prefers shorter solutions of the same problem" in bent.advice
    assert straight.measures.length.plain.low > 0.3
    within = straight.measures.length.within
    assert within.low < 0 < within.high
    assert "it prefers" not in straight.advice


def test_what_is_accepted_has_an_answer_and_a_score_of_at_least_the_threshold() -> None:
    pools = [pool(0, (0, 0.9), (0, 0.2), (1, 0.6), (None, 0.9)), pool(1, (0, 0.5), (2, 0.1))]
    at, *_ = told(pools).measures.ceilings
    assert (at.accepted, at.completeness, at.soundness, at.precision) == pytest.approx((3 / 6, 2 / 3, 2 / 3, 2 / 3))
    assert at.accuracy.value == pytest.approx(np.mean([0.5 * 2 / 3 / (0.5 * 2 / 3 + 0.5 / 3)] * 2))
    assert at.tries[0.0] == 200
    assert at.tries[-8.0] == 0


@pytest.mark.slow
def test_thresholds_fit_the_scores() -> None:
    unbounded = [pool(i, *((k % 2, -float(k + i)) for k in range(8)), verifiers={"main": UNBOUNDED}) for i in range(4)]
    cuts = [each.threshold for each in told(unbounded).measures.ceilings]
    assert cuts == sorted(cuts)
    assert {*cuts} <= {-float(k + i) for k in range(8) for i in range(4)}
    assert [each.threshold for each in told([pool(0, (0, 0.85), (1, 0.2))]).measures.ceilings] == [0.5, 0.8]


def test_what_is_unknown_says_why() -> None:
    unbounded = told([pool(0, (0, -0.5), (1, -2.0), verifiers={"main": UNBOUNDED})]).measures
    assert math.isnan(unbounded.quality.error.value)
    assert "they are no probabilities" in unbounded.unknown["calibration error"]
    assert "one problem only" in unbounded.unknown["intervals"]
    assert math.isnan(unbounded.quality.auc.low)
    gone = told([pool(0, (0, 0.5), (1, 0.2), verifiers={"main": "gone(x=1)"})])
    assert "'gone(x=1)' cannot be made here" in gone.measures.unknown["calibration error"]
    assert gone.selection is None
    assert "which choosing by its scores needs" in gone.measures.unknown["best of N"]
    assert gone.measures.quality.auc.value == 1
    alike = told([pool(0, (1, 0.5), (1, 0.6))]).measures.unknown
    assert alike["auc"] == "all 2 candidates are wrong"
    assert alike["length"] == "scores or lengths do not vary"


WITHOUT = result(
    cell(2, strategy="best_of_n", budget={"samples": 1}, verifiers={"main": "toy"}),
    drawn=(sample(right=None, scores={"main": 0.5}),),
)


def test_what_is_not_looked_at_is_counted() -> None:
    verdict = told([pool(0, (0, 0.5), (1, math.nan), (1, 0.2)), pool(1, (0, None), (1, 0.3)), WITHOUT])
    assert (verdict.scored.unasked, verdict.scored.unknown, verdict.scored.unchecked) == (1, 1, 1)
    assert len(verdict.scored.pools) == 1
    assert "1 not asked about, 1 without a score, 1 without a reference answer" in as_text(
        VerifierReport(verdicts=[verdict], passed_over={})
    )


def test_searches_are_looked_at_where_there_is_no_pool_each_by_itself() -> None:
    samples = [(0, 0.5), (1, 0.2), (0, 0.4)]
    searches = [
        pool(i, *samples, strategy="beam(n=4) | weighted", budget={"tokens": 100 * (1 + i % 2)}) for i in range(24)
    ]
    found = verifier_report(searches).verdicts
    assert [verdict.scored.strategy for verdict in found] == [
        f"beam(n=4) | weighted within tokens={100 * i}" for i in (1, 2)
    ]
    assert all(verdict.selection is None for verdict in found)
    assert "not independent samples" in found[0].measures.unknown["best of N"]
    assert "what choosing by it gains is unknown: the candidates are not independent" in found[0].advice
    assert len(verifier_report([*searches, pool(99, *samples)]).verdicts) == 1


@pytest.mark.parametrize(
    ("results", "given", "error"),
    [
        ([], {}, "none of the study's 0 results recorded its candidates"),
        ([result(cell(0))], {}, "none of the study's 1 results recorded its candidates"),
        ([pool(0, (0, None))], {}, "no verifier scored any of the recorded candidates"),
        (
            [pool(0, (0, 0.5))],
            {"role": "final"},
            "no verifier of the role 'final' scored any .*; there are scores by main",
        ),
        ([pool(0, (0, math.nan))], {}, "none of the 1 scores of candidates with a reference answer is known"),
        ([WITHOUT], {}, "none of the 1 recorded candidates is of a problem with a reference answer"),
    ],
)
def test_what_cannot_be_reported_is_refused(results: list[Result], given: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        verifier_report(results, **given)


def test_json_has_everything_and_no_nan() -> None:
    report = verifier_report([pool(0, (0, -0.5), (1, -2.0), verifiers={"main": UNBOUNDED})])
    (record,) = json.loads(as_json(report), parse_constant=pytest.fail)
    assert record["range"] == [None, 0]
    assert record["quality"]["error"]["value"] is None
    assert record["choosing"]["sizes"] == [1, 2]
    assert record["ceilings"][0]["tries"]["-8"] == 0
    assert record["advice"] == report.verdicts[0].advice
    assert "AUC within problems" in as_text(report)
