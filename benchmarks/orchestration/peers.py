"""its_hub, in an environment of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

from benchmarks.engine.systems import ROOT, AbsentError


def run_peer(python: str, driver: str, *arguments: str) -> str:
    """Run a driver of this folder with another Python, and return what it prints.

    Args:
        python: an interpreter that has its_hub 1.2.
        driver: name of the module.

    Raises:
        AbsentError: it failed; the message is the last line of its errors.
    """
    command = [str(Path(python).absolute()), "-m", f"benchmarks.orchestration.{driver}", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    except OSError as failure:
        raise AbsentError(f"{python} cannot be run: {failure.strerror}") from None
    if done.returncode:
        raise AbsentError((done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"])[-1])
    return done.stdout
