"""The task that references call for."""

from __future__ import annotations

import pytest

from tts.errors import ConfigError
from tts.tasks.by_references import choose_task

CASES = {
    "math": ["14", "-3.5", "1,234", "3/4", "$12", "50%", "1e-3", "\\frac{3}{4}", "x^2+1", "2\\pi", "(1, 2)", "[2,5)", "x = 3", "0.5"],
    "multiple_choice": ["A", "b".upper(), "(C)", "D.", "E"],
    "json": ['{"a": 1}', '[{"a": 1}, {"b": 2}]'],
    "text": ["Paris", "Yes", "the red house", "05/01/2021 or later", "valid"],
}


@pytest.mark.parametrize(("task", "references"), CASES.items())
def test_every_reference_alone_and_all_together_call_for_their_task(task: str, references: list[str]):
    for given in (references, *([one] for one in references)):
        choice = choose_task([None, *given, " "], "the data set 'mine'")
        assert choice is not None
        assert choice.task == task, given
        assert f"no task was named: the data set 'mine' has references such as {given[0]!r}" in choice.line("the data set 'mine'")


def test_a_few_words_among_answers_of_mathematics_do_not_count():
    choice = choose_task(["1", "2", "3", "4", "Evelyn"], "it")
    assert choice is not None
    assert choice.task == "math"


@pytest.mark.parametrize(
    "references", [["1", "Paris"], ["We add 2 and 2.\n#### 4"], ["It is $\\boxed{4}$."], ["A long sentence that no task can compare. " * 3]]
)
def test_references_that_fit_no_task_are_refused_with_the_line_to_add(references: list[str]):
    with pytest.raises(
        ConfigError, match="no task was named, and the file has references of several kinds or of none that a task compares"
    ) as no:
        choose_task(references, "the file")
    assert "task: math compares numbers and LaTeX, task: text words" in no.value.hint


def test_without_references_nothing_is_chosen():
    assert choose_task([None, ""], "it") is None
