"""Tasks by name: how problems of a kind are asked, cut into steps and answered. A new one is one class and one line here."""

from __future__ import annotations

from tts.errors import ConfigError
from tts.plugins import Table
from tts.tasks.base import Task

TASKS = {
    "arithmetic": "tts.tasks.arithmetic.task:ArithmeticTask",
    "countdown": "tts.tasks.arithmetic.countdown_task:CountdownTask",
    "math": "tts.tasks.math:MathTask",
    "multiple_choice": "tts.tasks.multiple_choice:MultipleChoiceTask",
    "pocket": "tts.tasks.arithmetic.pocket:PocketTask",
    "reasoning_gym": "tts.tasks.reasoning_gym:ReasoningGymTask",
    "text": "tts.tasks.text:TextTask",
}

_TABLE = Table("task", "tts.tasks", TASKS)


def names() -> list[str]:
    """Return the name of every task, ours and those of other packages, sorted."""
    return _TABLE.names()


def get(name: str) -> Task:
    """Return a new task of this name. Keep it: its caches, and of "math" its worker process, are its own.

    Raises:
        ConfigError: no task has that name, or what another package registered under it is no task.
    """
    task = _TABLE.get(name)()
    if not isinstance(task, Task):
        raise ConfigError(f"task {name!r} is a {type(task).__name__}, but must have the methods of tts.tasks.base.Task")
    return task
