"""`requests` counts the calls to backends that write, whoever makes them, and no search makes more than its limit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

import tts
from tests.budget.test_spending import FORMS, THINKING
from tests.support.chaos import ChaosBackend
from tests.support.judging import ApprovingToy, JudgingToy
from tests.support.revising import RevisingTask
from tests.support.runs import Solved, check_books, make_run, solve_and_show
from tts.backends.base import RowSet, SampleRequest, Sampling
from tts.backends.function import Answer, Ask, FunctionBackend
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget import units
from tts.budget.account import Account
from tts.budget.budget import Budget
from tts.budget.ledger import sum_usage
from tts.search.parts import STRATEGIES
from tts.trace.trace import Trace
from tts.types import Problem, Trajectory
from tts.verifiers.base import Calls, StepScores, Traits, Verifier, most_requests
from tts.verifiers.ensemble import Ensemble
from tts.verifiers.function import FunctionVerifier
from tts.verifiers.genrm import GenRm, MultiAspect
from tts.verifiers.grader import Grader
from tts.verifiers.judge import Judge
from tts.verifiers.toy import ToyVerifier

NAMES = sorted(STRATEGIES.names())
PROBLEM = "10 - 7 + 5"


class CountedToy(JudgingToy):
    """The toy and judge, which counts its calls."""

    def __init__(self, language: ToyLanguage | None = None) -> None:
        super().__init__(language or ToyLanguage(accuracy=0.7))
        self.asked = 0

    def sample(self, request: SampleRequest) -> RowSet:
        self.asked += 1
        return super().sample(request)


class CountedApproving(CountedToy):
    reply = staticmethod(ApprovingToy.reply)


def solved(plan: str, limits: Budget, backend: Any, verifiers: dict[str, Any], seed: int = 0) -> Solved:
    run = make_run(PROBLEM, limits, plan, backend, verifiers=verifiers, seed=seed, task=RevisingTask())
    return solve_and_show(run)


def check(end: Solved, backend: CountedToy, limit: int) -> None:
    check_books(end.search)
    assert end.solution.usage.requests == backend.asked <= limit
    assert end.solution.remaining["requests"] == limit - backend.asked


def language(name: str) -> ToyLanguage:
    return ToyLanguage(accuracy=0.7, thoughts=name in THINKING)


JUDGE = Judge(votes=2, max_tokens=4, prompt_tokens=300)


@pytest.mark.parametrize(
    ("limits", "verifier"),
    [({}, ToyVerifier(error=0.1)), ({"tokens": 700}, ToyVerifier(error=0.1)), ({}, JUDGE)],
    ids=["alone", "with_tokens", "with_a_judge"],
)
@pytest.mark.parametrize("name", NAMES)
def test_every_strategy_keeps_the_limit_and_answers(name: str, limits: dict[str, int], verifier: Verifier) -> None:
    for requests in range(1, 6):
        backend = CountedApproving(language(name))
        budget = Budget(requests=requests, **limits)
        end = solved(FORMS.get(name, name), budget, backend, {"main": verifier}, seed=requests)
        assert end.solution.error is None
        check(end, backend, requests)
        assert end.solution.answer is not None, requests


@pytest.mark.parametrize("name", NAMES)
def test_every_strategy_keeps_the_limit_whatever_fails(name: str) -> None:
    for requests in (1, 3, 6):
        inner = CountedApproving(language(name))
        backend = ChaosBackend(inner, seed=requests, fail=0.3, broken=0.2, unread=0.1)
        end = solved(FORMS.get(name, name), Budget(requests=requests), backend, {"main": JUDGE}, seed=requests)
        check(end, inner, requests)


@pytest.mark.parametrize("name", NAMES)
def test_without_a_limit_every_call_is_counted(name: str) -> None:
    backend = CountedApproving(language(name))
    end = solved(FORMS.get(name, name), Budget(tokens=500), backend, {"main": ToyVerifier(error=0.1)})
    assert end.solution.usage.requests == backend.asked


@pytest.mark.parametrize("selection", ["best", "pairwise", "genselect", "knockout", "swiss", "pivot", "league"])
def test_every_selection_keeps_the_limit(selection: str) -> None:
    for requests in range(1, 9):
        backend = CountedToy()
        end = solved(f"best_of_n(n=4) | {selection}", Budget(requests=requests), backend, {"main": JUDGE})
        assert end.solution.error is None
        assert end.solution.answer is not None
        check(end, backend, requests)


def test_rows_that_are_drawn_together_are_one_request() -> None:
    backend = CountedToy()
    end = solved("best_of_n(n=8) | majority", Budget(requests=1), backend, {})
    assert (len(end.solution.candidates), end.solution.usage.requests, end.solution.stopped_by) == (8, 1, "done")


def test_an_open_row_that_a_call_leaves_out_keeps_what_is_held_for_its_score() -> None:
    account, held = Account(Budget(requests=3, verifier_calls=30)), list[float]()

    async def write(ask: Ask) -> Answer:
        held.append(30 - account.left["verifier_calls"])
        count = min(ask.max_tokens, 20 - len(ask.text.split()))
        return Answer("w " * count, tokens=count, finished=count < 7)

    verifiers = {"main": FunctionVerifier(lambda problem, text: 0.5)}
    run = make_run(
        "2 + 2", account, "best_of_n(n=4) | best", FunctionBackend(write), verifiers=verifiers, task=RevisingTask()
    )
    check_books(solve_and_show(run, portion=7).search)
    assert held == [4] * (4 + 2)  # four rows begin, and two of them go on


def test_a_first_finish_is_awaited_in_one_request() -> None:
    backend = CountedToy()
    end = solved("best_of_n(n=4) | first_finish(k=1) | majority", Budget(requests=2), backend, {})
    assert end.solution.answer is not None
    check(end, backend, 2)


def test_beam_holds_a_request_for_its_answer() -> None:
    backend = CountedToy()
    end = solved("beam(n=4, branching=2)", Budget(requests=3), backend, {"main": ToyVerifier()})
    assert end.solution.answer is not None
    assert backend.asked == 3


def test_a_model_that_thinks_keeps_requests_for_thought_and_response() -> None:
    for requests in range(1, 7):
        backend = CountedToy(ToyLanguage(accuracy=0.7, thoughts=True))
        end = solved("beam(n=4, branching=2)", Budget(requests=requests), backend, {"main": ToyVerifier()})
        assert end.solution.answer is not None
        check(end, backend, requests)


# Verifiers ------------------------------------------------------------------------------------------------------------


class Twice(Verifier):
    """Asks two questions about each trajectory, of which it states the given number."""

    def __init__(self, stated: int | None) -> None:
        self.stated = stated

    @property
    def traits(self) -> Traits:
        return Traits(requests=self.stated)

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        for k in range(2):
            prompts = [f"is {t.num_tokens} + {k} right" for t in trajectories]
            await calls.generate(prompts, max_tokens=2, sampling=Sampling())
        return [StepScores(whole=0.5) for _ in trajectories]

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        return 2 * (5 + 2)


def test_a_verifier_may_not_ask_more_than_it_states() -> None:
    run = ("best_of_n(n=2) | best", Budget(requests=9))
    end = solved(*run, CountedToy(), {"main": Twice(2)})
    assert (end.solution.error, end.solution.usage.requests) == (None, 1 + 2 * 2)
    backend = CountedToy()
    end = solved(*run, backend, {"main": Twice(None)})
    assert "Traits(requests=2)" in str(end.solution.error)
    assert "2 prompts, but 0 requests are left of its bound" in str(end.solution.error)
    assert backend.asked == 1 + 2
    end = solved("best_of_n(n=2) | best", Budget(samples=2), CountedToy(), {"main": Twice(None)})
    assert end.solution.error is None


def test_the_bounds_of_verifiers() -> None:
    assert most_requests(ToyVerifier()) == most_requests(FunctionVerifier(lambda _p, _t: 0.5)) == 0
    assert most_requests(Judge()) == most_requests(Twice(None)) == 1
    assert most_requests(GenRm()) == most_requests(Grader()) == 1
    assert most_requests(GenRm(votes=0)) == most_requests(Grader().fill(None, ToyBackend())) == 0
    assert most_requests(MultiAspect(aspects=("logic", "facts"))) == 2
    ensemble = Ensemble(members=(Judge(), ToyVerifier(), Twice(2)))
    assert most_requests(ensemble) == 3
    assert (Judge().traits.comparison.most_requests, ensemble.traits.comparison.most_requests) == (2, 2)  # type: ignore[union-attr]


# Records --------------------------------------------------------------------------------------------------------------


def test_the_units_derive_from_the_table() -> None:
    assert {*units.PLACE_UNITS} == {"samples", "requests"}
    assert {*units.FIXED_UNITS} == {"samples", "requests", "verifier_calls"}
    assert {*units.TOKEN_UNITS, *units.FIXED_UNITS, "flops", "usd"} == {*units.UNITS} == {*units.TABLE}
    assert {*units.VERIFIER_UNITS} == {"verifier_tokens", "verifier_calls"}
    assert "requests" in {*units.COUNT_UNITS} & {*units.WHOLE_UNITS}
    assert {*Budget.__dataclass_fields__} == {*units.UNITS, "seconds"}


def test_a_trace_without_requests_says_that_they_are_unknown() -> None:
    found = tts.solve(PROBLEM, Budget(samples=2), model="toy", strategy="best_of_n | majority")
    assert found.trace is not None
    text = found.trace.to_json()
    assert Trace.from_json(text).usage.requests == found.usage.requests == 1
    old = Trace.from_json(re.sub(r'"requests": ?\d+, ?', "", text))
    assert old.usage.requests is None
    assert sum_usage([call.usage for call in old.calls]).requests is None
    assert old.usage.samples == 2
