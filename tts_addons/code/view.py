"""The part of the file system that a program can read.

The view has this interpreter, its packages and the system's libraries.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import Any

_SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/alternatives",
)


@cache
def view() -> dict[str, Any]:
    """Return the "paths" and the "links" that a Python program must read.

    Paths are files and folders, and links the symbolic links that lead to them.
    """
    links: dict[str, str] = {}
    wanted = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, sys.executable, *_SYSTEM}
    resolved_paths = {_resolve(path, links) for path in wanted if os.path.lexists(path)} - {"/"}
    paths: list[str] = []
    for path in sorted(resolved_paths):
        if not _is_within(path, paths):
            paths.append(path)
    outer_links = {link: target for link, target in links.items() if not _is_within(link, paths)}
    return {"paths": paths, "links": outer_links}


def _is_within(path: str, folders: list[str]) -> bool:
    return any(path.startswith(f"{folder}/") for folder in folders)


def _resolve(path: str, links: dict[str, str]) -> str:
    """Return a path without symbolic links, and add the links on the way to `links`."""
    resolved = "/"
    remaining_parts = [part for part in os.path.normpath(path).split("/") if part]
    while remaining_parts:
        next_path = os.path.join(resolved, remaining_parts.pop(0))  # noqa: PTH118 - strings, as os.readlink gives them
        if os.path.islink(next_path) and len(links) < 1000:  # noqa: PTH114
            links[next_path] = os.readlink(next_path)  # noqa: PTH115
            target = os.path.normpath(os.path.join(resolved, links[next_path]))  # noqa: PTH118
            resolved = "/"
            remaining_parts = [part for part in target.split("/") if part] + remaining_parts
        else:
            resolved = next_path
    return resolved


def may_enter(folder: str) -> bool:
    """Whether users without rights may enter all folders above this interpreter's files and a folder."""
    for place in (sys.prefix, sys.base_prefix, folder):
        above = os.path.realpath(place)
        while (above := os.path.dirname(above)) != "/":  # noqa: PTH120
            if not os.stat(above).st_mode & 0o1:  # noqa: PTH116
                return False
    return True
