"""Averages over subsets against the enumeration of every ordered draw, by the rules that live runs follow."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts.errors import ConfigError
from tts.statistics import best_at_k, majority_at_k, pass_at_k, weighted_at_k

Pool = list[tuple[int, float, int]]  # answer, score, right


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def enumerated(pool: Pool, k: int, rule: Callable[[Sequence[tuple[int, float, int]]], int]) -> float:
    """The share of all ordered draws of k whose chosen answer is right."""
    draws = list(itertools.permutations(pool, k))
    return sum(rule(drawn) for drawn in draws) / len(draws)


def of_greatest(drawn: Sequence[tuple[int, float, int]], weights: Sequence[float]) -> int:
    """The first class of the greatest total, written as its first member writes it."""
    totals: dict[int, float] = {}
    for (answer, _, _), weight in zip(drawn, weights, strict=True):
        if answer >= 0:
            totals[answer] = totals.get(answer, 0) + weight
    if not totals:
        return 0
    winner = max(totals, key=lambda answer: totals[answer])  # the first of those that tie, in order of appearance
    return next(right for answer, _, right in drawn if answer == winner)


def majority(drawn: Sequence[tuple[int, float, int]]) -> int:
    return of_greatest(drawn, [1] * len(drawn))


def weighted(drawn: Sequence[tuple[int, float, int]]) -> int:
    return of_greatest(drawn, [score for _, score, _ in drawn])


def best(drawn: Sequence[tuple[int, float, int]]) -> int:
    answered = [(score, right) for answer, score, right in drawn if answer >= 0]
    return max(answered, key=lambda each: each[0])[1] if answered else 0


def with_estimates(pool: Pool) -> Pool:
    """The pool with the mean of its known scores in place of unknown ones; equal scores if none is known."""
    known = [score for _, score, _ in pool if not math.isnan(score)]
    mean = np.mean(known) if known else 1.0
    return [(a, float(mean) if math.isnan(s) else s, r) for a, s, r in pool]


def column(pool: Pool) -> tuple[list[int], list[float], list[int]]:
    return [a for a, _, _ in pool], [s for _, s, _ in pool], [r for _, _, r in pool]


def pools_of(n: int) -> list[Pool]:
    """Every way to give n samples up to three answers, or none, with one of the answers right; scores of quarters, some
    unknown.
    """
    draws = rng(n)
    found: list[Pool] = []
    for answers in itertools.combinations_with_replacement(range(-1, 3), n):
        scores = draws.choice([0.25, 0.5, 0.75, 1.0, math.nan], n, p=[0.25, 0.25, 0.2, 0.2, 0.1])
        found.append([(a, float(s), int(a == 1)) for a, s in zip(answers, scores, strict=True)])
    return found


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_all_small_pools_equal_the_enumeration_of_ordered_draws(n: int) -> None:
    ks = list(range(1, n + 1))
    for drawn in pools_of(n):
        answers, scores, right = column(drawn)
        chosen_best, pool = majority if all(map(math.isnan, scores)) else best, with_estimates(drawn)
        np.testing.assert_allclose(
            majority_at_k(answers, right, ks), [enumerated(pool, k, majority) for k in ks], atol=1e-12
        )
        np.testing.assert_allclose(
            best_at_k(answers, scores, right, ks), [enumerated(pool, k, chosen_best) for k in ks], atol=1e-12
        )
        found = weighted_at_k(answers, scores, right, ks, rng=rng())
        np.testing.assert_allclose(found.value, [enumerated(pool, k, weighted) for k in ks], atol=1e-12)
        np.testing.assert_array_equal(found.error, 0)


samples = st.tuples(st.integers(-1, 4), st.sampled_from([0.0, 0.25, 0.5, 1.0, math.nan]), st.integers(0, 1))


@given(st.lists(samples, min_size=6, max_size=7), st.integers(1, 5))
@settings(deadline=None)
def test_pools_whose_classes_are_right_in_part_equal_the_enumeration_too(pool: Pool, k: int) -> None:
    answers, scores, right = column(pool)
    chosen_best, pool = majority if all(map(math.isnan, scores)) else best, with_estimates(pool)
    assert float(majority_at_k(answers, right, k)) == pytest.approx(enumerated(pool, k, majority), abs=1e-12)
    assert float(weighted_at_k(answers, scores, right, k, rng=rng()).value) == pytest.approx(
        enumerated(pool, k, weighted), abs=1e-12
    )
    assert float(best_at_k(answers, scores, right, k)) == pytest.approx(enumerated(pool, k, chosen_best), abs=1e-12)


@given(st.lists(st.integers(-1, 6), min_size=1, max_size=13), st.data())
@settings(deadline=None)
def test_majority_equals_the_enumeration_of_subsets(answers: list[int], data: st.DataObject) -> None:
    """Larger pools, where subsets are counted and ties are shared evenly."""
    k = data.draw(st.integers(1, len(answers)))
    shares = []
    for subset in itertools.combinations(answers, k):
        counts = {a: subset.count(a) for a in subset if a >= 0}
        tied = [a for a, count in counts.items() if count == max(counts.values())]
        shares.append((0 in tied) / len(tied) if tied else 0)
    found = majority_at_k(answers, [a == 0 for a in answers], k)
    assert float(found) == pytest.approx(sum(shares) / len(shares), abs=1e-12)


def test_majority_of_many_samples_is_a_binomial_tail() -> None:
    """Of two answers, with an odd k, the majority is right where more than half are: a hypergeometric tail."""
    n, right = 2001, 1100
    for k in (1, 51, 301):
        answers = [0] * right + [1] * (n - right)
        tail = sum(math.comb(right, m) * math.comb(n - right, k - m) for m in range(k // 2 + 1, k + 1)) / math.comb(
            n, k
        )
        assert float(majority_at_k(answers, [1] * right + [0] * (n - right), k)) == pytest.approx(tail, abs=1e-10)


def test_majority_of_answers_given_once_is_a_lottery() -> None:
    n = 120
    found = majority_at_k(range(n), [1] + [0] * (n - 1), [1, 7, n])
    np.testing.assert_allclose(found, 1 / n, atol=1e-12)


def test_known_votes() -> None:
    """Of fresh samples that are right with .6 and else wrong alike, one, three and five vote right with .6, .648 and
    .683.
    """
    n = 400_000
    answers = np.r_[np.zeros(int(0.6 * n)), np.ones(int(0.4 * n))]
    assert majority_at_k(answers, answers == 0, [1, 3, 5]) == pytest.approx([0.6, 0.648, 0.68256], abs=1e-5)


@pytest.mark.slow
def test_estimates_are_unbiased() -> None:
    """The mean over pools of n equals what k fresh samples give: by enumeration of all pools of six with their
    chances.
    """
    chances, scores = {0: 0.5, 1: 0.3, -1: 0.2}, {0: 0.7, 1: 0.6, -1: 0.9}

    def expected(n: int, value: Callable[[tuple[int, ...]], float]) -> float:
        return sum(math.prod(chances[a] for a in pool) * value(pool) for pool in itertools.product(chances, repeat=n))

    for k in (1, 2, 3):
        for estimate in (
            lambda pool, k: float(majority_at_k(pool, [a == 0 for a in pool], k)),
            lambda pool, k: float(best_at_k(pool, [scores[a] for a in pool], [a == 0 for a in pool], k)),
            lambda pool, k: float(
                weighted_at_k(pool, [scores[a] for a in pool], [a == 0 for a in pool], k, rng=rng()).value
            ),
        ):
            fresh = expected(k, lambda pool, f=estimate, k=k: f(pool, k))
            pooled = expected(5, lambda pool, f=estimate, k=k: f(pool, k))
            assert pooled == pytest.approx(fresh, abs=1e-12)


def test_a_perfect_score_reaches_coverage_and_a_constant_one_chooses_any_answer() -> None:
    right = [1, 0, 0, 1, 0, 0, 0, 0]
    answers, ks = [3, 1, 2, 3, 1, 4, 5, 6], np.arange(1, 9)
    np.testing.assert_allclose(best_at_k(answers, right, right, ks), pass_at_k(8, 2, ks), atol=1e-12)
    np.testing.assert_allclose(best_at_k(answers, [0.5] * 8, right, ks), 0.25, atol=1e-12)
    np.testing.assert_allclose(
        weighted_at_k(answers, [0.5] * 8, right, ks, rng=rng()).value, majority_at_k(answers, right, ks), atol=1e-12
    )


def test_drawn_subsets_are_as_near_to_all_as_their_error_says() -> None:
    answers, weights = np.array([0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 3, -1]), rng(3).random(14)
    right = answers == 0
    exact = weighted_at_k(answers, weights, right, [4, 7, 10], rng=rng(), draws=4000)
    drawn = [weighted_at_k(answers, weights, right, [4, 7, 10], rng=rng(i), draws=300) for i in range(80)]
    assert (exact.error == 0).all()
    scaled = np.array([(each.value - exact.value) / each.error for each in drawn])
    # 80 standard normal numbers in each column: mean within 4/sqrt(80), standard deviation within 4/sqrt(160)
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=0.45)
    np.testing.assert_allclose(scaled.std(axis=0), 1, atol=0.32)


def test_a_seed_is_an_answer_and_sums_in_another_order_tie() -> None:
    answers, weights, right = [0, 0, 0, 1], [0.1, 0.2, 0.3, 0.6], [0, 0, 0, 1]
    assert float(weighted_at_k(answers, weights, right, 4, rng=rng()).value) == pytest.approx(1 / 4)
    big = rng(1).integers(0, 3, 40), rng(2).random(40)
    first, again = (weighted_at_k(*big, big[0] == 1, [5, 20], rng=rng(9)) for _ in range(2))
    np.testing.assert_array_equal(first.value, again.value)
    assert (first.error > 0).all()


def test_outside_their_domain_they_are_unknown_and_keep_the_shape_of_k() -> None:
    ks = [[0, 1, 2], [3, 1.5, math.nan], [-1, math.inf, 4]]
    answers, scores, right = [0, 0, 1], [0.1, 0.2, 0.3], [1, 1, 0]
    for found in (
        majority_at_k(answers, right, ks),
        best_at_k(answers, scores, right, ks),
        *weighted_at_k(answers, scores, right, ks, rng=rng()),
    ):
        np.testing.assert_array_equal(np.isnan(found), [[True, False, False], [False, True, True], [True, True, True]])
    assert np.isnan(majority_at_k([0, 0], [1, 1], [0, 3])).all()
    for found in (majority_at_k([], [], 1), best_at_k([], [], [], 1), weighted_at_k([], [], [], 1, rng=rng()).value):
        assert np.isnan(found).all()
    for found in (
        majority_at_k([-1], [0], 1),
        best_at_k([-1], [0.5], [0], 1),
        weighted_at_k([-1], [0.5], [0], 1, rng=rng()).value,
    ):
        assert float(found) == 0  # a sample without an answer answers nothing


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: majority_at_k([0, 1], [1], 1), "answers is of shape"),
        (lambda: majority_at_k([0, -2], [1, 0], 1), "at least -1"),
        (lambda: majority_at_k([0, 0.5], [1, 0], 1), "no whole number"),
        (lambda: majority_at_k([0, 1], [1, math.nan], 1), "not from 0 to 1"),
        (lambda: best_at_k([0, 1], [0.5], [1, 0], 1), "scores is of shape"),
        (lambda: weighted_at_k([0, 1], [0.5, -0.1], [1, 0], 1, rng=rng()), "negative"),
        (lambda: weighted_at_k([0, 1], [0.5, math.inf], [1, 0], 1, rng=rng()), "infinite"),
        (lambda: weighted_at_k([0, 1], [0.5, 0.2], [1, 0], 1, rng=rng(), draws=1), "draws is 1"),
    ],
)
def test_what_they_refuse(call: Callable[[], object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        call()
