"""What is measured at each token, how tokens become a number, and what a backend must keep for it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tts
from tests.verifiers.paths import ROOT, path, wholes
from tts.backends.sampling import spread, top_spread
from tts.backends.toy.backend import ToyBackend
from tts.errors import CapabilityError, ConfigError
from tts.registry import parse_call
from tts.verifiers import VERIFIERS
from tts.verifiers.confidence import Confidence, groups
from tts.verifiers.making import describe_verifier

LOGPROBS = [-0.1, -2.0, -0.3, -0.4, -4.0, -0.2, 0.0]


def test_mean_log_probability_and_the_inverse_of_the_perplexity() -> None:
    [mean] = wholes(Confidence(measure="logprob"), path(LOGPROBS))
    [probability] = wholes(Confidence(), path(LOGPROBS))
    assert mean == pytest.approx(-1.0)
    assert probability == pytest.approx(math.exp(-1.0))
    assert wholes(Confidence(), path([0.0, 0.0])) == [1.0]


def test_it_goes_by_the_path_however_it_was_cut_and_forced_text_counts_nothing() -> None:
    for over in ("mean", "lowest", "bottom", "tail", "joint"):
        verifier = Confidence(measure="logprob", over=over, window=3)
        once, cut, forced = wholes(
            verifier,
            path(LOGPROBS),
            path(LOGPROBS[:2], LOGPROBS[2:3], LOGPROBS[3:]),
            path(LOGPROBS[:4], [], LOGPROBS[4:]),
        )
        assert once == cut == forced


def test_the_sum_is_the_log_probability_of_the_whole_and_odds_make_a_chance_of_it() -> None:
    whole = path(LOGPROBS)
    assert wholes(Confidence(measure="logprob", over="sum"), whole) == [pytest.approx(-7.0)]
    assert wholes(Confidence(over="sum"), whole) == [pytest.approx(math.exp(-7.0))]
    calibrated = Confidence(measure="logprob", over="sum", odds=(0.5, 3.0))
    odds = math.exp(-7.0) / (1 - math.exp(-7.0))
    assert wholes(calibrated, whole) == [pytest.approx(1 / (1 + odds**-0.5 * math.exp(-3.0)))]
    assert wholes(Confidence(over="sum", odds=(0.5, 3.0)), whole) == wholes(calibrated, whole), (
        "a probability and its logarithm are one"
    )
    assert wholes(Confidence(measure="logprob", over="sum", odds=(1.0, 0.0)), whole) == [
        pytest.approx(math.exp(-7.0))
    ], "as it is"
    assert wholes(calibrated, path([-1e-12]))[0] < 1.0, "the score of a text that is certain is finite log-odds"
    assert (calibrated.range, Confidence(measure="logprob").range) == ((0.0, 1.0), (-math.inf, 0.0))
    assert 0 < wholes(calibrated, path([-200.0, -200.0]))[0] < 1e-80, "small chances are told apart"
    assert math.isnan(wholes(calibrated, path([]))[0])
    assert parse_call(VERIFIERS, describe_verifier(calibrated)) == calibrated


@pytest.mark.parametrize("odds", [(0.0, 1.0), (-1.0, 1.0), (1.0,), 1.0, (1.0, math.nan), ("1", 2), (True, 1.0)])
def test_odds_that_are_none_are_refused_in_one_line(odds: Any) -> None:
    with pytest.raises(ConfigError, match=r"finite.*0") as refused:
        Confidence(odds=odds)
    assert "\n" not in str(refused.value)


def test_what_no_model_wrote_is_unknown() -> None:
    assert all(map(math.isnan, wholes(Confidence(), ROOT, path([]), path([-math.inf, -1.0]))))
    assert math.isnan(wholes(Confidence(measure="top"), path([-1.0]))[0]), "log-probabilities are no spreads"


def test_groups_by_hand() -> None:
    tokens = np.array(LOGPROBS)
    direct = [tokens[i : i + 3].mean() for i in range(len(tokens) - 2)]
    np.testing.assert_allclose(groups(tokens, 3), direct, atol=1e-12)
    assert groups(tokens, 7) == groups(tokens, 100) == pytest.approx(tokens.mean())
    assert wholes(Confidence(measure="logprob", over="lowest", window=3), path(LOGPROBS)) == [
        pytest.approx(min(direct))
    ]
    assert wholes(Confidence(measure="logprob", over="tail", window=2), path(LOGPROBS)) == [pytest.approx(-0.1)]
    many = np.linspace(-5, 0, 41)
    lowest = np.sort([many[i : i + 2].mean() for i in range(40)])
    assert wholes(Confidence(measure="logprob", over="bottom", window=2), path(many.tolist())) == [
        pytest.approx(lowest[:4].mean())
    ]


def test_the_sum_is_the_log_probability_of_the_path() -> None:
    halves = [path(LOGPROBS), path(LOGPROBS * 3)]
    assert wholes(Confidence(measure="logprob", over="sum"), *halves) == pytest.approx(
        [sum(LOGPROBS), 3 * sum(LOGPROBS)]
    )
    assert wholes(Confidence(over="sum"), halves[0]) == [pytest.approx(math.exp(sum(LOGPROBS)))]
    assert wholes(Confidence(over="sum"), path([-900.0])) == [0.0]


@pytest.mark.parametrize("over", ["mean", "lowest", "bottom", "tail"])
def test_a_constant_series_is_worth_its_constant(over: str) -> None:
    assert wholes(Confidence(measure="logprob", over=over, window=4), path([-0.7] * 30)) == [
        pytest.approx(-0.7, abs=1e-12)
    ]


def test_self_certainty_and_the_lowest_group_of_deepconf() -> None:
    spreads = [[(0.1 * i, 3.0 + (i == 5)) for i in range(10)]]
    t = path([-1.0] * 10, spreads=spreads)
    assert wholes(Confidence(measure="certainty"), t) == [pytest.approx(0.45)]
    assert wholes(Confidence(measure="top"), t) == [pytest.approx(3.1)]
    assert wholes(Confidence(measure="top", over="lowest", window=2), t) == [pytest.approx(3.0)]


@pytest.mark.parametrize(("measure", "capability"), [("certainty", "spreads"), ("top", "tops")])
def test_a_backend_that_keeps_no_spreads_is_refused_with_those_that_do(measure: str, capability: str) -> None:
    lacks = (
        rf"needs the capability '{capability}', which the backend 'toy' lacks .*(transformers|vllm|none that is "
        r"installed)"
    )
    with pytest.raises(CapabilityError, match=lacks):
        tts.solve(
            "3 + 4", 100, model=ToyBackend(), strategy="best_of_n(n=2) | best", verifier=Confidence(measure=measure)
        )


def test_names_that_are_none_are_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean probability"):
        Confidence(measure="probabilty")
    with pytest.raises(ConfigError, match=r"over.*'all',.*over"):
        Confidence(over="all")


def test_it_guides_a_search_and_costs_no_tokens() -> None:
    sums = "3 + 4 - 2 + 9 - 4 + 8"
    solution = tts.solve(
        sums,
        tts.Budget(tokens=4000),
        model=ToyBackend(),
        strategy="beam(n=16, branching=4) | best",
        verifier="confidence",
    )
    assert solution.usage.verifier_tokens == 0
    assert solution.usage.verifier_calls > 4
    scores = [c.scores["main"] for c in solution.candidates]
    assert all(0 < score <= 1 for score in scores)
    assert scores == sorted(scores, reverse=True)


# Thinkers: what the end of a path says --------------------------------------------------------------------------------


def test_the_joint_score_is_reasoning_confidence_plus_answer_confidence() -> None:
    [joint] = wholes(Confidence(measure="logprob", over="joint", window=2), path(LOGPROBS))
    assert joint == pytest.approx(np.mean(LOGPROBS[:-2]) + np.mean(LOGPROBS[-2:]))
    [chance] = wholes(Confidence(over="joint", window=2), path(LOGPROBS))
    assert chance == pytest.approx(math.exp(joint))
    [short] = wholes(Confidence(measure="logprob", over="joint", window=9), path(LOGPROBS))
    assert short == pytest.approx(2 * np.mean(LOGPROBS))
    once, cut = wholes(
        Confidence(measure="logprob", over="joint", window=3),
        path(LOGPROBS),
        path(LOGPROBS[:2], LOGPROBS[2:3], LOGPROBS[3:]),
    )
    assert once == cut


def test_tail_entropy_and_tail_log_probability_read_the_last_group_alone() -> None:
    spreads = [[(math.nan, 1.0, entropy) for entropy in (9.0, 9.0, 9.0, 0.5, 0.3)]]
    thinker = path([-5.0, -5.0, -5.0, -0.2, -0.4], spreads=spreads)
    assert wholes(Confidence(measure="entropy", over="tail", window=2), thinker) == [pytest.approx(-0.4)]
    assert wholes(Confidence(measure="logprob", over="tail", window=2), thinker) == [pytest.approx(-0.3)]
    assert wholes(Confidence(measure="entropy", over="mean"), thinker) == [pytest.approx(-5.56)]
    unknown = path([-1.0], spreads=[[(math.nan, 1.0)]])
    assert math.isnan(wholes(Confidence(measure="entropy"), unknown)[0])
    sure = Confidence(measure="entropy", over="tail", window=2, odds=(1.0, 0.0))
    assert wholes(sure, thinker) == [pytest.approx(1 / (1 + math.exp(0.4)))]


def test_the_entropy_of_a_distribution_is_exact_and_of_its_top_a_lower_bound() -> None:
    rng = np.random.default_rng(2)
    for size in (2, 15, 20, 21, 300):
        law = rng.dirichlet(np.full(size, 0.3))
        law = np.maximum(law, 1e-300)
        exact = float(-(law * np.log(law)).sum())
        assert spread(np.log(law)).entropy == pytest.approx(exact, abs=1e-9)
        few = top_spread(np.log(np.sort(law)[::-1][:20]).tolist()).entropy
        assert few <= exact + 1e-9
        if size <= 20:
            assert few == pytest.approx(exact, abs=1e-6)
        else:
            top = np.sort(law)[::-1][:20]
            rest = 1 - top.sum()
            assert few == pytest.approx(float(-(top * np.log(top)).sum() - rest * np.log(rest)), abs=1e-9)
    assert spread(np.log(np.full(64, 1 / 64))).entropy == pytest.approx(math.log(64))


def test_the_engine_keeps_entropies_and_a_search_goes_by_them() -> None:
    found = tts.solve(
        "12 + 7 * 3",
        400,
        model="pocket",
        strategy="best_of_n(n=3) | best",
        verifier="confidence(measure='entropy', over='tail')",
    )
    scores = [c.scores["main"] for c in found.candidates]
    assert len(scores) == 3
    assert all(-math.log(64) < score <= 0 for score in scores)
    entropies = [one.entropy for c in found.candidates for one in c.trajectory.spreads]
    assert max(entropies) > 0
    assert scores[0] == pytest.approx(
        -np.mean([one.entropy for piece in found.candidates[0].trajectory.path for one in piece.spreads])
    )
