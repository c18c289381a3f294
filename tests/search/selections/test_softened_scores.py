"""Softmax of confidences within a question, and the law of pessimistic best-of-N: their ends, and their definitions by
other means.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize

from tests.support.candidates import ScoredSearch, candidates
from tests.support.repeats import repeats
from tts.search.parts import Selected, Selection
from tts.search.selections.best import Best
from tts.search.selections.majority import Majority
from tts.search.selections.pessimistic import Pessimistic, pessimistic_law
from tts.search.selections.weighted import Weighted

SCORED = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 50)), min_size=1, max_size=14)
REWARDS = st.lists(st.floats(0, 1, width=32), min_size=1, max_size=20)


def chosen(
    selection: Selection, answers: list[str | None], scores: list[float], bounds: tuple[float, float] = (0.0, 1.0)
) -> Selected:
    of = candidates(answers)
    return asyncio.run(selection.select(of, ScoredSearch(scores, of, bounds)))  # type: ignore[arg-type]


# The softmax of confidences -------------------------------------------------------------------------------------------


@given(scored=SCORED, temperature=st.sampled_from([0.05, 0.3, 1.0, 4.0]))
@settings(deadline=None)
def test_the_weights_are_the_softmax_of_the_scores(scored: list[tuple[str, int]], temperature: float) -> None:
    answers, scores = [a for a, _ in scored], np.array([s / 50 for _, s in scored])
    softmax = np.exp(scores / temperature) / np.exp(scores / temperature).sum()
    totals = {answer: math.fsum(softmax[[a == answer for a in answers]].tolist()) for answer in answers}
    found = chosen(Weighted(temperature=temperature), answers, scores.tolist())
    assert totals[found.answers[0]] == pytest.approx(max(totals.values()))
    assert found.confidence == pytest.approx(max(totals.values()))


@given(scored=SCORED)
@settings(deadline=None)
def test_a_hot_softmax_is_a_majority_vote_and_a_cold_one_takes_the_best(scored: list[tuple[str, int]]) -> None:
    answers, scores = [a for a, _ in scored], [s / 50 for _, s in scored]
    hot, vote = chosen(Weighted(temperature=1e9), answers, scores), chosen(Majority(), answers, scores)
    assert Counter(answers)[hot.answers[0]] == Counter(answers)[vote.answers[0]]
    distinct = (np.random.default_rng(len(scored)).permutation(len(scored)) / len(scored)).tolist()
    assert chosen(Weighted(temperature=1e-6), answers, distinct).answers == chosen(Best(), answers, distinct).answers


def test_only_differences_of_scores_count_and_no_range_is_needed() -> None:
    answers: list[str | None] = ["a", "b", "b", None]
    plain = chosen(Weighted(temperature=2.0), answers, [3.0, 1.0, 1.5, 0.0], (-math.inf, math.inf))
    moved = chosen(Weighted(temperature=2.0), answers, [-97.0, -99.0, -98.5, -100.0], (-math.inf, math.inf))
    assert plain.answers == moved.answers
    assert plain.confidence == pytest.approx(moved.confidence)
    of = [3.0, 1.0, 1.5, 0.0]
    assert plain.confidence == pytest.approx(math.exp(1.5) / sum(math.exp(s / 2) for s in of))
    far = chosen(Weighted(temperature=1e-5), ["a", "b"], [-1e9, 1e9], (-math.inf, math.inf))
    assert far.answers == ("b",)


# Pessimistic best-of-N ------------------------------------------------------------------------------------------------


@given(rewards=REWARDS, beta=st.sampled_from([0.003, 0.05, 0.4, 3.0]))
@settings(deadline=None)
def test_the_law_is_that_of_the_papers_threshold(rewards: list[float], beta: float) -> None:
    scores = np.array(rewards, np.float64)

    def excess(threshold: float) -> float:
        return float(np.mean(np.maximum(0, (scores - threshold) / beta))) - 1

    threshold = brentq(excess, float(scores.min()) - beta - 1, float(scores.max()), xtol=1e-14)
    law = pessimistic_law(scores, beta)
    assert law == pytest.approx(np.maximum(0, scores - threshold) / (len(scores) * beta), abs=1e-9)
    assert law.sum() == pytest.approx(1)


@pytest.mark.parametrize("beta", [0.02, 0.2, 1.0])
def test_the_law_maximizes_the_score_less_the_chi_squared_divergence(beta: float) -> None:
    scores = np.random.default_rng(3).random(6)

    def loss(law: np.ndarray) -> float:
        return float(-(law @ scores) + beta / 2 * ((len(law) * law - 1) ** 2).mean())

    start = np.full(6, 1 / 6)
    found = minimize(
        loss, start, bounds=[(0, 1)] * 6, constraints={"type": "eq", "fun": lambda law: law.sum() - 1}, tol=1e-14
    )
    assert pessimistic_law(scores, beta) == pytest.approx(found.x, abs=1e-4)


@given(scored=SCORED)
@settings(deadline=None)
def test_its_ends_are_best_of_n_and_a_vote(scored: list[tuple[str, int]]) -> None:
    answers = [a for a, _ in scored]
    scores = (np.random.default_rng(len(scored)).permutation(len(scored)) / len(scored)).tolist()
    assert chosen(Pessimistic(beta=1e-9), answers, scores).answers == chosen(Best(), answers, scores).answers
    counts = Counter(answers)
    assert counts[chosen(Pessimistic(beta=1e9), answers, scores).answers[0]] == max(counts.values())


def test_one_wrong_text_of_high_score_does_not_win_alone() -> None:
    answers: list[str | None] = ["right"] * 5 + ["wrong"] + ["other"] * 10
    scores = [0.8] * 5 + [0.95] + [0.3] * 10
    assert chosen(Best(), answers, scores).answers == ("wrong",)
    assert chosen(Pessimistic(), answers, scores).answers == ("right",)


@repeats(400, 4000, "draws")
def test_a_draw_is_of_the_law(draws: int) -> None:
    of = candidates(["a", "b", "c", None, "b"])
    scores = [0.9, 0.85, 0.2, 0.99, 0.7]
    law = pessimistic_law(np.array([0.9, 0.85, 0.2, 0.7]), 0.1)
    expected = {"a": law[0], "b": law[1] + law[3], "c": law[2]}
    counts = Counter[str]()
    for seed in range(draws):
        search = ScoredSearch(scores, of)
        search.rng = lambda purpose, *address, seed=seed: np.random.Generator(np.random.Philox(seed))  # type: ignore[attr-defined]
        found = asyncio.run(Pessimistic(by="draw").select(of, search))  # type: ignore[arg-type]
        assert found.ranked[0].answer == found.answers[0]
        counts[found.answers[0]] += 1
    for answer, chance in expected.items():
        assert counts[answer] / draws == pytest.approx(
            chance, abs=4 * math.sqrt(max(chance * (1 - chance), 1e-9) / draws) + 1e-12
        )
