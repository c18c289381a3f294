from __future__ import annotations

import pytest

import tts
from tts import tasks
from tts.errors import ConfigError
from tts.tasks.base import Task, keyed_task
from tts.tasks.text import TextTask
from tts.types import Message, Problem


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (" Paris. ", "Paris."),
        ("It is a city.\nAnswer: Paris.", "Paris"),
        ("Answer: no\nAnswer:\ntwo\nlines", "two\nlines"),
        (
            "Dear Bob,\nThe answer is no: it costs $5 a day.\nAnn\n",
            "Dear Bob,\nThe answer is no: it costs $5 a day.\nAnn",
        ),
        ("So the answer is $5", "$5"),
        ("**Answer:** Paris", "Paris"),
        ("", None),
        (" \n", None),
        ("Answer: ", None),
    ],
)
def test_extract(text: str, answer: str | None):
    assert TextTask().extract(text) == answer


def test_equality_folds_case_and_spaces():
    task = TextTask()
    assert isinstance(task, Task)
    assert task.equivalent("The  Straße\n", "the STRASSE")
    assert task.decide("a", "b") is False
    assert task.canonical(" A  b\n") == task.key(" A  b\n") == "a b"


@pytest.mark.parametrize(
    ("answer", "words", "includes"),
    [("Paris.", True, True), ("It is **paris**, I think", False, True), ("Comparison", False, False)],
)
def test_an_answer_is_right_by_all_its_words_or_by_those_of_the_reference(answer, words, includes):
    task = tasks.get("text(match='includes')")
    assert (TextTask().accepts(answer, "Paris"), task.accepts(answer, "Paris")) == (words, includes)
    assert task.decide(answer, "Paris") is words  # votes are counted as before
    assert (TextTask().name, task.name) == ("text", "text(match='includes')")
    with pytest.raises(ConfigError, match="match is 'some'"):
        tasks.get("text(match='some')")


def test_what_names_no_classes_of_answers_has_no_keys():
    assert keyed_task(TextTask()) is not None
    assert keyed_task(object()) is None  # type: ignore[arg-type]


def test_solve_passes_the_problem_on():
    task = TextTask()
    assert task.prompt(Problem("Why?")) == (Message("user", "Why?"),)
    conversation = (Message("system", "Be brief."), Message("user", "Why?"), Message("assistant", "Because"))
    assert task.prompt(Problem(conversation)) == conversation
    assert task.prompt(Problem(conversation), "revise", ["X"])[:3] == conversation
    assert "X" in task.prompt(Problem(conversation), "revise", ["X"])[3].content


def test_free_text_ends_with_its_sequence_only():
    assert TextTask().is_finished("Answer: 5\n\n") is False
    assert TextTask().split("a\n\nb\n\n") == ["a\n\n", "b\n\n"]
    assert TextTask().typical_tokens() == 256


def test_the_default_strategy_of_free_text_is_that_of_any_match():
    limits, ask = tts.Budget(samples=2), lambda ask: "It is Paris."
    strategies = {
        tts.solve("Where?", limits, backend=ask, task=task).strategy for task in ("text", "text(match='includes')")
    }
    assert len(strategies) == 1
