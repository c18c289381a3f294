"""A verifier that fails is raised, or returned without a confidence; it never becomes a quiet vote."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from typer.testing import CliRunner

import tts
from tts.backends.base import SampleRequest
from tts.backends.toy.backend import ToyBackend
from tts.cli.app import app
from tts.errors import ConfigError, VerifierError
from tts.experiments.run.runner import PreparedStudy, run
from tts.experiments.store.store import Store
from tts.experiments.study.config import study_config
from tts.verifiers.ensemble import Ensemble
from tts.verifiers.function import FunctionVerifier
from tts.verifiers.making import make_verifier

PROBLEM = "3 + 4 - 2"
BUDGET = tts.Budget(samples=8)


def broken(_problem: tts.Problem, text: str) -> float:
    raise KeyError(text)


def outside(_problem: tts.Problem, _text: str) -> float:
    return math.inf


def silent(_problem: tts.Problem, _text: str) -> Any:
    return None


def forty(_problem: tts.Problem, _text: str) -> float:
    return 40.0


BROKEN = [broken, outside, silent]
STRATEGIES = ["best_of_n(n=4) | weighted", "best_of_n(n=4) | best", "beam(n=4, branching=2)", "adaptive(n=4)"]


def solve(verifier: Any, strategy: str, **more: Any) -> tts.Solution:
    return tts.solve(PROBLEM, BUDGET, model="toy", verifier=verifier, strategy=strategy, **more)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Sequence[SampleRequest]:
    """Every request for samples."""
    seen: list[SampleRequest] = []
    sample = ToyBackend.sample

    def spy(self: ToyBackend, request: SampleRequest) -> Any:
        seen.append(request)
        return sample(self, request)

    monkeypatch.setattr(ToyBackend, "sample", spy)
    return seen


@pytest.mark.parametrize("verifier", BROKEN)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_solve_raises_with_what_was_found(verifier: Callable[..., Any], strategy: str) -> None:
    with pytest.raises(VerifierError) as caught:
        solve(verifier, strategy)
    found = caught.value.partial
    assert found.error is caught.value
    assert found.usage.generated_tokens > 0
    assert math.isnan(found.confidence)
    assert found.stopped_by == "failed"


def test_asolve_raises_too() -> None:
    with pytest.raises(VerifierError) as caught:
        asyncio.run(tts.asolve(PROBLEM, BUDGET, model="toy", verifier=broken, strategy="best_of_n(n=2) | best"))
    assert len(caught.value.partial.candidates) == 2


def test_nothing_more_is_spent_once_it_failed(requests: Sequence[SampleRequest]) -> None:
    calls: list[int] = []

    def third(_problem: tts.Problem, _text: str) -> float:
        calls.append(len(requests))
        if len(calls) >= 3:
            raise ValueError
        return 0.5

    with pytest.raises(VerifierError):
        tts.solve(PROBLEM, tts.Budget(samples=64), model="toy", verifier=third, strategy="beam(n=16, branching=4)")
    assert len(calls) == 3
    assert len(requests) == calls[-1]


def test_many_return_it_without_a_confidence_and_the_others_go_on() -> None:
    def picky(problem: tts.Problem, _text: str) -> float:
        return 1.0 / (len(problem.text) - len(PROBLEM))  # divides by zero for one problem

    found = tts.solve_many(
        [PROBLEM, "3 + 4 - 2 + 1", "3 + 4 + 2 + 1 + 4"],
        each=BUDGET,
        model="toy",
        verifier=picky,
        strategy="best_of_n(n=4) | best",
    )
    assert isinstance(found[0].error, VerifierError)
    assert math.isnan(found[0].confidence)
    assert [one.error for one in found[1:]] == [None, None]


def test_it_can_be_kept_as_a_vote() -> None:
    found = solve(broken, "best_of_n(n=4) | weighted", on_error="keep")
    assert isinstance(found.error, VerifierError)
    assert 0 < found.confidence <= 1
    assert found.answer is not None
    with pytest.raises(ConfigError, match=r"on_error.*'ignore',.*'raise'"):
        tts.solve(PROBLEM, BUDGET, model="toy", on_error="ignore")  # type: ignore[arg-type]


def test_a_study_keeps_the_error_and_no_confidence(tmp_path: Any) -> None:
    config = study_config(
        {
            "name": "a",
            "models": "toy",
            "problems": {"dataset": "arithmetic", "limit": 2, "operators": "+-", "parentheses": False},
            "strategies": "best_of_n | best",
            "budgets": {"samples": 2},
            "verifiers": f"{__name__}:broken",
        }
    )
    with PreparedStudy(config) as prepared, Store(tmp_path / "store.sqlite") as store:
        results = list(store.results(run(prepared, store).study))
    assert len(results) == 2
    assert all(result.error and result.error.startswith("VerifierError") for result in results)
    assert all(math.isnan(result.confidence) and result.right is None for result in results)


def test_the_command_line_shows_what_was_found_and_fails() -> None:
    command = ["solve", PROBLEM, "--model", "toy", "--budget", "samples=2", "--strategy", "best_of_n | best", "--json"]
    told = CliRunner().invoke(app, [*command, "--verifier", f"{__name__}:broken"])
    assert told.exit_code == 1
    record = json.loads(told.stdout)
    assert (record["confidence"], record["error"]["type"]) == (None, "VerifierError")
    assert "error: the verifier 'main' failed: KeyError" in told.stderr


# At the door ----------------------------------------------------------------------------------------------------------


class Scores:
    def __call__(self, text: str) -> float:
        return len(text)


@pytest.mark.parametrize(
    "function", [lambda text: 0.5, lambda: 0.5, lambda a, b, c: 0.5, lambda *, problem, text: 0.5, Scores()]
)
def test_a_function_with_other_parameters_is_refused_before_anything_is_spent(
    function: Any, requests: Sequence[SampleRequest]
) -> None:
    with pytest.raises(ConfigError, match=r"called.*\(problem, text\)") as caught:
        tts.solve(PROBLEM, BUDGET, model="toy", verifier=function)
    assert caught.value.hint == "define it as: def score(problem, text)"
    assert not requests


@pytest.mark.parametrize(
    "function",
    [lambda p, t: 0.5, lambda *both: 0.5, lambda p, t, extra=1: 0.5, partial(lambda a, p, t: 0.5, 1), max],
)
def test_a_function_that_takes_both_is_a_verifier(function: Any) -> None:
    assert make_verifier(function).name == "callable"


# Ranges ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "strategy", [*STRATEGIES, "rebase(n=4)", "mcts(n=4)", "particle_filter(n=4)", "auto", "best_of_n(n=4) | deepconf"]
)
def test_a_function_may_score_on_any_scale(strategy: str) -> None:
    found = solve(lambda problem, text: 7.0 - len(text), strategy)
    assert found.error is None
    assert found.candidates


def test_scores_between_0_and_1_are_taken_as_they_are() -> None:
    def weights(scale: Callable[[float], float]) -> list[float]:
        found = solve(lambda problem, text: scale((sum(map(ord, text)) % 7) / 7), "best_of_n(n=8) | weighted")
        by_index = sorted(found.candidates, key=lambda candidate: candidate.index)
        return [candidate.weight for candidate in by_index]

    plain = weights(lambda score: score)
    assert len(set(plain)) > 1
    assert all(any(math.isclose(weight, part / 7) for part in range(7)) for weight in plain)
    assert weights(lambda score: 4 * score - 2) == pytest.approx(
        [1 / (1 + math.exp(2 - 4 * weight)) for weight in plain]
    )


def test_a_stated_range_still_holds() -> None:
    with pytest.raises(VerifierError, match=r"1.5,.*states.*\[0.0, 1.0\]"):
        solve(FunctionVerifier(lambda problem, text: 1.5), "best_of_n(n=2) | best")


def test_an_ensemble_needs_scores_of_a_known_range() -> None:
    with pytest.raises(VerifierError, match="ensemble"):
        solve(Ensemble(members=(f"{__name__}:forty", "toy")), "best_of_n(n=2) | best")
