"""Test suites in states.

A patch is applied to the root, test files are restored, and the suite runs in a fork of its own. For pytest the
reported results count, not the exit code, which a program can choose. The file of results lies outside of the fork. A
program that the tests import runs in their process, so it can still forge results by changing pytest itself.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from tts.errors import ConfigError, EngineError, quote
from tts_addons.agents import pytest_child
from tts_addons.agents.agents import make_environment
from tts_addons.agents.git import read_bytes
from tts_addons.agents.processes import Process, ProcessEnd
from tts_addons.agents.store import State, StateStore, remove
from tts_addons.agents.target import is_protected

Result = Literal["passed", "failed", "skipped", "uncollected"]
_CHILD = Path(pytest_child.__file__)
_MOST_RESULTS = 64 << 20  # bytes
# what only a shell reads, outside of quotes: first words, and operators anywhere
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.", re.DOTALL)
_SHELL = re.compile(
    r"^\s*(?:\w+=|(?:cd|export|source|set|\.|if|for|while|!)\s)|&&|\|\||[;&]\s*$|(?:^|\s)(?:[;&|]+|\d*[<>]+\S*)(?:\s|$)"
    r"|;\s|\$[({\w]|`|\n\s*\S"
)
# the last lines of programs that have run no test, exceptions, and the files that tracebacks name
_TAIL = 6
_NO_TEST = re.compile(
    r"No rule to make target|no makefile found|issing script|can't open file|No module named pytest"
    r"|no tests? (ran|files)|NO TESTS RAN|Ran 0 tests|command not found|: not found|errors? during collection"
)
_ERROR = re.compile(r"^(?:E {2,})?((?:[\w.]+Error|[\w.]+Exception)\b.*)$", re.MULTILINE)
_FRAME = re.compile(r'^(?=\S|E? +File)(?:E? +File ")?([^"\s:]+\.py)(?::\d+: |", line)', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Suite:
    """A test suite.

    Attributes:
        command: The program and its arguments, which run without a shell.
        hidden: A folder or file that is copied into the fork of the run; None: there is none.
        restore: Whether test files and settings of tests are restored from the root.
        seconds: The most seconds of a run.
    """

    command: tuple[str, ...]
    hidden: Path | None = None
    restore: bool = True
    seconds: float = 600.0

    @property
    def by_pytest(self) -> bool:
        """Whether the command runs pytest, so that the result of each test is known."""
        return bool(self.pytest_arguments)

    @property
    def pytest_arguments(self) -> tuple[str, tuple[str, ...]] | tuple[()]:
        """The program that has pytest, and pytest's arguments; () for other commands."""
        program = Path(self.command[0]).name
        if program in ("pytest", "py.test"):
            return self.command[0], self.command[1:]
        is_python = program.startswith("python") and self.command[1:3] == ("-m", "pytest")
        return (self.command[0], self.command[3:]) if is_python else ()


@dataclass(frozen=True, slots=True)
class SuiteOutcome(ProcessEnd):
    """The outcome of a run of a suite.

    Attributes:
        results: The result of each test, by name; None where there is no report.
        elsewhere: The files of the repository's modules that were not imported from the fork, by module; None: not
            known.
        refusal: The reason why the patch cannot be applied; "": it was applied.
    """

    results: Mapping[str, Result] | None = None
    elsewhere: Mapping[str, str] | None = None
    refusal: str = ""

    def fault(self, *, by_pytest: bool) -> str:
        """Return why no test has run; "": tests have run, or failed by code that a patch can mend.

        Args:
            by_pytest: Whether the command runs pytest.
        """
        lines = self.output.strip().splitlines()
        has_run = any(result != "uncollected" for result in (self.results or {}).values())
        if not by_pytest:
            numbers = [int(number) for number in re.findall(r"^Ran (\d+) tests? in", self.output, re.MULTILINE)]
            is_unloaded = bool(numbers) and self.output.count("(unittest.loader._FailedTest") >= sum(numbers)
            has_run = not is_unloaded and not _NO_TEST.search("\n".join(lines[-_TAIL:]))
        errors = _ERROR.findall(self.output)
        reason = errors[-1][:200] if errors else self.last_line
        files = _FRAME.findall(self.output)
        is_mendable = bool(files) and not is_protected(Path(files[-1]).name) and "ModuleNotFoundError" not in reason
        if "cannot import name" in reason:  # tests may ask for a name that the patch will add
            is_mendable = "site-packages" not in reason
        return "" if has_run or (self.results != {} and is_mendable) else reason


