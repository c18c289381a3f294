"""What is written to a terminal: consoles, and texts of models and callers without anything that a terminal would obey."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_LEAST_WIDTH = 40


def visible(text: str) -> str:
    """Return a text with its control characters written as escapes; line ends stay."""
    return "".join(c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def one_line(text: str) -> str:
    """Return a text as one visible line."""
    return visible(" ".join(text.splitlines()))


def output() -> Console:
    """Return a console for results: standard output, with nothing in texts taken for markup, never too narrow for a table's values."""
    from rich.console import Console

    console = Console(markup=False, highlight=False, emoji=False)
    console.width = max(_LEAST_WIDTH, console.width)
    return console


def messages() -> Console:
    """Return a console for everything else: standard error."""
    from rich.console import Console

    return Console(stderr=True, markup=False, highlight=False, emoji=False)
