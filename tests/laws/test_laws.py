"""What the arithmetic of a method says, checked on a language whose every probability is known. Seeds are fixed."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tests.support.repeats import repeats
from tests.support.runs import make_run, solve, solve_runs
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.randomness import child_stream, root_stream, uniform, uniforms
from tts.search.selections.best import Best
from tts.search.selections.majority import Majority
from tts.search.selections.weighted import Weighted
from tts.types import Candidate, Problem, Solution
from tts.verifiers.toy import ToyVerifier

COIN = ToyLanguage(accuracy=0.6, slips=((1, 1.0),))  # "3 + 4" gives 7 with probability .6, else 8


def drawn(language: ToyLanguage, count: int, problem: str = "3 + 4", **more: Any) -> Solution:
    return solve(make_run(problem, Budget(samples=count), f"best_of_n(n={count})", ToyBackend(language), **more))


def pool(language: ToyLanguage, count: int, problem: str = "3 + 4") -> list[Candidate]:
    """Return candidates of one search in the order they were drawn."""
    return sorted(drawn(language, count, problem).candidates, key=lambda c: c.index)


def solve_all(
    plan: str, problems: int, language: ToyLanguage, *, text: str, samples: int, **more: Any
) -> list[Solution]:
    backend = ToyBackend(language)
    runs = [
        make_run(Problem(text, id=f"p{i}"), Budget(samples=samples), plan, backend, **more) for i in range(problems)
    ]
    return [end.solution for end in asyncio.run(solve_runs(runs))]


# Choosing -------------------------------------------------------------------------------------------------------------


@repeats(1000, 3000, "groups")
@pytest.mark.parametrize(
    ("n", "expected"),
    [pytest.param(1, 0.6, marks=pytest.mark.slow), (3, 0.648), pytest.param(5, 0.68256, marks=pytest.mark.slow)],
)
def test_majority_of_n_follows_the_binomial_law(n: int, expected: float, groups: int) -> None:
    votes = pool(COIN, groups * n)
    chosen = [asyncio.run(Majority().select(votes[g * n : (g + 1) * n], None)).answers[0] for g in range(groups)]  # type: ignore[arg-type]
    # standard error sqrt(.6 * .4 / groups), .009 of 3000; the three values are .035 apart and more
    assert np.mean([answer == "7" for answer in chosen]) == pytest.approx(expected, abs=3 * math.sqrt(0.24 / groups))


@repeats(100, 300)
def test_majority_of_n_follows_the_binomial_law_from_end_to_end(runs: int) -> None:
    solutions = solve_all("best_of_n(n=3) | majority", runs, COIN, text="3 + 4", samples=3)
    assert np.mean([s.answer == "7" for s in solutions]) == pytest.approx(
        0.648, abs=3 * math.sqrt(0.648 * 0.352 / runs)
    )


@repeats(80, 200)
@pytest.mark.parametrize("n", [1, 2, 4])
def test_best_of_n_with_a_perfect_verifier_is_pass_at_n(n: int, runs: int) -> None:
    language = ToyLanguage(accuracy=0.6, slips=((1, 1.0),), mute=0.1)  # slips of one sign: no right answer by luck
    solutions = solve_all(
        f"best_of_n(n={n}) | best", runs, language, text="3 + 4 + 5", samples=n, verifiers={"main": ToyVerifier()}
    )
    right = [s.answer == "12" for s in solutions]
    assert right == [any(c.answer == "12" for c in s.candidates) for s in solutions]
    # p = .6 * .6 * .9 = .324; standard error at most sqrt(.25 / runs)
    assert np.mean(right) == pytest.approx(1 - (1 - 0.324) ** n, abs=3 * math.sqrt(0.25 / runs))


@repeats(15, 60)
def test_a_constant_verifier_makes_weighted_a_majority_and_best_the_first_with_an_answer(runs: int) -> None:
    language = ToyLanguage(accuracy=0.4, mute=0.4)
    verifiers = {"main": ToyVerifier(error=0.5)}
    for seed in range(runs):
        by_plan = {
            plan: solve(
                make_run(
                    "3 + 4 - 2",
                    Budget(samples=6),
                    f"best_of_n(n=6) | {plan}",
                    ToyBackend(language),
                    verifiers=verifiers,
                    seed=seed,
                )
            )
            for plan in ("majority", "weighted", "best")
        }
        assert by_plan["weighted"].answer == by_plan["majority"].answer
        assert by_plan["weighted"].confidence == pytest.approx(by_plan["majority"].confidence)
        in_order = sorted(by_plan["best"].candidates, key=lambda c: c.index)
        assert by_plan["best"].answer == next((c.answer for c in in_order if c.answer is not None), None)


def test_an_outcome_of_one_sample_is_that_sample_under_every_selection() -> None:
    for seed in range(10):
        answers = {
            solve(
                make_run(
                    "3 + 4 - 2",
                    500,
                    f"best_of_n(n=1) | {s}",
                    ToyBackend(),
                    seed=seed,
                    verifiers={"main": ToyVerifier()},
                )
            ).answer
            for s in ("majority", "weighted", "best", "best_of_majority(alpha=0.0)")
        }
        assert answers == {solve(make_run("3 + 4 - 2", 500, "single", ToyBackend(), seed=seed)).answer}


@pytest.mark.parametrize("selection", [Best(), Weighted(), Majority()])
def test_multiplying_scores_by_a_positive_constant_changes_no_choice(selection: Any) -> None:
    from tests.support.candidates import ScoredSearch, candidates

    rng = np.random.Generator(np.random.Philox(5))
    for _ in range(50):
        of = candidates([str(a) for a in rng.integers(0, 4, size=9)])
        scores = rng.random(9)
        plain, halved = (asyncio.run(selection.select(of, ScoredSearch(list(s), of))) for s in (scores, scores / 2))
        assert plain.answers == halved.answers


# Drawing --------------------------------------------------------------------------------------------------------------


@repeats(1000, 3000, "count")
@pytest.mark.parametrize("problem", ["3 + 4", "3 + 4 - 2", "10 - 7 + 5 - 20"])
def test_the_exact_law_of_answers_is_the_law_that_searches_draw_from(problem: str, count: int) -> None:
    language = ToyLanguage(accuracy=0.7, mute=0.15)
    law = language.answer_distribution(problem)
    assert sum(law.values()) == pytest.approx(1)
    seen = Counter(c.answer for c in pool(language, count, problem))
    assert set(seen) <= set(law)
    common = [answer for answer, p in law.items() if p * count >= 5]
    rare = 1 - sum(law[answer] for answer in common)
    expected = [law[answer] * count for answer in common] + ([rare * count] if rare > 1e-9 else [])
    counts = [seen[answer] for answer in common] + (
        [count - sum(seen[answer] for answer in common)] if rare > 1e-9 else []
    )
    # one in a thousand laws would fail by chance; the seed is fixed
    assert stats.chisquare(counts, expected).pvalue > 1e-3


def test_greedy_writes_the_likeliest_path() -> None:
    for seed in range(5):
        run = make_run("3 + 4 - 2", 500, "single(temperature=0.0)", ToyBackend(ToyLanguage(accuracy=0.5)), seed=seed)
        assert solve(run).answer == "5"


def test_streams_are_uniform_and_siblings_are_independent() -> None:
    parent = root_stream(0, 12345, "solve")
    streams = np.array([child_stream(parent, 0, j) for j in range(20000)], dtype=np.uint64)
    assert len(set(streams.tolist())) == len(streams)
    by_position = [uniforms(streams, np.full(len(streams), position)) for position in (0, 1, 2)]
    along = uniforms(np.full(20000, parent, dtype=np.uint64), np.arange(20000))
    scratch = uniforms(streams, np.zeros(len(streams), dtype=np.int64), word=1)
    for draws in (*by_position, along, scratch):
        assert draws.min() >= 0
        assert draws.max() < 1
        counts, _ = np.histogram(draws, bins=20, range=(0, 1))
        assert stats.chisquare(counts).pvalue > 1e-3
    # the correlation of independent draws has standard error 1 / sqrt(20000) = .0071
    for a, b in (
        (by_position[0], by_position[1]),
        (by_position[0], scratch),
        (along[:-1], along[1:]),
        (along, by_position[0]),
    ):
        assert abs(np.corrcoef(a, b)[0, 1]) < 4 * 0.0071
    assert uniform(int(streams[7]), 2) == by_position[2][7]


# Stopping -------------------------------------------------------------------------------------------------------------

THREE_ANSWERS = ToyLanguage(accuracy=0.7, slips=((1, 2 / 3), (2, 1 / 3)))  # p = (.7, .2, .1)


def _expected_samples(law: tuple[float, ...], window: int, most: int) -> float:
    q, m = sum(p**window for p in law), most // window
    return window * (sum(q * (1 - q) ** i * (i + 1) for i in range(m - 1)) + (1 - q) ** (m - 1) * m)


@repeats(120, 400)
def test_the_expected_samples_of_unanimous_windows(runs: int) -> None:
    assert _expected_samples((0.7, 0.2, 0.1), 5, 40) == pytest.approx(22.90, abs=0.005)
    solutions = solve_all("best_of_n(n=40) | unanimous(window=5)", runs, THREE_ANSWERS, text="3 + 4", samples=40)
    used = [len(s.candidates) for s in solutions]
    # the count is 5 times a geometric variable cut at 8 windows: standard deviation 13.1 by its law
    assert np.mean(used) == pytest.approx(22.90, abs=3 * 13.1 / math.sqrt(runs))
    assert {s.stopped_by for s in solutions} == {"unanimous", "done"}
    for s in solutions:
        in_order = sorted(s.candidates, key=lambda c: c.index)
        if s.stopped_by == "unanimous":
            assert {c.answer for c in in_order[-5:]} == {s.answer}
        else:
            assert len(in_order) == 40


def test_a_window_of_one_takes_one_sample_a_sure_model_one_window_and_a_wide_window_all() -> None:
    for language, window, count in ((COIN, 1, 1), (ToyLanguage(accuracy=1.0), 5, 5), (COIN, 41, 40)):
        run = make_run(
            "3 + 4", Budget(samples=40), f"best_of_n(n=40) | unanimous(window={window})", ToyBackend(language)
        )
        assert len(solve(run).candidates) == count


def test_a_window_without_an_answer_never_agrees() -> None:
    run = make_run(
        "3 + 4", Budget(samples=20), "best_of_n(n=20) | unanimous(window=2)", ToyBackend(ToyLanguage(mute=1.0))
    )
    solution = solve(run)
    assert (solution.stopped_by, len(solution.candidates), solution.answer) == ("done", 20, None)
