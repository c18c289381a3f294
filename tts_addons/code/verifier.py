"""Code: runs the program in a solution with unit tests, in a sandbox."""

from __future__ import annotations

import builtins
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from tts._core.threads import run_in_thread
from tts.backends.base import Backend
from tts.checks import Rule, check_parameters, check_text, choice, number_above, whole
from tts.errors import CapabilityError, ConfigError, quote
from tts.models.registry import ModelRecord
from tts.types import Problem, Trajectory
from tts.verifiers.base import Calls, StepScores, Traits, Verifier
from tts_addons.code.blocks import choose_block
from tts_addons.code.container import check_docker, run_in_container
from tts_addons.code.json_tests import HOW, BadTestError
from tts_addons.code.sandbox import (
    TEST_SOMETHING,
    ProgramOutcome,
    ProgramResult,
    SandboxLimits,
    run,
    steps_of,
    why_not,
)
from tts_addons.code.steps import NothingTestedError, NotTestsError, read_tests

_SOLUTION = re.compile(r"^class[ \t]+Solution\b", re.MULTILINE)
_FUTURE = re.compile(r"^from[ \t]+__future__[^\n]*\n", re.MULTILINE)
_PRELUDE_MODULES = (
    "string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics", "itertools",
    "functools", "operator", "io", "json", "typing",
)  # fmt: skip
# one line, before the program; the builtins come last, which names such as `pow` of math would hide
PRELUDE = "; ".join(
    [
        *(f"from {name} import *" for name in (*_PRELUDE_MODULES, "builtins")),
        f"import sys, {', '.join(_PRELUDE_MODULES)}",
        "sys.setrecursionlimit(50_000)\n",
    ]
)
_NAMED = 8  # failing tests
_LATE = StepScores(whole=math.nan)  # the time of the budget was over


def _check_own_tests(name: str, tests: Any) -> None:
    check_text(name, tests)
    _check_tests(name, tests)


