"""What can be a problem: text or messages of text; anything else is one line that says so, before anything is spent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tts.checks import check_problem
from tts.errors import ConfigError
from tts.types import Message, Problem

TURN = {"role": "user", "content": "3 + 4"}


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "number": (lambda: problem(5), "the problem is 5, but must be text or a list of chat messages"),
    "None": (lambda: problem(None), "the problem is None, but must be text"),
    "bytes": (lambda: problem(b"3 + 4"), "the problem is b'3 + 4', but must be text"),
    "one message": (
        lambda: problem(TURN),
        "the problem is {'role': 'user', 'content': '3 + 4'}, but must be text or a list",
    ),
    "no content": (
        lambda: problem([{"role": "user"}]),
        "a message of the problem is {'role': 'user'}, but must be a role and a content",
    ),
    "no message": (
        lambda: problem([TURN, 5]),
        "a message of the problem is 5, but must be a role and a content, both text",
    ),
    "image": (
        lambda: problem([{"role": "user", "content": [{"type": "image"}]}]),
        "a message of the problem is {'role': 'user'",
    ),
    "content None": (lambda: problem([Message("user", None)]), "a message of the problem is Message("),  # type: ignore[arg-type]
    "half of a character": (
        lambda: problem("3 \ud83d 4"),
        r"the problem is '3 \ud83d 4', but must be text that can be written",
    ),
    "half in a message": (
        lambda: problem([Message("user", "\ud83d")]),
        r"the problem is '\ud83d', but must be text that can be written",
    ),
    "answer": (lambda: problem("3 + 4", answer=7), "the answer of the problem is 7, but must be text or None"),
    "id": (lambda: problem("3 + 4", id=12), "the id of the problem is 12, but must be text or None"),
    "task": (lambda: problem("3 + 4", task=b"math"), "the task of the problem is b'math', but must be text or None"),
    "metadata": (lambda: problem("3 + 4", metadata=3), "the metadata of the problem is 3, but must be a mapping"),
}


def problem(*given: Any, **more: Any) -> Problem:
    return Problem(*given, **more)


@pytest.mark.parametrize("case", MISTAKES)
def test_what_is_no_problem_is_named(case: str) -> None:
    make, cause = MISTAKES[case]
    with pytest.raises(ConfigError) as caught:
        check_problem(make())
    assert caught.value.cause.startswith(cause)
    assert caught.value.hint.startswith(("a message is {", "for example ", "it holds half of a character"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "given", ["3 + 4", "", [TURN], (TURN, Message("assistant", "7")), [{**TURN, "name": "me"}], iter([TURN])]
)
def test_text_and_messages_are_problems(given: Any) -> None:
    problem = Problem(given, answer="7", id="p", task="arithmetic", metadata={"level": 1})
    check_problem(problem)
    check_problem(problem.without_answer())
    assert isinstance(problem.prompt, str) or all(isinstance(turn, Message) for turn in problem.prompt)
    assert given == "" or problem.text.startswith("3 + 4")


def test_a_long_value_is_shortened() -> None:
    with pytest.raises(ConfigError) as caught:
        check_problem(Problem([{"role": "user", "content": ["x" * 10**5]}]))  # type: ignore[list-item]
    assert len(str(caught.value)) < 300
