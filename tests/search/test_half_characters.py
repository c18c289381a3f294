"""Lone surrogates, which no encoding has, are replaced wherever text enters a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

import tts
from tests.support.runs import make_run, solve_and_show
from tts._common.characters import join_surrogates
from tts.backends.base import RowSet, Sample, SampleRequest, Sampling
from tts.backends.function import Answer, Ask
from tts.backends.toy.backend import ToyBackend
from tts.budget.budget import Budget
from tts.search.parts import Strategy
from tts.search.search import Search
from tts.types import Candidate, Problem, Trajectory
from tts.verifiers.base import Calls, StepScores

HALF, OTHER, BOTH = "\ud83d", "\ude00", "\U0001f600"


def test_pairs_are_joined_and_halves_replaced() -> None:
    assert join_surrogates(f"é{HALF}{OTHER}") == f"é{BOTH}"
    assert join_surrogates(f"{OTHER}{HALF}x") == "\ufffd\ufffdx"
    for whole in ("", "plain", "é€", BOTH):
        assert join_surrogates(whole) is whole


def in_one_go(ask: Ask) -> str:
    return f"one {HALF} step\n\ntwo {HALF}{OTHER}\n\nA: 7{HALF}"


async def step_by_step(ask: Ask) -> Answer:
    return Answer(f"on {HALF}\n\n" if len(ask.text) < 20 else f"A: 7{OTHER}", finished=len(ask.text) >= 20)


def fails(ask: Ask) -> str:
    raise ValueError(f"no {HALF}")


@pytest.mark.parametrize("model", [in_one_go, step_by_step, fails], ids=lambda model: model.__name__)
@pytest.mark.parametrize(
    "plan",
    [
        "single",
        "best_of_n(n=3)",
        "beam(n=2)",
        "sequential_revision",
        "semantic_entropy(n=2)",
        "particle_filter(n=2)",
        "mcts(n=2)",
        "ets(n=2)",
    ],
)
@pytest.mark.parametrize("task", ["text", "math"])
def test_a_function_that_writes_halves_ends_no_method(model: Any, plan: str, task: str) -> None:
    solver = tts.Solver(model, {"main": lambda problem, text: 0.5}, task=task, strategy=plan)
    [solution] = solver.solve_many(["3 + 4"], each=Budget(samples=6))
    if model is fails:
        assert solution.failures["ValueError"] > 0
        assert all("\ufffd" in warning for warning in solution.warnings if "no " in warning)
    else:
        assert solution.error is None
        assert solution.candidates
    for text in (*(c.trajectory.full_text for c in solution.candidates), *solution.warnings, solution.trace.to_html()):
        text.encode()


class HalfBackend(ToyBackend):
    """A toy of which each row is half of a character and an answer."""

    def sample(self, request: SampleRequest) -> RowSet:
        rows = RowSet(request)
        for index in range(len(request.rows)):
            self.counters.generated_tokens += 2
            rows.resolve(index, Sample(f"{HALF} A: 7", (), (), "eos", request.handle.child(), 2))
        return rows


@dataclass(frozen=True)
class Asks(tts.Verifier):
    """A verifier whose prompts have halves, and that asks for the next token behind one."""

    name: str = "asks"
    range: tuple[float, float] = (0.0, 1.0)
    oracle: bool = False
    needs: tuple[str, ...] = ("next_logprobs",)
    model: str = "policy"

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        await calls.generate([f"{HALF} 3 + 4" for _ in trajectories], max_tokens=3, sampling=Sampling())
        await calls.next_logprobs(trajectories, f"{HALF}?", ["A: "])
        return [StepScores(whole=0.5) for _ in trajectories]

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        return 50


@dataclass(frozen=True)
class Extends(Strategy):
    """Appends half of a character, and asks behind another."""

    async def run(self, search: Search) -> Sequence[Candidate]:
        [t] = await search.extend([search.root], f"so {HALF}")
        assert t.text == "so \ufffd"
        await search.ask([t], f"{OTHER} or", ["A: "])
        await search.complete([t])
        await search.score([c.trajectory for c in search.candidates])
        return search.candidates


def test_texts_of_backends_strategies_and_verifiers_are_replaced() -> None:
    end = solve_and_show(make_run("3 + 4", Budget(tokens=2000), Extends(), HalfBackend(), verifiers={"main": Asks()}))
    assert end.solution.error is None
    assert end.search is not None
    texts = [t.text for t in end.search.tree.nodes]
    assert any(text.startswith("\ufffd") for text in texts)
    assert all(text.encode() is not None for text in texts)
