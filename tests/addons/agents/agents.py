"""What tests of workspaces share: a small repository, agents as shell scripts, and what runs of them."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

SOURCE = "def add(a, b):\n    return a - b\n\n\ndef top(a, b):\n    return a if a > b else b\n"


def git(folder: Path, *arguments: str) -> str:
    who = (
        "-c",
        "user.name=user",
        "-c",
        "user.email=user@localhost",
        "-c",
        "init.defaultBranch=main",
        "-c",
        "protocol.file.allow=always",
    )
    return subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


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


def make_repository(folder: Path) -> Path:
    """Make a repository of one commit with two functions, one of which is wrong."""
    folder.mkdir(parents=True)
    (folder / "add.py").write_text(SOURCE)
    git(folder, "init", "--quiet", ".")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    return folder


def script(folder: Path, text: str, name: str = "agent") -> str:
    """Write a shell script and return the name of the agent that runs it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return f"command:{path}"


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
