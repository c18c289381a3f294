"""Chooses the task of a study that names none, by the references of each data set.

The choice is logged before anything is spent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tts import tasks
from tts._core.logs import get_logger
from tts.errors import ConfigError
from tts.experiments.run.candidates import judge_answer
from tts.experiments.study.config import StudyConfig
from tts.tasks.base import Task
from tts.tasks.by_references import TaskChoice, choose_task, with_final_answers
from tts.tasks.framing import OPEN_ENDED
from tts.types import Problem

Problems = Mapping[str, Mapping[str, Problem]]
_UNDECIDED: Final = (None, "text")  # tasks of a model's record that say nothing of the problems

_MOST_CHECKED: Final = 5  # references of a data set that are shown
_TEXT: Final = "We work it out step by step. The answer is {answer}."
_SENTENCE: Final = "That would be {answer}, as far as I know."


@dataclass(frozen=True, slots=True)
class ReferenceCheck:
    """A check of a task on one reference.

    Args:
        dataset: The name of the data set.
        task: The name of the task.
        reference: The reference answer.
        right_answer: The answer extracted from a text that states the reference; None: no answer was found.
        right: Whether the task accepts `right_answer`, as it should; None: the task is of another package and finds no
            answer, so that its form of a right text is unknown.
        wrong_answer: The answer extracted from a text that states another answer; None: no answer was found.
        wrong: Whether the task accepts `wrong_answer`, as it should not.
        in_sentence: Whether the task accepts a sentence that has the reference in it; None: the task's prompt asks for
            another form of the answer, or the form is unknown.
    """

    dataset: str
    task: str
    reference: str
    right_answer: str | None
    right: bool | None
    wrong_answer: str | None
    wrong: bool
    in_sentence: bool | None


def with_chosen_tasks(config: StudyConfig, problems: Problems) -> tuple[Problems, Mapping[str, TaskChoice]]:
    """Return the problems, with tasks chosen by their references, and the choices by data set.

    The problems get a task where the study names none. A problem that names a task keeps it, and so does a model whose
    record has a task. A reference that is a worked solution becomes its final answer.

    Raises:
        ConfigError: references fit no task, some models have a task of their own and others do not, or the study names
            a task that no problem has.
    """
    problems = _with_final_answers(config, problems)
    names_without_task = [
        name
        for name, dataset_problems in problems.items()
        if any(problem.task is None for problem in dataset_problems.values())
    ]
    own_tasks = {problem.task for dataset_problems in problems.values() for problem in dataset_problems.values()}
    if config.task is not None and not own_tasks & {None, config.task} and own_tasks:
        raise ConfigError(
            f"task is {config.task!r}, but no problem has it: those of {', '.join(map(repr, problems))} name "
            f"{', '.join(map(repr, sorted(filter(None, own_tasks))))}",
            hint="remove task: from the study, or read the problems from a file or the data set hub, which name none",
        )
    if config.task is not None or not names_without_task:
        return problems, {}
    models_with_task = [name for name, spec in config.models.items() if spec.records()["policy"].task not in _UNDECIDED]
    if len(models_with_task) == len(config.models):
        return problems, {}
    problems_with_tasks = dict(problems)
    choices: dict[str, TaskChoice] = {}
    for name in names_without_task:
        references = [problem.answer for problem in problems[name].values() if problem.task is None]
        choice = choose_task(references, f"the data set {name!r}")
        if choice is None or choice.task in _UNDECIDED:
            continue
        if models_with_task:
            raise ConfigError(
                f"no task was named: the data set {name!r} has references such as {choice.example!r}, and only some "
                "models have a task",
                hint=f"add the line  task: {choice.task}",
            )
        choices[name] = choice
        problems_with_tasks[name] = {
            problem_id: problem if problem.task is not None else dataclasses.replace(problem, task=choice.task)
            for problem_id, problem in problems[name].items()
        }
        get_logger("tts.tasks").warning(
            "%s; the line  task: %s  in the study says so", choice.line(f"the data set {name!r}"), choice.task
        )
    return problems_with_tasks, choices


def _with_final_answers(config: StudyConfig, problems: Problems) -> Problems:
    """Return the problems, with references that are worked solutions replaced by their final answers."""
    record_tasks = {spec.records()["policy"].task for spec in config.models.values()}
    task = config.task
    if task is None and len(record_tasks) == 1:
        (record_task,) = record_tasks
        if record_task not in _UNDECIDED:
            task = record_task
    return {
        name: dict(zip(given, with_final_answers(given.values(), task, f"the data set {name!r}"), strict=True))
        for name, given in problems.items()
    }


def check_references(config: StudyConfig, problems: Problems) -> list[ReferenceCheck]:
    """Return checks of the task on the first references of each data set.

    For each reference, the task reads a text that states the reference, and a text that states another answer.
    """
    first_model, *_ = config.models.values()
    record_task = first_model.records()["policy"].task
    checks: list[ReferenceCheck] = []
    for name, dataset_problems in problems.items():
        answered_problems = [problem for problem in dataset_problems.values() if problem.answer is not None]
        for problem in answered_problems[:_MOST_CHECKED]:
            task = tasks.get(problem.task or config.task or record_task or "text")
            other_answers = [
                other_problem.answer for other_problem in answered_problems if other_problem.answer != problem.answer
            ]
            wrong_reference = (other_answers[0] if other_answers else None) or f"{problem.answer}{problem.answer}"
            try:
                checks.append(_check(name, task, problem, wrong_reference))
            finally:
                task.close()
    return checks


def _check(dataset: str, task: Task, problem: Problem, wrong_reference: str) -> ReferenceCheck:
    """Return the check of a task on texts that state the reference, and on a text that states a wrong one."""
    reference = str(problem.answer)
    asks_for_form = task.prompt(problem) != OPEN_ENDED.prompt(task.name, problem, "solve", ())
    sentence = _SENTENCE.format(answer=reference)
    right_answer = task.extract(_TEXT.format(answer=reference))
    wrong_answer = task.extract(_TEXT.format(answer=wrong_reference))
    knows_form = right_answer is not None or type(task).__module__.startswith(("tts.", "tts_addons."))
    return ReferenceCheck(
        dataset=dataset,
        task=task.name,
        reference=reference,
        right_answer=right_answer,
        right=bool(judge_answer(right_answer, task, problem)) if knows_form else None,
        wrong_answer=wrong_answer,
        wrong=bool(judge_answer(wrong_answer, task, problem)),
        in_sentence=None if asks_for_form or not knows_form else judge_answer(task.extract(sentence), task, problem),
    )
