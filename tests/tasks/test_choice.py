from __future__ import annotations

from typing import Any

import pytest

import tts.tasks
from tts.errors import ConfigError
from tts.tasks.choice import ChoiceTask
from tts.types import Message, Problem


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Answer: spam", "spam"),
        ("It looks odd.\nAnswer: **Not Spam**.", "Not Spam"),
        (r"So \boxed{\text{spam}}", r"\text{spam}"),
        ("spam", "spam"),
        ("Let me see.\nSpam.", "Spam"),
        ("It could be spam, or not spam", None),
        ("Answer: ham", None),
        ("", None),
    ],
)
def test_extract(text: str, answer: str | None) -> None:
    assert ChoiceTask(choices=("spam", "not spam")).extract(text) == answer


def test_a_choice_is_one_however_it_is_written() -> None:
    task = ChoiceTask(choices=("spam", "not spam"))
    assert task.equivalent("Not  Spam", "**not spam**.")
    assert task.equivalent(r"\text{spam}", "spam")
    assert not task.equivalent("spam", "not spam")


def test_the_prompt_names_the_choices_and_the_name_reads_back() -> None:
    task = tts.tasks.get("choice(choices=('spam', 'not spam'))")
    [message] = task.prompt(Problem("Is it?"))
    assert isinstance(message, Message)
    assert "spam, not spam" in message.content
    assert tts.tasks.get(task.name).name == task.name == "choice(choices=('spam', 'not spam'))"


@pytest.mark.parametrize("choices", [(), ("a",), "ab", ("a", "A "), ("a", 3), ("a", " ")])
def test_wrong_choices_are_refused(choices: Any) -> None:
    with pytest.raises(ConfigError, match="choices is "):
        ChoiceTask(choices=choices)
