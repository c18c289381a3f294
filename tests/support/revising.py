"""Arithmetic with prompts that show earlier solutions.

The toy reads the last sum in a prompt, so it revises without looking.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tts import tasks
from tts.errors import ConfigError
from tts.tasks.arithmetic.task import ArithmeticTask
from tts.types import Problem


class RevisingTask(ArithmeticTask):
    """Shows the earlier solutions, oldest first, then the problem; refuses to show one with "?" in it.

    Attributes:
        prompted: kind and earlier solutions of each prompt that was written.
    """

    def __init__(self) -> None:
        self.prompted: list[tuple[str, tuple[str, ...]]] = []

    def prompt(self, problem: Problem, kind: str = "solve", texts: Sequence[str] = ()) -> str:
        if kind == "solve":
            return problem.text
        if any("?" in text for text in texts):
            raise ConfigError("an attempt has no answer, but must have one")
        self.prompted.append((kind, tuple(texts)))
        return "".join(f"{text} again, " for text in texts) + f"asked: {problem.text}"

    def typical_tokens(self, kind: str = "solve") -> int:
        return super().typical_tokens("solve" if kind in ("revise", "fuse", "critique", "program") else kind)


@pytest.fixture
def revising(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the task "arithmetic" have those prompts."""
    monkeypatch.setitem(tasks.TABLE.entries, "arithmetic", "tests.support.revising:RevisingTask")
