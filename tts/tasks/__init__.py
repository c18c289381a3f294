"""Tasks by name: prompts, step boundaries and answers of one kind of problem.

A new task is one class and one line here.
"""

from __future__ import annotations

from typing import Any

from tts.checks import check_complete, check_part
from tts.errors import ConfigError, quote
from tts.registry import Registry, parse_call
from tts.tasks.base import Task

TASKS = {
    "arithmetic": "tts.tasks.arithmetic.task:ArithmeticTask",
    "choice": "tts.tasks.choice:ChoiceTask",
    "countdown": "tts.tasks.arithmetic.countdown_task:CountdownTask",
    "json": "tts.tasks.json:JsonTask",
    "math": "tts.tasks.math:MathTask",
    "math_verify": "tts.tasks.math_verify:MathVerifyTask",
    "multiple_choice": "tts.tasks.multiple_choice:MultipleChoiceTask",
    "patch": "tts.tasks.patch:PatchTask",
    "pocket": "tts.tasks.arithmetic.pocket:PocketTask",
    "reasoning_gym": "tts_addons.zoo.reasoning_gym:ReasoningGymTask",
    "text": "tts.tasks.text:TextTask",
}

TABLE = Registry("task", "tts.tasks", TASKS)


def names() -> list[str]:
    """Return the sorted names of all tasks, of this package and of others."""
    return TABLE.names()


def get(name: str) -> Task:
    """Return a new task of this name. Keep it: each task has its own caches, and "math" a worker process.

    Args:
        name: A name of the table, or the place of a class. The parameters of the task may follow, as in
            "choice(choices=('spam', 'ham'))".

    Raises:
        ConfigError: no task has that name, a parameter is wrong, or another package registered an object under the name
            that is no task.
    """
    if "(" in name:
        return _complete(parse_call(TABLE, name), f"task {name!r}")
    return _make_task(TABLE.get(name), f"task {name!r}")


def make_task(given: Task | type[Task]) -> Task:
    """Return a task as it is, and a class as a task.

    Raises:
        ConfigError: the object is no task; the message names the members that it lacks.
    """
    if isinstance(given, type):
        return _make_task(given, f"the task {given.__name__}")
    return _complete(given, f"the task {quote(given)}")


def _make_task(task_class: Any, subject: str) -> Task:
    """Return an object of a task class made without parameters; `subject` names the class in messages."""
    check_complete(task_class)
    try:
        task = task_class()
    except TypeError as failure:
        raise ConfigError(
            f"{subject} cannot be made without parameters: {failure}", hint="give an object of its class"
        ) from failure
    return _complete(task, subject)


def _complete(task: Any, subject: str) -> Task:
    check_part(task, Task, subject)
    return task
