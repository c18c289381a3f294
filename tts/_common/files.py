"""Rules for files that a person names, replacement of files as a whole, and what was written.

A file that is named is a regular one, of at most a size. A file is replaced when the new one is complete.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tts.errors import TTSError

_MOST_MIB: Final = 64  # more than any file that this package writes


def read_small(path: Path) -> str:
    """Return the text of a small file.

    Args:
        path: The path of the file. A device or a pipe might never end, and is not opened.

    Raises:
        OSError: The file is not regular, is too large, or cannot be read; `strerror` has the reason.
        ValueError: The file is no UTF-8, or the path has a character that no path may have.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(None, "it is no regular file")
    max_bytes = _MOST_MIB << 20
    with path.open("rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise OSError(None, f"it has more than {_MOST_MIB} MiB")
    return data.decode("utf-8")


@contextmanager
def replace_file(target: Path, hint: str = "name another file, or make room") -> Generator[Path]:
    """Yield a path beside the target. It replaces the target on success, and is removed on failure."""
    partial_file = target.with_name(f"{target.name}.{os.getpid()}.part")  # other processes may write too
    try:
        yield partial_file
        partial_file.replace(target)
    except OSError as failure:
        raise TTSError(f"{target} cannot be written: {failure.strerror or failure}", hint=hint) from failure
    finally:
        partial_file.unlink(missing_ok=True)


def write_json_lines(rows: Iterable[Mapping[str, Any]], path: Path) -> int:
    """Write rows as JSON, one a line, and return how many."""
    count = 0
    with path.open("w", encoding="ascii") as file:
        for count, row in enumerate(rows, 1):  # noqa: B007 - the count is the result
            file.write(json.dumps(row, allow_nan=False) + "\n")
    return count


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written.

    Args:
        path: The file.
        rows: Its rows.
        searches: The searches that were read.
        left_out: What became no row, by reason.
        wrong: The rows that show a text as good whose answer is known to be wrong.
    """

    path: Path
    rows: int
    searches: int
    left_out: Mapping[str, int]
    wrong: int = 0

    def __str__(self) -> str:
        text = f"{self.rows:,} rows of {self.searches:,} searches in {self.path}"
        if self.left_out:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.left_out.items())
            text += f"; left out: {reasons}"
        if self.wrong:
            text += f"; known to be wrong: {self.wrong:,} rows"
        return text
