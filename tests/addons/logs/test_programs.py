"""Imported programs run with the tests of their problem, each once, and verdicts are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tts
from tests.addons.connections import is_open, note_connections
from tts.errors import ConfigError
from tts_addons.code import sandbox
from tts_addons.code.verifier import Code
from tts_addons.logs.programs import ProgramVerdicts

TEXTS = ["```python\ndef f(x):\n    return x + 1\n```", "def f(x):\n    return x", "def f(x):\n    return x"]
ROW: dict[str, Any] = {
    "problem": "p",
    "prompt": "Add one.",
    "tests": "assert f(1) == 2\nassert f(5) == 6",
    "text": TEXTS,
}


@pytest.fixture(autouse=True)
def contained() -> None:
    if reason := sandbox.why_not():
        pytest.skip(reason)


def test_verdicts_come_from_the_tests_and_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ran: list[str] = []
    outcome = Code.outcome

    def counted(self: Code, program: str, tests: str, seconds: float | None = None) -> sandbox.ProgramResult:
        ran.append(program)
        return outcome(self, program, tests, seconds)

    monkeypatch.setattr(Code, "outcome", counted)
    pool = tts.Pool.from_rows([ROW], programs=str(tmp_path / "verdicts.sqlite"), task="text")
    assert [one.right for one in pool.problems[0].drawn] == [True, False, False]
    assert [one.answer_class for one in pool.problems[0].drawn] == [0, 1, 1]
    assert len(ran) == 2
    (curve,) = pool.replay(["pass@k"], [1, 2])
    assert [one.value for one in curve.curve.accuracy] == pytest.approx([1 / 3, 2 / 3])
    again = tts.Pool.from_rows([ROW], programs=str(tmp_path / "verdicts.sqlite"), task="text")
    assert [one.right for one in again.problems[0].drawn] == [True, False, False]
    assert len(ran) == 2


def test_without_a_file_of_verdicts_nothing_runs():
    pool = tts.Pool.from_rows([ROW], task="text")
    assert [one.right for one in pool.problems[0].drawn] == [None, None, None]


def test_tests_that_are_no_python_are_named(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"1:.*Python"):
        tts.Pool.from_rows([{**ROW, "tests": "assert ("}], programs=str(tmp_path / "verdicts.sqlite"), task="text")


SUMS = [
    "def f(x):\n    return x + 1",
    "def f(x):\n    return 1 + x",
    "def f(x):\n    return 2 * x",
    "def f(x):\n    while x < 3: pass",
]
WRITTEN = ["assert f(1) == 2", "assert f(2) == 3", "assert f(1) == 2", "assert f(2) == 4", "assert nothing"]


def agreed(tmp_path: Path, **more: Any) -> tts.Pool:
    row = {"problem": "p", "tests": "assert f(5) == 6", "text": SUMS, "written_tests": WRITTEN}
    return tts.Pool.from_rows([{**row, **more}], programs=str(tmp_path / "verdicts.sqlite"), task="text")


@pytest.mark.slow
def test_written_tests_give_outcomes_and_are_replayed_at_all_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pool = agreed(tmp_path)
    drawn = pool.problems[0].drawn
    # a test counts as often as it is listed; what is no test of anything passes nowhere
    assert [one.steps["tests"] for one in drawn] == [(1, 1, 1, 0, 0), (1, 1, 1, 0, 0), (1, 0, 1, 1, 0), (0, 0, 0, 0, 0)]
    assert [one.scores["tests"] for one in drawn] == [0.6, 0.6, 0.6, 0.0]
    curves = {
        one.curve.label: [each.value for each in one.curve.accuracy]
        for one in pool.replay(sizes=[1, 2, 3, 4], draws=2000)
    }
    assert list(curves) == ["pass@k", "random choice", "best_of_n | majority", "best_of_n | codet(verifier='tests')"]
    # the doubling program ties with one right one, and loses to both; the endless one loses to each
    found = curves["best_of_n | codet(verifier='tests')"]
    assert found == pytest.approx([2 / 4, 4 / 6, 3 / 4, 1.0], abs=0.05)
    monkeypatch.setattr(Code, "outcome", None)  # from the file alone
    assert agreed(tmp_path).problems[0].drawn == drawn
    study = pool.save(tmp_path / "store.sqlite")
    (stored,) = study.replay(["best_of_n | codet(verifier='tests')"], [4])
    assert stored.curve.accuracy[0].value == 1.0


def test_written_tests_that_cannot_be_are_named(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"1:.*written_tests.*assert"):
        agreed(tmp_path, written_tests="assert f")
    with pytest.raises(ConfigError, match=r"1:.*written_tests.*,.*list"):
        agreed(tmp_path, written_tests=["assert f(1) == 2", 3])
    with pytest.raises(ConfigError, match=r"1:.*'tests', which.*written"):
        agreed(tmp_path, scores={"tests": [0.1, 0.2, 0.3, 0.4]})


def test_without_a_file_of_verdicts_no_written_test_runs():
    pool = tts.Pool.from_rows(
        [{"problem": "p", "text": SUMS, "written_tests": WRITTEN, "correct": [1, 1, 0, 0]}], task="text"
    )
    with pytest.raises(ConfigError, match="lacks such scores"):
        pool.replay(["best_of_n | codet(verifier='tests')"], [2])


def test_a_file_of_verdicts_that_cannot_be_opened_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match="opened: unable"):
        ProgramVerdicts(tmp_path)


def test_a_file_of_another_kind_is_refused_and_closed(tmp_path: Path):
    (tmp_path / "notes").write_text("something else, of some length" * 100)
    with (
        note_connections() as connections,
        pytest.raises(ConfigError, match=r"the file of verdicts .* cannot be opened"),
    ):
        ProgramVerdicts(tmp_path / "notes")
    assert [is_open(one) for one in connections] == [False]
