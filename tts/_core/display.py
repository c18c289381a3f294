"""Safe display of texts that others wrote.

Lines have no control characters. HTML for notebooks is small tables, self-contained and escaped.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

MOST = 400  # characters of one cell


def visible(text: str) -> str:
    """Return a text with an escape for each unprintable character, except line feeds.

    Unprintable characters are, for example, controls and bidirectional marks.
    """
    if text.isprintable():
        return text
    return "".join(c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def one_visible_line(text: str) -> str:
    """Return a text as one visible line: line ends become spaces."""
    return text if text.isprintable() else visible(" ".join(text.splitlines()))


def facts(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """Return a table of names and values under a title."""
    left = ' style="text-align:left"'
    body = "".join(f"<tr><th{left}>{cell(name)}</th><td{left}>{cell(value)}</td></tr>" for name, value in rows)
    return f"<table><caption>{cell(title)}</caption><tbody>{body}</tbody></table>"


def grid(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table with a header."""
    head = "".join(f"<th>{cell(title)}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(f'<td>{cell(value)}</td>' for value in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def cell(value: object) -> str:
    """Return a value escaped, its control characters visible, cut to `MOST` characters."""
    text = str(value)
    text = text if len(text) <= MOST else f"{text[: MOST - 1]}…"
    return html.escape("".join(c if c.isprintable() or c == "\n" else f"⟨U+{ord(c):04X}⟩" for c in text)).replace(
        "\n", "<br>"
    )


def one_line(text: str | None, most: int = 60) -> str:
    """Return the `repr` of a text, cut to `most` characters; of None "None"."""
    return repr(text if text is None or len(text) <= most else f"{text[: most - 1]}…")
