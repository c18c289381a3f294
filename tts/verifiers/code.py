"""Code: a program in the solution is run with unit tests, shut in."""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tts.backends.base import Backend
from tts.background import in_thread
from tts.errors import CapabilityError, ConfigError, shown
from tts.models.registry import ModelRecord
from tts.types import Problem, Trajectory
from tts.verifiers.base import Calls, StepScores, check_text
from tts.verifiers.container import check_docker, run_in_container
from tts.verifiers.sandbox import TEST_SOMETHING, Limits, Outcome, Result, run, why_not
from tts.verifiers.sandbox_child import is_test

_BLOCK = re.compile(r"^[^\S\n]*```[^\S\n]*(\w*)[^\n]*\n(.*?)^[^\S\n]*```", re.DOTALL | re.MULTILINE)
_SANDBOXES = ("landlock", "docker", "none")
_CREDITS = ("all", "share")


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """Runs the Python program in a solution with unit tests: 1 where all pass, else 0, or the share that passes.

    The program is the last fenced block of a solution that is Python or says no language; without one, all of its text. A test is a
    top-level statement of the tests that does more than import, define or assign; they run behind the program, in its names. A program
    that raises, runs too long, floods its output, forks without end or fills its folder scores 0; `outcome` tells what became of one.

    This is containment of accidents, not a defence against an attacker: the program runs on this machine's kernel, in namespaces of users,
    processes and network, with every mount but its own folder read-only and Landlock's rights on files; it is bounded in time, memory,
    processes, files and output, and everything that it started is killed. Where Landlock or a namespace is absent it is refused, with
    the reason, unless `sandbox="none"` is given; then, for root's programs, nothing but a watch bounds how many processes they start.
    A program that sets out to fool its tests can.

    Args:
        tests: Python; None: those of the problem, its reference answer, which makes this verifier an oracle.
        sandbox: "landlock"; "docker", a container of llm-sandbox; "none": limits and watch alone, with all rights of the
            user that runs this, for programs that are trusted.
        credit: "all", or "share" of the tests.
        seconds: that a program may run, above 0. memory_mb, processes, output_kb: what it may use.

    Cost: no tokens; a process each different program (tens of milliseconds), one verifier call a path.
    """

    tests: str | None = None
    sandbox: str = "landlock"
    credit: str = "all"
    seconds: float = 10.0
    memory_mb: int = 1024
    processes: int = 32
    output_kb: int = 1024
    name: str = field(default="code", init=False)
    range: tuple[float, float] = field(default=(0.0, 1.0), init=False)
    oracle: bool = field(default=False, init=False)
    needs: tuple[str, ...] = field(default=(), init=False)
    model: str = field(default="policy", init=False)

    def __post_init__(self) -> None:
        if self.tests is not None:
            check_text("tests", self.tests)
            _check_tests("tests", self.tests)
        for name, known in (("sandbox", _SANDBOXES), ("credit", _CREDITS)):
            check_text(name, getattr(self, name))
            if getattr(self, name) not in known:
                raise ConfigError(f"{name} is {shown(getattr(self, name))}, but must be {' or '.join(map(repr, known))}")
        for name in ("memory_mb", "processes", "output_kb"):
            value: Any = getattr(self, name)
            if type(value) is not int or not 1 <= value < 2**31:
                raise ConfigError(f"{name} is {shown(value)}, but must be a whole number of at least 1 and below 2**31")
        seconds: Any = self.seconds
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < 2**31:
            raise ConfigError(f"seconds is {shown(seconds)}, but must be a number above 0 and below 2**31")
        object.__setattr__(self, "oracle", self.tests is None)

    def filled(self, record: ModelRecord | None, backend: Backend) -> Code:
        """Return it as it is.

        Raises:
            CapabilityError: programs cannot be shut in on this machine, and it was not said that they need not be; or no Docker daemon
                answers. MissingDependency: llm-sandbox is not installed.
        """
        del record, backend
        if self.sandbox == "docker":
            check_docker()
        if self.sandbox == "landlock" and (reason := why_not()):
            raise CapabilityError(
                f"sandbox is 'landlock', but it cannot be had here: {reason}",
                hint="give code(sandbox='docker'), or sandbox='none' for programs that are trusted",
            )
        return self

    def check(self, problem: Problem) -> None:
        """Refuse a problem whose tests are no Python or test nothing, before a program is written.

        Raises:
            ConfigError: they are so.
        """
        if self.tests is None:
            _check_tests(f"the answer of problem {problem.id or problem.text[:40]!r}", problem.answer or "")

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        """Return one score of each path; unknown of those that the budget's time does not reach."""
        tests = self.tests if self.tests is not None else problem.answer or ""
        programs = [program_in(t.full_text) for t in trajectories]
        scores: dict[str, float] = {}
        for program in dict.fromkeys(programs):
            left = calls.seconds_left()
            scores[program] = math.nan if left is not None and left <= 0 else await self._worth(program, tests, left)
        return [StepScores(whole=scores[program]) for program in programs]

    async def _worth(self, program: str, tests: str, left: float | None) -> float:
        seconds = self.seconds if left is None else min(self.seconds, left)
        result = await in_thread(self.outcome, program, tests, seconds)
        if result.outcome is Outcome.TIMEOUT and seconds < self.seconds:
            return math.nan  # the budget's time, not the program's
        if self.credit == "all" or result.outcome is not Outcome.FAILED:
            return float(result.outcome is Outcome.PASSED)
        return result.passed / result.total if result.total else 0.0

    def outcome(self, program: str, tests: str, seconds: float | None = None) -> Result:
        """Run a program with tests, and return what became of it.

        Raises:
            CapabilityError: the sandbox cannot be had. VerifierError: the tests are no Python.
        """
        limits = Limits(
            seconds=self.seconds if seconds is None else seconds,
            memory=self.memory_mb << 20,
            processes=self.processes,
            output=self.output_kb << 10,
        )
        if self.sandbox == "docker":
            return run_in_container(program, tests, limits)
        return run(program, tests, limits, isolated=self.sandbox == "landlock")

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        """Return 0."""
        del prefix_tokens, new_tokens
        return 0


def _check_tests(name: str, tests: str) -> None:
    try:
        with warnings.catch_warnings(action="ignore"):  # of strings that hold a backslash, say
            steps = ast.parse(tests, "tests").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as failure:
        raise ConfigError(f"{name} is {shown(tests)}, but must be Python that tests programs: {failure}") from None
    if not any(map(is_test, steps)):
        raise ConfigError(f"{name} is {shown(tests)}, but must test something", hint=TEST_SOMETHING)


def program_in(text: str) -> str:
    """Return the last fenced block that is Python or says no language; the whole text where there is none."""
    blocks = [body for language, body in _BLOCK.findall(text) if language.lower() in ("", "py", "python", "python3")]
    return blocks[-1] if blocks else text
