from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts.errors import ConfigError
from tts.tasks.arithmetic.task import ArithmeticTask
from tts.tasks.base import Task
from tts.types import Message, Problem

SOLUTION = "3 + 4 = 7\n7 - 2 = 5\nA: 5\n"


def test_it_is_a_task():
    assert isinstance(ArithmeticTask(), Task)


def test_prompt_is_the_problem_unchanged():
    assert ArithmeticTask().prompt(Problem("Q: 3 + 4 - 2\n")) == "Q: 3 + 4 - 2\n"
    assert ArithmeticTask().prompt(Problem((Message("user", "Q: 1"),))) == "Q: 1"


@pytest.mark.parametrize("kind", ["revise", "fuse", "critique", "dream"])
def test_prompt_knows_solve_only(kind: str):
    with pytest.raises(ConfigError, match=kind):
        ArithmeticTask().prompt(Problem("Q"), kind, ["a", "b"])


@settings(deadline=None)
@given(st.text(alphabet="1+\n") | st.text())
def test_steps_are_lines(text: str):
    pieces = ArithmeticTask().split(text)
    assert "".join(pieces) == text
    assert all(piece.count("\n") == 1 and piece.endswith("\n") for piece in pieces[:-1])
    assert all("\n" not in piece[:-1] and piece for piece in pieces[-1:])


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (SOLUTION, "5"),
        ("A: 5", "5"),
        ("A: 4\nA: -5\n", "-5"),
        ("A: 1/2\n", "1/2"),
        ("A: 0.50\r\n", "0.50"),
        ("A:7\n", "7"),
        (r"\boxed{8}", "8"),
        ("The answer is 9.", "9"),
        ("3 + 4 = 7\n", None),
        ("A: seven\n", None),
        ("A: \n", None),
        ("A: 1/0\n", None),
        ("", None),
    ],
)
def test_extract(text: str, answer: str | None):
    assert ArithmeticTask().extract(text) == answer


@pytest.mark.parametrize(
    ("text", "finished"),
    [
        (SOLUTION, True),
        (SOLUTION[:-1], False),
        ("A: 5\n\n", True),
        ("A: 5\n3 + 4 = 7\n", False),
        ("3 + 4 = 7\n", False),
        ("A:\n", False),
        ("", False),
    ],
)
def test_an_answer_line_with_its_newline_finishes(text: str, finished: bool):
    assert ArithmeticTask().is_finished(text) is finished


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        ("5", "5.0", True),
        ("1/2", "0.5", True),
        ("-0", "0", True),
        ("2/4", "1/2", True),
        ("1/3", "0.333", False),
        ("5", "-5", False),
        ("−5", "-5", True),
    ],
)
def test_numbers_are_equal_exactly(a: str, b: str, equal: bool):
    task = ArithmeticTask()
    assert task.decide(a, b) is task.decide(b, a) is equal
    assert task.equivalent(a, b) is equal
    assert (task.canonical(a) == task.canonical(b)) is equal


@settings(deadline=None)
@given(st.text(), st.text())
def test_no_text_is_too_strange(a: str, b: str):
    task = ArithmeticTask()
    assert task.decide(a, b) is task.decide(b, a)
    task.extract(a)
    task.is_finished(a)


def test_typical_tokens_are_constants():
    assert (ArithmeticTask().typical_tokens(), ArithmeticTask().typical_tokens("step")) == (64, 16)
    with pytest.raises(ConfigError, match="solve, step"):
        ArithmeticTask().typical_tokens("revise")
