"""Random plans of all parts, on models and verifiers that lie and fail: every promise of a search holds."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

from tests.support.plans import PlanProgram, check, draw, run
from tests.support.runs import Solved
from tts.budget.budget import Budget


@pytest.mark.parametrize("first", range(0, 100, 20))
def test_random_plans_keep_every_promise(first: int) -> None:
    ends = Counter(check(draw(number)) for number in range(first, first + 20))
    assert ends.keys() - {"ConfigError", "CapabilityError"}, "all of them were refused"


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 10_000, 500))
def test_10000_random_plans_keep_every_promise(first: int) -> None:
    for number in range(first, first + 500):
        check(draw(number))


def test_the_first_candidate_is_the_chosen_one_where_no_score_is_known() -> None:
    program = PlanProgram(
        8639, "entropic_particle_filter(n=17) | posterior()", Budget(usd=1e-6), "fails", "nan", "3 + 4", 0
    )
    assert check(program) == "done"


@pytest.mark.parametrize("unit", ["generated_tokens", "tokens", "verifier_tokens", "flops", "usd"])
@pytest.mark.parametrize(
    "plan", ["entropy_switching(n=2)", "spec_reason(n=2)", "best_of_n(n=2, writer='draft') | best"]
)
def test_a_verifier_s_model_opens_paths_of_another_within_what_is_granted(plan: str, unit: str) -> None:
    budget = Budget(**{"generated_tokens": 300, unit: 1e-3 if unit == "usd" else 3000})
    program = dataclasses.replace(
        draw(158), plan=plan, budget=budget, model="toy", verifier="toy", problem="3 + 4", seed=3
    )
    assert check(program) == "done"
    end = run(program)
    assert isinstance(end, Solved)
    assert all(candidate.scores for candidate in end.solution.candidates)
