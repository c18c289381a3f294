"""Runs a program with its tests in a Docker container of llm-sandbox."""

from __future__ import annotations

import importlib
import inspect
import json
import secrets
import time
from typing import Any

from tts.errors import CapabilityError, VerifierError, require_extra
from tts_addons.code import program as runner
from tts_addons.code.sandbox import ProgramOutcome, ProgramResult, SandboxLimits, judge_report, steps_of
from tts_addons.code.steps import CodeTests

_KEPT = 4096  # characters of output
_ENDS = "Docker must run, and this user may use it"


def check_docker() -> None:
    """Check that containers are available.

    Raises:
        MissingDependency: llm-sandbox or docker is not installed. CapabilityError: no Docker daemon answers.
    """
    docker, _llm_sandbox = _packages()
    try:
        docker.from_env().close()  # it asks the daemon for its version
    except docker.errors.DockerException as failure:
        raise CapabilityError(
            f"sandbox is 'docker', but no Docker daemon answers: {_line(failure)}", hint=_ENDS
        ) from failure


def run_in_container(program: str, tests: str, limits: SandboxLimits) -> ProgramResult:
    """Run a Python program with its tests in a new container without network, and return the outcome.

    Docker limits memory and processes, and kills a program that passes a limit. The outcome is then "crashed"; the
    sandbox (`tts_addons.code.sandbox.run`) would name the limit. The image is downloaded on first use.

    Raises:
        MissingDependency: llm-sandbox or docker is not installed.
        VerifierError: the container failed, or the tests are not valid Python.
    """
    _docker, llm_sandbox = _packages()
    steps = steps_of(tests)
    seconds = limits.seconds_of(steps)
    output_limit = limits.output + steps.longest  # with the report, which holds the start of the output once more
    bounds = {
        "network_mode": "none",
        "mem_limit": limits.memory,
        "pids_limit": limits.processes,
        "stop_signal": "SIGKILL",
    }
    mark = secrets.token_hex(8)
    start_s = time.monotonic()
    num_written = 0

    def watch(text: str) -> None:
        nonlocal num_written
        num_written += len(text)
        if num_written > output_limit:
            raise OverflowError(f"it wrote more than {limits.output} bytes")  # ends the reading

    try:
        with llm_sandbox.SandboxSession(
            lang="python",
            runtime_configs=bounds,
            skip_environment_setup=True,
            keep_template=True,
            encoding_errors="replace",
        ) as session:
            script = _script(program, steps, mark, limits)
            reply = session.run(script, timeout=seconds, on_stdout=watch, on_stderr=watch)
    except llm_sandbox.exceptions.SandboxTimeoutError:
        return ProgramResult(
            ProgramOutcome.TIMEOUT, f"it ran for more than {seconds:g} seconds", seconds=time.monotonic() - start_s
        )
    except Exception as failure:  # another package's errors, of many kinds
        raise VerifierError(
            f"the container failed: {type(failure).__name__}: {_line(failure)}", hint=_ENDS
        ) from failure
    return _read(reply.stdout, mark, steps, time.monotonic() - start_s, flooded=num_written > output_limit)


def _read(stdout: str, mark: str, tests: CodeTests, seconds: float, *, flooded: bool) -> ProgramResult:
    """Return the outcome from standard output.

    The output has the program's own text, then the mark, then the report of the script.
    """
    own_output, found_mark, report_text = stdout.rpartition(mark)
    if flooded:
        return judge_report({"flood": True}, tests, stdout[:_KEPT], seconds)
    if not found_mark:
        return ProgramResult(
            ProgramOutcome.CRASHED, "it ended by itself, before its tests", output=stdout[:_KEPT], seconds=seconds
        )
    try:
        # processes that the program left running may write after the report
        (verdict, printed), _end = json.JSONDecoder().raw_decode(report_text)
        has_outcome = bool({"error", "flood", "steps"} & dict(verdict).keys())
        if not has_outcome or not isinstance(printed, str):
            raise ValueError("no report")
    except (ValueError, TypeError, RecursionError):  # the program has written the mark itself
        return ProgramResult(
            ProgramOutcome.CRASHED, "it wrote a report that cannot be read", output=own_output[:_KEPT], seconds=seconds
        )
    return judge_report(verdict, tests, (own_output + printed)[:_KEPT], seconds)


def _packages() -> tuple[Any, Any]:
    """Return the packages docker and llm_sandbox; the second can be installed without the first."""
    with require_extra("llm-sandbox", "sandbox", "code(sandbox='docker')"):
        importlib.import_module("llm_sandbox.exceptions")
        return importlib.import_module("docker"), importlib.import_module("llm_sandbox")


def _line(failure: Exception) -> str:
    return " ".join(str(failure).split())[:300]


_SCRIPT = """\
import contextlib, io, json, os, sys, tempfile, types
runner = types.ModuleType("tts_program")
exec(compile({runner!r}, "program.py", "exec"), runner.__dict__)
class Out(io.StringIO):
    def write(self, text):
        super().write(text)
        if self.tell() > {most}:
            end({{"flood": True}})
        return len(text)
def end(said, dumps=json.dumps):
    line = ({mark!r} + dumps([said, out.getvalue()[:{kept}]])).encode()
    while line:
        line = line[os.write(1, line):]
    os._exit(0)
out = Out()
with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
    said = runner.run_program({program!r}, json.loads({steps!r}), {room}, tempfile.mkdtemp(), {seconds})
end(said)
"""


def _script(program: str, tests: CodeTests, mark: str, limits: SandboxLimits) -> str:
    """Return a script that runs a program with its tests.

    The script runs them as the sandbox does, and prints a mark and the report.
    """
    values = {"program": program, "steps": json.dumps(tests.asked), "room": tests.room, "mark": mark, "kept": _KEPT}
    values |= {"most": limits.output, "seconds": limits.seconds if tests.limits > 1 else 0.0}
    return _SCRIPT.format(runner=inspect.getsource(runner), **values)
