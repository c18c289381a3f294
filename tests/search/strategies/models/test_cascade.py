"""Cascades: who is asked, at what price, and how often they are right, by an exact law; models that are missing are
refused.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tts
from tests.support.repeats import repeats
from tests.support.runs import search_one
from tts.backends.base import RowSet, SampleRequest
from tts.backends.function import Answer, Ask, FunctionBackend
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget, Rates
from tts.types import Problem, Solution
from tts.verifiers.function import FunctionVerifier

SMALL, LARGE = 0.6, 0.9  # chances of a right answer, where a wrong one is always the same
CHEAP, DEAR = (
    Rates(flops=2, usd_in=0, usd_reused=0, usd_out=10**9),
    Rates(flops=2, usd_in=0, usd_reused=0, usd_out=25 * 10**9),
)


def model(chance: float, rates: Rates) -> FunctionBackend:
    def say(ask: Ask) -> Answer:
        if ask.max_tokens < 2:
            return Answer("A", tokens=1, finished=False)
        return Answer(f"A: {7 if np.random.default_rng(ask.seed).random() < chance else 8}", tokens=2)

    backend = FunctionBackend(say)
    backend.rates = rates
    return backend


def solved(
    plan: str, seed: int = 0, verifier: Callable[[Problem, str], float] | None = None, **budget: Any
) -> Solution:
    verifiers = {} if verifier is None else {"main": FunctionVerifier(verifier)}
    given = Budget(**budget or {"samples": 99})
    end = search_one(
        "3 + 4", given, plan, model(SMALL, CHEAP), seed=seed, verifiers=verifiers, models={"large": model(LARGE, DEAR)}
    )
    return end.solution


def exact(samples: int, threshold: float) -> tuple[float, float]:
    """Return the chances that the small model ends it, and that the answer is right; the large one is asked once."""
    ends = right = 0.0
    for k in range(samples + 1):
        p = math.comb(samples, k) * SMALL**k * (1 - SMALL) ** (samples - k)
        if max(k, samples - k) / samples >= threshold:
            ends += p
            right += p * (k > samples - k)
        else:
            right += p * LARGE
    return ends, right


@pytest.mark.slow
@repeats(60, 200)
@pytest.mark.parametrize(("samples", "threshold"), [(3, 1.0), pytest.param(3, 0.6, marks=pytest.mark.slow), (5, 0.8)])
def test_it_goes_on_and_is_right_as_often_as_the_exact_law_says(samples: int, threshold: float, runs: int) -> None:
    ends, right = exact(samples, threshold)
    made = [solved(f"cascade(samples=[{samples}, 1], thresholds=[{threshold}])", seed=seed) for seed in range(runs)]
    for p, seen in ((ends, [s.usage.samples == samples for s in made]), (right, [s.answer == "7" for s in made])):
        assert sum(seen) / runs == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / runs) + 1e-9)


def test_only_the_models_that_are_asked_are_paid_and_only_the_last_one_votes() -> None:
    seen = Counter[bool]()
    for seed in range(20):
        solution = solved("cascade(samples=[2, 3], thresholds=[1.0])", seed=seed)
        asked = Counter(c.trajectory.model for c in solution.candidates)
        roles = {node.model for node in solution.trace.nodes if node.parent is not None}
        if roles == {"policy"}:
            assert solution.usage.usd == pytest.approx(2 * 2 * 1e-6)
            assert solution.stopped_by == "the model 'policy' has the score 1.00, which reaches its threshold 1"
        else:
            assert solution.usage.usd == pytest.approx(2 * 2 * 1e-6 + 3 * 2 * 25e-6)
            assert (
                solution.answer
                == Counter(c.answer for c in solution.candidates if c.trajectory.model == "large").most_common(1)[0][0]
            )
        seen["large" in asked] += 1
    assert len(seen) == 2


def test_a_verifier_says_who_is_sure() -> None:
    sure = solved("cascade(samples=[1, 1], thresholds=[0.5], verifier='main')", verifier=lambda problem, text: 0.5)
    unsure = solved("cascade(samples=[1, 1], thresholds=[0.5], verifier='main')", verifier=lambda problem, text: 0.49)
    unknown = solved(
        "cascade(samples=[1, 1], thresholds=[0.0], verifier='main')", verifier=lambda problem, text: math.nan
    )
    assert [s.usage.samples for s in (sure, unsure, unknown)] == [1, 2, 2]


@pytest.mark.parametrize("usd", [1e-6, 4e-6, 5e-5, 1e-3])
def test_a_limit_in_dollars_is_never_passed(usd: float) -> None:
    for seed in range(4):
        solution = solved("cascade(samples=[2, 4], thresholds=[1.0])", seed=seed, usd=usd)
        assert (solution.usage.usd or 0) <= usd
        assert solution.answer is not None or usd < 4e-6


@pytest.mark.parametrize("plan", ["best_of_n(n=2, writer='large')", "cascade(samples=[2, 1], thresholds=[1.0])"])
def test_reading_the_prompt_is_paid_before_a_row_takes_what_is_left(plan: str) -> None:
    """Prompts cost as much as what is written: no row may be granted what its own prompt takes."""
    models = {"policy": ToyBackend(ToyLanguage(accuracy=0.5)), "large": ToyBackend(ToyLanguage(accuracy=1.0))}
    for backend in models.values():
        backend.rates = Rates(flops=2, usd_in=10**9, usd_reused=10**9, usd_out=10**9)
    with tts.Solver(models, {}, task="arithmetic", strategy=plan) as solver:
        solutions = [solver.solve("3 + 4 - 2 + 9", tts.Budget(usd=1e-3), seed=seed) for seed in range(4)]
    assert all(s.usage.usd is not None and s.usage.usd <= 1e-3 for s in solutions)
    assert any("large" in {node.model for node in s.trace.nodes} for s in solutions)


def test_a_total_in_dollars_is_divided_over_problems() -> None:
    models = {"policy": model(SMALL, CHEAP), "large": model(LARGE, DEAR)}
    with tts.Solver(models, {}, task="arithmetic", strategy="cascade(samples=[2, 1], thresholds=[1.0])") as solver:
        solutions = solver.solve_many([f"{i} + 4" for i in range(6)], tts.Budget(usd=6 * 6e-5))
    assert sum(s.usage.usd or 0 for s in solutions) <= 6 * 6e-5
    assert all(s.answer is not None for s in solutions)


def test_models_of_different_kinds_write_from_the_same_prompt() -> None:
    """Their tokenizers differ; nothing but text passes between them."""
    models = {"policy": ToyBackend(ToyLanguage(accuracy=0.5)), "large": FunctionBackend(lambda ask: "A: 7")}
    with tts.Solver(models, {}, task="arithmetic", strategy="cascade(samples=[2, 2], thresholds=[1.0])") as solver:
        answers = [solver.solve("3 + 4", tts.Budget(samples=9), seed=seed).answer for seed in range(8)]
    assert "7" in answers


class _Thinks(ToyBackend):
    """A toy that takes efforts, and notes that of each row."""

    caps = dataclasses.replace(ToyBackend.caps, efforts=True)

    def __init__(self) -> None:
        super().__init__(ToyLanguage())
        self.efforts: list[str] = []

    def sample(self, request: SampleRequest) -> RowSet:
        self.efforts += [request.sampling.effort] * len(request.rows)
        return super().sample(request)


def test_one_model_thinks_longer_only_where_two_samples_with_little_thought_disagree() -> None:
    plan = "cascade(models=['policy', 'policy'], samples=[2, 3], thresholds=[1.0], efforts=['low', 'high'])"
    agreed = Counter[bool]()
    for seed in range(20):
        backend = _Thinks()
        end = search_one("3 + 4 - 2 + 9", Budget(samples=9), plan, backend, seed=seed)
        low = [c.answer for c in end.solution.candidates[:2]] if backend.efforts == ["low"] * 2 else []
        agreed[bool(low)] += 1
        assert backend.efforts == ["low"] * 2 + ([] if low else ["high"] * 3)
        assert len(set(low)) <= 1
    assert agreed[True]
    assert agreed[False]


class _Limits(ToyBackend):
    """A toy that takes limits of thoughts, and notes that of each row."""

    caps = dataclasses.replace(ToyBackend.caps, thought_limits=True, thought_switch=True)

    def __init__(self) -> None:
        super().__init__(ToyLanguage())
        self.limits: list[int | None] = []

    def sample(self, request: SampleRequest) -> RowSet:
        self.limits += [request.sampling.thought_tokens] * len(request.rows)
        return super().sample(request)


def test_thinking_is_switched_on_only_where_two_samples_without_it_disagree() -> None:
    plan = "cascade(models=['policy', 'policy'], samples=[2, 3], thresholds=[1.0], thought_tokens=[0, 50])"
    seen = Counter[bool]()
    for seed in range(20):
        backend = _Limits()
        search_one("3 + 4 - 2 + 9", Budget(samples=9, tokens=5000), plan, backend, seed=seed)
        seen[agreed := len(backend.limits) == 2] += 1
        assert backend.limits == [0] * 2 + ([] if agreed else [50] * 3)
    assert set(seen) == {True, False}
