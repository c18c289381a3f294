"""The oracles of best-of-majority, on answers and rewards that hypothesis draws."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.candidates import ScoredSearch, candidates
from tts.search.parts import Selected, Selection
from tts.search.selections.best import Best
from tts.search.selections.best_of_majority import BestOfMajority
from tts.search.selections.majority import Majority

ANSWERS = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=20)
REWARDS = st.permutations([0.05, 0.2, 0.35, 0.6, 0.8, 0.95]).map(
    lambda values: dict(zip("abcdef", values, strict=True))
)


def chosen(selection: Selection, answers: list[str], rewards: dict[str, float]) -> Selected:
    of = candidates(answers)
    return asyncio.run(selection.select(of, ScoredSearch(rewards, of)))  # type: ignore[arg-type]


@given(answers=ANSWERS, rewards=REWARDS)
@settings(deadline=None)
def test_a_threshold_of_at_most_one_sample_gives_best_of_n_over_distinct_answers(
    answers: list[str], rewards: dict[str, float]
) -> None:
    alpha = 1 / len(answers)
    assert chosen(BestOfMajority(alpha=alpha), answers, rewards).answers == chosen(Best(), answers, rewards).answers
    ranked = sorted(set(answers), key=rewards.__getitem__, reverse=True)
    assert chosen(BestOfMajority(alpha=alpha, k=6), answers, rewards).answers == tuple(ranked)


@given(answers=ANSWERS, rewards=REWARDS)
@settings(deadline=None)
def test_a_threshold_that_only_the_most_frequent_passes_gives_the_majority(
    answers: list[str], rewards: dict[str, float]
) -> None:
    counts = sorted(Counter(answers).values(), reverse=True)
    if len(counts) > 1 and counts[0] == counts[1]:
        return
    for alpha in (counts[0] / len(answers), (counts[0] - 0.5) / len(answers)):
        assert (
            chosen(BestOfMajority(alpha=alpha), answers, rewards).answers
            == chosen(Majority(), answers, rewards).answers
        )


@given(answers=ANSWERS, rewards=REWARDS)
@settings(deadline=None)
def test_by_default_an_answer_needs_three_votes_and_a_tenth_of_them(
    answers: list[str], rewards: dict[str, float]
) -> None:
    alpha = max(0.1, 3 / len(answers))
    assert (
        chosen(BestOfMajority(), answers, rewards).answers
        == chosen(BestOfMajority(alpha=min(1.0, alpha)), answers, rewards).answers
    )


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 4, 50])
def test_by_default_two_votes_never_win_and_neither_do_nine_percent_of_many(times: int) -> None:
    rewards = {"a": 0.2, "b": 0.95, "c": 0.99}
    assert chosen(BestOfMajority(), [*"aaabbbcc"], rewards).answers == ("b",)
    assert chosen(BestOfMajority(), ["a"] * 80 * times + ["b"] * 11 * times + ["c"] * 9 * times, rewards).answers == (
        "b",
    )


@given(answers=ANSWERS, rewards=REWARDS, alpha=st.sampled_from([None, 0.0, 0.1, 0.25, 0.5]))
@settings(deadline=None)
def test_the_answers_for_a_smaller_k_are_the_first_of_those_for_a_greater(
    answers: list[str], rewards: dict[str, float], alpha: float | None
) -> None:
    most = chosen(BestOfMajority(k=6, alpha=alpha), answers, rewards).answers
    for k in range(1, 6):
        assert chosen(BestOfMajority(k=k, alpha=alpha), answers, rewards).answers == most[:k]


@given(answers=ANSWERS, rewards=REWARDS, alpha=st.sampled_from([0.1, 0.25, 0.5]), outlier=st.sampled_from([0.0, 1.0]))
@settings(deadline=None)
def test_rewards_of_rare_answers_change_nothing(
    answers: list[str], rewards: dict[str, float], alpha: float, outlier: float
) -> None:
    counts = Counter(answers)
    rare = {answer for answer in "abcdef" if counts[answer] < alpha * len(answers)}
    if not set(answers) - rare:
        return  # no answer is frequent enough: the most frequent are returned, whatever they score
    spoiled = {answer: outlier if answer in rare else reward for answer, reward in rewards.items()}
    selection = BestOfMajority(k=3, alpha=alpha)
    assert chosen(selection, answers, rewards).answers == chosen(selection, answers, spoiled).answers


def test_only_frequent_answers_are_asked_about_and_at_most_so_many_responses_of_each() -> None:
    of = candidates([*"aaaaaa", *"bbb", "c"])
    search = ScoredSearch({"a": 0.2, "b": 0.9, "c": 1.0}, of)
    selected = asyncio.run(BestOfMajority(alpha=0.3, asked=2).select(of, search))  # type: ignore[arg-type]
    assert selected.answers == ("b",)
    assert search.asked == [of[i].trajectory.node for i in (0, 1, 6, 7)]
