"""Data sets of repositories: a folder with a folder for each task, which has its own repository.

    patches/
      leap/
        task.yaml       prompt: Fix leap.py; tests: pytest -q; repo: repo; hidden: hidden
        repo/           files, or a clone
        hidden/         files of tests that agents do not get

`repo` and `hidden` are below the folder of the task. A repository without its own `.git` is a plain folder.
"""

from __future__ import annotations

import hashlib
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator

from tts._common.sections import Section
from tts.backends.base import Backend, Reply, RowSet, SampleRequest
from tts.backends.metadata import BackendMetadata
from tts.errors import ConfigError, quote, unknown_name
from tts.types import Prompt, prompt_text
from tts_addons.agents.agents import find_agent
from tts_addons.agents.backend import AgentRuns
from tts_addons.agents.suites import RepositorySuites, split_command

TASK_FILE: Final = "task.yaml"


def _check_text(text: str) -> str:
    if not text.strip() or "\0" in text:
        raise ConfigError(f"it is {quote(text)}, but must be a text without zero bytes")
    return text


Text = Annotated[str, AfterValidator(_check_text)]


@dataclass(frozen=True, slots=True)
class RepositoryTask:
    """A task in a repository.

    Attributes:
        folder: The folder of the task.
        prompt: The task in words.
        tests: The command of the tests, which runs without a shell.
        repo: The folder of the repository.
        revision: The revision from which agents begin.
        hidden: Files of tests that agents do not get; None: there are none.
    """

    folder: Path
    prompt: str
    tests: str
    repo: Path
    revision: str = "HEAD"
    hidden: Path | None = None

    @property
    def name(self) -> str:
        """The name of the task's folder."""
        return self.folder.name

    def workspace(self, agent: str, jobs: int = 4, run_seconds: float | None = None) -> AgentRuns:
        """Return a workspace in the repository.

        Args:
            agent: The name of the agent.
            jobs: The most agents at once.
            run_seconds: The most seconds of a run; None: there is no limit.

        Raises:
            ConfigError: The repository cannot be forked.
        """
        if (self.repo / ".git").exists():
            return AgentRuns(self.repo, agent=agent, revision=self.revision, jobs=jobs, run_seconds=run_seconds)
        with TemporaryDirectory(prefix="tts-task-") as scratch:  # outside of any repository around the data set
            try:
                copy = shutil.copytree(self.repo, Path(scratch, self.name), symlinks=True)
            except (OSError, RecursionError) as failure:  # such as a pipe, or folders nested too deep
                raise ConfigError(f"{self.repo}: it cannot be copied: {type(failure).__name__}: {failure}") from None
            return AgentRuns(copy, agent=agent, revision=self.revision, jobs=jobs, run_seconds=run_seconds)


def read_tasks(folder: str | Path) -> list[RepositoryTask]:
    """Return the tasks of a data set, by name.

    Args:
        folder: The folder of the data set.

    Raises:
        ConfigError: There is no task, a task is not valid, or two tasks have equal prompts. The text names the file.
    """
    files = sorted(Path(folder).glob(f"*/{TASK_FILE}"))
    if not files:
        raise ConfigError(
            f"the data set {str(folder)!r} has no task", hint=f"make a folder for each task, with {TASK_FILE}"
        )
    tasks = [_read_task(file) for file in files]
    files_by_prompt: dict[str, Path] = {}
    for file, task in zip(files, tasks, strict=True):
        first_file = files_by_prompt.setdefault(task.prompt, file)
        if first_file != file:
            raise ConfigError(
                f"{file}: its prompt is that of {first_file}, but each must be another", hint="name the files to mend"
            )
    return tasks


class _TaskFile(Section):
    """The keys of a file of a task."""

    prompt: Text
    tests: Text
    repo: Text = "repo"
    revision: Text = "HEAD"
    hidden: Text | None = None


def _read_task(file: Path) -> RepositoryTask:
    """Return the task in a file.

    Raises:
        ConfigError: The task is not valid.
    """
    content = _TaskFile.read_file(file, "task of a repository")
    split_command(f"{file}: its tests", content.tests)
    repo = _resolve_below(file, "repo", content.repo)
    if not repo.is_dir():
        raise ConfigError(f"{file}: its repo is {str(repo.name)!r}, but there is no such folder beside it")
    hidden = None if content.hidden is None else _resolve_below(file, "hidden", content.hidden)
    if hidden is not None and not hidden.exists():
        raise ConfigError(f"{file}: its hidden is {content.hidden!r}, but there is no such file or folder beside it")
    return RepositoryTask(file.parent, content.prompt, content.tests, repo, content.revision, hidden)


