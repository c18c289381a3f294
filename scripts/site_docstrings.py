"""An extension of Griffe, by which the site reads docstrings.

Labels such as "Cost:" are paragraphs, and each argument has its entry.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import griffe

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]

import site_reference  # noqa: E402 - it lies beside this file

_LABEL = re.compile(r"^[A-Z]\w*(?: \w+)*: \S")


class HouseDocstrings(griffe.Extension):
    """Rewrites docstrings before they are parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            names = [*obj.members, *(p.name for p in getattr(obj, "parameters", ()))]
            obj.docstring.value = rewrite_docstring(obj.docstring.value, names)


def rewrite_docstring(text: str, names: list[str]) -> str:
    """Return a docstring as Griffe divides it best; `names` are arguments that an entry may be about."""
    text = re.sub(r"^(?![- ])(.+)\n(?=- )", r"\1\n\n", text, flags=re.MULTILINE)  # a list begins after a blank line
    sections: list[str] = []
    under = ""  # the section, or the label, that the lines are of
    for line in text.split("\n"):
        if line and not line.startswith(" "):
            under = "label" if _LABEL.match(line) else line
        sections.append("Examples:" if line == "Example:" else line.strip() if under == "label" else line)
    return site_reference.linked_papers("\n".join(_entries(sections, names)))


def _entries(lines: list[str], names: list[str]) -> list[str]:
    """Return lines in which each argument begins a line of its own."""
    if not names:
        return lines
    inner = re.compile(
        rf"(?<=[.;]) (?=(?:{'|'.join(map(re.escape, names))})(?:, (?:{'|'.join(map(re.escape, names))}))*: )"
    )
    entries: list[str] = []
    inside = False
    for line in lines:
        if line and not line.startswith(" "):
            inside = line == "Args:"
        entries += inner.sub("\n    ", line).split("\n") if inside else [line]
    return entries
