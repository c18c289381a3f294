from __future__ import annotations

import pytest

from tts.tasks.base import Task
from tts.tasks.multiple_choice import MultipleChoiceTask
from tts.types import Problem

TEXTS: list[tuple[str, str | None]] = [
    (r"\boxed{B}", "B"),
    (r"\boxed{(b)}", "B"),
    (r"\boxed{\text{B}}", "B"),
    (r"\boxed{\text{(B)}}", "B"),
    (r"\boxed{B) Paris}", "B"),
    (r"\boxed{A} no, \boxed{C}", "C"),
    (r"The value is \boxed{5}." + "\nAnswer: D", "D"),
    ("Answer: (B)", "B"),
    ("Answer: B", "B"),
    ("answer: B.", "B"),
    ("**Answer:** B", "B"),
    ("**Answer: B**", "B"),
    ("Answer: **B**", "B"),
    ("Answer: **B) Paris**", "B"),
    ("Answer: $B$", "B"),
    ("Answer: option C", "C"),
    ("the answer is B.", "B"),
    ("The correct answer is (J).", "J"),
    ("The answer is A because it is first.", "A"),
    ("The answer is B because A is wrong.", "B"),
    ("Answer: A. Paris", "A"),
    ("Answer: Paris (C)", "C"),
    ("Answer: A\nNo wait.\nAnswer: D", "D"),
    ("So I choose **C**", "C"),
    ("Not **A** but **C**.", "C"),
    ("**(D)**", "D"),
    ("I think so.\n\nB", "B"),
    ("I think so.\n(e)\n", "E"),
    ("I think so.\n**F**.", "F"),
    ("Answer:\nB", "B"),
    ("", None),
    ("No idea.", None),
    ("A good question.", None),
    ("I am not sure.", None),
    ("Option A is wrong.", None),
    ("A is wrong, and so is B.", None),
    ("Answer: A number of things", None),
    ("Answer: I think it depends", None),
    ("Answer: I'm unsure", None),
    ("the answer is a mystery", None),
    ("Answer: B or C", None),
    ("Answer: (B) or (C)", None),
    ("Answer: A, B", "A, B"),
    ("Answer: A/B", None),
    ("Answer: B + C", None),
    ("Answer: none", None),
    ("Answer: K", None),
    ("Answer: BC", None),
    ("Answer: CAB", None),
    ("Answer: **A**, **C**", "A, C"),
    ("The correct options are A, B and D.", "A, B, D"),
    (r"\boxed{\text{A and C}}", "A, C"),
    ("<answer>D, B</answer>", "B, D"),
    ("So:\n**A and C**", "A, C"),
    ("Answer: A, A", None),
    ("x = a\na", None),
    (r"\boxed{5}", None),
]


@pytest.mark.parametrize(("text", "answer"), TEXTS)
def test_extract_returns_a_stated_choice_and_never_a_guess(text: str, answer: str | None):
    assert MultipleChoiceTask().extract(text) == answer


def test_equal_choices_are_equal_however_dressed():
    task = MultipleChoiceTask()
    assert isinstance(task, Task)
    for spelling in ("B", "(B)", "(b)", "B.", "B) Paris", r"\text{(B)}", "**B**"):
        assert task.canonical(spelling) == "B"
        assert task.equivalent(spelling, "B")
        assert task.decide("C", spelling) is False
    assert task.equivalent("Paris ", "paris")


def test_a_reference_of_several_letters_is_equal_to_an_answer_of_them():
    task = MultipleChoiceTask()
    for reference in ("AC", "A,C", "C, A", "A;C", "(A) and (C)", "A and C"):
        assert task.equivalent(str(task.extract("So the answer is A and C.")), reference)
        assert not task.equivalent("A", reference)


@pytest.mark.parametrize(
    ("text", "finished"),
    [
        (r"\boxed{B}", True),
        ("Answer: B\n\n", True),
        ("Answer: B", False),
        ("Answer: B\n\nWhy?\n\n", False),
        ("Maybe.\n\n", False),
    ],
)
def test_a_stated_choice_finishes(text: str, finished: bool):
    assert MultipleChoiceTask().is_finished(text) is finished


def test_prompt_asks_for_the_letter():
    (message,) = MultipleChoiceTask().prompt(Problem("Which? (A) this (B) that"))
    assert message.content.startswith("Which?")
    assert "Answer: " in message.content
    assert MultipleChoiceTask().split("a\n\nb") == ["a\n\n", "b"]
    assert MultipleChoiceTask().typical_tokens("step") == 48
