"""The oracles of the stop rules: which counts stop, how many samples that takes, and that nothing else matters."""

from __future__ import annotations

import asyncio
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import betainc

from tests.support.candidates import candidates, reorder
from tests.support.repeats import repeats
from tests.support.runs import check_books, make_run, solve, solve_and_show, solve_runs
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.search.stop_rules.entropy import Entropy, answer_entropy
from tts.search.stop_rules.in_a_row import InARow
from tts.search.stop_rules.posterior import Posterior, overtaking_probability
from tts.types import Problem, Solution
from tts.verifiers.function import FunctionVerifier
from tts.verifiers.toy import ToyVerifier

COIN = ToyLanguage(accuracy=0.6, slips=((1, 1.0),))


def votes(*counts: int) -> list[str]:
    return [answer for answer, count in zip("abcdef", counts, strict=False) for _ in range(count)]


def draw(
    plan: str, language: ToyLanguage = COIN, budget: Budget | None = None, seed: int = 0, **more: object
) -> Solution:
    return solve(make_run("3 + 4", budget or Budget(samples=40), plan, ToyBackend(language), seed=seed, **more))  # type: ignore[arg-type]


# Posterior of the majority --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("counts", [(4, 0), (6, 1), (8, 2), (9, 3)])
def test_the_counts_at_which_the_leader_is_safe(counts: tuple[int, int]) -> None:
    assert Posterior().should_stop(candidates(votes(*counts)))
    assert counts[1] == 0 or Posterior().should_stop(candidates(votes(*counts, 1)))  # a third answer changes nothing


@pytest.mark.parametrize(("counts", "chance"), [((3, 0), 0.9375), ((5, 1), 0.9375), ((7, 2), 0.9453), ((8, 3), 0.927)])
def test_the_counts_at_which_it_is_not(counts: tuple[int, int], chance: float) -> None:
    assert Posterior().should_stop(candidates(votes(*counts))) is None
    assert 1 - overtaking_probability(*counts) == pytest.approx(chance, abs=5e-5)
    assert Posterior(threshold=1 - overtaking_probability(*counts)).should_stop(candidates(votes(*counts)))  # inclusive


@given(a=st.integers(0, 300), b=st.integers(0, 300))
@settings(deadline=None)
def test_the_chance_to_be_overtaken_is_the_beta_law_and_falls_with_every_vote(a: int, b: int) -> None:
    assert overtaking_probability(a, b) == pytest.approx(betainc(a + 1, b + 1, 0.5), rel=1e-9)
    assert overtaking_probability(a + 1, b) <= overtaking_probability(a, b)


@pytest.mark.slow
def test_a_threshold_of_one_is_self_consistency() -> None:
    sure = ToyLanguage(accuracy=1.0)
    for language in (COIN, sure):
        assert len(draw("self_consistency(n=40) | posterior(threshold=1.0)", language).candidates) == 40
    assert len(draw("best_of_n(n=3000) | posterior(threshold=1.0)", sure, Budget(samples=3000)).candidates) == 3000
    assert len(draw("self_consistency(n=40) | posterior", sure).candidates) == 4


@pytest.mark.slow
@repeats(50, 150, "problems")
def test_the_posterior_saves_samples_and_chooses_as_the_vote_of_all_would(problems: int) -> None:
    backend = ToyBackend(ToyLanguage(accuracy=0.8, slips=((1, 0.5), (2, 0.5))))
    runs = [
        make_run(Problem("3 + 4", id=f"p{i}"), Budget(samples=40), f"self_consistency(n=40) | {rule}", backend)
        for rule in ("posterior", "never")
        for i in range(problems)
    ]
    ends = [end.solution for end in asyncio.run(solve_runs(runs))]
    early, full = ends[:problems], ends[problems:]
    assert np.mean([len(s.candidates) for s in early]) < 40 / 5
    # at an agreement of .95 and more a problem
    assert np.mean([a.answer == b.answer for a, b in zip(early, full, strict=True)]) > 0.95 - 3 * math.sqrt(
        0.05 * 0.95 / problems
    )
    assert {s.stopped_by for s in early} <= {"posterior", "done"}


# Answers in a row -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answers", "stops_at"),
    [("abba", None), ("abbb", 4), ("aaa", 3), ("aabaabaaa", 9), (["a", "a", None, "a"], None), ([None] * 5, None)],
)
def test_three_equal_answers_in_a_row(answers: list[str | None], stops_at: int | None) -> None:
    of = candidates(list(answers))
    stops = [count for count in range(1, len(of) + 1) if InARow(k=3).should_stop(of[:count])]
    assert (stops[0] if stops else None) == stops_at
    if stops_at:
        verdict = InARow(k=3).should_stop(of[:stops_at])
        assert verdict is not None
        assert verdict.answer == answers[stops_at - 1]


