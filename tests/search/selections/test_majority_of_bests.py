"""The law of best-of-m by brute force, and its two ends: the majority and the best."""

from __future__ import annotations

import asyncio
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.candidates import ScoredSearch, candidates
from tts.search.parts import Selected, Selection
from tts.search.selections.best import Best
from tts.search.selections.majority import Majority
from tts.search.selections.majority_of_bests import MajorityOfBests, best_of_chances

SCORED = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9)), min_size=1, max_size=12)


def chosen(selection: Selection, answers: list[str | None], scores: list[float]) -> Selected:
    of = candidates(answers)
    return asyncio.run(selection.select(of, ScoredSearch(scores, of)))  # type: ignore[arg-type]


@pytest.mark.parametrize("scores", [[0.1, 0.5, 0.3], [0.5, 0.5, 0.3, 0.9], [0.2] * 4, [0.7], [3.0, -1.0, -1.0, 2.0]])
@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_it_is_the_law_of_all_bootstrap_samples(scores: list[float], m: int) -> None:
    law = np.zeros(len(scores))
    for sample in product(range(len(scores)), repeat=m):
        best = max(scores[i] for i in sample)
        firsts = [i for i, score in enumerate(scores) if score == best]  # equal ones are alike
        law[firsts] += 1 / len(firsts) / len(scores) ** m
    assert best_of_chances(np.array(scores), m) == pytest.approx(law)


def test_a_million_candidates_and_large_subsets_are_no_trouble() -> None:
    chances = best_of_chances(np.arange(10**6, dtype=np.float64), 10**4)
    assert chances.sum() == pytest.approx(1)
    assert (np.diff(chances) > -1e-15).all()


@given(scored=SCORED)
@settings(deadline=None)
def test_a_subset_of_one_is_a_majority_vote(scored: list[tuple[str, int]]) -> None:
    answers, scores = [a for a, _ in scored], [s / 9 for _, s in scored]
    one, plain = chosen(MajorityOfBests(subset=1), answers, scores), chosen(Majority(), answers, scores)
    assert one.answers == plain.answers
    assert one.confidence == pytest.approx(plain.confidence)


@given(answers=st.lists(st.sampled_from("abcd"), min_size=1, max_size=12), seed=st.integers(0, 99))
@settings(deadline=None)
def test_a_large_subset_is_best_of_n(answers: list[str], seed: int) -> None:
    scores = np.random.default_rng(seed).permutation(len(answers)) / len(answers)  # no two alike
    assert (
        chosen(MajorityOfBests(subset=10_000), answers, scores.tolist()).answers
        == chosen(Best(), answers, scores.tolist()).answers
    )


def test_one_high_score_decides_less_than_many_good_ones() -> None:
    answers, scores = ["wrong", *["right"] * 5, *["poor"] * 10], [0.99, *[0.8] * 5, *[0.1] * 10]
    assert chosen(Best(), answers, scores).answers == ("wrong",)
    assert chosen(Majority(), answers, scores).answers == ("poor",)
    found = chosen(MajorityOfBests(), answers, scores)  # best of 4: wrong 1 - (15/16)^4, right (15/16)^4 - (10/16)^4
    assert found.answers == ("right",)
    assert found.confidence == pytest.approx((15**4 - 10**4) / 16**4)


@given(scored=SCORED)
@settings(deadline=None)
def test_only_the_order_of_scores_matters(scored: list[tuple[str, int]]) -> None:
    answers, scores = [a for a, _ in scored], [s / 9 for _, s in scored]
    again = [score**3 / 2 + 0.2 for score in scores]
    assert chosen(MajorityOfBests(), answers, scores).answers == chosen(MajorityOfBests(), answers, again).answers


def test_the_default_subset_is_the_root_of_the_voters_rounded_up() -> None:
    for count, m in ((1, 1), (2, 2), (4, 2), (5, 3), (9, 3), (10, 4)):
        answers, scores = [str(i) for i in range(count)], [i / count for i in range(count)]
        assert chosen(MajorityOfBests(), answers, scores) == chosen(MajorityOfBests(subset=m), answers, scores)
