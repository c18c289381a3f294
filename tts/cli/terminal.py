"""Output to a terminal: consoles, tables, a live line of progress, and texts of others.

Texts of others are written without control characters.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tts._core.display import one_visible_line, visible

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table
    from rich.text import Text

    from tts.solver.live import Event

_LEAST_WIDTH = 40
_TABLE_WIDTH = 80
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_SHOWN_ANSWER = 40


def output() -> Console:
    """Return a console for results: standard output, never too narrow for a table's values."""
    console = _console(stderr=False)
    console.width = max(_LEAST_WIDTH, console.width)
    return console


def table_width() -> int:
    """Return the characters that a line of a table may have: those of the terminal, 80 at least."""
    return max(_TABLE_WIDTH, shutil.get_terminal_size((_TABLE_WIDTH, 24)).columns)


def messages() -> Console:
    """Return a console for everything else: standard error."""
    return _console(stderr=True)


def print_note(text: str) -> None:
    """Print a line of any length to standard error."""
    messages().print(text, soft_wrap=True)


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
        titles: The titles of its columns.
        whole: The column that is never wrapped.
        numbers: The columns that are aligned to the right.
    """
    from rich import box
    from rich.table import Table

    empty_table = Table(box=box.ROUNDED)
    for title in titles:
        justify = "right" if title in numbers else "left"
        empty_table.add_column(title, justify=justify, overflow="fold", no_wrap=title == whole)
    return empty_table


def facts(columns: int = 2) -> Table:
    """Return an empty table without a header.

    Its first column is for names, and its last, which is wrapped, for values.
    """
    from rich import box
    from rich.table import Table

    empty_table = Table(box=box.ROUNDED, show_header=False)
    empty_table.add_column(style="bold", no_wrap=True)
    for _ in range(columns - 2):
        empty_table.add_column(no_wrap=True)
    empty_table.add_column(overflow="fold")
    return empty_table


@contextmanager
def progress() -> Generator[Callable[[Event], None] | None]:
    """Keep a live line while the block runs, and take it away afterwards.

    Yields:
        The function to pass as `on_event`; None where standard error is no terminal.
    """
    console = messages()
    if not sys.stderr.isatty() or console.is_dumb_terminal:
        yield None
        return
    from rich.live import Live

    line = ProgressLine()
    with Live(line, console=console, transient=True, refresh_per_second=10):
        yield line.update


class ProgressLine:
    """The line of progress itself: the last event, and the seconds so far.

    Below it stands the end of what the leading row has written.

    Args:
        clock: The clock, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._started = clock()
        self._event: Event | None = None

    def update(self, event: Event) -> None:
        """Show this event from now on; called from the thread that searches."""
        self._event = event

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the line, cut to the terminal's width."""
        del options
        from rich.text import Text

        frame = _FRAMES[int(console.get_time() * 10) % len(_FRAMES)]
        yield Text.assemble((frame, "cyan"), " ", self._text(), no_wrap=True, overflow="ellipsis")
        if self._event is not None and self._event.writing:
            newest_text = one_visible_line(self._event.writing[-console.width :])
            room = max(1, console.width - 3)  # beside the indent of two spaces
            yield Text(f"  {newest_text[-room:]}", style="dim", no_wrap=True, overflow="crop")

    def _text(self) -> str:
        seconds = f"{self._clock() - self._started:.1f} s"
        event = self._event
        if event is None:
            return f"starting · {seconds}"
        answer = "none yet" if event.answer is None else one_visible_line(event.answer)
        if len(answer) > _SHOWN_ANSWER:
            answer = f"{answer[: _SHOWN_ANSWER - 1]}…"
        return (
            f"{event.calls:,} calls · {event.tokens:,} tokens · {event.candidates:,} candidates · leading {answer} "
            f"· {seconds}"
        )
