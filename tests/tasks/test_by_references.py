"""The task that references call for."""

from __future__ import annotations

import pytest

from tts.errors import ConfigError
from tts.tasks.by_references import choose_task, with_final_answers
from tts.types import Problem

CASES = {
    "math": [
        "14",
        "-3.5",
        "1,234",
        "3/4",
        "$12",
        "50%",
        "1e-3",
        "\\frac{3}{4}",
        "x^2+1",
        "2\\pi",
        "(1, 2)",
        "[2,5)",
        "x = 3",
        "0.5",
    ],
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
        assert f"no task was named: the data set 'mine' has references such as {given[0]!r}" in choice.line(
            "the data set 'mine'"
        )


def test_a_few_words_among_answers_of_mathematics_do_not_count():
    choice = choose_task(["1", "2", "3", "4", "Evelyn"], "it")
    assert choice is not None
    assert choice.task == "math"


@pytest.mark.parametrize(
    "references",
    [
        ["1", "Paris"],
        ["We add 2 and 2.\n#### 4"],
        ["It is $\\boxed{4}$."],
        ["A long sentence that no task can compare. " * 3],
    ],
)
def test_references_that_fit_no_task_are_refused_with_the_line_to_add(references: list[str]):
    with pytest.raises(
        ConfigError,
        match=r"references.*kinds",
    ) as no:
        choose_task(references, "the file")
    assert "task: math compares numbers and LaTeX, task: text words" in no.value.hint


def test_without_references_nothing_is_chosen():
    assert choose_task([None, ""], "it") is None


WORKED = {
    "7 * 3 = 21\n12 + 21 = 33\n#### 33": "33",
    "It is $\\boxed{\\frac{1}{2}}$.": "\\frac{1}{2}",
    "14": "14",
    '{"a": "#### 3"}': '{"a": "#### 3"}',
}


@pytest.mark.parametrize("task", [None, "math", "pocket", "arithmetic"])
def test_worked_solutions_become_their_final_answers_which_is_said(task: str | None, caplog: pytest.LogCaptureFixture):
    given = [Problem(f"p{i}", answer=answer) for i, answer in enumerate([*WORKED, None])]
    assert [one.answer for one in with_final_answers(given, task, "it")] == [*WORKED.values(), None]
    assert "it has 2 worked solutions as references, of which the final answer is taken: '33' of " in caplog.text


@pytest.mark.parametrize("task", ["text", "json"])
def test_tasks_that_compare_whole_references_keep_them(task: str, caplog: pytest.LogCaptureFixture):
    given = [Problem("p", answer=next(iter(WORKED))), Problem("p", answer=next(iter(WORKED)), task=task)]
    assert with_final_answers(given, task, "it") == given
    assert with_final_answers(given[1:], "math", "it") == given[1:]
    assert not caplog.records
