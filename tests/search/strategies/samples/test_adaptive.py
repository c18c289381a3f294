"""The oracles of adaptive sampling and early pruning (algorithm A13)."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.support.runs import search_one, texts_of
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.errors import ConfigError
from tts.search.strategies.samples.adaptive import Adaptive, mean_samples, threshold_for
from tts.types import Solution
from tts.verifiers.function import FunctionVerifier
from tts.verifiers.toy import ToyVerifier

LANGUAGE = ToyLanguage(accuracy=0.5, slips=((1, 0.5), (-1, 0.5)))
PROBLEM = "10 - 7 + 5 - 20"
NOISY = ToyVerifier(error=0.2)


def draw(plan: str, seed: int = 0, budget: Budget | None = None, verifiers: Any = NOISY) -> Solution:
    given = budget or Budget(samples=60)
    return search_one(PROBLEM, given, plan, ToyBackend(LANGUAGE), seed=seed, verifiers=verifiers).solution


# Adaptive sampling ----------------------------------------------------------------------------------------------------


def test_a_constant_score_takes_one_sample_or_all() -> None:
    constant = {"main": FunctionVerifier(lambda problem, text: 0.5)}
    for threshold, count, end in ((0.0, 1, "score"), (0.1, 1, "score"), (0.5, 1, "score"), (0.51, 6, "done")):
        solution = draw(f"adaptive(n=6, threshold={threshold})", verifiers=constant)
        assert (len(solution.candidates), solution.stopped_by) == (count, end)


@pytest.mark.slow
def test_samples_never_fall_as_the_threshold_rises() -> None:
    graded = {"main": FunctionVerifier(lambda problem, text: (hash_of(text) % 100) / 100)}
    means = [
        np.mean(
            [
                len(draw(f"adaptive(n=8, threshold={threshold})", seed, verifiers=graded).candidates)
                for seed in range(12)
            ]
        )
        for threshold in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    ]
    assert means == sorted(means)
    assert means[0] == 1
    assert means[-1] > 4


def hash_of(text: str) -> int:
    return sum(ord(letter) * (7 + i) for i, letter in enumerate(text))


def test_the_temperature_is_annealed_from_the_first_to_the_runs() -> None:
    from tts.backends.base import Sampling

    run: Any = SimpleNamespace(rows=SimpleNamespace(sampling_at=lambda _: Sampling(temperature=1.0)))
    assert [Adaptive(start=0.0)._annealed_temperature(run, k) for k in range(4)] == [0.0, 0.5, 0.75, 0.875]
    assert [Adaptive(start=2.0)._annealed_temperature(run, k) for k in range(3)] == [2.0, 1.5, 1.25]
    assert [Adaptive(temperature=0.3)._annealed_temperature(run, k) for k in range(3)] == [0.3, 0.3, 0.3]
    first = {texts_of(draw("adaptive(n=1, start=0.0)", seed))[0] for seed in range(5)}
    assert first == {texts_of(draw("single(temperature=0.0)"))[0]}


def test_left_out_n_is_what_the_budget_pays() -> None:
    solution = draw("adaptive(threshold=2.0)", budget=Budget(samples=9))
    assert len(solution.candidates) == 9
    assert solution.stopped_by == "budget: samples"


# Its threshold from a calibration set ---------------------------------------------------------------------------------

SCORES = arrays(np.float64, st.tuples(st.integers(1, 12), st.integers(1, 8)), elements=st.floats(0, 1))


@given(scores=SCORES, data=st.data())
@settings(deadline=None)
def test_the_threshold_is_the_greatest_that_keeps_to_the_wanted_mean(scores: np.ndarray, data: st.DataObject) -> None:
    wanted = data.draw(st.floats(1, scores.shape[1]))
    threshold = threshold_for(scores, wanted)
    assert mean_samples(scores, threshold) <= wanted
    above = scores[scores > threshold]
    assert not above.size or mean_samples(scores, float(above.min())) > wanted
    levels = np.unique(scores)
    means = [mean_samples(scores, float(level)) for level in levels]
    assert means == sorted(means)


def test_mean_samples_is_what_the_strategy_takes() -> None:
    graded = {"main": FunctionVerifier(lambda problem, text: (hash_of(text) % 100) / 100)}
    rows = [
        [
            c.scores["main"]
            for c in sorted(draw("best_of_n(n=8) | best", seed, verifiers=graded).candidates, key=lambda c: c.index)
        ]
        for seed in range(10)
    ]
    threshold = threshold_for(np.array(rows), 3.0)
    taken = [
        len(draw(f"adaptive(n=8, threshold={threshold!r})", seed, verifiers=graded).candidates) for seed in range(10)
    ]
    assert np.mean(taken) == pytest.approx(mean_samples(np.array(rows), threshold))
    assert np.mean(taken) <= 3.0


@pytest.mark.parametrize("samples", [0.5, 9.0, math.nan])
def test_a_mean_out_of_range_is_refused(samples: float) -> None:
    with pytest.raises(ConfigError, match=r"samples.*between 1"):
        threshold_for(np.array([[0.1, 0.2]]), samples)


def test_scores_that_are_all_unknown_and_means_that_cannot_be_had_are_refused() -> None:
    with pytest.raises(ConfigError):
        threshold_for(np.full((2, 3), math.nan), 2.0)
    with pytest.raises(ConfigError, match="the lowest threshold takes 2"):
        threshold_for(np.array([[math.nan, math.nan, math.nan], [0.3, 0.5, 0.2]]), 1.5)
    assert threshold_for(np.array([[math.nan, 0.4], [0.3, 0.5]]), 2.0) == 0.5


# Early pruning --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pruned", "kept"), [(0.25, 6), (0.5, 4), (0.75, 2), (0.9, 1), (1.0, 1)])
def test_the_best_of_the_begun_are_finished(pruned: float, kept: int) -> None:
    perfect = {"main": ToyVerifier()}
    for seed in range(6):
        solution = draw(f"early_pruning(n=8, tokens=6, pruned={pruned})", seed, verifiers=perfect)
        assert len(solution.candidates) == kept
        all_of_them = draw("best_of_n(n=8) | best", seed, verifiers=perfect)
        right = sum(text.startswith("10 - 7 = 3\n") for text in texts_of(all_of_them))
        kept_right = sum(text.startswith("10 - 7 = 3\n") for text in texts_of(solution))
        assert kept_right == min(kept, right)
        # 8 first steps of 6 tokens, and the other 15 of those kept
        assert solution.usage.generated_tokens == 8 * 6 + kept * 15


def test_a_solution_that_ended_early_is_a_candidate_whatever_its_score() -> None:
    bad = {"main": FunctionVerifier(lambda problem, text: 0.0 if "A:" in text else 1.0)}
    solution = draw("early_pruning(n=4, tokens=500, pruned=0.75)", verifiers=bad)
    assert len(solution.candidates) == 4
