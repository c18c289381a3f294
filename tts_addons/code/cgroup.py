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
        """Move a process into the group, with all that it will start; return whether the kernel allowed it."""
        try:
            (self.path / "cgroup.procs").write_text(str(pid), encoding="ascii")
        except OSError:
            return False
        return True

    def has_killed(self) -> bool:
        """Whether the kernel has killed a process of the group for its memory."""
        try:
            file_name = "memory.events" if self.version == 2 else "memory.oom_control"
            text = (self.path / file_name).read_text(encoding="ascii")
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
        name: The group's name, different from the names of all other groups of this process.
        memory: The bound of the group's memory, in bytes.
    """
    parent_and_version = place()
    if parent_and_version is None:
        return None
    parent, version = parent_and_version
    group = ControlGroup(parent / f"{_PREFIX}{os.getpid()}-{name}", version)
    try:
        group.path.mkdir()
        limit_file = "memory.max" if version == 2 else "memory.limit_in_bytes"
        (group.path / limit_file).write_text(str(memory), encoding="ascii")
    except OSError:
        group.remove()
        return None
    with suppress(OSError):  # a machine may have no swap to bound
        # version 1 bounds memory and swap together, and version 2 swap alone
        swap_file, swap_limit = ("memory.swap.max", 0) if version == 2 else ("memory.memsw.limit_in_bytes", memory)
        if (group.path / swap_file).exists():
            (group.path / swap_file).write_text(str(swap_limit), encoding="ascii")
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
    own_groups = [entry.split(":", 2) for entry in own.splitlines()]  # number, controllers and path of each
    folders: list[tuple[Path, int]] = []
    for line in mounts.splitlines():
        _device, mount_point, kind, options, *_ = line.split()
        if kind == "cgroup" and "memory" in options.split(","):
            for _number, controllers, path in own_groups:
                if "memory" in controllers.split(","):
                    folders.append((Path(mount_point + path), 1))
        elif kind == "cgroup2":
            for number, _controllers, path in own_groups:
                parent = Path(mount_point + path).parent if path != "/" else Path(mount_point)
                if number == "0" and _bounds_memory(parent):
                    folders.append((parent, 2))
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
