"""Prompts of chat messages: a system message, worked examples, earlier turns, and the problem."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tts.checks import read_text
from tts.errors import ConfigError, quote
from tts.types import Message, Prompt

SLOT = "{problem}"  # the place of the problem in a template
_ROLES = ("system", "user", "assistant")
# The names that data sets give the two parts of an example.
QUESTIONS = ("question", "problem", "prompt", "input")
ANSWERS = ("solution", "answer", "target", "output", "completion")


def conversation(
    problem: str | None,
    *,
    system: str | None = None,
    examples: Sequence[tuple[str, str]] = (),
    messages: Sequence[Message] = (),
    template: str | None = None,
) -> Prompt:
    """Return the prompt of a problem: its text alone, or chat messages if there are other parts.

    Args:
        problem: The text of the last turn; None: `messages` end with the problem.
        system: The system message.
        examples: Questions with their solutions, which become turns of user and assistant after a system message.
        messages: Earlier turns, which follow the examples.
        template: A text with "{problem}", which is replaced by the problem and by each example's question; None: no
            template.

    Raises:
        ConfigError: there is no turn of the user, two system messages, or `template` has no "{problem}".
    """
    if template is not None and SLOT not in template:
        raise ConfigError(f"the template is {quote(template)}, but must have {SLOT} where the problem belongs")
    turns = list(messages)
    if system is not None:
        if any(turn.role == "system" for turn in turns):
            raise ConfigError("a system message is given beside messages that have one", hint="give one of them")
        turns.insert(0, Message("system", system))
    example_turns: list[Message] = []
    for question, solution in examples:
        example_turns += [Message("user", _fill(template, question)), Message("assistant", solution)]
    first_turn = next((i for i, turn in enumerate(turns) if turn.role != "system"), len(turns))
    turns[first_turn:first_turn] = example_turns
    if problem is not None:
        if not turns:
            return _fill(template, problem)
        turns.append(Message("user", _fill(template, problem)))
    if not turns or turns[-1].role != "user":
        raise ConfigError(
            "the messages do not end with a turn of the user", hint="give the problem, or messages that end with it"
        )
    return tuple(turns)


def _fill(template: str | None, text: str) -> str:
    return text if template is None else template.replace(SLOT, text)


def read_messages(path: str) -> tuple[Message, ...]:
    """Return the messages of a file.

    The file is a JSON list of {"role": …, "content": …}, an object with such a list under "messages", or one message a
    line.

    Raises:
        ConfigError: the file cannot be read, or holds something else.
    """
    rows: Any = _rows(path, "messages")
    messages: list[Message] = []
    for number, row in enumerate(rows, start=1):
        is_message = isinstance(row, Mapping) and isinstance(row.get("content"), str) and row.get("role") in _ROLES
        if not is_message:
            raise ConfigError(
                f"message {number} of {path!r} is {quote(row)}, but must have a role ({', '.join(_ROLES)}) and a "
                "content, both text",
                hint='for example [{"role": "user", "content": "Why?"}]',
            )
        messages.append(Message(row["role"], row["content"]))
    return tuple(messages)


def read_examples(path: str) -> list[tuple[str, str]]:
    """Return the worked examples of a file, a question and its solution each.

    The file has one JSON object a line, or is a JSON list.

    The question is in the first column of "question", "problem", "prompt" and "input" that the row has. The solution is
    in the first column of "solution", "answer", "target", "output" and "completion".

    Raises:
        ConfigError: the file cannot be read, or a row lacks a question or a solution.
    """
    examples: list[tuple[str, str]] = []
    for number, row in enumerate(_rows(path, "examples"), start=1):
        question = _first_text(row, QUESTIONS)
        solution = _first_text(row, ANSWERS)
        if question is None or solution is None:
            columns = ", ".join(QUESTIONS if question is None else ANSWERS)
            raise ConfigError(f"example {number} of {path!r} is {quote(row)}, but must have one of {columns}")
        examples.append((question, solution))
    return examples


def _first_text(row: Any, names: Sequence[str]) -> str | None:
    """Return the first of some columns of a row that is a text, or None."""
    if not isinstance(row, Mapping):
        return None
    for name in names:
        if isinstance(row.get(name), str):
            return row[name]
    return None


def _rows(path: str, content: str) -> list[Any]:
    """Return the rows of a file in JSON or JSON lines; of an object the list under `content`, if it has one."""
    text = read_text(f"the file of {content}", path)
    try:
        try:
            rows: Any = json.loads(text)
        except ValueError:
            rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, RecursionError) as failure:
        raise ConfigError(
            f"the file of {content} is {path!r}, but it is neither JSON nor JSON lines: {failure}"
        ) from None
    if isinstance(rows, Mapping):
        rows = rows[content] if isinstance(rows.get(content), list) else [rows]
    if not isinstance(rows, list) or not rows:
        raise ConfigError(
            f"the file of {content} is {path!r}, but holds none", hint="give a JSON list, or one JSON object a line"
        )
    return rows
