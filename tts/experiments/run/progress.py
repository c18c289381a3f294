"""The progress of a run: cells done, rate, cost and accuracy so far."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager

from tts.budget.units import format_usd
from tts.experiments.study.record import Result

_EVERY_S = 10.0  # interval of lines, where standard error is not a terminal


class Progress:
    """Counts of a run. Results of earlier runs count as done only.

    Args:
        total: The number of cells of the study.
        done: The number of cells that had a result before this run.
        clock: A function that returns seconds.

    Attributes:
        ending: The number of cells that a stopped run still lets end; 0: the run is not stopped.
        elsewhere: The number of cells that this run waits for: running or killed processes hold their leases.
        finished: Cells of this run with a result.
    """

    def __init__(self, total: int, done: int, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self.total, self.done = total, done
        self.elsewhere, self.ending, self.finished = 0, 0, 0
        self._clock = clock
        self._start_s = clock()
        # sums over the results of this run
        self._num_right, self._num_judged, self._tokens = 0, 0, 0
        self._usd: float | None = 0.0  # None: unknown
        self._failure_counts: Counter[str] = Counter()  # by kind of error

    def add(self, result: Result) -> None:
        """Count a result."""
        self.done += 1
        self.finished += 1
        self._tokens += result.usage.tokens
        usd = result.usage.usd
        self._usd = None if self._usd is None or usd is None else self._usd + usd
        if result.error is not None:
            self._failure_counts[result.error.partition(":")[0]] += 1
        if result.right is not None:
            self._num_judged += 1
            self._num_right += result.right

    @property
    def failed(self) -> int:
        """Cells of this run with an error."""
        return self._failure_counts.total()

    def line(self) -> str:
        """Return the progress on one line."""
        seconds = self._clock() - self._start_s
        rate = self.finished / seconds if seconds > 0 else 0.0
        parts = [f"{self.done:,} of {self.total:,}"]
        if self.finished:
            parts.append(f"{rate:,.1f} a second" if rate >= 1 else f"{rate * 60:,.1f} a minute")
        if self.ending:
            parts.append(f"stopping: {self.ending:,} running cells end first; Ctrl-C again drops them")
        elif self.finished and self.done < self.total:
            parts.append(f"{duration(seconds * (self.total - self.done) / self.finished)} left")
        parts.append(f"{self._tokens:,} tokens")
        if self._usd:
            parts.append(format_usd(self._usd))
        if self._num_judged:
            has_earlier_results = self.done > self.finished
            judged_words = "of the new ones " if has_earlier_results else ""
            parts.append(f"{self._num_right / self._num_judged:.1%} {judged_words}right")
        if self.elsewhere:
            parts.append(f"waiting for {self.elsewhere:,} cells that other runs hold, or held when they were killed")
        if self._failure_counts:
            parts.append(
                "failed: " + ", ".join(f"{count:,} {kind}" for kind, count in self._failure_counts.most_common())
            )
        return " · ".join(parts)


def duration(seconds: float) -> str:
    """Return seconds as a short text: 45 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@contextmanager
def show_progress(title: str = "", *, enabled: bool = True) -> Generator[Callable[[Progress], None]]:
    """Show progress on standard error.

    A terminal shows a live line. Elsewhere, a line is written every ten seconds and at the end.

    Args:
        title: The words before each line.
        enabled: Whether progress is shown.

    Yields:
        The `report` argument of `runner.run`.
    """
    if not enabled:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.text import Text

    prefix = f"{_printable(title)}: " if title else ""
    console = Console(stderr=True)
    if sys.stderr.isatty() and not console.is_dumb_terminal:
        with console.status(Text(f"{prefix}starting")) as status:
            yield lambda progress: status.update(Text(prefix + progress.line()))
        return

    lines = _Lines(prefix)
    try:
        yield lines.report
    finally:
        lines.end()


def _printable(text: str) -> str:
    """Return a text with escapes in place of characters that cannot be printed."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


class _Lines:
    """Lines of progress on standard error. The last line is always shown.

    Args:
        prefix: The words before each line.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._pending_line = ""  # the latest line, if it has not been shown
        self._shown_s = 0.0  # the time at which a line was shown
        self._was_ending = False  # whether the line that was shown last was of a stopped run

    def report(self, progress: Progress) -> None:
        """Show this progress, unless the last line is recent. The stop of a run is shown at once."""
        self._pending_line = progress.line()
        is_ending = progress.ending > 0
        is_new_stop = is_ending and not self._was_ending
        if is_new_stop or time.monotonic() - self._shown_s >= _EVERY_S:
            self._shown_s = time.monotonic()
            self._was_ending = is_ending
            self.end()

    def end(self) -> None:
        """Show the latest line, if it has not been shown."""
        if self._pending_line:
            sys.stderr.write(f"{self._prefix}{self._pending_line}\n")
            sys.stderr.flush()
        self._pending_line = ""
