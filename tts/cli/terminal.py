"""Output to a terminal: consoles, tables, and texts of models and callers without control characters."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from tts.display import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

_LEAST_WIDTH = 40


def output() -> Console:
    """Return a console for results: standard output, never too narrow for a table's values."""
    console = _console(stderr=False)
    console.width = max(_LEAST_WIDTH, console.width)
    return console


def messages() -> Console:
    """Return a console for everything else: standard error."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    """Return a console without markup, in which texts and the cells of tables are visible."""
    from rich.console import Console

    class VisibleConsole(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(visible(text), **options)

    return VisibleConsole(stderr=stderr, markup=False, highlight=False, emoji=False)


def table(*titles: str, whole: str = "", numbers: Collection[str] = ()) -> Table:
    """Return an empty table.

    Args:
        titles: of its columns. whole: the column that is never wrapped. numbers: the columns that are aligned to the right.
    """
    from rich import box
    from rich.table import Table

    made = Table(box=box.ROUNDED)
    for title in titles:
        made.add_column(title, justify="right" if title in numbers else "left", overflow="fold", no_wrap=title == whole)
    return made


def facts(columns: int = 2) -> Table:
    """Return an empty table without a header: names in its first column, values in its last, which is wrapped."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.ROUNDED, show_header=False)
    made.add_column(style="bold", no_wrap=True)
    for _ in range(columns - 2):
        made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    return made
