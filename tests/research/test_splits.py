"""The split between solving and verifying: its accuracies against exact laws, its totals, and the law that it fits."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

pytest.importorskip("research", reason="research is no part of the wheel")

from research.methods.splits import Solved, accuracy, best_votes, grid, law, page, solutions

POOL = Solved(np.array([0, 1, 1, -1]), np.array([True, False, False, False]), np.array([0.9, 0.2, math.nan, 0.5]))


def exact(n: int, votes: int) -> float:
    """Return the chance of the right answer over all ordered subsets of the pool, and all verdicts."""
    orders = list(itertools.permutations(range(4), n))
    total = 0.0
    for order in orders:
        for yes in itertools.product(range(votes + 1), repeat=n):
            chance, weights = 1.0, {0: 0.0, 1: 0.0}
            for i, k in zip(order, yes, strict=True):
                p = 0.0 if math.isnan(POOL.yes[i]) else POOL.yes[i]
                chance *= math.comb(votes, k) * p**k * (1 - p) ** (votes - k)
                if POOL.kinds[i] >= 0:
                    weights[int(POOL.kinds[i])] += 0.5 if math.isnan(POOL.yes[i]) else (k + 0.5) / (votes + 1)
            seen = [int(POOL.kinds[i]) for i in order if POOL.kinds[i] >= 0]
            if seen and chance:
                top = max(weights.values())
                winner = next(kind for kind in seen if math.isclose(weights[kind], top))
                total += chance * (winner == 0)
    return total / len(orders)


@pytest.mark.parametrize(("n", "votes"), [(1, 0), (2, 0), (3, 0), (2, 1), (3, 2)])
def test_the_accuracy_is_that_of_the_exact_law(n: int, votes: int) -> None:
    draws, p = 4000, exact(n, votes)
    got = accuracy(POOL, n, votes, draws, np.random.default_rng(1))
    assert got == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / draws) + 1e-9)


def test_verdicts_that_are_known_are_drawn_without_replacement() -> None:
    """With all of them there is nothing left to chance but the subset, which here is the pool."""
    pool = Solved(np.array([0, 1, 1]), np.array([True, False, False]), np.array([1.0, 0.25, 0.25]))
    assert accuracy(pool, 3, 4, 50, np.random.default_rng(0), verdicts=4) == 1.0
    assert 0 < accuracy(pool, 3, 1, 400, np.random.default_rng(0), verdicts=4) < 1.0


def test_equal_totals_pay_solutions_with_their_verdicts() -> None:
    assert [solutions(16, v, 0.5) for v in (0, 2, 6, 30)] == [16, 8, 4, 1]
    found = grid([POOL], (1, 2, 4, 8), (0, 1, 2), 1.0, 4)
    assert set(found) == {(1, 0), (2, 0), (4, 0), (4, 1), (8, 1), (8, 2)}, (
        "no more than the pool has, and no verdict on a single one"
    )


def test_the_law_goes_through_the_best_splits() -> None:
    found = {}
    for total, top in ((4, 2), (16, 4), (64, 8)):
        for v in (0, 2, 4, 8):
            found[total, v] = np.array([0.9 if v == top else 0.5, 0.7])
    assert [best_votes(found, total) for total in (4, 16, 64)] == [2, 4, 8]
    assert law(found) == pytest.approx((1.0, 0.5))
    flat = {key: np.array([0.5, 0.5]) for key in found}
    assert best_votes(flat, 16) == 0
    assert law(flat) == (0.0, 0.0)
    text = "\n".join(page(found, 0.25, "", "Two problems."))
    assert "`self_verification(law=[1.00, 0.50])`" in text
    assert text.count("\n| ") == 2 + 3, "a head of two lines, and a row a total"