def _resolve_below(file: Path, key: str, name: str) -> Path:
    """Return the path of a name below the folder of a task, with links resolved.

    Args:
        file: The file of the task.
        key: The key in the file that has the name.
        name: The name.

    Raises:
        ConfigError: The path is not below the folder.
    """
    folder = file.parent.resolve()
    path = (file.parent / name).resolve()
    if not path.is_relative_to(folder) or path == folder:
        raise ConfigError(f"{file}: its {key} is {name!r}, but must be below the folder of {TASK_FILE}")
    return path


class Repositories(Backend):
    """Runs of an agent, each problem of a data set in its own repository.

    A prompt is the prompt of a task, or a text that contains one.

    Args:
        data: The folder of the data set.
        agent: The name of the agent, as in `AgentRuns`.
        jobs: The most agents at once in each repository.
        run_seconds: The most seconds of a run, as in `AgentRuns`.

    Attributes:
        tasks: The tasks.

    Raises:
        ConfigError: A task is not valid, or its repository cannot be forked.
    """

    name = "repositories"
    metadata = BackendMetadata(task="patch")

    def __init__(self, data: str | Path, *, agent: str, jobs: int = 4, run_seconds: float | None = None) -> None:
        agent_program = find_agent(agent)
        self.tasks = read_tasks(data)
        self._workspaces = [task.workspace(agent, jobs, run_seconds) for task in self.tasks]
        self.caps = self._workspaces[0].caps
        for workspace in self._workspaces:
            workspace.counters = self.counters
        trees = " ".join(workspace.store.root.tree for workspace in self._workspaces)
        digest = hashlib.sha256(trees.encode()).hexdigest()
        self.identity = f"repositories {agent_program.name} {digest}"

    @classmethod
    def from_record(
        cls,
        record: object,
        *,
        data: str = "",
        agent: str = "",
        jobs: int = 4,
        run_seconds: float | None = None,
        **others: object,
    ) -> Self:
        """Return the backend of a study, from its options.

        Args:
            record: Not used.
            data: The folder of the data set.
            agent: The name of the agent.
            jobs: The most agents at once in each repository.
            run_seconds: The most seconds of a run, as in `AgentRuns`.
            **others: Options that are refused.

        Raises:
            ConfigError: An option is missing or unknown.
        """
        del record
        for name in others:
            raise unknown_name("option of repositories", name, ("data", "agent", "jobs", "run_seconds"))
        if not data or not agent:
            raise ConfigError(
                "the options data and agent are required", hint="options: {data: examples/patches, agent: toy}"
            )
        return cls(data, agent=agent, jobs=jobs, run_seconds=run_seconds)

    def count(self, prompt: Prompt) -> int:  # noqa: ARG002 - what agents read is counted with their runs
        """Return 0: no model reads the prompt when it is opened."""
        return 0

    async def open(self, prompts: Sequence[Prompt]) -> list[Reply[Any]]:
        """Return handles at the roots of the prompts' repositories."""
        return [reply for prompt in prompts for reply in await self._runs_for(prompt_text(prompt)).open([prompt])]

    def sample(self, request: SampleRequest) -> RowSet:
        """Run the agent in the repository of the handle; see `AgentRuns.sample`."""
        return self._runs_for(request.handle.prompt).sample(request)

    def fork(self, handle: Any, count: int) -> list[Any]:
        """Return handles of the same state that are released separately."""
        return self._runs_for(handle.prompt).fork(handle, count)

    def release(self, handles: Sequence[Any]) -> None:
        """Release the states of handles."""
        for handle in handles:
            self._runs_for(handle.prompt).release([handle])

    async def close(self) -> None:
        """Stop every agent, and remove all states and forks."""
        for workspace in self._workspaces:
            await workspace.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Remove all states and forks; no search may still run."""
        for workspace in self._workspaces:
            workspace.__exit__()

    def repositories(self) -> list[RepositorySuites]:
        """Return the repositories, each with the command of its tests."""
        return [
            RepositorySuites(workspace, tuple(shlex.split(task.tests)))
            for task, workspace in zip(self.tasks, self._workspaces, strict=True)
        ]

    def repository_of(self, prompt: str) -> RepositorySuites:
        """Return the repository of a prompt.

        Raises:
            ConfigError: No task has the prompt.
        """
        return self.repositories()[self._place(prompt)]

    def _runs_for(self, prompt: str) -> AgentRuns:
        return self._workspaces[self._place(prompt)]

    def _place(self, prompt: str) -> int:
        """Return the index of the task whose prompt a longer prompt contains.

        If the prompts of several tasks are in it, the longest of them counts.

        Raises:
            ConfigError: The prompt contains the prompt of no task.
        """
        indexes = [index for index, task in enumerate(self.tasks) if task.prompt in prompt]
        if not indexes:
            raise ConfigError(
                f"the prompt {quote(prompt)} is of no task of the data set",
                hint=f"the prompts are those in {TASK_FILE} of its folders",
            )
        return max(indexes, key=lambda index: len(self.tasks[index].prompt))
