"""A live line with the progress of a search, on standard error, where that is a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tts.cli.terminal import messages
from tts.display import one_visible_line

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from tts.solver.problem_run import Event

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_SHOWN_ANSWER = 40


@contextmanager
def progress() -> Generator[Callable[[Event], None] | None]:
    """Keep a live line while the block runs, and take it away afterwards.

    Yields:
        What to pass as `on_event`; None where standard error is no terminal.
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
    """The line itself: the last event, and the seconds so far.

    Args:
        clock: seconds.
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

    def _text(self) -> str:
        seconds = f"{self._clock() - self._started:.1f} s"
        event = self._event
        if event is None:
            return f"starting · {seconds}"
        answer = "none yet" if event.answer is None else one_visible_line(event.answer)
        if len(answer) > _SHOWN_ANSWER:
            answer = f"{answer[: _SHOWN_ANSWER - 1]}…"
        return f"{event.calls:,} calls · {event.tokens:,} tokens · {event.candidates:,} candidates · leading {answer} · {seconds}"
