"""The task of a study that names none: by the references of each data set.

The choice is said before anything is spent.
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
    """What a task makes of one reference.

    Args:
        dataset: The name of the data set.
        task: The name of the task.
        reference: The reference answer.
        right_answer: The answer extracted from a text that states the reference; None: none is.
        right: Whether that answer is right.
        wrong_answer: The answer extracted from a text that states another one; None: none is.
        wrong: Whether that answer is right, as it must not be.
    """

    dataset: str
    task: str
    reference: str
    right_answer: str | None
    right: bool
    wrong_answer: str | None
    wrong: bool


def with_chosen_tasks(config: StudyConfig, problems: Problems) -> tuple[Problems, Mapping[str, TaskChoice]]:
    """Return the problems, with the task that their references call for, and the choices by data set.

    The problems get a task in a study that names none. Problems that name a task, and models whose record has one, keep
    it. References that are worked solutions become their final answers.

    Raises:
        ConfigError: references fit no task, or some models have a task of their own and others do not.
    """
    problems = _with_final_answers(config, problems)
    open_sets = {name: of for name, of in problems.items() if any(problem.task is None for problem in of.values())}
    if config.task is not None or not open_sets:
        return problems, {}
    owners = {name for name, spec in config.models.items() if spec.records()["policy"].task not in _UNDECIDED}
    if len(owners) == len(config.models):
        return problems, {}
    chosen = dict(problems)
    choices: dict[str, TaskChoice] = {}
    for name, of in open_sets.items():
        choice = choose_task(
            (problem.answer for problem in of.values() if problem.task is None), f"the data set {name!r}"
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
        chosen[name] = {
            key: problem if problem.task is not None else dataclasses.replace(problem, task=choice.task)
            for key, problem in of.items()
        }
        get_logger("tts.tasks").warning(
            "%s; the line  task: %s  in the study says so", choice.line(f"the data set {name!r}"), choice.task
        )
    return chosen, choices


def _with_final_answers(config: StudyConfig, problems: Problems) -> Problems:
    owners = {spec.records()["policy"].task for spec in config.models.values()}
    own = owners.pop() if len(owners) == 1 else None
    task = config.task or (own if own not in _UNDECIDED else None)
    return {
        name: dict(zip(of, with_final_answers(of.values(), task, f"the data set {name!r}"), strict=True))
        for name, of in problems.items()
    }


def check_references(config: StudyConfig, problems: Problems) -> list[ReferenceCheck]:
    """Return what the task makes of the first references.

    It reads a text that states each reference, and one that states another answer.
    """
    record_task = next(spec.records()["policy"].task for spec in config.models.values())
    checks: list[ReferenceCheck] = []
    for name, of in problems.items():
        known = [problem for problem in of.values() if problem.answer is not None]
        for problem in known[:_MOST_CHECKED]:
            task = tasks.get(problem.task or config.task or record_task or "text")
            try:
                other = (
                    next((one.answer for one in known if one.answer != problem.answer), None)
                    or f"{problem.answer}{problem.answer}"
                )
                checks.append(_check(name, task, str(problem.answer), other))
            finally:
                task.close()
    return checks


def _check(dataset: str, task: Task, reference: str, other: str) -> ReferenceCheck:
    found = [task.extract(_TEXT.format(answer=answer)) for answer in (reference, other)]
    verdicts = [one is not None and task.equivalent(one, reference) for one in found]
    return ReferenceCheck(dataset, task.name, reference, found[0], verdicts[0], found[1], verdicts[1])
