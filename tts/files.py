"""What files that a person names may be: regular ones, of at most a size."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Final

_MOST_MIB: Final = 64  # more than any file that this package writes


def read_small(path: Path) -> str:
    """Return the text of a small file.

    Args:
        path: Where it is. A device or a pipe might never end, and is not opened.

    Raises:
        OSError: It is no regular file, is too large, or cannot be read; `strerror` says which.
        ValueError: It is no UTF-8, or the path has a character that no path may have.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(None, "it is no regular file")
    with path.open("rb") as file:
        found = file.read((_MOST_MIB << 20) + 1)
    if len(found) > _MOST_MIB << 20:
        raise OSError(None, f"it has more than {_MOST_MIB} MiB")
    return found.decode("utf-8")
