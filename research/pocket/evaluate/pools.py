"""What was drawn and read: pools of samples, one for each problem. Every table is a pure function of them.

Verifiers by name: "process" and "probe" have a reading for each line, "self" one for the whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from research.pocket.evaluate.problems import Item

# "first": one wrong attempt in the prompt; "several": up to four wrong ones; "kept": a right one
Revision = Literal["first", "several", "kept"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One sample of a problem.

    Args:
        lines: of its text, each with its newline (the last one without where it was cut). answer: as extracted; None:
            none.
        right: whether that is the problem's. finished: whether it ended by itself, not at the cap. num_tokens: written.
        readings: by verifier, one for each line. restart: P(a fresh start would not do better), asked at its end; NaN:
            not asked.
        cuts: the same, asked where it was cut at random tokens.
    """

    lines: tuple[str, ...]
    answer: str | None
    right: bool
    finished: bool = True
    num_tokens: int = 0
    readings: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])
    restart: float = math.nan
    cuts: tuple[float, ...] = ()

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self.lines)

    def last_reading(self, verifier: str) -> float:
        """What a verifier says of the whole: its last reading; NaN where there is none."""
        readings = self.readings.get(verifier, ())
        return readings[-1] if readings else math.nan


@dataclass(frozen=True, slots=True)
class Pool:
    """Everything drawn of one problem.

    Args:
        attempts: samples in the order of their streams. greedy: the one without chance. revisions: by what stood in the
            prompt, the attempts that were written behind it; empty where no attempt was there to be revised.
    """

    item: Item
    attempts: tuple[Attempt, ...]
    greedy: Attempt | None = None
    revisions: Mapping[Revision, tuple[Attempt, ...]] = field(default_factory=dict[Revision, "tuple[Attempt, ...]"])

    @property
    def num_right(self) -> int:
        """How many attempts are right."""
        return sum(attempt.right for attempt in self.attempts)

    @property
    def everything(self) -> Iterator[Attempt]:
        """All that was written of it."""
        yield from self.attempts
        if self.greedy is not None:
            yield self.greedy
        for revised in self.revisions.values():
            yield from revised

    def halves(self) -> tuple[tuple[Attempt, ...], tuple[Attempt, ...]]:
        """The attempts that revisions may be chosen by, and those that what is chosen is compared with."""
        middle = len(self.attempts) // 2
        return self.attempts[:middle], self.attempts[middle:]


def mean_right(attempts: Sequence[Attempt]) -> float:
    """Return the share of right ones; NaN without any."""
    return sum(attempt.right for attempt in attempts) / len(attempts) if attempts else math.nan
