"""The resources of the processes below one: their number, memory, and open files without a name."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress

MOST_FILES = 1000
_DEEPEST = 40
_PAGE = os.sysconf("SC_PAGE_SIZE") if os.name == "posix" else 4096


def descendants(root: int) -> Iterator[tuple[int, int]]:
    """Yield the descendants of a process, each with its resident memory in bytes."""
    children_of: dict[int, list[tuple[int, int]]] = {}  # by process id: ids and resident memory of its children
    for entry in os.scandir("/proc"):
        if not entry.name.isdecimal():
            continue
        try:
            with open(f"{entry.path}/stat", "rb") as file:  # noqa: PTH123 - hundreds of them, every moment
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        state, parent, resident_pages = fields[0], int(fields[1]), int(fields[21])
        is_zombie = state == b"Z"
        if not is_zombie:
            children_of.setdefault(parent, []).append((int(entry.name), resident_pages * _PAGE))
    unvisited = [root]
    while unvisited:
        for pid, resident in children_of.get(unvisited.pop(), []):
            unvisited.append(pid)
            yield pid, resident


def memory_of(processes: Iterable[tuple[int, int]]) -> int:
    """Return the bytes that processes hold; pages that several share are counted once.

    Args:
        processes: The process ids, each with the resident memory. This is counted where the kernel does not report the
            memory with shared pages divided among their processes.
    """
    return sum(_memory_of(pid, resident) for pid, resident in processes)


def _memory_of(pid: int, resident: int) -> int:
    """Return the proportional memory of a process in bytes, or its resident memory."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:  # noqa: PTH123 - a kernel's file
            for line in file:
                if line.startswith(b"Pss:"):
                    kilobytes = int(line.split()[1])
                    return kilobytes << 10
            return resident
    except ProcessLookupError:  # it has ended since it was listed
        return 0
    except (OSError, ValueError):
        return resident if os.path.exists(f"/proc/{pid}") else 0  # noqa: PTH110 - beside the open above


def unlinked_bytes(processes: Iterable[int]) -> int:
    """Return the bytes of the open files of processes that have no name any more, each file once."""
    files: dict[tuple[int, int], int] = {}
    for pid in processes:
        with suppress(OSError):
            for entry in os.scandir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    status = os.stat(entry.path)  # noqa: PTH116 - of the open file
                    if stat.S_ISREG(status.st_mode) and not status.st_nlink:
                        files[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(files.values())


def folder_bytes(folder: str) -> int | None:
    """Return the bytes of the files in a folder.

    The result is None if there are too many files, or they are nested too deeply.
    """
    num_bytes = num_files = 0
    unvisited = [(folder, 0)]  # folders with their depths
    while unvisited:
        path, depth = unvisited.pop()
        try:
            entries = list(os.scandir(path))
        except OSError:
            continue
        num_files += len(entries)
        if num_files > MOST_FILES or depth > _DEEPEST:
            return None
        for entry in entries:
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    unvisited.append((entry.path, depth + 1))
                else:
                    num_bytes += entry.stat(follow_symlinks=False).st_blocks * 512
    return num_bytes
