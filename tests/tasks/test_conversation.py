from __future__ import annotations

import json
from pathlib import Path

import pytest

from tts.errors import ConfigError
from tts.tasks.conversation import conversation, read_examples, read_messages
from tts.tasks.looks import looks_like_math
from tts.types import Message

USER, SYSTEM, ASSISTANT = "user", "system", "assistant"


def test_a_problem_alone_stays_text() -> None:
    assert conversation("Why?") == "Why?"
    assert conversation("Why?", template="Q: {problem} {x}\nA:") == "Q: Why? {x}\nA:"


def test_parts_come_in_the_order_of_a_chat() -> None:
    made = conversation(
        "c",
        system="s",
        examples=[("a", "b")],
        messages=[Message(USER, "m"), Message(ASSISTANT, "n")],
        template="<{problem}>",
    )
    assert made == (
        Message(SYSTEM, "s"),
        Message(USER, "<a>"),
        Message(ASSISTANT, "b"),
        Message(USER, "m"),
        Message(ASSISTANT, "n"),
        Message(USER, "<c>"),
    )
    assert conversation(None, messages=[Message(SYSTEM, "s"), Message(USER, "m")], examples=[("a", "b")])[1] == Message(
        USER, "a"
    )


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"must have \{problem\}"):
        conversation("a", template="Q:")
    with pytest.raises(ConfigError, match=r"turn.*user"):
        conversation(None, messages=[Message(ASSISTANT, "m")])
    with pytest.raises(ConfigError, match="system message is given beside"):
        conversation("a", system="s", messages=[Message(SYSTEM, "t")])


@pytest.mark.parametrize("form", ["list", "object", "lines"])
def test_messages_are_read_in_each_form(tmp_path: Path, form: str) -> None:
    rows = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    told = {
        "list": json.dumps(rows),
        "object": json.dumps({"messages": rows}),
        "lines": "\n".join(map(json.dumps, rows)),
    }[form]
    (tmp_path / "m.json").write_text(told)
    assert read_messages(str(tmp_path / "m.json")) == (Message("system", "s"), Message("user", "u"))


def test_examples_have_the_usual_columns(tmp_path: Path) -> None:
    (tmp_path / "e.jsonl").write_text(
        '{"input": "1 + 1", "target": "2"}\n{"problem": "2 + 2", "solution": "4", "answer": "x"}\n'
    )
    assert read_examples(str(tmp_path / "e.jsonl")) == [("1 + 1", "2"), ("2 + 2", "4")]


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        ("", "holds none"),
        ("{", "neither JSON nor JSON lines"),
        ('[{"role": "tool", "content": "x"}]', "must have a role"),
        ('[{"role": "user", "content": 3}]', "must have a role"),
        ("[3]", "must have a role"),
    ],
)
def test_wrong_messages_are_refused_with_their_place(tmp_path: Path, content: str, cause: str) -> None:
    (tmp_path / "m.json").write_text(content)
    with pytest.raises(ConfigError, match=cause):
        read_messages(str(tmp_path / "m.json"))


def test_a_wrong_example_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "e.jsonl").write_text('{"question": "a"}')
    with pytest.raises(ConfigError, match="example 1"):
        read_examples(str(tmp_path / "e.jsonl"))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_examples(str(tmp_path / "none"))


@pytest.mark.parametrize("text", ["What is 12 + 7 * 3?", "Solve for $x$: $x^2 = 4$", r"Find \frac{1}{2} of it",
                                  "Janet has 16 eggs and eats 3. How many are left?"])  # fmt: skip
def test_mathematics_is_recognised(text: str) -> None:
    assert looks_like_math(text)


@pytest.mark.parametrize(
    "text",
    [
        "Write a haiku about autumn, 5-7-5.",
        "Translate: how many roads?",
        "Meet on 2024-11-23 at 10/11.",
        "Write a function that adds two numbers in C++",
        "Costs $5 or $10",
    ],
)
def test_other_texts_are_not(text: str) -> None:
    assert not looks_like_math(text)
