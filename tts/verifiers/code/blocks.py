"""The program in a model's text: its fenced blocks, and the one that the tests are for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

_FENCE: Final = re.compile(r"([^\S\n]*)(`{3,}|~{3,})[^\S\n]*([^\n]*)")
_LANGUAGE: Final = re.compile(r"\W*(\w*)")
_PYTHON: Final = frozenset({"", "py", "python", "python2", "python3", "py3", "pypy", "pypy3", "ipython"})
_READS: Final = re.compile(r"\binput\s*\(|\bstdin\b|\bopen\s*\(\s*0\b|\bfileinput\b|\bos\.read\s*\(\s*0\b")


def code_blocks(text: str) -> list[str]:
    """Return the fenced blocks that are marked as Python or have no language.

    Blocks are without the indent of their fences.

    Fences are those of CommonMark: at least three backticks or tildes, closed by as many of them. A block that is not
    closed reaches to the next fence with a language of Python, or to the end.
    """
    blocks: list[str] = []
    around: list[_Fence] = []  # open fences, each longer than the fence within it
    fence: _Fence | None = None
    for line in text.split("\n"):
        match = _FENCE.fullmatch(line.rstrip("\r"))
        info = match[3].strip() if match else ""
        if match and fence is not None and not info and match[2].startswith(fence.mark):
            blocks += fence.block("\n")
            fence = around.pop() if around else None
        elif match and "`" not in info and (fence is None or (_language(info) and _language(info) in _PYTHON)):
            if fence is not None and len(fence.mark) > len(match[2]):
                around.append(fence)
            elif fence is not None:
                blocks += fence.block("\n")
            fence = _Fence(match[1], match[2], _language(info) in _PYTHON)
        elif fence is not None:
            fence.lines.append(line.removeprefix(fence.indent) if line.startswith(fence.indent) else line.lstrip(" \t"))
    return blocks + (fence.block("") if fence is not None else [])


@dataclass(slots=True)
class _Fence:
    """A fence that is open: its indent, its mark, whether it may hold a program, and the lines in it."""

    indent: str
    mark: str
    is_python: bool
    lines: list[str] = field(default_factory=list[str])

    def block(self, end: str) -> list[str]:
        """Return the block, as a list, without one that is blank or in another language."""
        text = "\n".join(self.lines)
        return [text + end] if self.is_python and text.strip() else []


def _language(info: str) -> str:
    match = _LANGUAGE.match(info)
    return match[1].lower() if match else ""


def choose_block(text: str, names: Iterable[str] = (), *, reads: bool = False) -> str:
    """Return the program in a text.

    Args:
        text: The text of a model.
        names: Names that the tests call. The last block that defines all of them is the program, otherwise the last
            that defines one.
        reads: Whether the tests are of standard input. Then the last block that reads it is the program.

    Returns:
        The block; the last one where none of this tells which; the whole text where there is no block.
    """
    blocks = code_blocks(text)
    if not blocks:
        return text
    wanted = set(names)
    counts = [
        len(wanted & _define(block, wanted)) if wanted else int(reads and bool(_READS.search(block)))
        for block in blocks
    ]
    best_count = max(counts)
    return next(block for block, count in zip(reversed(blocks), reversed(counts), strict=True) if count == best_count)


def _define(block: str, names: Iterable[str]) -> set[str]:
    """Return the names that a block defines at its outermost level, also where it is no valid Python."""
    return {
        name
        for name in names
        if re.search(
            rf"^(?:(?:async[ \t]+)?def|class)[ \t]+{re.escape(name)}\b"
            rf"|^{re.escape(name)}[ \t]*(?::[^\n=]*)?=[^=]"
            rf"|^(?:from[^\n]*)?import[^\n]*\b{re.escape(name)}\b",
            block,
            re.MULTILINE,
        )
    }
