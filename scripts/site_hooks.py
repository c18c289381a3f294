"""The site's build beside MkDocs (`hooks` of mkdocs.yml): generated pages, lists, and paths as links.

Pages that are generated from the code stand in no folder: `site_reference` has their texts. The files llms.txt and
llms-full.txt of the site have a list of the pages, and all pages as one text. Lists are read as GitHub reads them. A
path in backticks, such as `docs/how-to/studies.md`, becomes a link to that page with its title.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

import llms  # noqa: E402 - it lies beside this file
import site_reference  # noqa: E402
from mkdocs.exceptions import PluginError  # noqa: E402
from mkdocs.structure.files import File  # noqa: E402

_METHODS = "reference/methods.md"
# in the search: pages for use come first, and records of what was measured and of why come last
_BOOSTS = {"how-to": 4, "tutorials": 2, "explanation": 0.5, "results": 0.01, "decisions": 0.0005}
# words that users look for, which the titles of their pages do not have
_WORDS = {
    "choose.md": ["choose", "which method", "recommended", "temperature"],
    "how-to/servers/failures.md": ["timeout", "retry", "rate limit", "429"],
    "how-to/studies.md": ["DataFrame", "pandas", "data set", "csv", "resume", "interrupted"],
    "how-to/study_results.md": ["pandas", "latex", "table"],
    "how-to/budgets.md": ["price", "cost", "dollars"],
    "how-to/reward_models.md": ["reward model", "verifier", "process model"],
    "tutorials/first_solve.md": ["quickstart"],
}
_ITEM = re.compile(r"( *)([-*]|\d+\.) ")
_FENCE = re.compile(r" *```")
_CODE = re.compile(r"`[^`]+`")
_PATH = re.compile(r"`docs/([\w./-]+?)(\.md|/)`")


def on_config(config: Any) -> Any:
    """Put the pages of methods into the navigation, below the table of all."""
    for entry in config["nav"]:
        for section, pages in entry.items():
            if section == "Reference":
                entry[section] = [
                    {"Methods": site_reference.navigation()} if page == {"Methods": _METHODS} else page
                    for page in pages
                ]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are generated; refuse a word of the search whose page is elsewhere now."""
    for path in _WORDS:
        if files.get_file_from_path(path) is None:
            raise PluginError(f"scripts/site_hooks.py leads words of the search to docs/{path}, which does not exist")
    for path, text in site_reference.pages(ROOT).items():
        files.append(File.generated(config, path, content=text))
    for name, text in (("llms.txt", llms.index(llms.pages())), ("llms-full.txt", llms.full(llms.pages()))):
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, files: Any, **_: Any) -> str:
    """Return a page's text as Python-Markdown reads it."""
    path = page.file.src_uri
    page.meta["search"] = {"boost": _BOOSTS.get(path.split("/")[0], 1)}
    page.meta["tags"] = _WORDS.get(path, [])
    if page.file.src_uri == _METHODS:
        markdown = site_reference.linked_table(markdown)
    return "\n".join(_readable([_link_paths(line, page.file.src_uri, files) for line in markdown.split("\n")]))


def on_page_content(html: str, *, page: Any, **_: Any) -> str:
    """Return a page whose figures of measurements have a class.

    By this class the style fits them to dark pages.
    """
    folder = posixpath.dirname(page.file.src_uri)

    def mark_links(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, found[1]))
        return found[0].replace("<img", '<img class="drawn-on-white"', 1) if path.startswith("results/") else found[0]

    return re.sub(r'<img\b[^>]*\bsrc="([^"]+)"[^>]*>', mark_links, html)


def _link_paths(line: str, here: str, files: Any) -> str:
    """Return a line whose paths of pages are links."""

    def link(found: re.Match[str]) -> str:
        path = found[1] + (".md" if found[2] == ".md" else "/README.md")
        if files.get_file_from_path(path) is None:
            return found[0]
        return f"[{_title(path)}]({posixpath.relpath(path, posixpath.dirname(here) or '.')})"

    return line if line.startswith("#") else _PATH.sub(link, line)


def _title(path: str) -> str:
    """Return the heading of a page, in which brackets would end a link."""
    text = (ROOT / "docs" / path).read_text(encoding="utf-8")
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    return re.sub(r"[\[\]]", "", found[1]) if found else path


def _readable(lines: list[str]) -> list[str]:
    """Return lines with a blank line before each list and table, and with nested items indented.

    The indent is the one that Python-Markdown needs. In code of tables, it takes a bar without the sign before it.
    """
    out: list[str] = []
    fenced = False
    for line in lines:
        fenced ^= bool(_FENCE.match(line))
        item = _ITEM.match(line)
        before = out[-1] if out else ""
        if (
            not fenced
            and before
            and before[0] not in " |"
            and not _ITEM.match(before)
            and (line.startswith("|") or (item and not item[1]))
        ):
            out.append("")
        if line.startswith("|") and not fenced:
            line = _CODE.sub(lambda found: found[0].replace("\\|", "|"), line)  # noqa: PLW2901
        out.append(f"{item[1]}{line}" if item and item[1] and not fenced else line)
    return out
