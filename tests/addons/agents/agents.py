"""What tests of workspaces share: a small repository, agents as shell scripts, and what runs of them."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import tts
from tts.budget.units import UNITS

_WHO = ["-c", "user.name=user", "-c", "user.email=user@localhost", "-c", "protocol.file.allow=always"]
SOURCE = "def add(a, b):\n    return a - b\n\n\ndef top(a, b):\n    return a if a > b else b\n"


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *_WHO, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


def snapshot(folder: Path) -> str:
    """Return a digest of all files below a folder: names, modes, times of change, contents.

    Times of objects are left out: git renews that of an object that it would write again, so that nobody prunes it.
    """
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        about = path.lstat()
        changed = 0 if "objects" in path.parts else about.st_mtime_ns
        digest.update(f"{path} {about.st_mode} {changed}\n".encode())
        digest.update(
            str(path.readlink()).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        )
    return digest.hexdigest()


def commit(folder: Path) -> None:
    """Commit all files of a repository."""
    git(folder, "add", "-A")
    git(folder, "commit", "--quiet", "-m", "all files")


def make_repository(folder: Path, files: Mapping[str, str] | None = None) -> Path:
    """Make a repository of one commit: of these files, or of two functions, one of which is wrong."""
    for name, text in (files or {"add.py": SOURCE}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "init", "--quiet", ".")
    commit(folder)
    return folder


def write_program(path: Path, text: str, interpreter: str = "/bin/sh") -> Path:
    """Write a file that its interpreter runs, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{interpreter}\n{text}\n")
    path.chmod(0o755)
    return path


def script(folder: Path, text: str) -> str:
    """Write a shell script and return the name of the agent that runs it."""
    return f"command:{write_program(folder / 'agent', text)}"


def search(
    workspace: tts.Backend, n: int = 2, selection: str = "majority", task: str = "Fix it.", **more: Any
) -> tts.Solution:
    """Return what so many runs of the agent of a workspace find; further limits are of its budget."""
    limits = {unit: more.pop(unit) for unit in ("seconds", *UNITS) if unit in more}
    plan = f"best_of_n(n={n}) | {selection}"
    return tts.solve(task, tts.Budget(samples=n, **limits), backend=workspace, strategy=plan, **more)


def plant(monkeypatch: pytest.MonkeyPatch, folder: Path, *names: str) -> Path:
    """Set variables to "planted", and return a home of the user that has a file with it."""
    for name in names:
        monkeypatch.setenv(name, "planted")
    home = folder / "home"
    home.mkdir()
    (home / ".netrc").write_text("planted")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    return home


def running(mark: str) -> list[str]:
    """Return the commands that run with a mark in their arguments."""
    found: list[str] = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if mark in line:
            found.append(line)
    return found
