"""Runs a program with its tests in a Docker container of llm-sandbox, for machines whose kernel must not be trusted with it."""

from __future__ import annotations

import inspect
import json
import secrets
import time
from typing import Any

from tts.errors import VerifierError, missing_extra
from tts.verifiers.sandbox import Limits, Outcome, Result, judged

_KEPT = 4096


def run_in_container(program: str, tests: str, limits: Limits) -> Result:
    """Run a Python program with its tests in a container of its own, without network; return what became of it.

    The container's memory and processes are bounded by Docker, which ends what passes them: such a program has crashed here, where
    `tts.verifiers.sandbox.run` tells why.

    Raises:
        MissingDependency: llm-sandbox is not installed.
        VerifierError: the container could not be had, or the tests are no Python.
    """
    try:
        from llm_sandbox import SandboxSession  # pyright: ignore[reportMissingImports] - an optional package
    except ModuleNotFoundError as failure:
        raise missing_extra("llm-sandbox", "sandbox", "code(sandbox='docker')") from failure
    bounds = {"network_mode": "none", "mem_limit": limits.memory, "pids_limit": limits.processes}
    mark, started = secrets.token_hex(8), time.monotonic()
    try:
        with SandboxSession(lang="python", runtime_configs=bounds, skip_environment_setup=True) as session:
            said: Any = session.run(_script(program, tests, mark, limits.output), timeout=limits.seconds)
    except Exception as failure:  # another package's errors, of which its timeout is one
        if "timeout" not in type(failure).__name__.lower():
            raise VerifierError(
                f"the container failed: {type(failure).__name__}: {failure}", hint="is Docker running, and may this user use it?"
            ) from failure
        return Result(Outcome.TIMEOUT, f"it ran for more than {limits.seconds:g} seconds", seconds=time.monotonic() - started)
    before, _, last = said.stdout.rpartition(mark)
    output = (before or last)[:_KEPT]
    if not before and mark not in said.stdout:
        detail = f"it ended by itself, with code {said.exit_code}, before its tests"
        return Result(Outcome.CRASHED, detail, output=output, seconds=time.monotonic() - started)
    return judged(json.loads(last), output, time.monotonic() - started)


def _script(program: str, tests: str, mark: str, most: int) -> str:
    """Return a program that runs another and its tests as in `sandbox_child`, and writes what became of them behind a mark."""
    from tts.verifiers.sandbox_child import run_tests

    return "\n".join(
        [
            "from __future__ import annotations",
            "import ast, contextlib, io, json",
            "from typing import Any",
            inspect.getsource(run_tests),
            "out = io.StringIO()",
            "with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):",
            f"    said = run_tests({program!r}, {tests!r})",
            f"written = out.getvalue()[:{_KEPT}]",
            f"said = said if len(out.getvalue()) <= {most} else {{'flood': True}}",
            f"print(written + {mark!r} + json.dumps(said))",
        ]
    )
