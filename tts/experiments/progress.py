"""How a study is going: what is done, how fast, what it has cost, and how it looks so far."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from tts.experiments.record import Result


class Progress:
    """Counts of a run; results of earlier runs count as done, and for nothing else.

    Args:
        total: cells of the study. done: those that had a result before. clock: seconds.
    """

    def __init__(self, total: int, done: int, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self.total, self.done = total, done
        self._clock, self._started = clock, clock()
        self._run = self._right = self._judged = self._tokens = 0
        self._usd: float | None = 0.0
        self._failures: Counter[str] = Counter()

    def add(self, result: Result) -> None:
        """Count a result."""
        self.done += 1
        self._run += 1
        self._tokens += result.usage.tokens
        self._usd = None if self._usd is None or result.usage.usd is None else self._usd + result.usage.usd
        if result.error is not None:
            self._failures[result.error.partition(":")[0]] += 1
        if result.right is not None:
            self._judged += 1
            self._right += result.right

    @property
    def failed(self) -> int:
        """Cells of this run that came to an error."""
        return self._failures.total()

    @property
    def finished(self) -> int:
        """Cells of this run that came to a result."""
        return self._run

    def line(self) -> str:
        """Return all of it on one line."""
        seconds = self._clock() - self._started
        rate = self._run / seconds if seconds > 0 else 0.0
        parts = [f"{self.done:,} of {self.total:,}"]
        if self._run:
            parts.append(f"{rate:,.1f} a second" if rate >= 1 else f"{rate * 60:,.1f} a minute")
        if self._run and self.done < self.total:
            parts.append(f"{duration((self.total - self.done) / rate)} left")
        parts.append(f"{self._tokens:,} tokens")
        if self._usd:
            parts.append(f"${self._usd:,.2f}")
        if self._judged:
            parts.append(f"{self._right / self._judged:.1%} right")
        if self._failures:
            parts.append("failed: " + ", ".join(f"{count:,} {kind}" for kind, count in self._failures.most_common()))
        return " · ".join(parts)


def duration(seconds: float) -> str:
    """Return seconds as people say them: 45 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
