"""Run of an untrusted program with its tests in a sandbox.

The result has an outcome for every way in which the program may end.

The sandbox contains the accidents of generated programs: endless loops, forks, floods of output, deleted files, open
connections. It uses Landlock; a root of its own with one writable folder; namespaces of users, network, processes and
System V IPC; a filter of system calls; resource limits; and a control group where one can be made. The parent process
polls processes, memory and output. `bounds` lists which mechanism holds which bound on this machine.

The sandbox is not a defence against an attacker. A hole in this machine's kernel is a hole in the sandbox. A program
can also manipulate tests that run in its process (see `steps`).
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from tts.errors import CapabilityError, VerifierError
from tts_addons.code import cgroup, sandbox_child, seccomp
from tts_addons.code import program as runner
from tts_addons.code.json_tests import HOW, BadTestError
from tts_addons.code.process_tree import MOST_FILES, descendants, folder_bytes, memory_of, unlinked_bytes
from tts_addons.code.steps import CodeTests, NothingTestedError, NotTestsError, read_tests
from tts_addons.code.view import may_enter, view

_CHILD, _RUNNER, _FILTER = Path(sandbox_child.__file__), Path(runner.__file__), Path(seccomp.__file__)
TEST_SOMETHING = "end them in assertions, or in a call of what has some"
_WATCH_S = 0.02
_START_S = 20.0  # for the child to start on a busy machine, in addition to the program's time
_OWN_MEMORY = 64 << 20  # bytes of the sandbox's own processes and of the kernel for them
_SLOW = 10  # at most one part in so many of the time goes to counting shared memory
_KEPT = 4096  # characters of output
_OF_THE_SANDBOX, _OF_THE_PROGRAM = {"refused", "status"}, {"error", "kind", "steps"}  # keys of reports


class ProgramOutcome(StrEnum):
    """The outcome of a program.

    Its tests passed or failed, it raised or crashed, or it passed a limit and was killed.
    """

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    PROCESSES = "processes"
    OUTPUT = "output"
    DISK = "disk"


_KINDS = {"MemoryError": ProgramOutcome.MEMORY, "disk": ProgramOutcome.DISK}


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """The outcome of a program.

    Args:
        outcome: How the program ended.
        detail: The reason, in one line.
        passed: The number of tests that it passed.
        total: The number of all tests.
        output: The start of its output.
        seconds: Elapsed time, the start of its process included.
        tests: Whether the program passed each test, in order. The tests that it did not get to are missing.
    """

    outcome: ProgramOutcome
    detail: str = ""
    passed: int = 0
    total: int = 0
    output: str = ""
    seconds: float = 0.0
    tests: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """The limits of a program on time, memory, processes, output and files.

    The limits are seconds, bytes of memory, concurrent processes, bytes of output, and bytes of files in the folder.

    Tests in JSON have `seconds` each. `total`: seconds of all of them together; None: as many as the tests have.
    """

    seconds: float = 10.0
    total: float | None = None
    memory: int = 1 << 30
    processes: int = 32
    output: int = 1 << 20
    disk: int = 64 << 20

    def seconds_of(self, tests: CodeTests) -> float:
        """Return the seconds that a program has for all tests."""
        return min(self.seconds * tests.limits, math.inf if self.total is None else self.total)


def run(program: str, tests: str, limits: SandboxLimits, *, isolated: bool = True) -> ProgramResult:
    """Run a Python program with its tests, and return the outcome.

    Args:
        program: The text of the program.
        tests: The text of its tests.
        limits: The limits of time, memory and output.
        isolated: False: without Landlock and namespaces; the limits still hold.

    Raises:
        CapabilityError: Landlock or a namespace is not available here; the message names the reason.
        VerifierError: the tests are not valid Python, or test nothing.
    """
    start_s = time.monotonic()
    steps = steps_of(tests)
    folder = os.path.realpath(tempfile.mkdtemp(prefix="tts-code-"))
    if os.getuid() == 0:
        os.chown(folder, sandbox_child.NOBODY, sandbox_child.NOBODY)
    try:
        with _Program(program, steps, limits, folder, isolated=isolated) as running:
            result = running.watch()
    finally:
        _remove(folder)
    return dataclasses.replace(result, seconds=time.monotonic() - start_s)


@cache
def why_not() -> str:
    """Return why programs cannot be isolated on this machine; "" if they can."""
    if not sys.platform.startswith("linux"):
        return f"it takes Linux, and this is {sys.platform}"
    try:
        run("", "assert True", SandboxLimits())
    except CapabilityError as failure:
        return failure.cause
    return ""


class _Program:
    """A running program, and what it has reported."""

    def __init__(self, program: str, tests: CodeTests, limits: SandboxLimits, folder: str, *, isolated: bool) -> None:
        self._tests = tests
        self._limits = limits
        self._folder = folder
        self._isolated = isolated
        self._next_count_s = 0.0
        self._mark = secrets.token_hex(8)
        self._report: dict[str, Any] = {}
        self._output = bytearray()
        self._num_written = 0
        self._report_pipe, report_end = os.pipe()
        # a pipe of the sandbox alone, which the program's process does not have
        self._control_pipe, control_end = os.pipe()
        self._partial_lines = {self._report_pipe: b"", self._control_pipe: b""}
        self._seconds = limits.seconds_of(tests)
        config = {
            "program": program,
            "steps": tests.asked,
            "room": tests.room,
            "seconds": limits.seconds if tests.limits > 1 else 0.0,
            "runner": str(_RUNNER),
            "folder": folder,
            "isolated": isolated,
            "drop": os.getuid() == 0 and (isolated or may_enter(folder)),
            "mark": self._mark,
            "view": view(),
            "filter": str(_FILTER),
            "limits": {
                "memory": limits.memory,
                "seconds": int(self._seconds) + 1,
                "file": limits.disk,
                "processes": limits.processes,
            },
        }
        self._group = cgroup.make(self._mark, limits.memory + 2 * limits.disk + _OWN_MEMORY)
        with os.fdopen(report_end, "wb"), os.fdopen(control_end, "wb"):
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(_CHILD), str(report_end), str(control_end)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=_environment(folder),
                pass_fds=(report_end, control_end),
                start_new_session=True,
            )
        if self._group is not None and not self._group.add(self._process.pid):
            self._group.remove()
            self._group = None
        assert self._process.stdin is not None, "opened as a pipe"
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(config).encode())
            self._process.stdin.close()

    def __enter__(self) -> _Program:
        return self

    def __exit__(self, *failure: object) -> None:
        """Kill all of its processes."""
        with suppress(ProcessLookupError):  # the supervisor last: it adopts processes whose parent has died
            for _ in range(100):
                children = list(descendants(self._process.pid))
                if not children:
                    break
                for pid, _resident in children:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None, "opened as a pipe"
        self._process.stdout.close()
        with suppress(OSError):
            assert self._process.stdin is not None, "opened as a pipe"
            self._process.stdin.close()
        os.close(self._report_pipe)
        os.close(self._control_pipe)
        if self._group is not None:
            self._group.remove()

    def watch(self) -> ProgramResult:
        """Wait until it ends or passes a limit, and return the outcome."""
        assert self._process.stdout is not None, "opened as a pipe"
        out = self._process.stdout.fileno()
        os.set_blocking(out, False)
        os.set_blocking(self._report_pipe, False)
        os.set_blocking(self._control_pipe, False)
        open_pipes = {out, self._report_pipe, self._control_pipe}
        last_look_s = 0.0
        deadline_s = time.monotonic() + self._seconds + _START_S
        has_started = False
        while open_pipes and "status" not in self._report and "refused" not in self._report:
            ready_pipes, _, _ = select.select(list(open_pipes), [], [], _WATCH_S)
            for pipe in ready_pipes:
                if self._take(pipe, is_output=pipe == out) == b"":
                    open_pipes.discard(pipe)
            now_s = time.monotonic()
            if not has_started and self._is_working():
                has_started = True
                deadline_s = now_s + self._seconds
            if now_s > deadline_s:
                return self._end_result(ProgramOutcome.TIMEOUT, f"it ran for more than {self._seconds:g} seconds")
            if self._num_written > self._limits.output:
                return self._end_result(ProgramOutcome.OUTPUT, f"it wrote more than {self._limits.output} bytes")
            if now_s - last_look_s > _WATCH_S:
                last_look_s = now_s
                limit_result = self._passed_limit()
                if limit_result is not None:
                    return limit_result
        while self._take(self._report_pipe, is_output=False) and self._num_written <= self._limits.output:
            pass
        return self._verdict()

    def _is_working(self) -> bool:
        """Whether the process has started; its time is measured from then on."""
        return self._process.poll() is not None or any(True for _ in descendants(self._process.pid))

    def _take(self, pipe: int, *, is_output: bool) -> bytes | None:
        """Read at most one piece from a pipe, and return it.

        The piece is empty where the pipe is closed, and None where there is nothing yet.
        """
        try:
            piece = os.read(pipe, 1 << 16)
        except BlockingIOError:
            return None
        if is_output:
            self._num_written += len(piece)
            self._output += piece[: max(0, _KEPT - len(self._output))]
            return piece
        text = self._partial_lines[pipe] + piece
        if len(text) > self._tests.longest:  # the program itself writes to the pipe of the report
            self._num_written = self._limits.output + 1
        *lines, self._partial_lines[pipe] = text.split(b"\n")
        keys = _OF_THE_SANDBOX if pipe == self._control_pipe else _OF_THE_PROGRAM
        for line in lines:
            with suppress(ValueError, RecursionError):
                report = json.loads(line)
                if isinstance(report, dict) and report.get("mark") == self._mark:
                    for key in keys & report.keys():
                        self._report.setdefault(key, report[key])  # the first report of each key counts
        return piece

    def _passed_limit(self) -> ProgramResult | None:
        """Return the result of a program that has passed a limit on processes, memory or files, or None."""
        processes = list(descendants(self._process.pid))
        num_sandbox_processes = 3 if self._tests.reads_input else 2
        if len(processes) > self._limits.processes + num_sandbox_processes:
            return self._end_result(ProgramOutcome.PROCESSES, f"it had more than {self._limits.processes} processes")
        resident_sum = sum(resident for _pid, resident in processes)  # counts shared pages several times
        start_s = time.monotonic()
        if resident_sum > self._limits.memory and start_s > self._next_count_s:
            memory = memory_of(processes)
            end_s = time.monotonic()
            self._next_count_s = end_s + _SLOW * (end_s - start_s)
            if memory > self._limits.memory:
                return self._end_result(
                    ProgramOutcome.MEMORY, f"its processes held more than {self._limits.memory} bytes"
                )
        if self._isolated:
            return None  # its folder is bounded by its size
        folder_size = folder_bytes(self._folder)
        unlinked_size = unlinked_bytes(pid for pid, _resident in processes)
        if folder_size is None or folder_size + unlinked_size > self._limits.disk:
            return self._end_result(
                ProgramOutcome.DISK, f"its folder held more than {self._limits.disk} bytes or {MOST_FILES} files"
            )
        return None

    def _verdict(self) -> ProgramResult:
        """Return the result of a program that has ended, by its report or its exit status."""
        report = self._report
        if "refused" in report:
            raise CapabilityError(
                str(report["refused"]), hint="give code(sandbox='docker'), or sandbox='none' to run programs without it"
            )
        if {"error", "steps"} & report.keys():
            return judge_report(report, self._tests, self._text)
        if self._group is not None and self._group.has_killed():
            return self._end_result(
                ProgramOutcome.MEMORY, f"the kernel ended it for more than {self._limits.memory} bytes"
            )
        status = int(report.get("status", 0))
        if os.WIFSIGNALED(status):
            ending_signal = signal.Signals(os.WTERMSIG(status))
            if ending_signal == signal.SIGALRM:
                return self._end_result(
                    ProgramOutcome.TIMEOUT, f"it ran for more than {self._limits.seconds:g} seconds in a test"
                )
            if ending_signal == signal.SIGXCPU:
                return self._end_result(ProgramOutcome.TIMEOUT, "it used up its processor time")
            outcome = ProgramOutcome.DISK if ending_signal == signal.SIGXFSZ else ProgramOutcome.CRASHED
            return self._end_result(outcome, f"it was ended by {ending_signal.name}")
        return self._end_result(
            ProgramOutcome.CRASHED,
            f"it ended by itself, with code {os.waitstatus_to_exitcode(status)}, before its tests",
        )

    @property
    def _text(self) -> str:
        return self._output.decode("utf-8", "replace")

    def _end_result(self, outcome: ProgramOutcome, detail: str) -> ProgramResult:
        return ProgramResult(outcome, detail, output=self._text)


def steps_of(tests: str) -> CodeTests:
    """Return the steps of tests.

    Raises:
        VerifierError: the tests are not valid Python, or test nothing.
    """
    try:
        return read_tests(tests)
    except NothingTestedError:
        raise VerifierError("the tests of the problem test nothing", hint=TEST_SOMETHING) from None
    except NotTestsError as failure:
        if isinstance(failure.__cause__, BadTestError):
            raise VerifierError(f"the tests of the problem are JSON of another form: {failure}", hint=HOW) from None
        kind = type(failure.__cause__).__name__
        raise VerifierError(f"the tests of the problem are no Python: {kind}: {failure}") from None


def judge_report(said: Mapping[str, Any], tests: CodeTests, output: str, seconds: float = 0.0) -> ProgramResult:
    """Return the outcome of a program from its report `said` (see `program.run_program`).

    The program may have written the report itself, so its form is checked.
    """
    if "error" in said:
        outcome = _KINDS.get(str(said.get("kind")), ProgramOutcome.ERROR)
        return ProgramResult(outcome, str(said["error"])[:400], output=output, seconds=seconds)
    if "flood" in said:
        return ProgramResult(ProgramOutcome.OUTPUT, "it wrote more than it may", output=output, seconds=seconds)
    reports = said["steps"] if isinstance(said["steps"], list) else []
    passes: list[bool] = []
    faults: list[str] = []
    for step, report in zip(tests.steps, reports, strict=False):
        fault = step.fault(report) if isinstance(report, dict) else "it sent no report of the test"
        if step.is_test:
            passes.append(not fault)
        if fault:
            faults.append(fault)
    num_passed = sum(passes)
    has_passed = num_passed == tests.total and not faults
    return ProgramResult(
        ProgramOutcome.PASSED if has_passed else ProgramOutcome.FAILED,
        "; ".join(faults[:5])[:400],
        passed=num_passed,
        total=tests.total,
        output=output,
        seconds=seconds,
        tests=tuple(passes),
    )


def _environment(folder: str) -> dict[str, str]:
    """Return the variables of a program's process."""
    return {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "LC_ALL": "C.UTF-8",
        "MALLOC_ARENA_MAX": "2",  # a memory pool for each thread would take up the bounded address space
        "HOME": folder,
        "TMPDIR": folder,
    }


def _remove(folder: str) -> None:
    """Remove a folder, also one that a program made hard to remove."""
    unvisited = [folder]
    while unvisited:
        path = unvisited.pop()
        with suppress(OSError):
            os.chmod(path, 0o700)  # noqa: PTH101 - texts, as `os.scandir` gives them
            unvisited += [entry.path for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False)]
    try:
        shutil.rmtree(folder)
    except (OSError, RecursionError):
        subprocess.run(["rm", "-rf", "--", folder], check=False, capture_output=True)
