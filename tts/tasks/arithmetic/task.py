r"""Arithmetic in lines: "3 + 4 = 7\n7 - 2 = 5\nA: 5\n", asked and answered in plain text."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from tts.errors import ConfigError
from tts.tasks.arithmetic.lines import LinesTask
from tts.types import Problem


class ArithmeticTask(LinesTask):
    """Problems whose answer is one number, for a model that was trained on their plain text."""

    name: str = "arithmetic"
    tokens = MappingProxyType({"solve": 64, "step": 16})

    def prompt(self, problem: Problem, kind: str = "solve", texts: Sequence[str] = ()) -> str:  # noqa: ARG002 - the protocol has it
        """Return the problem's text unchanged.

        Raises:
            ConfigError: `kind` is not "solve": the models of this task have seen nothing else.
        """
        if kind != "solve":
            rule = f"kind is {kind!r}, but the task 'arithmetic' has only solve"
            raise ConfigError(rule, hint="use a task for chat models, such as 'math'")
        return problem.text
