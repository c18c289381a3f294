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
        examples: Questions with their solutions, as turns of user and assistant before the problem.
        messages: Earlier turns, after the examples.
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
    start = next((i for i, turn in enumerate(turns) if turn.role != "system"), len(turns))
    shots = [
        turn
        for question, solution in examples
        for turn in (Message("user", _fill(template, question)), Message("assistant", solution))
    ]
    turns[start:start] = shots
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
        fits = isinstance(row, Mapping) and isinstance(row.get("content"), str) and row.get("role") in _ROLES
        if not fits:
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

    The question is the first column of "question", "problem", "prompt" and "input" that the row has. The solution is
    the first of "solution", "answer", "target", "output" and "completion".

    Raises:
        ConfigError: the file cannot be read, or a row lacks a question or a solution.
    """
    examples: list[tuple[str, str]] = []
    for number, row in enumerate(_rows(path, "examples"), start=1):
        parts = [
            next((row[name] for name in names if isinstance(row, Mapping) and isinstance(row.get(name), str)), None)
            for names in (QUESTIONS, ANSWERS)
        ]
        if parts[0] is None or parts[1] is None:
            columns = ", ".join(QUESTIONS if parts[0] is None else ANSWERS)
            raise ConfigError(f"example {number} of {path!r} is {quote(row)}, but must have one of {columns}")
        examples.append((parts[0], parts[1]))
    return examples


def _rows(path: str, content: str) -> list[Any]:
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
