"""Runs of git that apply neither settings nor hooks to the user's repository."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tts.errors import ConfigError, EngineError

_QUIET = (
    "--no-optional-locks", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false",
    "-c", "gc.auto=0", "-c", "maintenance.auto=false",
)  # fmt: skip
_INHERITED = ("PATH", "HOME", "LANG", "TMPDIR", "SYSTEMROOT")
# equal trees with equal parents are equal commits
_AUTHOR = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "tts"), ("EMAIL", "tts@localhost"), ("DATE", "946684800 +0000"))
}
_OWN = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_ATTR_NOSYSTEM": "1"}


def run_git(
    *arguments: str,
    folder: Path,
    variables: Mapping[str, str] | None = None,
    users: bool = False,
    stdin: bytes = b"",
    ok: Sequence[int] = (0,),
) -> bytes:
    """Run git without hooks, prompts, background work and optional locks, and return its standard output.

    Args:
        arguments: The command of git and its arguments.
        folder: The folder in which git runs.
        variables: Further environment variables, such as `GIT_DIR`.
        users: Whether git reads the user's own settings, as commands that read the user's repository need.
        stdin: The bytes that git reads from standard input.
        ok: The exit codes that are no failure.

    Raises:
        ConfigError: There is no program `git`.
        EngineError: git failed. The text has git's first line of error.
    """
    environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    environment |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1", **_AUTHOR}
    if not users:
        environment |= _OWN
    environment |= variables or {}
    try:
        process = subprocess.run(
            ["git", *_QUIET, *arguments], cwd=folder, env=environment, input=stdin, capture_output=True, check=False
        )
    except FileNotFoundError:
        raise ConfigError("workspaces need the program git, which is not found on PATH", hint="install git") from None
    if process.returncode not in ok:
        lines = process.stderr.decode(errors="replace").strip().splitlines()
        reason = lines[0] if lines else f"exit code {process.returncode}"
        raise EngineError(f"git {arguments[0]} failed in {folder}: {reason}")
    return process.stdout