@dataclass(frozen=True, slots=True, kw_only=True)
class Code(Verifier):
    """Scores the Python program in a solution by unit tests.

    The score is 1 if all pass, else 0, or the share of tests that pass.

    The program is a fenced block that is marked as Python or has no language: the last one that defines what the tests
    call, or, for tests of standard input, that reads it; otherwise the last one (`tts_addons.code.blocks`). Without
    a block it is the whole text. A program that raises or passes a limit scores 0. `outcome` returns the details.

    **Tests in JSON** are a list: `[{"stdin": "3 4", "stdout": "7"}]` runs the program's file for each text on standard
    input, and compares what it writes, word by word. `[{"function": "add", "arguments": [3, 4], "returns": 7}]` calls a
    function, or a method of its class `Solution`. Both keep what is expected out of reach of the program
    (`tts_addons.code.json_tests`). Each test has `seconds`; a test of standard input that takes longer ends the run,
    and later ones count as failed.

    **Tests in Python** run after the program, in its namespace. It runs as the module `solution`, whose file is in its
    folder. So what `if __name__ == "__main__"` guards does not run.

    A test is a top-level statement of the tests that checks something: an assertion, a bare comparison, a call of a
    function or test case that has assertions, `unittest.main()`, `doctest.testmod()`. Statements below
    `if __name__ == "__main__"` are run. Functions `test_…` and test cases that nothing calls are run where there is no
    other test. Tests that check nothing are refused.

    Comparisons of a call with plain data, `f(arguments) == data`, are decided outside of the program's process, which
    never has the data. This holds in assertions, in loops over literals, and in functions and test cases of such
    assertions. The result is compared as the plain data that it is; an object of another class equals no data. All
    other tests run in the program's process. A program can manipulate those: by objects with an `__eq__` of their own;
    by replacing functions that the tests call; by reading the expected values in frames; or by writing its own report.
    The sandbox itself contains accidents and is not a defence against an attacker (`tts_addons.code.sandbox`). If
    Landlock, seccomp or a namespace is not available, a solver raises CapabilityError with the reason; `tts doctor`
    lists the bounds that hold. With `sandbox="none"`, a program can also read the files and, as the same user, the
    memory of this process; it can write outside of its folder; and only polling limits the number of processes of
    root's programs.

    Args:
        tests: Tests in Python or JSON; None: the problem's reference answer, which makes this verifier an oracle.
        sandbox: "landlock"; "docker", a container of llm-sandbox; "none", limits without isolation, with all rights of
            the current user, for trusted programs.
        credit: "all": 1 if all tests pass, else 0. "share": the share of tests that pass.
        prelude: The programs before which the names of `typing`, `collections`, `math` and other modules are imported,
            as LiveCodeBench does: "solution": those with a class `Solution`; "always"; "never".
        seconds: Time limit of a program, above 0.
        memory_mb: The most memory of a program, in MiB.
        processes: The most concurrent processes of a program.
        output_kb: The most output of a program, in KiB.

    The note of a score says how many tests pass, and why the first others fail. Of hidden tests, which are the
    problem's reference answer, it says which ones fail and what kind of error the program ends with: no test, no value
    that one expects, and no message.

    With `tests` that a model wrote, the selection `codet` goes by the outcome of each (`StepScores.tests`). A program
    that raises or passes a limit passes none.

    Cost: no tokens; one process for each different program (tens of milliseconds), one verifier call a trajectory.

    Example:
        >>> import tts
        >>> model = lambda ask: "def double(x): return x * 2" if ask.seed % 2 else "def double(x): return x ** 2"
        >>> tested = "code(tests='assert double(3) == 6', sandbox='none')"
        >>> found = tts.solve(
        ...     "Double a number.",
        ...     tts.Budget(samples=4),
        ...     backend=model,
        ...     task="text",
        ...     verifier=tested,
        ...     strategy="best_of_n | best",
        ... )
        >>> found.answer, [round(c.scores["main"], 2) for c in found.candidates]
        ('def double(x): return x * 2', [1.0, 0.0, 0.0, 0.0])
    """

    tests: Annotated[str, Rule(_check_own_tests)] | None = None
    sandbox: Annotated[str, choice("landlock", "docker", "none")] = "landlock"
    credit: Annotated[str, choice("all", "share")] = "all"
    prelude: Annotated[str, choice("solution", "always", "never")] = "solution"
    seconds: Annotated[float, number_above(0, 2**31, "2**31")] = 10.0
    memory_mb: Annotated[int, whole(1, 2**31 - 1)] = 1024
    processes: Annotated[int, whole(1, 2**31 - 1)] = 32
    output_kb: Annotated[int, whole(1, 2**31 - 1)] = 1024
    oracle: bool = field(init=False, repr=False)
    name = "code"

    def __post_init__(self) -> None:
        check_parameters(self)
        object.__setattr__(self, "oracle", self.tests is None)

    @property
    def traits(self) -> Traits:
        """Checks of the sandbox and of the problem's tests."""
        return Traits(filled=self.fill, check=self.check, calls_models=False)

    def fill(self, record: ModelRecord | None, backend: Backend) -> Code:
        """Return the verifier unchanged.

        Raises:
            CapabilityError: Landlock, seccomp or a namespace is not available, or no Docker daemon answers.
            MissingDependency: llm-sandbox is not installed.
        """
        del record, backend
        self.check_sandbox()
        return self

    def check_sandbox(self) -> None:
        """Check that the sandbox is available.

        Raises:
            CapabilityError: Landlock, seccomp or a namespace is not available, or no Docker daemon answers.
            MissingDependency: llm-sandbox is not installed.
        """
        if self.sandbox == "docker":
            check_docker()
        reason = why_not() if self.sandbox == "landlock" else ""
        if reason:
            raise CapabilityError(
                f"sandbox is 'landlock', but it is not available here: {reason}",
                hint="give code(sandbox='docker'), or sandbox='none' for programs that are trusted",
            )

    def check(self, problem: Problem) -> None:
        """Check the tests of a problem.

        Raises:
            ConfigError: the tests are not valid Python, or test nothing.
        """
        if self.tests is None:
            _check_tests(f"the answer of problem {problem.id or problem.text[:40]!r}", problem.answer or "")

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        """Return one score of the whole for each trajectory, and the outcome of each test.

        The score is NaN for trajectories that the budget's time does not reach.
        """
        tests = self.tests if self.tests is not None else problem.answer or ""
        programs = [program_in(t.response, tests) for t in trajectories]
        scores: dict[str, StepScores] = {}
        for program in dict.fromkeys(programs):
            seconds_left = calls.seconds_left()
            is_late = seconds_left is not None and seconds_left <= 0
            scores[program] = _LATE if is_late else await self._score(program, tests, seconds_left)
        return [scores[program] for program in programs]

    async def _score(self, program: str, tests: str, seconds_left: float | None) -> StepScores:
        """Return the score of a program; NaN where the budget's time ended its run."""
        result = await run_in_thread(self.outcome, program, tests, None, seconds_left)
        steps = steps_of(tests)
        is_cut_short = seconds_left is not None and seconds_left < self.seconds * steps.limits
        if is_cut_short and result.outcome is ProgramOutcome.TIMEOUT:
            return _LATE
        num_missing = steps.total - len(result.tests)
        outcomes = (*map(float, result.tests), *[0.0] * num_missing)
        note = note_of(result, hidden=self.oracle)
        if self.credit == "all" or result.outcome is not ProgramOutcome.FAILED:
            return StepScores(whole=float(result.outcome is ProgramOutcome.PASSED), tests=outcomes, note=note)
        return StepScores(whole=result.passed / result.total if result.total else 0.0, tests=outcomes, note=note)

    def outcome(
        self, program: str, tests: str, seconds: float | None = None, total: float | None = None
    ) -> ProgramResult:
        """Run a program with tests, and return the outcome.

        Args:
            program: The program's source.
            tests: Tests in Python or JSON.
            seconds: The time limit, of each test in JSON; None: the verifier's limit.
            total: The limit of all tests together; None: `seconds` for each test in JSON, or `seconds` for Python.

        Raises:
            CapabilityError: the sandbox is not available. VerifierError: the tests are not valid.
        """
        limits = SandboxLimits(
            seconds=self.seconds if seconds is None else seconds,
            total=total,
            memory=self.memory_mb << 20,
            processes=self.processes,
            output=self.output_kb << 10,
        )
        if self.prelude == "always" or (self.prelude == "solution" and _SOLUTION.search(program)):
            # imports from __future__ must stay first
            code_start = max((future_import.end() for future_import in _FUTURE.finditer(program)), default=0)
            program = program[:code_start] + PRELUDE + program[code_start:]
        if self.sandbox == "docker":
            return run_in_container(program, tests, limits)
        return run(program, tests, limits, isolated=self.sandbox == "landlock")