@runtime_checkable
class RunsSuites(Protocol):
    """A backend whose answers are patches of a repository, and which can test them."""

    def run_suite(self, suite: Suite, patch: str | None, seconds: float | None = None) -> SuiteOutcome:
        """Run a suite on the root with a patch.

        Args:
            suite: The suite.
            patch: The patch; None or "" for the root as it is.
            seconds: The most seconds of the run; None: only the suite's own limit holds.
        """
        ...


@dataclass(frozen=True, slots=True)
class RepositorySuites:
    """A repository that can be tested.

    Attributes:
        runs: The backend that runs suites in the repository.
        command: The command of the repository's own tests, in place of a suite's command; None: it states none.
    """

    runs: RunsSuites
    command: tuple[str, ...] | None = None

    def suite(self, given: Suite) -> Suite:
        """Return a suite with the command of the repository."""
        return given if self.command is None else replace(given, command=self.command)


@runtime_checkable
class HasRepositories(Protocol):
    """A backend with a repository for each prompt of a data set."""

    def repositories(self) -> Sequence[RepositorySuites]:
        """Return all repositories of the data set."""
        ...

    def repository_of(self, prompt: str) -> RepositorySuites:
        """Return the repository of a prompt.

        Args:
            prompt: The prompt.
        """
        ...


def split_command(name: str, command: str) -> tuple[str, ...]:
    """Return the words of a command that runs without a shell.

    Args:
        name: The name of the command in messages.
        command: The command.

    Raises:
        ConfigError: It has no words, or needs a shell.
    """
    try:
        words = tuple(shlex.split(command))
    except ValueError as failure:
        raise ConfigError(f"{name} is {quote(command)}, but must be words of a command: {failure}") from None
    if not words or "\0" in command:
        raise ConfigError(f"{name} is {quote(command)}, but must name a program", hint="for example 'pytest -q'")
    if _SHELL.search(_QUOTED.sub("_", command)):
        raise ConfigError(
            f"{name} is {quote(command)}, but no shell runs it", hint=f"write bash -c {shlex.quote(command)}"
        )
    return words


class SuiteRunner:
    """Runs suites in forks of a store's states. Equal files are tested once.

    Args:
        store: The store of the states.
    """

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._known: dict[tuple[Suite, str], SuiteOutcome] = {}

    def run(self, suite: Suite, patch: str | None, seconds: float | None = None) -> SuiteOutcome:
        """Return the outcome of a suite on the root with a patch (see `RunsSuites`), known or by a run."""
        restored_files = is_protected if suite.restore else None
        try:
            state = self._store.patch_root(patch or "", restored_files)
        except EngineError as failure:
            return SuiteOutcome(None, "", refusal=failure.cause)
        try:
            outcome = self._known.get((suite, state.tree))
            if outcome is None:
                try:
                    outcome = self._run(suite, state, seconds)
                except EngineError as failure:  # such as a patch without the folder of the tests
                    outcome = SuiteOutcome(None, "", refusal=failure.cause)
                had_full_time = seconds is None or seconds >= suite.seconds
                if had_full_time or not outcome.stopped:  # with more time, a stopped run may have another outcome
                    self._known[suite, state.tree] = outcome
            return outcome
        finally:
            self._store.release(state)

    def _run(self, suite: Suite, state: State, seconds: float | None) -> SuiteOutcome:
        """Run a suite in a fork of a state, and return the outcome.

        Args:
            suite: The suite.
            state: The state.
            seconds: The most seconds of the run; None: only the suite's own limit holds.
        """
        fork = self._store.fork(state)
        is_root = state.tree == self._store.root.tree
        try:
            with self._store.scratch() as folder:
                if suite.hidden is not None:
                    copy_over(suite.hidden, fork.start)
                elsewhere_path = folder / "elsewhere.json"  # written by `pytest_child`
                results_path = folder / "results.xml"  # written by pytest
                command = list(suite.command)
                pytest_command = suite.pytest_arguments
                if pytest_command:
                    program, arguments = pytest_command
                    is_run_as_module = suite.command[1:2] == ("-m",)
                    fork_first = "1" if is_run_as_module else "0"  # `python -m` imports first from the working folder
                    command = [find_python(program), "-I", "-B", str(_CHILD)]
                    command += [str(elsewhere_path), str(fork.path), ",".join(_modules(fork.start)), fork_first]
                    command += [*arguments, "--junitxml", str(results_path), "-p", "no:cacheprovider"]
                names_before = self._store.untracked_names(fork) if is_root else set[str]()
                process = Process(command, fork.start, make_environment(folder))
                limit_s = suite.seconds if seconds is None else min(seconds, suite.seconds)
                process_end = process.wait(limit_s)
                if is_root:  # what the tests write themselves is no part of a patch
                    self._store.leave_out(self._store.untracked_names(fork) - names_before)
                return SuiteOutcome(
                    process_end.code,
                    process_end.output,
                    process_end.stopped,
                    results=_read_results(results_path) if suite.by_pytest else None,
                    elsewhere=_read_elsewhere(elsewhere_path),
                )
        finally:
            self._store.release(fork)


