"""Pools of samples, one for each problem; every table is a pure function of them.

The verifiers "process" and "probe" have a reading for each line, and "self" has one for the whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from research.pocket.evaluate.problems import Item


@dataclass(frozen=True, slots=True)
class Attempt:
    """One sample of a problem.

    Args:
        lines: The lines of its text, each with its newline; a text that was cut ends without one.
        answer: The extracted answer; None: there is none.
        right: Whether the answer is the problem's.
        finished: Whether the sample ended by itself, and not at the cap.
        num_tokens: The number of tokens that were written.
        readings: The readings of each verifier, one for each line.
        restart: The probability that a fresh start would not do better, asked at the end; NaN: not asked.
    """

    lines: tuple[str, ...]
    answer: str | None
    right: bool
    finished: bool = True
    num_tokens: int = 0
    readings: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])
    restart: float = math.nan

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(self.lines)

    def last_reading(self, verifier: str) -> float:
        """Return the last reading of a verifier, which is of the whole text; NaN: there is none."""
        readings = self.readings.get(verifier, ())
        return readings[-1] if readings else math.nan


@dataclass(frozen=True, slots=True)
class Pool:
    """Everything drawn of one problem.

    Args:
        item: The problem.
        attempts: The samples, in the order of their streams.
        greedy: The sample at temperature 0; None: not drawn.
    """

    item: Item
    attempts: tuple[Attempt, ...]
    greedy: Attempt | None = None

    @property
    def num_right(self) -> int:
        """The number of right attempts."""
        return sum(attempt.right for attempt in self.attempts)

    @property
    def everything(self) -> Iterator[Attempt]:
        """All attempts that were written for the problem."""
        yield from self.attempts
        if self.greedy is not None:
            yield self.greedy


def mean_right(attempts: Sequence[Attempt]) -> float:
    """Return the share of right attempts; NaN: there are none."""
    return sum(attempt.right for attempt in attempts) / len(attempts) if attempts else math.nan