def note_of(result: ProgramResult, *, hidden: bool) -> str:
    """Return the outcome of a program in words for the model that wrote it.

    Args:
        result: The outcome.
        hidden: Whether the tests must stay unknown. Messages are left out then, since they may quote expected values.
    """
    if result.outcome is ProgramOutcome.PASSED:
        return f"All {result.total} tests pass."
    if result.outcome is ProgramOutcome.FAILED:
        failing_numbers = [str(number) for number, passed in enumerate(result.tests, 1) if not passed]
        reason = f"tests that fail: {', '.join(failing_numbers[:_NAMED])}" if hidden else result.detail
        return f"{result.passed} of {result.total} tests pass; {reason}."
    if result.outcome is ProgramOutcome.ERROR:
        if not hidden:
            return f"The program raised {result.detail}."
        kind = result.detail.partition(":")[0]
        error = getattr(builtins, kind, None)
        is_builtin = isinstance(error, type) and issubclass(error, BaseException)
        # the name of an error of the program's own could quote a test
        return f"The program raised {kind if is_builtin else 'an error'}."
    return f"The program did not get to its end: {result.outcome if hidden else result.detail}."


def _check_tests(name: str, tests: str) -> None:
    try:
        read_tests(tests)
    except NothingTestedError:
        raise ConfigError(f"{name} is {quote(tests)}, but must test something", hint=TEST_SOMETHING) from None
    except NotTestsError as failure:
        if isinstance(failure.__cause__, BadTestError):
            raise ConfigError(f"{name} is {quote(tests)}, but must be tests in JSON: {failure}", hint=HOW) from None
        raise ConfigError(f"{name} is {quote(tests)}, but must be Python that tests programs: {failure}") from None


def program_in(text: str, tests: str = "") -> str:
    """Return the block of a text that the tests are for, or the whole text if there is no block."""
    try:
        code_tests = read_tests(tests)
    except NotTestsError:
        return choose_block(text)
    return choose_block(text, code_tests.names, reads=code_tests.reads_input)
