"""The pivot tournament against brute force, at its exact number of comparisons, and with what the budget holds for
it.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.search.selections.test_tournaments import chosen, preferences, run
from tts.search.needs import needs_of
from tts.search.plan import parse
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


def test_pairs_come_pivot_by_pivot_and_no_pair_meets_twice() -> None:
    kinds = dict.fromkeys(range(6), 0) | {1: 1, 3: 3, 4: 4}
    pairs = list(pivot_pairs([3, 0], kinds, {frozenset((3, 4))}))
    assert pairs == [(0, 3), (1, 3), (2, 3), (5, 3), (1, 0), (4, 0)], "pivots stand second"


def test_matches_that_the_budget_does_not_pay_are_left_out() -> None:
    table = preferences(9, np.random.default_rng(3))
    cut, search = chosen(Pivot(k=2), [str(i) for i in range(9)], table, most=9)  # the ring alone is paid
    ring = [(table[i, (i + 1) % 9] + table[i, i - 1]) / 2 for i in range(9)]
    assert search.pairs > 9
    assert cut.answers == (str(int(np.argmax(ring))),)


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
