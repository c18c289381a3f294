r"""The choice of a task by reference answers, for problems whose task was not named.

The answers may be letters, JSON, numbers or LaTeX, or a few words.

A task that does not fit scores right answers as wrong: "The answer is \\boxed{14}." is no word of the reference "14".
So studies, imports and `solve_many` look at the references first. References of several kinds fit no task, and are
refused before anything is spent.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from tts._core.logs import get_logger
from tts.errors import ConfigError, quote
from tts.tasks.extraction import final_answer
from tts.types import Problem

_MOST: Final = 1000  # references that are looked at
_SHARE: Final = 0.8  # share of references that must be of one kind; answers of mathematics are words now and then
_LONGEST: Final = 80  # characters of an answer in words
_LETTER: Final = re.compile(r"\(?[A-J]\)?\.?")
_NUMBER: Final = re.compile(r"[-+−]?[$€£]?\s?[-+−]?(?:\d[\d,]*)?(?:\.\d+)?(?:\s?/\s?\d+)?(?:[eE][-+]?\d+)?\s?%?")
_LATEX: Final = re.compile(r"\\[A-Za-z]+|\$[^$]+\$|[\d)}\]a-z]\s?[\^_=<>]|^[\[(].*,.*[\])]$|^[-+]?\d*[a-z](?:[-+^]|$)")
_WORKED: Final = re.compile(r"\\(?:boxed|fbox)\s*\{|(?<!\#)\#{4}(?!\#)")
_VERBATIM: Final = ("text", "json")  # tasks whose references are compared as they are
KINDS: Final = {"letter": "multiple_choice", "JSON": "json", "number or LaTeX": "math", "few words": "text"}


@dataclass(frozen=True, slots=True)
class TaskChoice:
    """A task chosen by references.

    Args:
        task: The name of the task.
        kind: The kind of the references, a key of `KINDS`.
        example: One of the references.
    """

    task: str
    kind: str
    example: str

    def line(self, where: str) -> str:
        """Return a line that states the chosen task and the reason.

        Args:
            where: The source of the references, such as "the data set 'mine'".
        """
        return (
            f"no task was named: {where} has references such as {quote(self.example)} ({self.kind}), so the task "
            f"is {self.task!r}"
        )


def choose_task(references: Iterable[str | None], where: str) -> TaskChoice | None:
    """Return the task that fits references; None: there are no references.

    Args:
        references: The reference answers; None: a problem without one.
        where: The source of the references, for messages.

    Raises:
        ConfigError: the references are of several kinds, or worked solutions.
    """
    stated_answers = (answer for answer in references if answer is not None and answer.strip())
    answers = list(islice(stated_answers, _MOST))
    if not answers:
        return None
    answers_by_kind: dict[str, list[str]] = {}
    for answer in answers:
        answers_by_kind.setdefault(kind_of(answer), []).append(answer)
    kind, answers_of_kind = max(answers_by_kind.items(), key=lambda item: len(item[1]))
    if kind in KINDS and len(answers_of_kind) >= _SHARE * len(answers):
        return TaskChoice(KINDS[kind], kind, answers_of_kind[0])
    examples = ", ".join(
        f"{quote(answers_found[0])} ({kind_found})" for kind_found, answers_found in answers_by_kind.items()
    )
    raise ConfigError(
        f"no task was named, and {where} has references of several kinds or of none that a task compares: {examples}",
        hint="name the task: task: math compares numbers and LaTeX, task: text words, task: multiple_choice letters; "
        "of worked solutions keep the final answers; a file of several kinds is divided: "
        "problems: [{dataset: a.jsonl, task: math}, {dataset: b.jsonl, task: text}]",
    )


def final_of(reference: str) -> str:
    """Return the final answer of a worked solution; another reference as it is."""
    return (final_answer(reference) or reference) if kind_of(reference) == "worked solution" else reference


def with_final_answers(problems: Iterable[Problem], task: str | None, where: str) -> list[Problem]:
    """Return problems with final answers as references instead of worked solutions, with a warning.

    The tasks `text` and `json` compare whole references, so their problems stay as they are.

    Args:
        problems: The problems.
        task: The name of the task for problems that name none; None: the task is not chosen yet.
        where: The source of the problems, for the warning.
    """
    cleaned: list[Problem] = []
    changes: list[tuple[str, str]] = []  # a reference, and its final answer
    for problem in problems:
        if not problem.answer or (problem.task or task or "").partition("(")[0] in _VERBATIM:
            cleaned.append(problem)
            continue
        final = final_of(problem.answer)
        if final != problem.answer:
            changes.append((problem.answer, final))
        cleaned.append(dataclasses.replace(problem, answer=final))
    if changes:
        example_reference, example_final = changes[0]
        get_logger("tts.tasks").warning(
            "%s has %d worked solutions as references, of which the final answer is taken: %s of %s",
            where,
            len(changes),
            quote(example_final),
            quote(example_reference),
        )
    return cleaned


def kind_of(reference: str) -> str:
    """Return the kind of a reference: a key of `KINDS`, "worked solution" or "long text"."""
    text = reference.strip()
    if _LETTER.fullmatch(text):
        return "letter"
    if _is_json(text):
        return "JSON"
    if _WORKED.search(text):
        return "worked solution"
    is_number = any(character.isdigit() for character in text) and _NUMBER.fullmatch(text)
    if is_number or (len(text) <= 4 * _LONGEST and _LATEX.search(text)):
        return "number or LaTeX"
    return "few words" if len(text) <= _LONGEST and "\n" not in text else "long text"


def _is_json(text: str) -> bool:
    """Whether a text is a JSON object, or a list of objects."""
    if not text.startswith(("{", "[{")):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