def test_one_in_a_row_is_the_first_answer_and_a_long_row_takes_all() -> None:
    assert len(draw("best_of_n(n=20) | in_a_row(k=1)").candidates) == 1
    assert len(draw("best_of_n(n=20) | in_a_row(k=21)").candidates) == 20


# Entropy --------------------------------------------------------------------------------------------------------------


def test_entropy_is_none_where_all_agree_and_greatest_where_all_differ() -> None:
    assert answer_entropy([7]) == answer_entropy([]) == 0
    assert answer_entropy([1] * 6) == pytest.approx(math.log(6))
    assert Entropy(threshold=0.0).should_stop(candidates("aaaa"))
    assert Entropy(threshold=0.0).should_stop(candidates("aaab")) is None
    assert Entropy(threshold=1.0).should_stop(candidates("abcd"))
    assert Entropy(threshold=0.99).should_stop(candidates("abcd")) is None
    assert Entropy(threshold=1.0, least=5).should_stop(candidates("abcd")) is None


@given(answers=st.lists(st.sampled_from([*"abcd", None]), min_size=1, max_size=12), seed=st.integers(0, 999))
@settings(deadline=None)
def test_entropy_and_posterior_do_not_depend_on_names_and_order(answers: list[str | None], seed: int) -> None:
    of = candidates(answers)
    names = dict(zip("abcd", "xyzw", strict=True))
    renamed = candidates([None if answer is None else names[answer] for answer in answers])
    mixed = reorder(of, np.random.Generator(np.random.Philox(seed)).permutation(len(of)).tolist())
    for rule in (Entropy(), Posterior(threshold=0.8)):
        verdicts = {rule.should_stop(some) is None for some in (of, renamed, mixed)}
        assert len(verdicts) == 1


# Scores ---------------------------------------------------------------------------------------------------------------


def test_the_first_good_score_stops_and_nothing_is_drawn_behind_it() -> None:
    verifiers = {"main": ToyVerifier(error=0.1)}
    stopped = 0
    for seed in range(12):
        full, early = (
            draw(f"best_of_n(n=8) | {rule} | weighted", budget=Budget(tokens=4000), seed=seed, verifiers=verifiers)
            for rule in ("never", "score_threshold(threshold=0.9)")
        )
        scores = [c.scores["main"] for c in sorted(full.candidates, key=lambda c: c.index)]
        first = next((i for i, score in enumerate(scores) if score >= 0.9), None)
        assert early.stopped_by == ("done" if first is None else "score")
        assert len(early.candidates) == (8 if first is None else first + 1)
        assert early.usage.generated_tokens == 9 * len(early.candidates)
        stopped += first is not None
    assert stopped > 6


@pytest.mark.parametrize(("threshold", "count"), [(0.0, 1), (1.1, 12)])
def test_a_threshold_of_zero_takes_one_sample_and_one_beyond_reach_all(threshold: float, count: int) -> None:
    end = solve_and_show(
        make_run(
            "3 + 4",
            Budget(samples=12),
            f"best_of_n(n=12) | score_threshold(threshold={threshold})",
            ToyBackend(COIN),
            verifiers={"main": ToyVerifier()},
        )
    )
    assert len(end.solution.candidates) == count
    assert end.search is not None
    check_books(end.search)


def test_a_constant_score_stops_at_once_or_never() -> None:
    for threshold in (0.2, 0.5, 0.6):
        plan = f"best_of_n(n=9) | score_threshold(threshold={threshold})"
        solution = draw(plan, verifiers={"main": FunctionVerifier(lambda problem, text: 0.5)})
        assert len(solution.candidates) == (1 if threshold <= 0.5 else 9)


def test_scores_for_a_rule_are_paid_once_and_nothing_stays_held_for_them() -> None:
    for selection in ("majority", "weighted", "best"):
        end = solve_and_show(
            make_run(
                "3 + 4",
                2000,
                f"best_of_n(n=6) | score_threshold(threshold=2.0) | {selection}",
                ToyBackend(COIN),
                verifiers={"main": ToyVerifier()},
            )
        )
        assert end.solution.usage.verifier_calls == 6
        assert not end.solution.warnings
        assert end.search is not None
        check_books(end.search)


def test_a_rule_by_scores_needs_a_verifier() -> None:
    from tts.errors import ConfigError

    with pytest.raises(ConfigError, match="no verifier has it"):
        draw("best_of_n(n=3) | score_threshold | majority")


def test_stepwise_methods_stop_by_scores_too() -> None:
    solution = draw("particle_filter(n=6) | score_threshold(threshold=0.5)", verifiers={"main": ToyVerifier()})
    assert solution.stopped_by == "score"
