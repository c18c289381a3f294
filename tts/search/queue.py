"""The rows of a request, in draw order.

A queue knows the rows that were begun, the rows that are to begin, and the rows that the next call may write.
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
        place: The row's place in the request.
        parent: The path that the row continues.
        path: The path with the row's text so far; None: nothing is written yet.
        limit: The most tokens of the row, without its parent's. A longer row is given up.
        over: Whether the row has ended, failed or was given up.

    Attributes:
        failures: The number of continuations that failed.
        short: The number of replies that the backend cut long before their cap.
        branch: The row's cost in samples in the next call, 0 or 1.
        room: The tokens that the row may still take, from the next call on.
        cap: The tokens that the row may take in the next call.
        stream: The random stream of the row, once it has begun.
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
        """The path with the row's text so far; the parent if nothing is written."""
        return self.path or self.parent

    @property
    def made(self) -> Trajectory | None:
        """The written path; None where nothing is written or the row failed."""
        return None if self.path is None or self.path.status == "failed" else self.path

    @property
    def written(self) -> int:
        """The tokens of the row, without its parent's."""
        return 0 if self.path is None else self.path.num_tokens - self.parent.num_tokens


@dataclass(slots=True, eq=False)
class RowQueue:
    """The rows of one request, in draw order.

    Args:
        parents: The parent of each row, in draw order.
        most: The number of rows wanted; None: as many as the budget pays.
        until: The end of a row.
        sampling: The sampling of all rows.
        model: The role of the model that writes all rows.
        marks: The thought marks of the first parent.
        scratch: Whether the rows are of a rollout.
        width: The most rows of a wave; 1 where each row is judged before the next.
        redraw: Whether another row is drawn in the place of a failed row.
        distinct: The number of different trajectories among the parents. A wave is planned by the longest of them.
        order: The order in which rows are returned. "drawn": no row before an earlier row. "finished": by tokens, then
            by draw. "arrived": as rows end, for backends without streams. Under the last two orders all rows begin at
            once, and no row begins later.

    Attributes:
        begun: The rows that were begun and not yet returned.
        count: The number of rows begun, without failed rows that are drawn anew.
        given_up: The number of rows that were given up at their limit.
        last_wave: The number of rows that the last wave began.
        held: The tokens that are reserved to bring an open path to its end.
        response: The tokens that are reserved for the response after a thought.
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
    _next_place: int = 0
    _given_back: deque[QueuedRow] = field(default_factory=deque[QueuedRow])

    @property
    def left(self) -> float:
        """The number of rows that are still to begin."""
        return math.inf if self.most is None else self.most - self.count

    @property
    def open_rows(self) -> list[QueuedRow]:
        """The rows that were begun and are not over."""
        return [row for row in self.begun if not row.over]

    @property
    def is_done(self) -> bool:
        """Whether every wanted row has been returned."""
        return not self.begun and self.left <= 0

    @property
    def is_cut(self) -> bool:
        """Whether the budget, and not the width of a wave, bounded the last rows that began."""
        return self.last_wave < self.width

    def key(self, parents: Sequence[Trajectory]) -> tuple[object, ...]:
        """Return the key under which interrupted rows wait. A later request with the same key resumes them."""
        return (*(t.node for t in parents), self.until, self.sampling, self.model)

    def peek(self) -> Trajectory | None:
        """Return the parent of the next row to begin; None where no row is left."""
        if not self._given_back:
            self.give_back(self.take(1))
        return self._given_back[0].parent if self._given_back else None

    def take(self, count: int) -> list[QueuedRow]:
        """Take up to `count` rows to begin out of the queue: first the rows that were given back."""
        rows = [self._given_back.popleft() for _ in range(min(count, len(self._given_back)))]
        for parent in islice(self.parents, count - len(rows)):
            rows.append(QueuedRow(self._next_place, parent))
            self._next_place += 1
        return rows

    def begin(self, rows: Sequence[QueuedRow]) -> None:
        """Note rows as begun."""
        self.begun.extend(rows)
        self.count += len(rows)
        self.last_wave = len(rows)
        if self.order != "drawn":
            self.most = self.count

    def pop_over(self, last: QueuedRow, *, ends: bool) -> Iterator[QueuedRow]:
        """Take the rows that may be returned out of the queue, one by one, after a row was received.

        Every row that may be returned is over. In draw order no earlier row is open. In finish order the rows of a call
        are compared when the call ends: a row may be returned if no open row is shorter.

        Args:
            last: The row that was received.
            ends: Whether this row was the last row of its call.
        """
        ready_rows: list[QueuedRow] = []
        if self.order == "drawn":
            while self.begun and self.begun[0].over:
                yield self.begun.popleft()
        elif self.order == "arrived":
            ready_rows = [last] if last.over else []
        elif ends:
            shortest_open = min((row.written for row in self.open_rows), default=NO_CAP)
            ready_rows = [row for row in self.begun if row.over and row.written <= shortest_open]
            ready_rows.sort(key=lambda row: (row.written, row.place))
        for row in ready_rows:
            self.begun.remove(row)
            yield row

    def put_back(self, paths: Sequence[Trajectory]) -> None:
        """Put rows that are over, and were returned before, back to the head of the queue.

        Args:
            paths: The paths of these rows, in order.
        """
        for t in reversed(paths):
            if t.parent is not None:
                self.begun.appendleft(QueuedRow(place=0, parent=t.parent, path=t, over=True))

    def give_back(self, rows: Sequence[QueuedRow]) -> None:
        """Put rows that did not begin back to the head of the queue, as new rows of the same places."""
        self._given_back.extendleft(QueuedRow(row.place, row.parent) for row in reversed(rows))


@dataclass(frozen=True, slots=True)
class NextRows:
    """The rows that the next call may write: the open rows, or rows that may begin.

    Args:
        rows: The rows, in draw order.
        goes_on: Whether the rows are open already.
        parents: The different parents of the rows.
    """

    rows: list[QueuedRow]
    goes_on: bool
    parents: list[Trajectory]

    @classmethod
    def of(cls, rows: list[QueuedRow], *, goes_on: bool) -> Self:
        """Return these rows with their different parents."""
        parents_by_node = {row.parent.node: row.parent for row in rows}
        return cls(rows, goes_on, list(parents_by_node.values()))

    @property
    def kind(self) -> str:
        """The kind of the rows' prompt."""
        return self.parents[0].root_kind
