"""Open-ended problems: nothing is appended to a prompt that nobody framed, and votes on free text say what they are
worth.
"""

from __future__ import annotations

import dataclasses

import pytest

import tts
from tts.backends.function import FunctionBackend
from tts.models import registry
from tts.solver.solver import Solver

HAIKU = "Write a haiku about autumn."
MATH = "Janet has 16 eggs and eats 3. How many are left?"


def writing(*texts: str, seen: list[str]) -> FunctionBackend:
    left = list(texts)

    def write(ask: tts.Ask) -> tts.Answer:
        seen.append("".join(message.content for message in ask.prompt))
        return tts.Answer(left.pop(0), tokens=5)

    return FunctionBackend(write)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A model that is named, as one of a server is; what it is asked is kept."""
    seen: list[str] = []
    record = dataclasses.replace(registry.get("someone/some-model"), backend="here")
    monkeypatch.setattr(registry, "get", lambda name: record)
    monkeypatch.setattr(
        "tts.solver.model_cache._load",
        lambda record, **_: writing(*("red leaves", "brown leaves", "13") * 9, seen=seen),
    )
    return seen


def test_nothing_is_appended_to_the_prompt_of_a_named_model(served: list[str]) -> None:
    with Solver("someone/some-model") as solver:
        solution = solver.solve(HAIKU, tts.Budget(samples=2), strategy="best_of_n(n=2) | majority")
    assert served[0] == HAIKU
    assert not any("looks like mathematics" in line for line in solution.warnings)


def test_votes_on_free_text_that_do_not_agree_are_called_meaningless(served: list[str]) -> None:
    with Solver("someone/some-model") as solver:
        solution = solver.solve(HAIKU, tts.Budget(samples=3), strategy="best_of_n(n=3) | majority")
        chosen = solver.solve(HAIKU, tts.Budget(samples=3), strategy="best_of_n(n=3) | medoid")
    [line] = [line for line in solution.warnings if "votes on free text" in line]
    assert "1 of 3 agree" in line
    assert all(word in line for word in ("judge", "pairwise", "medoid"))
    assert not any("votes on free text" in line for line in chosen.warnings)


def test_a_prompt_that_looks_like_mathematics_suggests_the_task(served: list[str]) -> None:
    with Solver("someone/some-model") as solver:
        one = solver.solve(MATH, tts.Budget(samples=1), strategy="single")
        several = solver.solve_many([MATH, HAIKU], each=tts.Budget(samples=1), strategy="single")
    assert [line for line in one.warnings if "task='math'" in line]
    assert [bool([line for line in s.warnings if "task='math'" in line]) for s in several] == [True, False]
    with Solver("someone/some-model", task="math") as solver:
        framed = solver.solve(MATH, tts.Budget(samples=1), strategy="single")
    assert "boxed" in served[-1]
    assert not any("looks like" in line for line in framed.warnings)
