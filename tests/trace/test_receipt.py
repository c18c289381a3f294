"""A receipt sums up the ledger, and its parts are what so many samples alone would have answered."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tts
from tests.support.browser import CHROMIUM, open_page
from tts.backends.function import FunctionBackend
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Rates
from tts.budget.ledger import sum_usage
from tts.trace.receipt import NOT_RECORDED
from tts.trace.trace import Trace

SUM = "3 + 4 - 2 + 9"


def writer(ask: tts.Ask) -> tts.Answer:
    return tts.Answer(f"so \\boxed{{{ask.seed % 3}}}", tokens=20)


def grader(ask: tts.Ask) -> tts.Answer:
    return tts.Answer('{"reason": "it adds up", "score": 9}', tokens=12)


def priced(function: Callable[[tts.Ask], tts.Answer], price: int) -> FunctionBackend:
    backend = FunctionBackend(function)
    backend.rates = Rates(flops=None, usd_in=price * 10**9, usd_reused=0, usd_out=2 * price * 10**9)
    return backend


def graded() -> tts.Solution:
    models = {"policy": priced(writer, 1), "grader": priced(grader, 10)}
    with tts.Solver(models, "judge(model='grader', votes=2)", task="math", strategy="best_of_n(n=4) | best") as solver:
        return solver.solve("What is 2 + 2?", 20_000)


def solved(strategy: str, verifier: str | None = "toy(error=0.1)") -> tts.Solution:
    return tts.solve(SUM, 4000, model="toy", strategy=strategy, verifier=verifier, seed=3)


@pytest.mark.parametrize(
    "strategy", ["best_of_n(n=8) | weighted", "beam(n=4)", "best_of_n(n=4) | medoid", "auto", "single"]
)
def test_phases_sum_to_the_ledger(strategy: str) -> None:
    check_sums(solved(strategy))


def test_phases_sum_to_the_ledger_where_models_have_prices() -> None:
    solution = graded()
    check_sums(solution)
    phases = {phase.role: phase for phase in solution.receipt().phases}
    assert set(phases) == {"policy", "main"}
    assert phases["main"].work == "score"
    assert phases["main"].tokens == solution.usage.verifier_tokens > 0
    assert phases["policy"].tokens == solution.usage.generated_tokens
    dollars = [phase.usd or 0 for phase in phases.values()]
    assert min(dollars) > 0
    assert sum(dollars) == pytest.approx(solution.usage.usd)


def test_each_arm_of_a_fusion_is_booked_to_its_model_at_its_price() -> None:
    models = {"policy": priced(writer, 1), "second": priced(writer, 3), "judge": priced(writer, 10)}
    strategy = "archon(n=2, writers=['policy', 'second'], layers=['generate', 'fuse'], aggregator='judge')"
    with tts.Solver(models, task="math", strategy=strategy) as solver:
        solution = solver.solve("What is 2 + 2?", {"samples": 5, "tokens": 4000})
    check_sums(solution)
    phases = {phase.role: phase for phase in solution.receipt().phases}
    assert {*phases} == {"policy", "second", "judge"}
    assert phases["policy"].tokens == phases["second"].tokens == 40
    for role, price in (("policy", 1), ("second", 3), ("judge", 10)):
        phase = phases[role]
        assert phase.usd == pytest.approx((phase.prompt_tokens + 2 * phase.tokens) * price * 1e-6)


def check_sums(solution: tts.Solution) -> None:
    receipt, total = solution.receipt(), sum_usage([call.usage for call in solution.trace.calls])
    assert sum(phase.calls for phase in receipt.phases) == len(solution.trace.calls)
    assert sum(phase.tokens for phase in receipt.phases) == receipt.tokens == total.tokens == solution.usage.tokens
    assert sum(phase.requests or 0 for phase in receipt.phases) == total.requests == solution.usage.requests
    assert sum(phase.prompt_tokens for phase in receipt.phases) == total.prompt_tokens == solution.usage.prompt_tokens
    assert math.fsum(phase.seconds for phase in receipt.phases) == pytest.approx(total.seconds)
    dollars = [phase.usd for phase in receipt.phases]
    assert receipt.usd == solution.usage.usd
    assert (None in dollars) == (total.usd is None)


@pytest.mark.parametrize(
    "selection", ["majority", "weighted", "best", "borda", "selective(threshold=0.9)", "weighted(aggregate='min')"]
)
def test_parts_are_what_so_many_samples_answer_alone(selection: str) -> None:
    for seed in range(5):
        run: Any = {
            "model": ToyBackend(ToyLanguage(accuracy=0.6)),
            "verifier": "toy(error=0.3)",
            "seed": seed,
            "task": "arithmetic",
        }
        whole = tts.solve(SUM, 4000, strategy=f"best_of_n(n=8) | {selection}", **run)
        parts = whole.receipt().parts
        assert parts is not None, whole.receipt().reason
        assert [part.samples for part in parts] == [2, 4]
        for part in parts:
            alone = tts.solve(SUM, 4000, strategy=f"best_of_n(n={part.samples}) | {selection}", **run)
            assert part.answer == alone.answer
            assert part.confidence == pytest.approx(alone.confidence, nan_ok=True)


def test_parts_are_known_only_where_the_search_has_asked_for_all_their_scores() -> None:
    solutions = [
        tts.solve(
            SUM,
            4000,
            model=ToyBackend(ToyLanguage(accuracy=0.6)),
            verifier="toy(error=0.3)",
            seed=seed,
            task="arithmetic",
            strategy="best_of_n(n=8) | best_of_majority(alpha=0.3)",
        )
        for seed in range(20)
    ]
    receipts = [solution.receipt() for solution in solutions]
    assert {receipt.reason for receipt in receipts} == {"", "the selection best_of_majority would need new calls"}
    assert all((receipt.parts is None) == bool(receipt.reason) for receipt in receipts)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "reason"),
    [
        ("beam(n=4)", "samples of beam are not independent whole solutions"),
        ("best_of_n(n=4) | medoid", "the selection medoid would need new calls"),
        ("best_of_n(n=1) | majority", "a single sample has no parts"),
        ("single", "a single sample has no parts"),
    ],
)
def test_parts_that_are_not_known_have_a_reason(strategy: str, reason: str) -> None:
    receipt = solved(strategy).receipt()
    assert (receipt.parts, receipt.reason) == (None, reason)


def test_a_failed_search_has_phases_and_no_parts() -> None:
    def fails(problem: tts.Problem, text: str) -> float:
        raise RuntimeError("broken")

    with tts.Solver("toy", fails, strategy="best_of_n(n=4) | weighted", on_error="keep") as solver:
        receipt = solver.solve(SUM, 4000).receipt()
    assert receipt.phases
    assert (receipt.parts, receipt.reason) == (None, "the search was ended by a failure")


def test_a_solution_without_a_trace_says_so() -> None:
    with pytest.raises(tts.ConfigError, match=r"solution.*receipt"):
        dataclasses.replace(solved("single"), trace=None).receipt()


@pytest.mark.parametrize("strategy", ["best_of_n(n=8) | weighted", "beam(n=4)"])
def test_receipts_come_back_from_json_and_pickles(strategy: str) -> None:
    solution = solved(strategy)
    text = solution.trace.to_json()
    assert Trace.from_json(text).receipt() == solution.receipt() == pickle.loads(pickle.dumps(solution)).receipt()
    assert Trace.from_json(text).to_json() == text
    old = json.loads(text)
    del old["receipt"]
    assert Trace.from_json(json.dumps(old)).receipt().reason == NOT_RECORDED


def test_equal_searches_have_equal_parts_in_their_canonical_records() -> None:
    first, again = (solved("best_of_n(n=8) | weighted").trace.canonical() for _ in range(2))
    assert first == again
    assert [part["samples"] for part in first["receipt"]["parts"]] == [2, 4]


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_the_page_shows_the_receipt(tmp_path: Path) -> None:
    page = open_page(solved("best_of_n(n=8) | weighted").trace.to_html(), tmp_path, size="1280,800")
    assert page.log == []
    shown = page.find_id("receipt").text
    assert all(words in shown for words in ("policy", "main", "The first 2 samples: 14"))
