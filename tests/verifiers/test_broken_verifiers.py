"""A verifier that breaks: what its own code raises is told as the problem's error, what its model failed in is an
unknown score.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tts
import tts.tasks
from tests.solver.test_solver import traces
from tests.support.runs import check_books, make_run, solve_and_show
from tests.verifiers.paths import NoCalls, path, wholes
from tts.backends.base import Reply
from tts.backends.toy.backend import ToyBackend
from tts.backends.toy.language import ToyLanguage
from tts.errors import EngineError, VerifierError
from tts.types import Problem, Trajectory
from tts.verifiers.base import StepScores, bind
from tts.verifiers.ensemble import Ensemble
from tts.verifiers.self_evaluation import SelfEvaluation
from tts.verifiers.toy import ToyVerifier

PROBLEMS = ["3 + 4 - 2", "1 + 1", "2 + 2 + 5 - 1", "9 - 4 + 2"]
BROKEN = PROBLEMS[1]
PLANS = ("best_of_n(n=4) | weighted", "beam(n=4)", "adaptive(n=4)", "best_of_n(n=4) | score_threshold(threshold=2)")


class Plain(tts.Verifier):
    """Scores .5, and for one problem does what it is told."""

    name, range, oracle, needs, model = "plain", (0.0, 1.0), False, (), "policy"

    def __init__(self, fault: BaseException | None = None) -> None:
        self.fault = fault

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Any) -> list[StepScores]:
        if self.fault is not None and problem.text == BROKEN:
            raise self.fault
        return [StepScores(whole=0.5) for _ in trajectories]

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        return 0


class Failing(ToyBackend):
    """The toy model, some of whose readings of values fail."""

    def __init__(self, *fail: int) -> None:
        """Args: fail: the numbers of the calls that do, from 1; none: all."""
        super().__init__(ToyLanguage(accuracy=0.7))
        self.fail, self.calls = fail, 0

    async def value(self, handles: Sequence[Any], head: str) -> list[Reply[Any]]:
        self.calls += 1
        if not self.fail or self.calls in self.fail:
            raise EngineError("the head is no more")
        return await super().value(handles, head)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize(
    "fault", [KeyError("mine"), asyncio.CancelledError(), SystemExit(3), VerifierError("broke")], ids=repr
)
def test_what_a_verifier_raises_is_its_problems_error_and_changes_no_other(plan: str, fault: BaseException) -> None:
    with tts.Solver("toy", Plain(), strategy=plan) as solver:
        whole = solver.solve_many(PROBLEMS, each=300)
    with tts.Solver("toy", Plain(fault), strategy=plan) as solver:
        ends = solver.solve_many(PROBLEMS, each=300)
    assert [type(end.error) for end in ends] == [type(None), VerifierError, type(None), type(None)]
    assert traces([ends[0], *ends[2:]]) == traces([whole[0], *whole[2:]])
    assert ends[1].stopped_by == "failed"
    assert any("the run failed" in warning for warning in ends[1].warnings)


def test_problems_that_share_a_budget_go_on_where_the_verifier_of_one_breaks() -> None:
    with tts.Solver("toy", Plain(KeyError("mine")), strategy="auto") as solver:
        ends = solver.solve_many(PROBLEMS, 1200)
    assert [type(end.error) for end in ends] == [type(None), VerifierError, type(None), type(None)]
    assert [end.answer for end in ends if end.error is None] == ["5", "8", "7"]


def test_a_verifier_that_cancels_itself_is_no_interruption() -> None:
    end = solve_and_show(
        make_run(BROKEN, 300, PLANS[0], ToyBackend(), verifiers={"main": Plain(asyncio.CancelledError())})
    )
    assert end.solution.stopped_by == "failed"
    assert "was cancelled by itself" in str(end.solution.error)


@pytest.mark.parametrize(
    "plan", ["best_of_n(n=6) | weighted", "beam(n=4)", "mcts", "particle_filter(n=4)", "dvts(n=4)", "rebase(n=4)"]
)
@pytest.mark.parametrize("budget", [150, 600])
@pytest.mark.parametrize(
    "verifier", [ToyVerifier(), Ensemble(members=(ToyVerifier(error=0.1), ToyVerifier()))], ids=["toy", "ensemble"]
)
def test_a_call_in_which_the_model_fails_costs_its_scores_and_not_the_search(
    plan: str, budget: int, verifier: Any
) -> None:
    for fail in ((1,), (2, 3), ()):
        end = solve_and_show(make_run(PROBLEMS[2], budget, plan, Failing(*fail), verifiers={"main": verifier}))
        assert end.solution.error is None
        assert end.solution.answer is not None
        check_books(end.search)  # type: ignore[arg-type]
        if not fail:
            assert end.solution.failures.keys() == {"EngineError"}
            assert any(
                "verifiers failed: EngineError: the head is no more" in warning for warning in end.solution.warnings
            )


@pytest.mark.parametrize(("count", "fits"), [(1, True), (2, True), (3, False)])
def test_steps_may_be_those_of_the_whole_text_or_of_the_response(count: int, fits: bool) -> None:
    class Steps(Plain):
        async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Any) -> list[StepScores]:
            return [StepScores(steps=(0.5,) * count)]

    score = bind(Steps(), Problem(BROKEN))(
        [path([-1.0], text="<think>One.\n\nTwo.</think>Three.")], NoCalls(tts.tasks.get("math"))
    )
    if fits:
        assert asyncio.run(score) == [StepScores(steps=(0.5,) * count)]  # type: ignore[arg-type]
    else:
        with pytest.raises(VerifierError, match=r"3.*trajectory.*2"):
            asyncio.run(score)  # type: ignore[arg-type]


def test_a_score_that_failed_is_asked_for_again() -> None:
    end = solve_and_show(
        make_run(PROBLEMS[2], 3000, "adaptive(n=3, threshold=2) | best", Failing(1), verifiers={"main": ToyVerifier()})
    )
    assert end.solution.failures == {"EngineError": 1}
    scores = [candidate.scores.get("main", np.nan) for candidate in end.solution.candidates]
    assert len(scores) == 3
    assert not np.isnan(scores).any()


def test_a_path_in_other_steps_than_the_toys_lines_is_one_clear_line() -> None:
    end = solve_and_show(
        make_run(PROBLEMS[0], 300, "single | best", ToyBackend(), verifiers={"main": ToyVerifier()}, task="math")
    )
    assert isinstance(end.solution.error, VerifierError)
    assert "has verdicts on 3 lines, but the path is cut into 1 steps (node 1) (hint: it scores paths of" in str(
        end.solution.error
    )


class Rangeless(tts.Verifier):
    """A verifier whose range cannot be read."""

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Any) -> list[StepScores]:
        return [StepScores(whole=0.5) for _ in trajectories]

    @property
    def range(self) -> tuple[float, float]:  # type: ignore[override]
        raise KeyError("mine")


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize(
    "verifier", [Rangeless(), Ensemble(members=(Rangeless(), "confidence"))], ids=["alone", "member"]
)
def test_a_range_that_raises_is_a_failure_of_the_verifier(verifier: Any, plan: str) -> None:
    with pytest.raises(VerifierError, match="failed: KeyError: 'mine'"):
        tts.solve(PROBLEMS[0], 300, model="toy", verifier=verifier, strategy=plan)


class Impossible(NoCalls):
    """A model to which neither of two words is possible."""

    async def next_logprobs(self, trajectories: Sequence[Trajectory], text: str, tokens: Sequence[str]) -> Any:
        return np.full((len(trajectories), len(tokens)), -np.inf)


def test_a_question_to_which_no_word_is_possible_has_no_score() -> None:
    (score,) = wholes(SelfEvaluation(question="Right?", yes="y", no="n"), path([-0.1], text="a"), calls=Impossible())
    assert math.isnan(score)
