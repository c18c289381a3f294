r"""Patches: a text has the messages of an agent, each followed by the patch after that turn.

The last patch is the answer.

`format_turn` writes the text of a turn:

    calendar.py:3: write <= in place of <
    ===== patch =====
    diff --git a/calendar.py b/calendar.py
    …
    ===== end of patch =====

Every line of a patch begins with a mark of git's, so no file can end the patch.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from tts.tasks.base import Task

_BEGIN, _END = "\n===== patch =====\n", "\n===== end of patch ====="
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_LEFT_OUT = ("index ", "--- ", "+++ ", "\\ ")  # lines of a patch that say nothing beyond the changes themselves


class PatchTask(Task):
    """Changes of a repository. The answer is the last patch of the text, None where it is empty.

    Two answers are equal if their patches have the same `patch_key`. A step is a turn of an agent.
    """

    name: str = "patch"
    step_stop: tuple[str, ...] = (f"{_END}\n",)

    def extract(self, text: str) -> str | None:
        """Return the last whole patch of a text, as `git apply` reads it; None where it is empty or missing."""
        end_mark = text.rfind(_END)
        begin_mark = text.rfind(_BEGIN, 0, max(0, end_mark))
        if begin_mark < 0:
            return None
        patch = text[begin_mark + len(_BEGIN) : end_mark + 1]
        return patch if patch.strip() else None

    def canonical(self, answer: str) -> str:
        """Return the key of a patch."""
        return patch_key(answer)


def format_turn(message: str, patch: str, *, is_last: bool) -> str:
    """Return the text of an agent's turn.

    Args:
        message: The agent's message. Rows of `=` are shortened, so that the message has no patch of its own.
        patch: The changes from the root to the state after the turn; empty, or ending with a newline.
        is_last: Whether the agent has finished. Otherwise the text ends a step.
    """
    safe_message = re.sub("={5,}", "====", message)
    turn = safe_message + _BEGIN + patch.removesuffix("\n") + _END
    return turn if is_last else f"{turn}\n"


def files_of(patch: str) -> list[str]:
    """Return the files that a patch changes, as it names them."""
    return re.findall(r'^diff --git .* "?b/(.*?)"?$', patch, re.MULTILINE)


def patch_key(patch: str) -> str:
    """Return a digest that is equal for patches that change the same lines in the same way.

    Spaces at the end of lines, and kinds of line ends, make no difference. Lines at the beginning and the end of a
    change that differ in nothing else count as unchanged.

    Args:
        patch: A patch as git writes it.
    """
    changed_files = ["\n".join(part) for part in _file_parts(patch.split("\n")) if len(part) > 1]
    return hashlib.sha256("\0".join(changed_files).encode("utf-8", "surrogatepass")).hexdigest()


def _file_parts(lines: list[str]) -> Iterator[list[str]]:
    """Yield for each file of a patch its first line, and then the lines that changed.

    A file in which only spaces at the end of lines changed has the first line alone.
    """
    part: list[str] = []
    index = 0
    while index < len(lines):
        line = lines[index].rstrip()
        if line.startswith("diff --git "):
            yield part
            part = [line]
        elif (hunk := _HUNK.match(line)) is not None:
            changes, index = _changes(lines, index + 1, hunk)
            part += changes
            continue
        elif line and not line.startswith(_LEFT_OUT):
            part.append(line)
        index += 1
    yield part


def _changes(lines: list[str], index: int, hunk: re.Match[str]) -> tuple[list[str], int]:
    """Return the changes of a hunk, each with its place in the old file, and the index of the line after the hunk.

    Args:
        lines: The lines of the patch.
        index: The index of the first line in the hunk.
        hunk: The hunk's head.
    """
    old_line_number = int(hunk[1])  # of the change that is being read
    old_lines_left = int(hunk[2] or 1)
    new_lines_left = int(hunk[3] or 1)
    changes: list[str] = []
    removed: list[str] = []
    added: list[str] = []
    while index < len(lines) and (old_lines_left > 0 or new_lines_left > 0):
        mark, text = lines[index][:1], lines[index][1:].rstrip()
        index += 1
        if mark == "-":
            removed.append(text)
            old_lines_left -= 1
        elif mark == "+":
            added.append(text)
            new_lines_left -= 1
        elif mark != "\\":  # an unchanged line; some mailers strip the space of an empty line
            changes += _change(old_line_number, removed, added)
            old_line_number += len(removed) + 1
            removed, added = [], []
            old_lines_left -= 1
            new_lines_left -= 1
    return changes + _change(old_line_number, removed, added), index


def _change(old_line_number: int, removed: list[str], added: list[str]) -> list[str]:
    """Return a line for each removed and added line of a change, with its line number in the old file.

    Equal lines at the beginning and the end of the change are left out.
    """
    num_equal_first = _count_equal(removed, added)
    removed, added = removed[num_equal_first:], added[num_equal_first:]
    num_equal_last = _count_equal(removed[::-1], added[::-1])
    removed, added = removed[: len(removed) - num_equal_last], added[: len(added) - num_equal_last]
    first_line_number = old_line_number + num_equal_first
    removals = [f"{line_number}-{text}" for line_number, text in enumerate(removed, start=first_line_number)]
    additions = [f"{first_line_number}+{text}" for text in added]
    return removals + additions


def _count_equal(a: list[str], b: list[str]) -> int:
    """Return the number of equal lines at the beginning of two lists."""
    count = 0
    while count < min(len(a), len(b)) and a[count] == b[count]:
        count += 1
    return count
