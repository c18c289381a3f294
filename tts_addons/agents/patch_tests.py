"""Tests of a patch: a test suite runs in a fork of the repository that has the patch."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from tts._core.threads import run_in_thread
from tts.backends.base import Backend
from tts.checks import Rule, check_flag, check_parameters, check_text, choice, number_above
from tts.errors import ConfigError, quote
from tts.models.registry import ModelRecord
from tts.tasks.patch import PatchTask
from tts.types import Problem, Trajectory
from tts.verifiers.base import Calls, StepScores, Traits, Verifier
from tts_addons.agents.suites import (
    HasRepositories,
    RepositorySuites,
    Result,
    RunsSuites,
    Suite,
    SuiteOutcome,
    split_command,
)

_NAMED = 8  # failing tests
_TIMED_OUT = StepScores(whole=math.nan)  # the time of the budget was over
_TASK = PatchTask()


def _check_command(name: str, command: Any) -> None:
    check_text(name, command)
    split_command(name, command)


def _check_hidden(name: str, hidden: Any) -> None:
    check_text(name, hidden)
    if not Path(hidden).exists():
        raise ConfigError(f"{name} is {quote(hidden)}, but there is no such file or folder")


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchTests(Verifier):
    r"""Scores a patch by a test suite: 1 if all tests pass, else 0, or the share of tests that pass.

    It needs the backend `Workspace`.

    The patch of a path is its last one; a path without one has the root's score. The suite runs in a fork of its own.
    Equal files are tested once.

    **A command of pytest** (`pytest …` or `python -m pytest …`) counts by its results, test by test. Each test that ran
    on the repository before the patch must be reported. So a program that ends the run early scores 0. pytest is loaded
    before any file of the fork. **Any other command** counts by its exit code, which the tested program can forge.

    Test files are those of the root: `test_*.py`, `*_test.py`, all in `tests` or `test`, `conftest.py`, and files that
    set up pytest or Python, such as `pyproject.toml`, `setup.cfg` and `sitecustomize.py`. Test files that an agent
    added are removed. `hidden` files are copied over them.

    The tested program runs as you, in the process of its tests. One that changes pytest in memory can forge results,
    and one that writes outside of its fork is not stopped. Use a container for agents that you do not trust.

    Args:
        command: The test command. No shell reads it.
        credit: "all": 1 if all tests pass, else 0. "share": the share of tests that pass.
        hidden: A folder whose files are copied into the fork for the run, or one such file. The agent does not get
            them.
        restore: Whether test files are those of the root; otherwise those of the agent count, and only tests that the
            root has.
        seconds: The longest time of a run, above 0. A run that takes longer scores 0.

    The note of a score says how many tests pass, and which ones fail. With `hidden` it names no test.

    Cost: no tokens; a verifier call a trajectory. The suite runs once on the repository as it is, before the search and
    its clock begin.

    Example:
        >>> import pathlib, tempfile, tts
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "add.py").write_text("def add(a, b):\n    return a - b\n")
        >>> _ = (folder / "test_add.py").write_text(
        ...     "from add import add\n\ndef test_add():\n    assert add(2, 2) == 4\n"
        ... )
        >>> with tts.Workspace(folder, agent="toy") as workspace:
        ...     found = tts.solve(
        ...         "Fix it.",
        ...         tts.Budget(samples=4),
        ...         backend=workspace,
        ...         verifier="tests(command='pytest -q')",
        ...         strategy="best_of_n | best",
        ...     )
        >>> found.candidates[0].scores["main"]
        1.0
    """

    command: Annotated[str, Rule(_check_command)] = "pytest -q"
    credit: Annotated[str, choice("all", "share")] = "all"
    hidden: Annotated[str, Rule(_check_hidden)] | None = None
    restore: Annotated[bool, Rule(check_flag)] = True
    seconds: Annotated[float, number_above(0, 2**31, "2**31")] = 600.0
    workspace: RunsSuites | HasRepositories | None = field(default=None, init=False, repr=False, compare=False)
    name = "tests"

    def __post_init__(self) -> None:
        check_parameters(self)

    @property
    def traits(self) -> Traits:
        """The repository that it tests."""
        return Traits(filled=self.fill, calls_models=False)

    @property
    def suite(self) -> Suite:
        """The suite that it runs."""
        hidden = None if self.hidden is None else Path(self.hidden).absolute()
        return Suite(tuple(shlex.split(self.command)), hidden, self.restore, self.seconds)

    def fill(self, record: ModelRecord | None, backend: Backend) -> PatchTests:
        """Return the verifier with its repository, on which the suite has run once.

        Raises:
            ConfigError: The backend has no repository, or the suite does not run there.
        """
        del record
        if not isinstance(backend, RunsSuites | HasRepositories):
            raise ConfigError(
                f"the verifier 'tests' tests patches of a repository, which the backend {backend.name!r} does not have",
                hint="give backend=tts.Workspace('.', agent=…)",
            )
        repositories = backend.repositories() if isinstance(backend, HasRepositories) else [RepositorySuites(backend)]
        for repository in repositories:
            suite = repository.suite(self.suite)
            self._check_root(suite, repository.runs.run_suite(suite, None))
        verifier = replace(self)
        object.__setattr__(verifier, "workspace", backend)
        return verifier

    def _check_root(self, suite: Suite, root: SuiteOutcome) -> None:
        """Refuse a suite that does not run on the repository as it is; `root` is its outcome there."""
        context = f"command is {shlex.join(suite.command)!r}, but on the repository as it is"
        if root.elsewhere:
            module, file = next(iter(root.elsewhere.items()))
            raise ConfigError(
                f"{context} it imports the module {module!r} from {file}",
                hint="install the repository without -e, or not at all",
            )
        if root.stopped:
            raise ConfigError(f"{context} it takes more than {self.seconds:g} s", hint="give tests(seconds=…)")
        if root.code in (None, 126, 127):
            raise ConfigError(f"{context} it does not start: {root.last_line}")
        if not _runs_hidden(suite, root):
            raise ConfigError(
                f"hidden is {self.hidden!r}, but the command {shlex.join(suite.command)!r} runs no test of its files",
                hint="name them test_*.py, in the same folders below it as the command's tests below the repository",
            )
        fault = root.fault(by_pytest=suite.by_pytest)
        if fault:
            raise ConfigError(f"{context} no test runs: {fault}", hint="run it there yourself")

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave the repository out: it stays in its process."""
        return partial(PatchTests, **{one.name: getattr(self, one.name) for one in fields(self) if one.init}), ()

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        """Return one score of the whole for each trajectory; NaN where the budget's time is over."""
        repository = self._repository(problem.text)
        suite = repository.suite(self.suite)
        patches = [_TASK.extract(trajectory.full_text) for trajectory in trajectories]
        scores: dict[str | None, StepScores] = {}
        for patch in dict.fromkeys(patches):
            seconds_left = calls.seconds_left()
            is_late = seconds_left is not None and seconds_left <= 0
            if is_late:
                scores[patch] = _TIMED_OUT
            else:
                scores[patch] = await run_in_thread(self._score, repository.runs, suite, patch, seconds_left)
        return [scores[patch] for patch in patches]

    def _repository(self, prompt: str) -> RepositorySuites:
        """Return the repository of a problem, by its prompt."""
        if self.workspace is None:
            raise ConfigError(
                "the verifier 'tests' has no repository",
                hint="give it to tts.solve with backend=tts.Workspace('.', agent=…)",
            )
        if isinstance(self.workspace, HasRepositories):
            return self.workspace.repository_of(prompt)
        return RepositorySuites(self.workspace)

    def score_patch(self, workspace: RunsSuites, patch: str | None) -> StepScores:
        """Return the score of a patch.

        Args:
            workspace: The workspace that runs the suite.
            patch: The patch; None: the repository as it is.
        """
        return self._score(workspace, self.suite, patch, None)

    def _score(self, workspace: RunsSuites, suite: Suite, patch: str | None, seconds_left: float | None) -> StepScores:
        """Return the score of a patch, with a note; NaN where the budget's time ended the run."""
        outcome = workspace.run_suite(suite, patch, seconds_left)
        if outcome.stopped and seconds_left is not None and seconds_left < self.seconds:
            return _TIMED_OUT
        if outcome.refusal:
            return StepScores(whole=0.0, note=f"The patch cannot be applied: {outcome.refusal}")
        if outcome.stopped:
            return StepScores(whole=0.0, note=f"The tests took more than {self.seconds:g} s.")
        if outcome.code is None:  # the program has killed what supervises it
            return StepScores(whole=0.0, note="The tests did not come to their end.")
        if not suite.by_pytest:
            last_line = outcome.last_line if self.hidden is None and outcome.code else ""
            note = f"The command ended with exit code {outcome.code}. {last_line}".rstrip()
            return StepScores(whole=float(outcome.code == 0), note=note)
        if outcome.results is None:
            return StepScores(whole=0.0, note="The tests did not come to their end.")
        root_results = workspace.run_suite(suite, None).results or {}
        passed_by_test = judge_results(outcome.results, root_results, new=self.restore)
        share = sum(passed_by_test.values()) / len(passed_by_test) if passed_by_test else 0.0
        score = share if self.credit == "share" else float(share == 1)
        return StepScores(whole=score, note=self._note(passed_by_test))

    def _note(self, passed_by_test: Mapping[str, bool]) -> str:
        """Return how many tests pass, and the names of failing tests unless the tests are hidden."""
        summary = f"{sum(passed_by_test.values())} of {len(passed_by_test)} tests pass"
        failing_tests = [name for name, passes in passed_by_test.items() if not passes]
        if self.hidden is not None or not failing_tests:
            return f"{summary}."
        return f"{summary}; tests that fail: {', '.join(failing_tests[:_NAMED])}."


