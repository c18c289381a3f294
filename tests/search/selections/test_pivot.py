"""The pivot tournament against brute force, at its exact number of comparisons, and with what the budget holds for
it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.search.selections.test_tournaments import NAN, chosen, preferences, run
from tts.errors import ConfigError
from tts.search.needs import needs_of
from tts.search.parts import SELECTIONS
from tts.search.plan import parse
from tts.search.selections.knockout import Knockout
from tts.search.selections.pivot import Pivot, pivot_pairs


def by_the_box(answers: list[str], table: np.ndarray, k: int) -> tuple[list[float], int]:
    """Return the means and the comparisons of the box, written with matrices."""
    count = len(answers)
    different = np.array([[a != b for b in answers] for a in answers])
    met = np.zeros((count, count), bool)
    for i in range(count):
        met[i, (i + 1) % count] = met[(i + 1) % count, i] = True
    met &= different

    def means() -> np.ndarray:
        matches = met.sum(axis=1)
        return np.where(matches > 0, np.where(met, table, 0).sum(axis=1) / np.maximum(matches, 1), 0.5)

    votes = [answers.count(answer) for answer in answers]
    first = means()
    for pivot in sorted(range(count), key=lambda i: (-first[i], -votes[i], i))[:k]:
        met[pivot, :] |= different[pivot]
        met[:, pivot] |= different[:, pivot]
    return means().tolist(), int(np.triu(met).sum())


@pytest.mark.parametrize("k", [1, 2, 3, 20])
def test_a_pivot_tournament_is_its_box_by_brute_force(k: int) -> None:
    rng = np.random.default_rng(8)
    for _ in range(150):
        count = int(rng.integers(2, 16))
        answers = [str(one) for one in rng.integers(0, 7, count)]
        table = preferences(count, rng)
        found, search = chosen(Pivot(k=k), answers, table)
        means, pairs = by_the_box(answers, table, k)
        assert search.pairs == pairs <= min(count * (k + 1), count * (count - 1) // 2)
        if pairs:
            assert [c.weight for c in sorted(found.ranked, key=lambda c: c.index)] == pytest.approx(means)
            assert found.ranked[0].index == max(range(count), key=lambda i: (means[i], answers.count(answers[i]), -i))
            assert found.answers == (answers[found.ranked[0].index],)
            assert found.confidence == pytest.approx(max(means))


@pytest.mark.parametrize("count", range(4, 30))
def test_one_pivot_of_different_answers_takes_twice_the_candidates_less_three_comparisons(count: int) -> None:
    """A ring of N, and the pivot with the N - 3 that it has not met."""
    _, search = chosen(Pivot(k=1), [str(i) for i in range(count)], preferences(count, np.random.default_rng(count)))
    assert search.pairs == 2 * count - 3


def test_comparisons_grow_with_the_candidates_and_not_with_their_square() -> None:
    rng = np.random.default_rng(1)
    counts = {n: chosen(Pivot(k=3), [str(i) for i in range(n)], preferences(n, rng))[1].pairs for n in (20, 40, 80)}
    assert all(3 * count < pairs <= 4 * count for count, pairs in counts.items())


def test_pairs_come_pivot_by_pivot_and_no_pair_meets_twice() -> None:
    kinds = dict.fromkeys(range(6), 0) | {1: 1, 3: 3, 4: 4}
    pairs = list(pivot_pairs([3, 0], kinds, {frozenset((3, 4))}))
    assert pairs == [(3, 0), (3, 1), (3, 2), (3, 5), (0, 1), (0, 4)]


def test_as_many_pivots_as_candidates_make_a_full_round() -> None:
    rng = np.random.default_rng(6)
    for _ in range(50):
        count = int(rng.integers(2, 10))
        table = preferences(count, rng)
        found, search = chosen(Pivot(k=count), [str(i) for i in range(count)], table)
        means = (table.sum(axis=1) - np.diag(table)) / (count - 1)
        assert search.pairs == count * (count - 1) // 2
        assert found.answers == (str(int(means.argmax())),)


def test_a_pivot_tournament_of_one_answer_holds_no_match() -> None:
    for answers in (["a"], ["a"] * 5, [None, "a", None]):
        found, search = chosen(Pivot(), answers, {})
        assert (found.answers, search.pairs) == (("a",), 0)
    assert chosen(Pivot(), [None], {})[0].answers == ()
    assert chosen(Pivot(), [], {})[0].answers == ()


def test_without_a_known_match_it_is_the_majority_and_unknown_ones_are_left_out() -> None:
    answers = ["a", "b", "b", "c"]
    assert chosen(Pivot(), answers, np.full((4, 4), NAN))[0].answers == ("b",)
    table = preferences(9, np.random.default_rng(3))
    cut, search = chosen(Pivot(k=2), [str(i) for i in range(9)], table, most=9)  # the ring alone is paid
    ring = [(table[i, (i + 1) % 9] + table[i, i - 1]) / 2 for i in range(9)]
    assert search.pairs > 9
    assert cut.answers == (str(int(np.argmax(ring))),)


@pytest.mark.slow
def test_with_a_noisy_judge_it_is_right_more_often_than_a_knockout() -> None:
    """The best of eight is preferred with a chance of .75 in each comparison; both have the same verdicts on pairs that
    both ask for.
    """
    rng, runs, right = np.random.default_rng(4), 1500, {"pivot": 0, "knockout": 0}
    for _ in range(runs):
        table = np.full((8, 8), 0.5)
        upper = np.triu(np.where(rng.random((8, 8)) < 0.5, 1.0, 0.0), 1)
        best = int(rng.integers(8))
        table = upper + np.tril(1 - upper.T, -1)
        wins = np.where(rng.random(8) < 0.75, 1.0, 0.0)
        table[best, :], table[:, best] = wins, 1 - wins
        answers = [str(i) for i in range(8)]
        right["pivot"] += chosen(Pivot(k=3), answers, table)[0].answers == (str(best),)
        right["knockout"] += chosen(Knockout(), answers, table)[0].answers == (str(best),)
    error = math.sqrt(0.25 / runs)
    assert right["knockout"] / runs == pytest.approx(0.75**3, abs=4 * error)
    assert right["pivot"] / runs > right["knockout"] / runs + 2 * error


@pytest.mark.parametrize("plan", ["pivot(k=1)", "pivot(k=3)"])
@pytest.mark.parametrize(
    "limits", [{"verifier_calls": 16}, {"tokens": 900}, {"verifier_tokens": 170}], ids=lambda one: next(iter(one))
)
def test_all_comparisons_are_in_the_budget(plan: str, limits: dict[str, int]) -> None:
    end = run(f"best_of_n | {plan}", **limits)
    found = sorted(end.solution.candidates, key=lambda c: c.index)
    kinds = [str(c.answer) for c in found]
    table = np.array([[float(int(a) < int(b)) for b in kinds] for a in kinds])
    (each,) = needs_of(parse(f"single | {plan}").selection).pairs.values()
    means, pairs = by_the_box(kinds, table, each - 1)
    assert len(found) >= 3
    assert end.solution.usage.verifier_calls == pairs
    assert end.solution.answer == kinds[max(range(len(kinds)), key=lambda i: (means[i], kinds.count(kinds[i]), -i))]
    if "verifier_calls" in limits:
        assert len(found) == 16 // each


@pytest.mark.parametrize("k", [0, -1, 1.5, True, None, "2"])
def test_a_number_of_pivots_that_cannot_be_is_refused(k: Any) -> None:
    with pytest.raises(ConfigError, match="k is "):
        SELECTIONS.get("pivot")(k=k)
