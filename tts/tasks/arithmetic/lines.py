r"""Steps and answers of solutions in lines, the language of the embedded models.

An example of such a solution is "3 + 4 = 7\n7 - 2 = 5\nA: 5\n".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from tts.tasks.arithmetic.expression import OPERATORS, Step
from tts.tasks.base import Task, fold_text
from tts.tasks.extraction import final_answer
from tts.tasks.forms.rational import rational
from tts.tasks.framing import unknown_kind

ANSWER: Final = "A: "
STEP_STOP: Final = ("\n",)

_NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:/[+-]?[0-9]+(?:\.[0-9]+)?)?"
_GROUPS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")  # thousands
_ANSWER_LINE = re.compile(rf"^[ \t]*A:[ \t]*({_NUMBER})[ \t]*\r?$", re.MULTILINE)
_WHOLE = r"(-?[0-9]{1,18})"  # no problem has longer results
_STEP = re.compile(rf"\s*{_WHOLE}\s*([{re.escape(''.join(OPERATORS))}])\s*{_WHOLE}\s*=\s*{_WHOLE}\s*")
_STATED = re.compile(rf"\s*A:\s*{_WHOLE}\s*")


def solution(steps: Sequence[Step], answer: int) -> list[str]:
    """Return a worked solution: its steps, one a line, and the answer line; each with its newline."""
    return [*(f"{step}\n" for step in steps), f"{ANSWER}{answer}\n"]


def read_step(line: str) -> Step | None:
    """Return the step that a line writes, right or wrong, or None where the line is no step."""
    match = _STEP.fullmatch(line)
    if match is None:
        return None
    left, operator, right, result = match.groups()
    return Step(int(left), operator, int(right), int(result))


def read_answer(line: str) -> int | None:
    """Return the whole number that an answer line states, or None for another line."""
    match = _STATED.fullmatch(line)
    return None if match is None else int(match[1])


def number_form(answer: str) -> str:
    """Return a number in lowest terms, and any other text with its spaces and case folded."""
    text = fold_text(answer)
    value = rational(_GROUPS.sub("", text.replace("−", "-")))
    return text if value is None else str(value)


class LinesTask(Task):
    """A task whose solutions have one step a line, then a line "A: " with the answer.

    Attributes:
        tokens: The usual length of a solution ("solve", "revise"), and of one line ("step"), by kind.
    """

    step_stop: tuple[str, ...] = STEP_STOP
    answer_cue: str = ANSWER
    tokens: ClassVar[Mapping[str, int]] = {}

    def is_finished(self, text: str) -> bool:
        """Whether the last line that is not empty is "A: number", ended by a newline."""
        return text.endswith("\n") and _ANSWER_LINE.fullmatch(text.rstrip().rpartition("\n")[2]) is not None

    def typical_tokens(self, kind: str = "solve") -> int:
        """Return the usual length in tokens of a reply to a kind of prompt."""
        if kind not in self.tokens:
            raise unknown_kind(self.name, kind, self.tokens)
        return self.tokens[kind]

    def extract(self, text: str) -> str | None:
        """Return the number of the last "A:" line.

        Without such a line the answer is a number in a box or after another marker; None where there is none.
        """
        line_answers = _ANSWER_LINE.findall(text)
        if line_answers and line_answers[-1].isdigit():
            return line_answers[-1]
        answer = line_answers[-1] if line_answers else final_answer(text)
        if answer is None or rational(_GROUPS.sub("", answer)) is None:
            return None
        return answer

    def canonical(self, answer: str) -> str:
        """Return a number in lowest terms, and any other text with its spaces and case folded."""
        return number_form(answer)
