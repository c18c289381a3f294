"""The toy agent: a program without a model that proposes edits of Python files.

The edits come from a small grammar with known probabilities. A turn is one edit: an operator, a name or a number is
replaced by another (`GRAMMAR`). All edits of the current files are equally likely. After an edit the agent has finished
with probability 1/2, and in any case after `MOST_TURNS` edits. Where the prompt names files, only these are edited.
Tests are never edited.

The module is run by its path (`python -I -S toy_agent.py`), once a turn, and imports only the standard library. Each
word of its message is a token. It follows the protocol of `tts_addons.agents.agents`.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GRAMMAR: dict[str, tuple[str, ...]] = {
    "+": ("-",), "-": ("+",), "*": ("+",), "//": ("%",), "%": ("//",),
    "<": ("<=", ">"), "<=": ("<", ">="), ">": (">=", "<"), ">=": (">", "<="), "==": ("!=",), "!=": ("==",),
    "and": ("or",), "or": ("and",), "min": ("max",), "max": ("min",), "True": ("False",), "False": ("True",),
    "0": ("1",), "1": ("0", "2"), "2": ("1",),
}  # fmt: skip
MOST_TURNS = 4
FINISHED = "I have finished."


@dataclass(frozen=True)
class Edit:
    """The replacement of one token of a file.

    Attributes:
        path: The path of the file, from the root of the repository.
        line: The number of the line, from 1.
        column: The place in the line, from 0.
        old: The token that is replaced.
        new: The token that replaces it.
    """

    path: str
    line: int
    column: int
    old: str
    new: str

    @property
    def message(self) -> str:
        """The edit in words."""
        return f"{self.path}:{self.line}: write {self.new} in place of {self.old}"


def edits(files: Mapping[str, str]) -> list[Edit]:
    """Return all edits of some files, in order.

    Args:
        files: The text of each file by its path.
    """
    return [edit for path in sorted(files) for edit in _edits_of(path, files[path])]


def _edits_of(path: str, text: str) -> Iterator[Edit]:
    """Yield all edits of a file. A file that is not valid Python has none."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return
    for token in tokens:
        if token.type in (tokenize.OP, tokenize.NAME, tokenize.NUMBER):
            for replacement in GRAMMAR.get(token.string, ()):
                line, column = token.start
                yield Edit(path, line, column, old=token.string, new=replacement)


def edit_text(text: str, edit: Edit) -> str:
    """Return the text of a file after an edit."""
    lines = text.split("\n")  # the lines as `tokenize` counts them
    line = lines[edit.line - 1]
    lines[edit.line - 1] = line[: edit.column] + edit.new + line[edit.column + len(edit.old) :]
    return "\n".join(lines)


def draws(seed: str) -> tuple[float, float]:
    """Return two numbers in [0, 1) that a seed determines."""
    digest = hashlib.sha256(seed.encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64, int.from_bytes(digest[8:16], "big") / 2**64


def source_files(root: Path, prompt: str) -> dict[str, str]:
    """Return the Python files below a folder by their paths, without tests.

    If the prompt names some of the files, only these files are returned.
    """
    files: dict[str, str] = {}
    for folder, subfolders, names in os.walk(root):
        searched = [name for name in subfolders if not name.startswith(".") and name not in ("tests", "__pycache__")]
        subfolders[:] = sorted(searched)  # `os.walk` enters the folders of this list
        for name in sorted(names):
            path = Path(folder, name)
            is_source = name.endswith(".py") and not name.startswith(("test_", "conftest"))
            if is_source and not path.is_symlink():
                files[path.relative_to(root).as_posix()] = path.read_bytes().decode("utf-8", "surrogateescape")
    named_files = {path: text for path, text in files.items() if path in prompt}
    return named_files or files


def begin_turn(root: Path, prompt: str, seed: str, turns: int) -> dict[str, Any]:
    """Draw a turn, and return its words, its edit, and whether the agent has finished after the turn.

    The result also has the number of turns so far.

    Args:
        root: The folder with the files.
        prompt: The task.
        seed: The seed of the draws.
        turns: The number of earlier turns.
    """
    edit_draw, end_draw = draws(seed)
    possible_edits = edits(source_files(root, prompt))
    edit = possible_edits[int(edit_draw * len(possible_edits))] if possible_edits else None
    is_finished = edit is None or turns + 1 >= MOST_TURNS or end_draw < 0.5
    words = f"{'' if edit is None else edit.message} {FINISHED if is_finished else ''}".split()
    return {"words": words, "edit": None if edit is None else vars(edit), "finished": is_finished, "turns": turns + 1}


def main() -> int:
    """Run one turn, or as much of it as the tokens allow, and return 0."""
    prompt = Path(os.environ["TTS_PROMPT_FILE"]).read_text(encoding="utf-8")
    session, report = Path(os.environ["TTS_SESSION_FILE"]), Path(os.environ["TTS_REPORT_FILE"])
    max_tokens = int(os.environ["TTS_MAX_TOKENS"])
    root = Path.cwd()
    turn: dict[str, Any] = {"words": [], "turns": 0}
    if session.exists():
        turn = json.loads(session.read_text(encoding="utf-8"))
    if not turn["words"]:  # the last turn was written whole
        turn = begin_turn(root, prompt, os.environ["TTS_SEED"], turn["turns"])
    words, turn["words"] = turn["words"][:max_tokens], turn["words"][max_tokens:]
    status = "cut" if turn["words"] else "finished" if turn["finished"] else "turn"
    message = "".join(f"{word} " for word in words)
    report.write_text(json.dumps({"message": message, "tokens": len(words), "status": status}), encoding="utf-8")
    if status != "cut" and turn["edit"] is not None:
        edit = Edit(**turn["edit"])
        path = root / edit.path
        text = edit_text(path.read_bytes().decode("utf-8", "surrogateescape"), edit)
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
    session.write_text(json.dumps(turn), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
