"""The rows of a request, in draw order.

The module knows which were begun, which are to begin, and which the next call may write.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, Self

from tts.backends.base import Sampling
from tts.search.ends import Stops, Tokens, Until
from tts.search.lengths import MOST_ROWS, NO_CAP
from tts.thoughts import ThoughtMarks
from tts.types import Trajectory

Order = Literal["drawn", "finished", "arrived"]


@dataclass(slots=True, eq=False)
class QueuedRow:
    """One row, written in one call or in several.

    Args:
        place: Its place in the request.
        parent: The path that it continues.
        path: What is written of it; None: nothing yet.
        limit: The tokens of its own that it may take.
        over: Whether it has ended, failed or was given up.

    Attributes:
        failures: The continuations that failed.
        short: The replies that the backend cut long before their cap.
        branch: What it costs in samples, in the next call.
        room: The tokens that it may take in all, from the next call on.
        cap: The tokens that it may take in the next call.
        stream: The stream of its draws, once it has begun.
    """

    place: int
    parent: Trajectory
    path: Trajectory | None = None
    limit: int = NO_CAP
    over: bool = False
    failures: int = 0
    short: int = 0
    branch: int = 0
    room: int = 0
    cap: int = 0
    stream: int = 0

    @property
    def end(self) -> Trajectory:
        """The path up to what is written of it."""
        return self.path or self.parent

    @property
    def made(self) -> Trajectory | None:
        """What is written of it; None where that is nothing, or it failed."""
        return None if self.path is None or self.path.status == "failed" else self.path

    @property
    def written(self) -> int:
        """Tokens of its own."""
        return 0 if self.path is None else self.path.num_tokens - self.parent.num_tokens


@dataclass(slots=True, eq=False)
class RowQueue:
    """The rows of one request, in draw order.

    Args:
        parents: What the rows continue, each as often as rows are wanted.
        most: Rows wanted; None: as many as the budget pays.
        until: Where they end.
        sampling: How all rows are sampled.
        model: The role of the model that writes all.
        marks: The marks of the thoughts of the first row.
        scratch: Whether they are of a rollout.
        width: Most rows of a wave; 1 where each is judged before the next.
        redraw: Whether a row that failed is drawn anew.
        distinct: The number of different trajectories among the parents. A wave is planned by the longest of them.
        order: The order in which rows are handed on. "drawn": none before an earlier one. "finished": by tokens, then
            draw. "arrived": as they come, where rows obey no streams. Rows of the last two begin at once, and those
            that do not begin then never do.

    Attributes:
        begun: Rows that were begun and not handed on.
        count: Rows that were begun, those that failed left out.
        given_up: The number of rows that were given up at their limit.
        last_wave: Rows that the last wave began.
        held: Tokens that are kept to bring an open path to its end.
        response: The response for what follows the thoughts.
    """

    parents: Iterator[Trajectory]
    most: int | None
    until: Until | Tokens | Stops
    sampling: Sampling
    model: str
    marks: ThoughtMarks
    scratch: bool = False
    width: int = MOST_ROWS
    redraw: bool = False
    distinct: int = 1
    order: Order = "drawn"
    begun: deque[QueuedRow] = field(default_factory=deque[QueuedRow])
    count: int = 0
    given_up: int = 0
    last_wave: int = 0
    held: int = 0
    response: int = 0
    _next: int = 0
    _back: deque[QueuedRow] = field(default_factory=deque[QueuedRow])

    @property
    def left(self) -> float:
        """Rows that are still to begin."""
        return math.inf if self.most is None else self.most - self.count

    @property
    def open_rows(self) -> list[QueuedRow]:
        """Rows that were begun and go on."""
        return [row for row in self.begun if not row.over]

    @property
    def is_done(self) -> bool:
        """Whether every row that was wanted has been handed on."""
        return not self.begun and self.left <= 0

    @property
    def is_cut(self) -> bool:
        """Whether the budget, and not the width of a wave, bounded the last rows that began."""
        return self.last_wave < self.width

    def key(self, parents: Sequence[Trajectory]) -> tuple[object, ...]:
        """Return what requests have in common of which one may continue the open rows of the other."""
        return (*(t.node for t in parents), self.until, self.sampling, self.model)

    def peek(self) -> Trajectory | None:
        """Return the parent of the next row to begin."""
        if not self._back:
            self.give_back(self.take(1))
        return self._back[0].parent if self._back else None

    def take(self, count: int) -> list[QueuedRow]:
        """Return the next rows to begin."""
        rows = [self._back.popleft() for _ in range(min(count, len(self._back)))]
        for parent in islice(self.parents, count - len(rows)):
            rows.append(QueuedRow(self._next, parent))
            self._next += 1
        return rows

    def begin(self, rows: Sequence[QueuedRow]) -> None:
        """Note rows as begun."""
        self.begun.extend(rows)
        self.count += len(rows)
        self.last_wave = len(rows)
        if self.order != "drawn":
            self.most = self.count

    def pop_over(self, last: QueuedRow, *, ends: bool) -> Iterator[QueuedRow]:
        """Take out, one by one, the rows that may be handed on, now that another one was received.

        Rows of finish order have all been written to one length when a call ends; none that goes on is then shorter
        than one that is over.

        Args:
            last: The row that was received.
            ends: Whether it was the last one of its call.
        """
        ready: list[QueuedRow] = []
        if self.order == "drawn":
            while self.begun and self.begun[0].over:
                yield self.begun.popleft()
        elif self.order == "arrived":
            ready = [last] if last.over else []
        elif ends:
            level = min((row.written for row in self.begun if not row.over), default=NO_CAP)
            ready = sorted(
                (row for row in self.begun if row.over and row.written <= level),
                key=lambda row: (row.written, row.place),
            )
        for row in ready:
            self.begun.remove(row)
            yield row

    def put_back(self, paths: Sequence[Trajectory]) -> None:
        """Put rows that are over, and were handed on, back to the head."""
        self.begun.extendleft(QueuedRow(0, t.parent, t, over=True) for t in reversed(paths) if t.parent is not None)

    def give_back(self, rows: Sequence[QueuedRow]) -> None:
        """Put rows back that did not begin."""
        self._back.extendleft(QueuedRow(row.place, row.parent) for row in reversed(rows))


@dataclass(frozen=True, slots=True)
class NextRows:
    """The rows that the next call may write: those that are open, or some that may begin.

    Args:
        rows: The rows, in draw order.
        goes_on: Whether they are open already.
        parents: The different paths that they continue from.
    """

    rows: list[QueuedRow]
    goes_on: bool
    parents: list[Trajectory]

    @classmethod
    def of(cls, rows: list[QueuedRow], *, goes_on: bool) -> Self:
        """Return these rows with their parents."""
        return cls(rows, goes_on, list({row.parent.node: row.parent for row in rows}.values()))

    @property
    def kind(self) -> str:
        """The kind of their prompt."""
        return self.parents[0].root_kind
