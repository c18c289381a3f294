"""Self-verification: verdicts weigh solutions by an exact law, the split follows its law, and all is paid."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tts
from tests.support.repeats import repeats
from tests.support.runs import search_one
from tts.backends.function import Answer, Ask, FunctionBackend
from tts.budget.budget import Budget
from tts.search.strategies.samples.self_verification import SelfVerification
from tts.types import Solution

SOLVES, YES = 0.45, {True: 0.8, False: 0.3}  # chances: of a right solution, of "yes" to a right one and to a wrong one


def model(seen: list[str] | None = None, words: int = 3) -> Callable[[Ask], Answer]:
    """Return a model that solves and verifies with known chances; every reply is so many tokens."""

    def say(ask: Ask) -> Answer:
        text, draw = str(ask.prompt), np.random.default_rng(ask.seed).random()
        if "Verdict" not in text:
            return Answer(f"A: {7 if draw < SOLVES else 8}", tokens=words)
        if seen is not None:
            seen.append(text)
        return Answer(f"It is so. Verdict: {'Yes' if draw < YES['A: 7' in text] else 'No'}", tokens=2 * words)

    return say


def solved(plan: str, seed: int = 0, seen: list[str] | None = None, **budget: Any) -> Solution:
    end = search_one("3 + 4", Budget(**budget or {"samples": 10**4}), plan, FunctionBackend(model(seen)), seed=seed)
    return end.solution


def exact(n: int, votes: int, *, best: bool) -> float:
    """Return the chance of the right answer by going through all outcomes: the sums of weights, or the first greatest
    score.
    """
    total = 0.0
    of = {
        right: [math.comb(votes, k) * p**k * (1 - p) ** (votes - k) for k in range(votes + 1)]
        for right, p in YES.items()
    }
    for rights in itertools.product((True, False), repeat=n):
        for yes in itertools.product(range(votes + 1), repeat=n):
            chance = math.prod((SOLVES if r else 1 - SOLVES) * of[r][k] for r, k in zip(rights, yes, strict=True))
            if best:
                total += chance * rights[max(range(n), key=lambda i: (yes[i], -i))]
                continue
            weights = {
                r: sum((k + 0.5) / (votes + 1) for s, k in zip(rights, yes, strict=True) if s == r)
                for r in (True, False)
            }
            tied = math.isclose(weights[True], weights[False])
            total += chance * (rights[0] if tied else weights[True] > weights[False])
    return total


@pytest.mark.slow
@repeats(100, 400)
@pytest.mark.parametrize(
    ("n", "votes", "best"),
    [(2, 1, False), *(pytest.param(3, 2, best, marks=pytest.mark.slow) for best in (False, True))],
)
def test_it_is_right_as_often_as_the_exact_law_says(n: int, votes: int, best: bool, runs: int) -> None:
    p = exact(n, votes, best=best)
    plan = f"self_verification(n={n}, verifications={votes})" + " | best(verifier='verified')" * best
    right = sum(solved(plan, seed=seed).answer == "7" for seed in range(runs))
    assert right / runs == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / runs))
    assert p > SOLVES + 0.05, "the law has something to see"


def test_a_score_is_the_share_of_yes_and_its_cost_is_that_of_all_verdicts() -> None:
    seen: list[str] = []
    solution = solved("self_verification(n=4, verifications=5)", seen=seen)
    assert len(seen) == 20
    assert solution.usage.samples == 4 * (1 + 5)
    assert solution.usage.generated_tokens == 4 * 3 + 20 * 6
    for c in solution.candidates:
        yes = c.scores["verified"] * 5
        assert yes == pytest.approx(round(yes))
        assert c.weight == pytest.approx((round(yes) + 0.5) / 6)


def test_without_verifications_it_is_a_vote_of_plain_samples() -> None:
    mine, plain = solved("self_verification(n=5, verifications=0)"), solved("best_of_n(n=5) | majority")
    assert [c.trajectory.full_text for c in mine.candidates] == [c.trajectory.full_text for c in plain.candidates]
    assert (mine.answer, mine.usage.tokens) == (plain.answer, plain.usage.tokens)


@pytest.mark.parametrize("n", [1, 2])
def test_a_solution_that_was_drawn_to_learn_its_length_is_one_of_the_n(n: int) -> None:
    for tokens in (5, 10, 20, 40, 300):
        solution = solved(f"self_verification(n={n})", tokens=tokens)
        assert 1 <= len(solution.candidates) <= n, tokens


def test_the_split_follows_its_law() -> None:
    assert [SelfVerification(law=(1.0, 0.5)).split(units) for units in (1, 2, 16, 100)] == [0, 1, 4, 10]
    assert [SelfVerification(law=(1.0, 0.39)).split(units) for units in (2, 30, 1000)] == [1, 4, 15], (
        "the paper's exponent"
    )
    assert SelfVerification(law=(0.0, 1.0)).split(1000) == 0
    few, many = (solved("self_verification(law=[1.0, 0.5])", samples=samples) for samples in (16, 144))
    for solution, votes in ((few, 4), (many, 12)):
        count = len(solution.candidates)
        assert count == solution.usage.samples // (1 + votes)
        assert solution.usage.samples == count * (1 + votes)
        assert all("verified" in c.scores for c in solution.candidates)


def test_without_a_law_nothing_is_verified_and_a_warning_says_so() -> None:
    mine, plain = solved("self_verification(n=5)"), solved("best_of_n(n=5) | majority")
    assert (mine.answer, mine.usage.samples) == (plain.answer, 5)
    assert mine.warnings == (
        "nothing was verified, for want of a measured law; give law=[scale, exponent], or verifications",
    )
    assert solved("self_verification(n=5, verifications=0)").warnings == ()
    filled = solved("self_verification", samples=20)
    assert (filled.usage.samples, len(filled.candidates)) == (20, 20)


def test_what_the_budget_leaves_unverified_has_no_vote() -> None:
    solution = solved("self_verification(n=40, verifications=3)", tokens=300)
    assert solution.usage.tokens <= 300
    alone = solved("self_verification(verifications=3)", tokens=300)
    assert alone.stopped_by == "what is left does not pay another solution with its verifications"
    assert alone.usage.tokens > 240


def test_solutions_whose_verification_fills_the_context_vote_as_they_are() -> None:
    class Small(FunctionBackend):
        context = 40

    end = search_one("3 + 4", Budget(samples=9), "self_verification(n=3, verifications=2)", Small(model()))
    assert end.solution.usage.samples == 3
    assert end.solution.answer in ("7", "8")
    assert all(not c.scores for c in end.solution.candidates)


def test_another_model_may_verify() -> None:
    seen: list[str] = []
    models = {"policy": FunctionBackend(model()), "second": FunctionBackend(model(seen))}
    with tts.Solver(
        models, task="arithmetic", strategy="self_verification(n=3, verifications=2, checker='second')"
    ) as solver:
        assert solver.solve("3 + 4", tts.Budget(samples=100)).error is None
    assert len(seen) == 6