def find_python(program: str) -> str:
    """Return the Python that has the pytest of a command.

    Args:
        program: The program of the command: a Python, which is returned, or `pytest`. For `pytest`, the Python in the
            same folder is returned, or else the Python of this process.
    """
    search_path = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])
    path = shutil.which(program, path=search_path)
    if path is None:
        return program
    if Path(path).name.startswith("python"):
        return path
    for folder in (Path(path).parent, Path(path).resolve().parent):
        python = shutil.which("python", path=str(folder)) or shutil.which("python3", path=str(folder))
        if python is not None:
            return python
    return sys.executable


def copy_over(source: Path, target: Path) -> None:
    """Copy a file, or all files of a folder, into a fork, over existing files.

    Links of the fork are replaced, never followed.

    Args:
        source: The file or the folder.
        target: The folder of the fork.
    """
    if source.is_file():
        files, source_folder = [source], source.parent
    else:
        files, source_folder = sorted(path for path in source.rglob("*") if path.is_file()), source
    for path in files:
        relative = path.relative_to(source_folder)
        destination = target
        for part in relative.parts[:-1]:
            destination /= part
            if destination.is_symlink() or (destination.exists() and not destination.is_dir()):
                destination.unlink()
            destination.mkdir(exist_ok=True)
        destination /= relative.name
        if destination.is_symlink() or destination.exists():
            remove(destination)
        shutil.copyfile(path, destination)


def _modules(root: Path) -> list[str]:
    """Return the names of a repository's modules: the files and packages in its root and in `src`."""
    names: set[str] = set()
    for folder in (root, root / "src"):
        for path in folder.iterdir() if folder.is_dir() else ():
            is_module = path.suffix == ".py" or (path / "__init__.py").is_file()
            if is_module and path.stem.isidentifier():
                names.add(path.stem)
    return sorted(names)


def _read_results(path: Path) -> Mapping[str, Result] | None:
    """Return the result of each test in a JUnit file; None where the file is missing, broken or too large."""
    try:
        cases = list(ET.fromstring(read_bytes(path, _MOST_RESULTS) or b"").iter("testcase"))  # expat bounds entities
    except ET.ParseError:
        return None
    results: dict[str, Result] = {}
    for case in cases:
        name = "::".join(filter(None, (case.get("classname"), case.get("name"))))
        messages = {child.tag: child.get("message", "") for child in case}
        result: Result = "passed"
        if messages.get("error") == "collection failure":
            result = "uncollected"
        elif "failure" in messages or "error" in messages:
            result = "failed"
        elif "skipped" in messages:
            result = "skipped"
        if results.get(name) not in ("failed", "uncollected"):  # a test fails if any of its cases has failed
            results[name] = result
    return results


def _read_elsewhere(path: Path) -> Mapping[str, str] | None:
    try:
        files = json.loads(read_bytes(path, _MOST_RESULTS) or b"")
    except (ValueError, RecursionError):
        return None
    return {str(name): str(file) for name, file in files.items()} if isinstance(files, dict) else None
