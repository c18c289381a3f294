"""The program in a model's text: its fenced blocks, and the one that the tests are for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

_FENCE: Final = re.compile(r"([^\S\n]*)(`{3,}|~{3,})[^\S\n]*([^\n]*)")
_LANGUAGE: Final = re.compile(r"\W*(\w*)")
_PYTHON: Final = frozenset({"", "py", "python", "python2", "python3", "py3", "pypy", "pypy3", "ipython"})
_BEGINS: Final = re.compile(
    r"^(?:(?:async )?def |class |import |from \w|@\w|[ \t]+(?:return|if|for|while|[a-z_]\w* ?=))", re.MULTILINE
)
_PROSE: Final = re.compile(r"^(?:[-*>] ?)?[A-Z][a-z'’]*(?: [A-Za-z'’`(]+)+", re.MULTILINE)  # no line of a program
_IMPORT: Final = re.compile(r"^(?:from[ \t]+\S+[ \t]+)?import[ \t]+(?:\([^()]*\)|[^\n]*)", re.MULTILINE)
_NO_BREAK: Final = re.compile("^[^\"'\n]*[\xa0\u202f].*$", re.MULTILINE)
_READS: Final = re.compile(r"\binput\s*\(|\bstdin\b|\bopen\s*\(\s*0\b|\bfileinput\b|\bos\.read\s*\(\s*0\b")


def code_blocks(text: str) -> list[str]:
    """Return the fenced blocks that are marked as Python or have no language.

    Blocks are without the indent of their fences.

    Fences are those of CommonMark: at least three backticks or tildes, closed by as many of them. A block that is not
    closed reaches to the next fence with a language of Python, or to the end.
    """
    blocks: list[str] = []
    outer_fences: list[_Fence] = []  # open fences, each longer than the fence within it
    fence: _Fence | None = None  # the innermost open fence
    for line in text.split("\n"):
        match = _FENCE.fullmatch(line.rstrip("\r"))
        indent, mark, info = match.groups() if match else ("", "", "")
        info = info.strip()
        language = _language(info)
        names_python = language != "" and language in _PYTHON
        if match and fence is not None and not info and mark.startswith(fence.mark):
            blocks += fence.block("\n")
            fence = outer_fences.pop() if outer_fences else None
        elif match and "`" not in info and (fence is None or names_python):
            if fence is not None and len(fence.mark) > len(mark):
                outer_fences.append(fence)
            elif fence is not None:
                blocks += fence.block("\n")
            fence = _Fence(indent, mark, language in _PYTHON)
        elif fence is not None:
            has_indent = line.startswith(fence.indent)
            fence.lines.append(line.removeprefix(fence.indent) if has_indent else line.lstrip(" \t"))
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
        names: Names that the tests call. The program is the last block of those that define the most of them.
        reads: Whether the tests are of standard input. Then the program is the last block that reads standard input.

    Returns:
        The block, by default the last block; the whole text where there is no block.
    """
    text = _NO_BREAK.sub(lambda line: line[0].replace("\xa0", " ").replace("\u202f", " "), text)
    first_fence = re.search(r"^[ \t]*(?:```|~~~)[ \t]*$", text, re.MULTILINE)
    head = "" if first_fence is None else text[: first_fence.start()]
    blocks = code_blocks(text)
    is_program = "```" not in head and head.strip() != "" and _PROSE.search(head) is None
    if first_fence is not None and is_program and (_BEGINS.search(head) or not blocks):
        blocks = [head, *code_blocks(text[first_fence.end() :])]  # the fence closes what the prompt has opened
    if not blocks:
        return _without_prose(text)
    called_names = set(names)
    best_block, best_count = blocks[-1], -1
    for block in reversed(blocks):
        reads_input = reads and _READS.search(block) is not None
        count = len(_define(block, called_names)) if called_names else int(reads_input)
        if count > best_count:
            best_block, best_count = block, count
    earlier = "\n".join(blocks[: blocks.index(best_block)])
    imports = [line[0] for line in _IMPORT.finditer(earlier) if _supplies(line[0], best_block)]
    return "\n".join([*imports, best_block])


def _without_prose(text: str) -> str:
    """Return the program in a text without fences: what stands between its first and its last sentences."""
    first_line = _BEGINS.search(text)
    if first_line is None:
        return text
    introduction = text[: first_line.start()]
    has_introduction = _PROSE.search(introduction) is not None or introduction.rstrip().endswith(":")
    sentence = _PROSE.search(text, first_line.start())
    return text[first_line.start() if has_introduction else 0 : len(text) if sentence is None else sentence.start()]


def _supplies(statement: str, block: str) -> bool:
    """Whether an import binds a name that a block uses and does not bind itself."""
    names = re.findall(r"(?:\bas\s+)?([\w.*]+)(?=\s*(?:[,)#\n]|$))", statement.partition("import")[2])
    own = " ".join(line[0] for line in _IMPORT.finditer(block))
    used = (name.partition(".")[0] for name in names)
    return any(
        name == "*" or (re.search(rf"\b{name}\b", block) and not re.search(rf"\b{name}\b", own)) for name in used
    )


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
