"""`module:name` wherever a name is accepted, in Python and on the command line; what is there but does not fit is one
line.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import tts
from tests.search import places
from tts.cli.app import app

HERE = "tests.search.places"
MODULE = """
import tts

class Two(tts.Strategy):
    async def run(self, search):
        return await search.complete([search.root], n=2)

def score(problem, text):
    return 0.5
"""


def test_a_verifier_is_a_function_or_a_class_at_a_place() -> None:
    solution = tts.solve(
        "3 + 4", 200, model="toy", strategy="best_of_n(n=4) | weighted", verifier=f"{HERE}:likes_length"
    )
    assert solution.candidates[0].scores["main"] == pytest.approx(
        len(solution.candidates[0].trajectory.full_text) / 100
    )
    solution = tts.solve(
        "3 + 4", 200, model="toy", strategy="best_of_n(n=4) | best", verifier="tts.verifiers.toy:ToyVerifier(error=0.2)"
    )
    assert solution.usage.verifier_calls > 0


def test_an_ensemble_takes_places_and_parameters() -> None:
    members = f"'{HERE}:Constant', '{HERE}:Constant(score_of_all=0.2)', '{HERE}:likes_length', 'toy(error=0.2)'"
    for weights, score in (("(1, 0, 0, 0)", 0.5), ("(1, 1, 0, 0)", 0.35)):
        asked = f"ensemble(members=[{members}], weights={weights})"
        solution = tts.solve("3 + 4", 200, model="toy", strategy="best_of_n(n=2) | weighted", verifier=asked)
        assert solution.candidates[0].scores["main"] == pytest.approx(score)
    with pytest.raises(tts.ConfigError, match=r"members.*'tests.search.places:Constnt':.*'Constnt'"):
        tts.solve("3 + 4", 200, model="toy", verifier=f"ensemble(members=['{HERE}:Constnt'])")


def test_a_task_is_a_class_or_an_object() -> None:
    for task in (places.Spoken, places.Spoken(), f"{HERE}:Spoken"):
        assert tts.solve("which?", 200, backend=lambda ask: "It is 3.", task=task).answer == "3"

    class Wordy(places.Spoken):
        def __init__(self, words: int) -> None:
            self.words = words

    class Mute(tts.Task):
        def extracts(self, text: str) -> str | None:
            return text

    for task, why in (
        (places.Pair, r"the task Pair is Pair\(.*, but must be a tts.Task"),
        (places.Pair(), r"the task Pair\(.* is Pair\(.*, but must be a tts.Task"),
        (Wordy, "the task Wordy cannot be made without parameters: .*'words'.*give an object of its class"),
        (Mute, r"Mute has no method extract, but must define it \(hint: it has extracts; see tts.Task\)"),
    ):
        with pytest.raises(tts.ConfigError, match=why):
            tts.solve("which?", 200, backend=lambda ask: "It is 3.", task=task)


def test_a_backend_is_a_function_or_a_class_at_a_place() -> None:
    solution = tts.solve(
        "which?", 200, backend=f"{HERE}:writes", task=f"{HERE}:Spoken", strategy="best_of_n(n=5) | majority"
    )
    assert solution.answer in ("0", "1")
    assert (
        solution.answer
        == tts.solve("3", 9, backend=lambda ask: f"It is {solution.answer}.", task=f"{HERE}:Spoken").answer
    )
    solution = tts.solve("3 + 4", 200, model="toy", backend="tts.backends.toy:ToyBackend", strategy="single")
    assert solution.candidates == tts.solve("3 + 4", 200, model="toy", strategy="single").candidates


def test_a_function_stands_for_a_model_in_a_solver_as_in_solve() -> None:
    with tts.Solver(backend=f"{HERE}:writes", task=f"{HERE}:Spoken") as solver:
        solution = solver.solve("which?", 200, strategy="single")
    like = tts.solve("which?", 200, backend=f"{HERE}:writes", task=f"{HERE}:Spoken", strategy="single")
    assert (solution.answer, solution.model, solution.candidates) == (like.answer, like.model, like.candidates)
    with pytest.raises(tts.ConfigError, match=r"model.*'toy',.*'tests.search.places:writes'.*function"):
        tts.Solver("toy", backend=f"{HERE}:writes")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"verifier": f"{HERE}:likes_lenght"}, "has no 'likes_lenght' (hint: it has likes_length"),
        (
            {"verifier": f"{HERE}:Pair"},
            "the verifier 'tests.search.places:Pair' is Pair(n=2, word=''), but must be a tts.Verifier",
        ),
        ({"task": f"{HERE}:Pair"}, "task 'tests.search.places:Pair' is Pair(n=2, word=''), but must be a tts.Task"),
        ({"task": f"{HERE}:likes_length"}, "cannot be made without parameters: likes_length() missing 2 required"),
        ({"task": f"{HERE}:no_part"}, "task 'tests.search.places:no_part' is 3, but must be a tts.Task"),
        ({"model": "toy", "backend": f"{HERE}:Pair"}, "is the class Pair, which is no backend: it has no from_record"),
        (
            {"backend": f"{HERE}:writes"},
            "model is 'toy', but the backend 'tests.search.places:writes' is a function, which stands for a model",
        ),
        (
            {"model": "pocket", "backend": f"{HERE}:writes", "url": "http://a:1"},
            "url is 'http://a:1', but the backend 'tests.search.places:",
        ),
        ({"model": "toy", "backend": f"{HERE}:Gone"}, "the backend 'tests.search.places:Gone' cannot be loaded"),
    ],
)
def test_what_does_not_fit_is_one_line(options: dict[str, Any], why: str) -> None:
    with pytest.raises(tts.ConfigError) as caught:
        tts.solve("3 + 4", 100, **{"model": "toy", "strategy": "best_of_n(n=2) | weighted", **options})
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_the_command_line_finds_modules_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(MODULE)
    code = "import sys; from tts.cli import main; sys.path[:] = [p for p in sys.path if p]; sys.argv[0] = 'tts'; main()"
    asked = [
        "solve",
        "3 + 4",
        "--model",
        "toy",
        "--budget",
        "200",
        "--strategy",
        "mine:Two | weighted",
        "--verifier",
        "mine:score",
    ]
    done = subprocess.run(
        [sys.executable, "-c", code, *asked], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "mine:Two | weighted" in done.stdout
    monkeypatch.syspath_prepend(tmp_path)  # what it refuses needs no process
    refused = CliRunner().invoke(app, [*asked[:6], "--strategy", "mine:Tow"])
    del sys.modules["mine"]
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 2)
    assert "has no 'Tow'" in refused.stderr
    assert "Two" in refused.stderr
