r"""Arithmetic in lines: "3 + 4 = 7\n7 - 2 = 5\nA: 5\n", asked and answered in plain text."""

from __future__ import annotations

from collections.abc import Sequence

from tts.errors import ConfigError
from tts.tasks.arithmetic.lines import STEP_STOP, is_answered, number_form, stated_number
from tts.tasks.base import Task
from tts.tasks.framing import unknown_kind
from tts.types import Problem

_TOKENS = {"solve": 64, "step": 16}


class ArithmeticTask(Task):
    """Problems whose answer is one number, for a model that was trained on their plain text."""

    name: str = "arithmetic"
    step_stop: tuple[str, ...] = STEP_STOP
    answer_cue: str = "A: "

    def prompt(self, problem: Problem, kind: str = "solve", texts: Sequence[str] = ()) -> str:  # noqa: ARG002 - the protocol has it
        """Return the problem's text unchanged.

        Raises:
            ConfigError: `kind` is not "solve": the models of this task have seen nothing else.
        """
        if kind != "solve":
            rule = f"kind is {kind!r}, but the task 'arithmetic' has only solve"
            raise ConfigError(rule, hint="use a task for chat models, such as 'math'")
        return problem.text

    def is_finished(self, text: str) -> bool:
        """Whether the last line that is not empty is "A: number" and its newline is there."""
        return is_answered(text)

    def typical_tokens(self, kind: str = "solve") -> int:
        """Return the usual length in tokens of a solution ("solve") or of one line ("step")."""
        if kind not in _TOKENS:
            raise unknown_kind(self.name, kind, _TOKENS)
        return _TOKENS[kind]

    def extract(self, text: str) -> str | None:
        """Return the number of the last "A:" line, else a number that is boxed or stands behind another marker, else None."""
        return stated_number(text)

    def canonical(self, answer: str) -> str:
        """Return a number in lowest terms, and any other text with its spaces and case folded."""
        return number_form(answer)
