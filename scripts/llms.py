"""The documentation for language models, which the build of the site puts beside the pages.

The index llms.txt links the pages, by the order of mkdocs.yml. llms-full.txt has them as one text, without measurements
and decisions. Pages that the build of the site makes are in neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[1]
_OPTIONAL = "Optional"  # by the convention of llms.txt: may be left out where there is little room
_FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


class Page(NamedTuple):
    """A page: its section of the index, its path from the root, its text."""

    section: str
    path: str
    text: str

    @property
    def title(self) -> str:
        """The first heading."""
        return next(line[2:] for line in self.text.splitlines() if line.startswith("# "))

    @property
    def about(self) -> str:
        """The first sentence before the first section, without links; "" where there is none."""
        begin = _FENCE.sub("", self.text).partition("\n## ")[0]
        prose = (block for block in begin.split("\n\n") if re.match(r"[A-Z`\[]", block))
        first = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(next(prose, "").split()))
        return re.split(r"(?<=[a-z`)0-9][.:])\s", first)[0].rstrip(":")


def pages() -> list[Page]:
    """Return the pages of the site that exist in the checkout, in its order."""
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    return [
        Page(section, f"docs/{name}", (ROOT / "docs" / name).read_text(encoding="utf-8"))
        for section, name in _list_pages(site["nav"], "Home")
        if (ROOT / "docs" / name).exists() and name != "index.md"
    ]


def _list_pages(entries: Sequence[Any], section: str) -> Iterator[tuple[str, str]]:
    """Yield the pages below an entry of the navigation, with the section of each."""
    for entry in entries:
        if isinstance(entry, str):
            name, inside = entry, section
        else:
            told: Mapping[str, Any] = entry
            title, name = next(iter(told.items()))
            inside = title if section == "Home" else section
        if isinstance(name, str):
            yield (_OPTIONAL if name.startswith(("results/", "decisions/")) else inside), name
        else:
            yield from _list_pages(name, inside)


def index(found: Sequence[Page]) -> str:
    """Return llms.txt, whose links lead to pages of the site."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8").split("\n\n")
    lines = [readme[0], "", f"> {' '.join(readme[1].split())}", ""]
    for section in dict.fromkeys([*(page.section for page in found if page.section != _OPTIONAL), _OPTIONAL]):
        lines += [f"## {section}", ""]
        lines += [
            f"- [{page.title}]({_address(page)}){': ' if page.about else ''}{page.about}"
            for page in found
            if page.section == section
        ]
        lines.append("")
    return "\n".join(lines)


def _address(page: Page) -> str:
    return re.sub(r"README\.md$", "index.md", page.path.removeprefix("docs/")).removesuffix(".md") + ".html"


def full(found: Sequence[Page]) -> str:
    """Return llms-full.txt."""
    readme = Page("", "README.md", (ROOT / "README.md").read_text(encoding="utf-8"))
    whole = [readme, *(page for page in found if page.section != _OPTIONAL)]
    return "\n".join(f"<!-- {page.path} -->\n\n{page.text.strip()}\n" for page in whole)
