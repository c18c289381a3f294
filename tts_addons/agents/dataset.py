"""Folders of repositories as a data set; the tests of each task, hidden ones too, judge answers."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from tts._common.scopes import ALLOW_COMMANDS, allows_commands
from tts.errors import ConfigError
from tts.experiments.datasets import DataSet
from tts.randomness import generator
from tts.tasks.patch import PatchTask
from tts.types import Problem
from tts_addons.agents.backend import AgentRuns
from tts_addons.agents.patch_tests import PatchTests
from tts_addons.agents.repositories import RepositoryTask, read_tasks

_REFERENCE = "the tests of "
_SECONDS = 120.0  # time limit of the tests of a patch, which may never end


def load(*, path: str = "", limit: int | None = None, seed: int | None = None) -> list[Problem]:
    """Return the tasks of a folder as problems.

    Args:
        path: The folder.
        limit: The most problems; None: all.
        seed: The seed of a random order, of which a limit takes the first problems; None: by name.

    Raises:
        ConfigError: A task is not valid, or the user has not allowed the commands of its tests.
    """
    if not path:
        raise ConfigError("path is missing, but must be a folder with tasks", hint="name the folder as the data set")
    tasks = read_tasks(path)
    _check_permission(path, tasks[0])
    if seed is not None:
        order = generator(seed, 0, "repositories").permutation(len(tasks))
        tasks = [tasks[i] for i in order]
    place = f"{__name__}:{RepositoryPatches.__name__}"  # the name of the task that judges
    return [
        Problem(task.prompt, answer=f"{_REFERENCE}{task.folder}", id=task.name, task=place) for task in tasks[:limit]
    ]


DATASET = DataSet(load=load, source="repositories", licence="not stated")


def _check_permission(folder: str, task: RepositoryTask) -> None:
    if not allows_commands():
        raise ConfigError(
            f"the data set {folder!r} has commands, such as {task.tests!r}, which run as you",
            hint=f"read them, then set {ALLOW_COMMANDS}=1, or give tts run --allow-commands; best in a container",
        )


class RepositoryPatches(PatchTask):
    """Patches that are right if all tests of their task pass, including hidden tests.

    Two patches are equal as in `PatchTask`.
    """

    def decide(self, a: str, b: str) -> bool | None:
        """Return whether two patches are equal; None: `b` is a reference, whose tests have to run."""
        return None if b.startswith(_REFERENCE) else super().decide(a, b)

    def equivalent(self, a: str, b: str) -> bool:
        """Return whether two patches are equal, or a patch passes the tests of a reference."""
        return _passes(a, b.removeprefix(_REFERENCE)) if b.startswith(_REFERENCE) else super().equivalent(a, b)

    def key(self, answer: str) -> str:
        """Return the key of a patch."""
        return self.canonical(answer)


def _passes(patch: str, folder: str) -> bool:
    task, workspace = _judge(folder)
    _check_permission(folder, task)
    hidden = None if task.hidden is None else str(task.hidden)
    return PatchTests(command=task.tests, hidden=hidden, seconds=_SECONDS).score_patch(workspace, patch).whole == 1


@lru_cache(maxsize=64)
def _judge(folder: str) -> tuple[RepositoryTask, AgentRuns]:
    """Return a task and a workspace in its repository. A process makes each workspace once."""
    path = Path(folder)
    task = next(task for task in read_tasks(path.parent) if task.name == path.name)
    return task, task.workspace("toy")
