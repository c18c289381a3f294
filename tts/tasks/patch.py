r"""Patches: a text has the messages of an agent, each with the patch that it has led to.

The last patch is the answer.

The text of a turn is written by `format_turn`:

    calendar.py:3: write <= in place of <
    ===== patch =====
    diff --git a/calendar.py b/calendar.py
    …
    ===== end of patch =====

Every line of a patch has a mark of git's before it, so no file can end the patch.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from tts.tasks.base import Task

_BEGIN, _END = "\n===== patch =====\n", "\n===== end of patch ====="
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_LEFT_OUT = ("index ", "--- ", "+++ ", "\\ ")  # lines between changes that follow from the others, or from spaces


class PatchTask(Task):
    """Changes of a repository. The answer is the last patch of the text, and None where that is empty.

    Two answers are equal whose patches are, by `patch_key`. A step is a turn of an agent.
    """

    name: str = "patch"
    step_stop: tuple[str, ...] = (f"{_END}\n",)

    def extract(self, text: str) -> str | None:
        """Return the last whole patch of a text, as `git apply` reads it.

        It is None where there is no patch, or an empty one.
        """
        end = text.rfind(_END)
        begin = text.rfind(_BEGIN, 0, max(0, end))
        patch = text[begin + len(_BEGIN) : end + 1] if 0 <= begin < end else ""
        return patch if patch.strip() else None

    def canonical(self, answer: str) -> str:
        """Return the key of a patch."""
        return patch_key(answer)


def format_turn(message: str, patch: str, *, is_last: bool) -> str:
    """Return the text of an agent's turn.

    Args:
        message: What the agent said. Rows of `=` in it are shortened, so that it has no patch of its own.
        patch: The changes from the root to the state after the turn; it ends with a line's end, or is empty.
        is_last: Whether the agent has finished. Otherwise the text ends a step.
    """
    return "".join((re.sub("={5,}", "====", message), _BEGIN, patch.removesuffix("\n"), _END, "" if is_last else "\n"))


def patch_key(patch: str) -> str:
    """Return a digest that is equal for patches that change the same lines in the same way.

    Spaces at the end of lines and ends of lines make no difference. Lines that differ in these alone count as unchanged
    at the beginning and the end of each change.

    Args:
        patch: A patch as git writes it.
    """
    parts = [part for part in _file_parts(patch.split("\n")) if len(part) > 1]
    return hashlib.sha256("\0".join("\n".join(part) for part in parts).encode("utf-8", "surrogatepass")).hexdigest()


def _file_parts(lines: list[str]) -> Iterator[list[str]]:
    """Yield what counts of each file of a patch: its first line, and a line for each change; none where nothing but
    spaces changed.
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
    place, old_left, new_left = int(hunk[1]), int(hunk[2] or 1), int(hunk[3] or 1)
    changes: list[str] = []
    removed: list[str] = []
    added: list[str] = []
    while index < len(lines) and (old_left > 0 or new_left > 0):
        mark, text = lines[index][:1], lines[index][1:].rstrip()
        index += 1
        if mark == "-":
            removed.append(text)
            old_left -= 1
        elif mark == "+":
            added.append(text)
            new_left -= 1
        elif mark != "\\":  # a line that stays; some mailers strip the space of an empty one
            changes += _change(place, removed, added)
            place += len(removed) + 1
            removed, added = [], []
            old_left, new_left = old_left - 1, new_left - 1
    return changes + _change(place, removed, added), index


def _change(place: int, removed: list[str], added: list[str]) -> list[str]:
    """Return a change as a line for each removed and added line, without equal lines at its beginning and its end."""
    num_equal_first = 0
    while num_equal_first < min(len(removed), len(added)) and removed[num_equal_first] == added[num_equal_first]:
        num_equal_first += 1
    num_equal_last = 0
    while (
        num_equal_last < min(len(removed), len(added)) - num_equal_first
        and removed[-1 - num_equal_last] == added[-1 - num_equal_last]
    ):
        num_equal_last += 1
    old_lines, new_lines = (
        removed[num_equal_first : len(removed) - num_equal_last],
        added[num_equal_first : len(added) - num_equal_last],
    )
    return [
        *(f"{place + num_equal_first + index}-{text}" for index, text in enumerate(old_lines)),
        *(f"{place + num_equal_first}+{text}" for text in new_lines),
    ]
