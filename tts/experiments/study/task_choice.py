"""Chooses the task of a study that names none, by the references of each data set.

The choice is logged before anything is spent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tts import tasks
from tts.errors import ConfigError
from tts.experiments.study.config import StudyConfig
from tts.logs import get_logger
from tts.tasks.base import Task
from tts.tasks.by_references import TaskChoice, choose_task, with_final_answers
from tts.types import Problem

Problems = Mapping[str, Mapping[str, Problem]]
_UNDECIDED: Final = (None, "text")  # tasks of a model's record that say nothing of the problems

_MOST_CHECKED: Final = 5  # references of a data set that are shown
_TEXT: Final = "We work it out step by step. The answer is {answer}."


@dataclass(frozen=True, slots=True)
class ReferenceCheck:
    """A check of a task on one reference.

    Args:
        dataset: The name of the data set.
        task: The name of the task.
        reference: The reference answer.
        right_answer: The answer extracted from a text that states the reference; None: no answer was found.
        right: Whether the task accepts `right_answer`, as it should.
        wrong_answer: The answer extracted from a text that states another answer; None: no answer was found.
        wrong: Whether the task accepts `wrong_answer`, as it should not.
    """

    dataset: str
    task: str
    reference: str
    right_answer: str | None
    right: bool
    wrong_answer: str | None
    wrong: bool


def with_chosen_tasks(config: StudyConfig, problems: Problems) -> tuple[Problems, Mapping[str, TaskChoice]]:
    """Return the problems, with tasks chosen by their references, and the choices by data set.

    The problems get a task where the study names none. A problem that names a task keeps it, and so does a model whose
    record has a task. A reference that is a worked solution becomes its final answer.

    Raises:
        ConfigError: references fit no task, or some models have a task of their own and others do not.
    """
    problems = _with_final_answers(config, problems)
    sets_without_task = {
        name: data_set
        for name, data_set in problems.items()
        if any(problem.task is None for problem in data_set.values())
    }
    if config.task is not None or not sets_without_task:
        return problems, {}
    owners = {name for name, spec in config.models.items() if spec.records()["policy"].task not in _UNDECIDED}
    if len(owners) == len(config.models):
        return problems, {}
    problems_with_tasks = dict(problems)
    choices: dict[str, TaskChoice] = {}
    for name, data_set in sets_without_task.items():
        choice = choose_task(
            (problem.answer for problem in data_set.values() if problem.task is None), f"the data set {name!r}"
        )
        if choice is None:
            continue
        if owners and choice.task not in _UNDECIDED:
            raise ConfigError(
                f"no task was named: the data set {name!r} has references such as {choice.example!r}, and only some "
                "models have a task",
                hint=f"add the line  task: {choice.task}",
            )
        if owners:
            continue
        if choice.task in _UNDECIDED:
            continue
        choices[name] = choice
        problems_with_tasks[name] = {
            key: problem if problem.task is not None else dataclasses.replace(problem, task=choice.task)
            for key, problem in data_set.items()
        }
        get_logger("tts.tasks").warning(
            "%s; the line  task: %s  in the study says so", choice.line(f"the data set {name!r}"), choice.task
        )
    return problems_with_tasks, choices


def _with_final_answers(config: StudyConfig, problems: Problems) -> Problems:
    owners = {spec.records()["policy"].task for spec in config.models.values()}
    record_task = owners.pop() if len(owners) == 1 else None
    task = config.task or (record_task if record_task not in _UNDECIDED else None)
    return {
        name: dict(zip(data_set, with_final_answers(data_set.values(), task, f"the data set {name!r}"), strict=True))
        for name, data_set in problems.items()
    }


def check_references(config: StudyConfig, problems: Problems) -> list[ReferenceCheck]:
    """Return checks of the task on the first references of each data set.

    For each reference, the task reads a text that states the reference, and a text that states another answer.
    """
    record_task = next(spec.records()["policy"].task for spec in config.models.values())
    checks: list[ReferenceCheck] = []
    for name, data_set in problems.items():
        answered = [problem for problem in data_set.values() if problem.answer is not None]
        for problem in answered[:_MOST_CHECKED]:
            task = tasks.get(problem.task or config.task or record_task or "text")
            try:
                other_answer = (
                    next((candidate.answer for candidate in answered if candidate.answer != problem.answer), None)
                    or f"{problem.answer}{problem.answer}"
                )
                checks.append(_check(name, task, str(problem.answer), other_answer))
            finally:
                task.close()
    return checks


def _check(dataset: str, task: Task, reference: str, other: str) -> ReferenceCheck:
    answers = [task.extract(_TEXT.format(answer=answer)) for answer in (reference, other)]
    verdicts = [extracted is not None and task.equivalent(extracted, reference) for extracted in answers]
    return ReferenceCheck(dataset, task.name, reference, answers[0], verdicts[0], answers[1], verdicts[1])
