"""What Python does meanwhile: modules that are imported, files that are opened, and programs that run."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

_REACHES = frozenset(
    {
        "import",
        "open",
        "exec",
        "os.system",
        "os.exec",
        "os.posix_spawn",
        "os.fork",
        "subprocess.Popen",
        "socket.connect",
        "urllib.Request",
    }
)
_seen: list[tuple[str, Any]] | None = None
_is_installed = False


def _note(event: str, details: tuple[Any, ...]) -> None:
    if _seen is not None and event in _REACHES:
        _seen.append((event, details[:1]))


@contextmanager
def events() -> Generator[list[tuple[str, Any]]]:
    """Collect what reaches outside of the process's memory, for the block."""
    global _seen, _is_installed  # noqa: PLW0603 - a hook of the interpreter cannot be removed
    if not _is_installed:
        sys.addaudithook(_note)
        _is_installed = True
    before, _seen = _seen, []
    try:
        yield _seen
    finally:
        _seen = before
