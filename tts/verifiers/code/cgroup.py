"""The control group of a program's processes.

The kernel bounds their memory as a whole, where this process may make such a group.

The group counts all memory: private, shared, files in memory and the kernel's own. Version 2 and the memory hierarchy
of version 1 are used.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_PREFIX = "tts-code-"
_TRIES, _WAIT_S = 100, 0.01


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """A control group that bounds memory.

    Args:
        path: Its folder.
        version: 1 or 2.
    """

    path: Path
    version: int

    def add(self, pid: int) -> bool:
        """Move a process into the group, with all that it will start; return whether it could be."""
        try:
            (self.path / "cgroup.procs").write_text(str(pid), encoding="ascii")
        except OSError:
            return False
        return True

    def has_killed(self) -> bool:
        """Whether the kernel has killed a process of the group for its memory."""
        try:
            text = (self.path / ("memory.events" if self.version == 2 else "memory.oom_control")).read_text(
                encoding="ascii"
            )
        except OSError:
            return False
        return bool(re.search(r"^oom_kill [1-9]", text, re.MULTILINE))

    def remove(self) -> None:
        """Remove the group, whose processes have been killed; the last of them may take a moment to end."""
        for _ in range(_TRIES):
            try:
                self.path.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(_WAIT_S)
            else:
                return


def make(name: str, memory: int) -> ControlGroup | None:
    """Return a new control group that bounds memory in bytes, or None where none can be made.

    Args:
        name: The name of its own among all groups of this process.
        memory: The bound of the group's memory, in bytes.
    """
    parent_and_version = place()
    if parent_and_version is None:
        return None
    parent, version = parent_and_version
    group = ControlGroup(parent / f"{_PREFIX}{os.getpid()}-{name}", version)
    try:
        group.path.mkdir()
        (group.path / ("memory.max" if version == 2 else "memory.limit_in_bytes")).write_text(
            str(memory), encoding="ascii"
        )
    except OSError:
        group.remove()
        return None
    with suppress(OSError):  # a machine may have no swap to bound
        swap, swap_limit = ("memory.swap.max", 0) if version == 2 else ("memory.memsw.limit_in_bytes", memory)
        if (group.path / swap).exists():
            (group.path / swap).write_text(str(swap_limit), encoding="ascii")
    return group


@cache
def place() -> tuple[Path, int] | None:
    """Return the folder in which groups can be made, and the version; None: there is no such folder."""
    try:
        own_groups = Path("/proc/self/cgroup").read_text(encoding="utf-8")
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8")
    except OSError:
        return None
    for parent, version in candidates(own_groups, mounts):
        if os.access(parent, os.W_OK):
            _remove_left(parent)
            return parent, version
    return None


def candidates(own: str, mounts: str) -> list[tuple[Path, int]]:
    """Return the folders in which groups that bound memory may be made, best first.

    A group of version 2 with processes cannot have groups with limits below it, so there the group above is tried.

    Args:
        own: The text of /proc/self/cgroup.
        mounts: The text of /proc/self/mounts.
    """
    folders: list[tuple[Path, int]] = []
    for line in mounts.splitlines():
        _, top, kind, options, *_ = line.split()
        if kind == "cgroup" and "memory" in options.split(","):
            paths = [
                path
                for _, names, path in (entry.split(":", 2) for entry in own.splitlines())
                if "memory" in names.split(",")
            ]
            folders += [(Path(top + path), 1) for path in paths]
        elif kind == "cgroup2":
            paths = [path for number, _, path in (entry.split(":", 2) for entry in own.splitlines()) if number == "0"]
            parents = [Path(top + path).parent if path != "/" else Path(top) for path in paths]
            folders += [(path, 2) for path in parents if _bounds_memory(path)]
    return folders


def _bounds_memory(group: Path) -> bool:
    try:
        return "memory" in (group / "cgroup.subtree_control").read_text(encoding="ascii").split()
    except OSError:
        return False


def _remove_left(parent: Path) -> None:
    """Remove the empty groups of processes that were killed."""
    for group in parent.glob(f"{_PREFIX}*-*"):
        pid = group.name.removeprefix(_PREFIX).partition("-")[0]
        if not Path(f"/proc/{pid}").exists():
            with suppress(OSError):
                group.rmdir()
