"""The oracles of particle filtering (algorithm A9) on the toy language, whose law is known."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from tests.support.odd import EndsAtRandom
from tests.support.repeats import check_law, repeats
from tests.support.runs import copies, search_many, search_one
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.search.algorithms.resampling import softmax
from tts.types import Problem
from tts.verifiers.base import estimate_unknown, to_log_odds
from tts.verifiers.function import FunctionVerifier
from tts.verifiers.toy import ToyVerifier

CONSTANT = ToyVerifier(error=0.5)
LANGUAGE = ToyLanguage(accuracy=0.5, slips=((1, 0.5), (-1, 0.3), (10, 0.2)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "runs"),
    [
        ("particle_filter(n=3)", 200),
        ("particle_filter(n=3)", 5000),
        ("particle_filter(n=3, resampling='systematic')", 5000),
    ],
)
def test_under_a_constant_verifier_a_particle_follows_the_law_of_the_model(plan: str, runs: int) -> None:
    """One particle of each of many filters: those of one filter share ancestors."""
    problems = copies("3 + 4 - 2", runs)
    ends = search_many(problems, Budget(samples=60), f"{plan} | majority", ToyBackend(LANGUAGE), verifiers=CONSTANT)
    seen = Counter(min(end.solution.candidates, key=lambda c: c.index).answer for end in ends)
    check_law(seen, LANGUAGE.answer_distribution("3 + 4 - 2"))


# Weights --------------------------------------------------------------------------------------------------------------


def test_particles_are_drawn_by_the_odds_of_their_scores() -> None:
    scores = np.array([0.9, 0.6, 0.3, 0.1])
    weights = estimate_unknown(to_log_odds(scores, (0.0, 1.0)))
    assert softmax(weights) == pytest.approx([0.815, 0.136, 0.039, 0.010], abs=5e-4)
    assert weights == pytest.approx(np.log(scores / (1 - scores)))
    # any range is mapped to [0, 1]
    assert estimate_unknown(to_log_odds(np.array([18.0, 12.0]), (0.0, 20.0))) == pytest.approx(weights[:2])


def test_sure_scores_are_clipped_and_unknown_ones_weigh_the_mean() -> None:
    weights = estimate_unknown(to_log_odds(np.array([0.0, 1.0, math.nan, 0.5]), (0.0, 1.0)))
    assert np.isfinite(weights).all()
    assert weights[:2] == pytest.approx([-math.log((1 - 1e-7) / 1e-7), math.log((1 - 1e-7) / 1e-7)])
    assert weights[2] == pytest.approx(weights[[0, 1, 3]].mean())
    assert estimate_unknown(to_log_odds(np.array([math.nan, math.nan]), (0.0, 1.0)), otherwise=0.0).tolist() == [
        0.0,
        0.0,
    ]


def test_an_unbounded_score_is_a_log_odds_as_it_is() -> None:
    weights = estimate_unknown(to_log_odds(np.array([-2.0, 1.5, 1e4, -1e4]), (-math.inf, math.inf)))
    assert weights[:2].tolist() == [-2.0, 1.5]
    assert np.isfinite(weights).all()


# The target -----------------------------------------------------------------------------------------------------------

# r(x_1:2), by which results are right
SCORES = {(True, True): 0.7, (True, False): 0.2, (False, True): 0.6, (False, False): 0.3}


def judged(problem: Problem, text: str) -> float:
    """Score a prefix of "3 + 4 - 2": .8 or .4 for one step, by whether it is right; `SCORES` for two and more."""
    steps = [line for line in text.splitlines() if " = " in line]
    right = [result_of(line) == asked_of(line) for line in steps]
    if len(right) == 1:
        return 0.8 if right[0] else 0.4
    return SCORES[right[0], right[1]]


def result_of(line: str) -> int:
    return int(line.split(" = ")[1])


def asked_of(line: str) -> int:
    first, sign, change = line.split(" = ", maxsplit=1)[0].split()
    return int(first) + (int(change) if sign == "+" else -int(change))


def _target(*, divided: bool) -> dict[tuple[bool, bool], float]:
    """Return the law of (first step right, second step right): p(x_1) odds(x_1) p(x_2 | x_1) odds(x_1:2), or divided by
    odds(x_1).
    """
    mass: dict[tuple[bool, bool], float] = {}
    for first, second in itertools.product((True, False), repeat=2):
        r1, r2 = 0.8 if first else 0.4, SCORES[first, second]
        odds1, odds2 = r1 / (1 - r1), r2 / (1 - r2)
        mass[first, second] = 0.25 * (1.0 if divided else odds1) * odds2
    total = sum(mass.values())
    return {key: value / total for key, value in mass.items()}


@repeats(1000, 3000, "n")
def test_many_particles_follow_the_product_of_the_levels_potentials(n: int) -> None:
    end = search_one(
        "3 + 4 - 2",
        Budget(samples=10 * n),
        f"particle_filter(n={n})",
        ToyBackend(LANGUAGE),
        verifiers=FunctionVerifier(judged),
    )
    assert len(end.solution.candidates) == n  # copies of the last resampling were written on separately
    seen: Counter[tuple[bool, bool]] = Counter()
    for candidate in end.solution.candidates:
        lines = candidate.trajectory.full_text.splitlines()
        seen[result_of(lines[0]) == asked_of(lines[0]), result_of(lines[1]) == asked_of(lines[1])] += 1
    wanted, other = _target(divided=False), _target(divided=True)
    # twice resampled with an effective sample size above n / 2: standard error at most 2 sqrt(.25 / (n / 2)), .026 of
    # 3000
    assert all(abs(seen[key] / n - p) < 0.05 * math.sqrt(3000 / n) for key, p in wanted.items())
    assert max(abs(wanted[key] - p) for key, p in other.items()) > 0.12, "the test could not tell the two targets apart"


# What becomes of particles --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("finished", [0.999999, 0.000001])
def test_a_finished_particle_multiplies_or_dies_in_later_resamplings(finished: float) -> None:
    def worth(problem: Problem, text: str) -> float:
        return finished if "A: " in text else 0.5

    verifiers = {"main": FunctionVerifier(worth)}
    for seed in range(10):
        end = search_one(
            "3 + 4",
            Budget(samples=300),
            "particle_filter(n=6, max_steps=6)",
            EndsAtRandom(),
            seed=seed,
            verifiers=verifiers,
        )
        ended = {t.depth for t in end.search.tree.nodes if t.status == "finished"}
        survivors = {c.trajectory.depth for c in end.solution.candidates}
        if finished > 0.5:  # the first to finish take every place, and nobody goes on
            assert survivors == ended == {min(ended)}
            assert max(ended) < 6
        else:  # whoever finishes dies while one goes on
            assert survivors == {max(ended)}
            assert len(ended) > 1


@pytest.mark.slow
def test_a_perfect_verifier_brings_many_particles_to_the_right_answer() -> None:
    backend = ToyBackend(ToyLanguage(accuracy=0.5, slips=((1, 1.0),)))
    problem = "10 - 7 + 5 - 20"
    ends = search_many(
        copies(problem, 60), Budget(samples=200), "particle_filter(n=8)", backend, verifiers=ToyVerifier()
    )
    right = [end.solution.answer == "-12" for end in ends]
    # each of three steps goes on if one of 8 particles is right: (1 - 2^-8)^3 = .988; best-of-8 would have 1 - (7/8)^8
    # = .656
    assert np.mean(right) >= 0.93


def test_a_budget_of_few_samples_keeps_every_ancestor_before_it_pays_for_copies() -> None:
    plan = "particle_filter(n=4, resampling='systematic')"
    end = search_one("10 - 7 + 5 - 20", Budget(samples=4), plan, ToyBackend(LANGUAGE), verifiers=CONSTANT)
    assert len(end.solution.candidates) == 4
    assert end.solution.usage.samples == 4


def test_the_dead_are_pruned_and_their_state_is_released() -> None:
    end = search_one(
        "10 - 7 + 5 - 20",
        Budget(samples=90),
        "particle_filter(n=6)",
        ToyBackend(LANGUAGE),
        verifiers=ToyVerifier(error=0.1),
    )
    finished = {c.trajectory.node for c in end.solution.candidates}
    alive = {node.node for c in end.solution.candidates for node in c.trajectory.path}
    assert end.search.tree.pruned
    assert not end.search.tree.pruned & alive
    assert finished <= alive


def test_a_sharp_weight_temperature_keeps_the_best_and_a_flat_one_keeps_all() -> None:
    verifiers = {"main": ToyVerifier(error=0.3)}
    for tau, expected in ((0.001, 1), (1e6, 8)):
        plan = f"particle_filter(n=8, resampling='systematic', weight_temperature={tau})"
        end = search_one("10 - 7 + 5 - 20", Budget(samples=400), plan, ToyBackend(LANGUAGE), verifiers=verifiers)
        first = {c.trajectory.path[1].node for c in end.solution.candidates}
        assert (len(first) == expected) or (tau == 0.001 and len(first) < 4)
