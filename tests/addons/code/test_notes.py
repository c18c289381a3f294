"""What verifiers say in words beside a score: tests' failures, and never an expected value of a hidden test or a
reference answer.
"""

from __future__ import annotations

import re
import tempfile
from typing import Any, ClassVar

import pytest

import tts
from tests.verifiers.paths import NoCalls, path, scored
from tts.errors import ConfigError, VerifierError
from tts.types import Problem
from tts.verifiers.base import StepScores, Verifier
from tts.verifiers.ensemble import Ensemble
from tts.verifiers.function import FunctionVerifier
from tts_addons.code.sandbox import ProgramOutcome, ProgramResult
from tts_addons.code.verifier import Code, note_of

TESTS = "assert f(1) == 20417\nassert f(2) == 3\nassert sorted([f(3), 90210]) == [4, 90210]\n"
WRONG, RAISING, RIGHT = (
    "def f(x):\n    return x + 1\n",
    "def f(x):\n    raise KeyError(x)\n",
    "def f(x): return 20417 if x == 1 else x + 1\n",
)


@pytest.fixture(autouse=True)
def temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs run below a folder of this test's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("programs")))


def note(verifier: Verifier, text: str, answer: str | None = None) -> str:
    (said,) = scored(verifier, path([-1.0], text=text), problem=Problem("p", answer), calls=NoCalls())
    return said.note


@pytest.mark.slow
def test_failures_of_stated_tests_are_said_in_words() -> None:
    tested = Code(tests=TESTS, sandbox="none")
    assert note(tested, RIGHT) == "All 3 tests pass."
    wrong = note(tested, WRONG)
    assert wrong.startswith("2 of 3 tests pass; ")
    assert "f(1) == 20417; it is 2" in wrong
    assert "KeyError" in note(tested, RAISING)
    assert "SyntaxError" in note(tested, "def f(:")


@pytest.mark.parametrize(
    "program", [WRONG, RAISING, RIGHT, "def f(:", "import sys; sys.exit(3)", "f = 1", "1 / 0", "raise Exception(90210)"]
)
def test_notes_of_hidden_tests_have_no_expected_value_no_test_and_no_message(program: str) -> None:
    said = note(Code(sandbox="none"), program, TESTS)
    assert said
    assert not re.search(r"20417|90210|f\(|==|sorted", said), said


@pytest.mark.parametrize("detail", ["x20417: y", "ValueErrorx90210", "print: 20417", "20417", ""])
def test_a_program_names_no_error_of_its_own_in_the_note_of_hidden_tests(detail: str) -> None:
    assert note_of(ProgramResult(ProgramOutcome.ERROR, detail), hidden=True) == "The program raised an error."
    assert (
        note_of(ProgramResult(ProgramOutcome.ERROR, "KeyError: 20417"), hidden=True) == "The program raised KeyError."
    )


def test_the_checkers_note_has_nothing_of_the_reference_answer_and_takes_a_permission() -> None:
    problem = tts.Problem("3 + 4 - 2 + 9", answer="14")
    asked: dict[str, Any] = {"model": "toy", "verifier": "checker", "strategy": "best_of_n(n=6) | best", "seed": 3}
    with pytest.raises(ConfigError, match="allow_oracle"):
        tts.solve(problem, 400, **asked)

    class Reads(tts.Selection):
        notes: ClassVar[list[tuple[str, str | None]]] = []

        async def select(self, candidates: Any, search: Any) -> tts.Selected:
            await search.score([c.trajectory for c in candidates])
            self.notes += [(search.scoring.scores_of(c.trajectory).note, c.answer) for c in candidates]
            return tts.Selected((), tuple(candidates), 0.0)

    tts.solve(problem, 400, allow_oracle=True, **{**asked, "strategy": tts.BestOfN(n=24, temperature=1.5) | Reads()})
    assert {"is right." in said for said, _ in Reads.notes} == {True, False}
    for said, answer in Reads.notes:
        assert said in (
            "The solution has no answer.",
            f"The answer {answer} is {'right' if answer == '14' else 'wrong'}.",
        )
        assert answer == "14" or "14" not in said


def test_a_function_may_return_a_note_and_an_ensemble_keeps_those_of_its_members() -> None:
    one = FunctionVerifier(lambda problem, text: (0.25, "too short"))
    assert scored(one, path([-1.0], text="7"), calls=NoCalls()) == [StepScores(whole=0.25, note="too short")]
    other = FunctionVerifier(lambda problem, text: ([0.5], "one step"))
    (said,) = scored(other, path([-1.0], text="7"), calls=NoCalls())
    assert said == StepScores(steps=(0.5,), note="one step")
    both = tts.solve(
        "3 + 4 - 2", 400, model="toy", verifier=Ensemble(members=(one, one)), strategy="best_of_n(n=1) | best"
    )
    assert both.candidates[0].scores["main"] == 0.25


def test_a_note_that_is_no_text_is_a_failure_of_the_verifier() -> None:
    class Broken(tts.Verifier):
        async def score(self, problem: Any, trajectories: Any, calls: Any) -> list[StepScores]:
            return [StepScores(whole=0.5, note=7) for _ in trajectories]  # type: ignore[arg-type]

    with pytest.raises(VerifierError, match="note 7"):
        tts.solve("3 + 4 - 2", 400, model="toy", verifier=Broken(), strategy="best_of_n(n=1) | best")
