from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tts.errors import ConfigError, MissingDependency, VerifierError
from tts.tasks.worker import Worker, WorkerDiedError
from tts_addons.zoo.reasoning_gym import ReasoningGymTask

READY = "print('{\"ready\": true}', flush=True)"


def reference(generator: str = "countdown", **entry: Any) -> str:
    return json.dumps({"reasoning_gym": generator, "config": {}, "entry": entry})


COUNTDOWN = reference(question="Reach 39 with 17 22.", answer="17 + 22", metadata={"numbers": [17, 22], "target": 39})


@pytest.fixture(scope="module")
def task() -> Iterator[ReasoningGymTask]:
    pytest.importorskip("reasoning_gym")
    made = ReasoningGymTask(time_limit_s=60.0)
    yield made
    made.close()


def test_the_answer_stands_between_the_last_tags():
    task = ReasoningGymTask()
    assert task.extract("<answer>1</answer> no: <answer>\n1 2\n3 4\n</answer>") == "1 2\n3 4"
    assert task.extract("<answer>1 <answer>2</answer>") == "2"
    assert task.extract("<answer> </answer> so the answer is 5.") == "5"
    assert task.extract(r"\boxed{7}") == "7"
    assert task.extract("<answer>3") is None
    assert task.is_finished("<answer>3</answer>")
    assert not task.is_finished("<answer> </answer>")


def test_a_model_cannot_write_the_reference():
    assert ReasoningGymTask().extract(f"<answer>{COUNTDOWN}</answer>") is None


def test_answers_are_the_same_words_line_by_line():
    task = ReasoningGymTask()
    assert task.equivalent("1  2 \n\n3 4", "1 2\n3 4")
    assert not task.equivalent("1 2 3 4", "1 2\n3 4")
    assert not task.equivalent("abc", "Abc"), "case may be the whole difference"
    assert task.equivalent(COUNTDOWN, COUNTDOWN)
    assert task.decide("17 + 22", COUNTDOWN) is None


def test_the_generator_s_scorer_decides(task: ReasoningGymTask):
    assert task.equivalent("22 + 17", COUNTDOWN), "another expression than the entry's"
    assert task.equivalent(COUNTDOWN, "22 + 17")
    assert not task.equivalent("39", COUNTDOWN)
    assert not task.equivalent("the answer", COUNTDOWN)


ATTACKS = (
    "__import__('pathlib').Path({0!r}).touch()",
    "open({0!r}, 'w')",
    "[open({0!r}, 'w') for _ in [1]]",
    "(lambda: open({0!r}, 'w'))()",
    "f\"{{open({0!r}, 'w')}}\"",
    "exec(chr(111)+chr(112)+chr(101)+chr(110))",
    "().__class__.__base__.__subclasses__()",
)


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_answer_is_run_as_a_program(task: ReasoningGymTask, attack: str, tmp_path: Path):
    there = tmp_path / "there"
    entries = (
        COUNTDOWN,
        reference("simple_integration", question="", answer="x", metadata={"variable": "x", "integrand": "1"}),
        reference("polynomial_multiplication", question="", answer="x", metadata={}),
        reference("string_insertion", question="", answer="x", metadata={}),
        reference("n_queens", question="", answer="x", metadata={"valid_answers": ["x"]}),
        reference("spiral_matrix", question="", answer="x", metadata={}),
        reference("binary_matrix", question="", answer="x", metadata={}),
    )
    for entry in entries:
        assert not task.equivalent(attack.format(str(there)), entry)
    assert not there.exists()


def test_what_mathematics_writes_is_read(task: ReasoningGymTask):
    integral = reference(
        "simple_integration", question="", answer="", metadata={"variable": "x", "integrand": "2*x + cos(x)"}
    )
    assert task.equivalent("x**2 + sin(x) + C", integral)
    assert not task.equivalent("x**2 - sin(x) + C", integral)


@pytest.mark.slow
def test_a_hanging_answer_is_wrong_and_the_next_is_judged(task: ReasoningGymTask, monkeypatch: pytest.MonkeyPatch):
    assert task.equivalent("17 +22", COUNTDOWN)
    monkeypatch.setattr(task, "time_limit_s", 0.5)
    timeouts = task.timeouts
    assert not task.equivalent("9**9**9**9**9", COUNTDOWN)
    assert task.timeouts == timeouts + 1
    monkeypatch.undo()
    assert task.equivalent("17+ 22", COUNTDOWN)


def test_what_goes_wrong_is_said(monkeypatch: pytest.MonkeyPatch):
    task = ReasoningGymTask(time_limit_s=5.0)
    for line, expected in (
        ("input(); raise SystemExit", WorkerDiedError),
        ("import time; time.sleep(60)", TimeoutError),
    ):
        with monkeypatch.context() as patched:
            process = Worker([sys.executable, "-c", f"{READY}; {line}"])
            with pytest.raises(expected):
                process.ask({}, 0.3 if expected is TimeoutError else 30.0)
            patched.setattr("tts_addons.zoo.reasoning_gym.worker", lambda made=process: made)
            assert not ReasoningGymTask(time_limit_s=0.3).equivalent("1", COUNTDOWN)
            process.close()
    monkeypatch.setattr(
        "tts_addons.zoo.reasoning_gym.worker", lambda: Worker([sys.executable, "-c", "raise SystemExit"])
    )
    with pytest.raises(VerifierError, match=r"scorers.*start"):
        task.equivalent("1", COUNTDOWN)


def test_without_the_package_the_cure_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingDependency, match=r"pip install 'test-time-search\[reasoning-gym\]'"):
        ReasoningGymTask().equivalent("1", COUNTDOWN)


def test_answers_that_differ_in_spaces_and_blank_lines_have_one_key():
    assert ReasoningGymTask().key("1  2\n\n 3") == ReasoningGymTask().key("1 2\n3\n") == "1 2\n3"


@pytest.mark.slow
def test_limits_are_positive():
    with pytest.raises(ConfigError, match="time_limit_s is 0"):
        ReasoningGymTask(time_limit_s=0)


@pytest.mark.slow
def test_entries_keep_their_tuples_and_keys_as_json():
    pytest.importorskip("reasoning_gym")
    from tts_addons.zoo.reasoning_gym_worker import pack, unpack

    entry = {"a": (1, (2, [3])), "b": {1: "x", (2, 3): {"y": None}}, "c": [{"d": 0.5}]}
    assert unpack(json.loads(json.dumps(pack(entry)))) == entry


@pytest.mark.slow
def test_no_module_of_the_package_keeps_a_way_to_run_an_answer():
    """The scorers' ways are `eval` and `parse_expr`; a version with another one must be looked at before it is
    trusted.
    """
    package = pytest.importorskip("reasoning_gym")
    folder = Path(package.__file__).parent
    ways = ("exec(", "sympify(", "os.system", "subprocess", "__import__(", "pickle.load")
    found = {
        f"{file.relative_to(folder).as_posix()}: {way}"
        for file in folder.rglob("*.py")
        for way in ways
        if way in file.read_text(encoding="utf-8") and "contrib" not in file.parts
    }
    # It makes problems by programs of its own; answers are read as JSON.
    assert found <= {"code/codeio.py: exec("}, os.linesep.join(sorted(found))