def _runs_hidden(suite: Suite, root: SuiteOutcome) -> bool:
    """Whether some hidden file of Python has results on the repository; True where this is not known."""
    if suite.hidden is None or not root.results:
        return True
    files = [Path(suite.hidden.name)]
    if suite.hidden.is_dir():
        files = [path.relative_to(suite.hidden) for path in suite.hidden.rglob("*.py")]
    modules = [f".{'.'.join(path.with_suffix('').parts)}." for path in files if path.suffix == ".py"]
    names = [f".{name.replace('::', '.')}." for name in root.results]
    return not modules or any(module in name for module in modules for name in names)


def judge_results(results: Mapping[str, Result], root: Mapping[str, Result], *, new: bool) -> dict[str, bool]:
    """Return whether each counted test passes; a counted test without a result with the patch fails.

    Counted are the tests of the root. Tests that are skipped in both runs are not counted.

    Args:
        results: The results with a patch.
        root: The results without the patch. A module that was not collected has no tests there.
        new: Whether tests count that the root does not have. Such tests count too where the root has no test.
    """
    counted_tests = [name for name, result in root.items() if result != "uncollected"]
    if new or not counted_tests:
        counted_tests += results
    passed_by_test: dict[str, bool] = {}
    for name in counted_tests:
        is_skipped = results.get(name) == "skipped" and root.get(name, "skipped") == "skipped"
        if not is_skipped:
            passed_by_test[name] = results.get(name) == "passed"
    return passed_by_test
