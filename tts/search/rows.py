"""The rows of a request, and one call that writes some of them."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tts._common.blame import Blame
from tts.backends.base import Backend, Draft, RowSet, Sample, SampleRequest, Sampling
from tts.backends.base import Row as BackendRow
from tts.backends.reads import cancelled_and_done, wait_for_change
from tts.budget.ledger import Amounts, sum_known
from tts.budget.units import PRICED_UNITS
from tts.errors import EngineError
from tts.search.ends import Stops, Tokens, Until
from tts.search.lengths import MOST_ROWS, NO_CAP
from tts.thoughts import THINK
from tts.types import Trajectory

Order = Literal["drawn", "finished", "arrived"]

# the error of a row that timed out before producing text; such a row is neither a candidate nor a failure
OUT_OF_TIME = "out of time"


@dataclass(slots=True, eq=False)
class RequestedRow:
    """One continuation of a path, written in one call or in several.

    Args:
        place: The row's place in the request.
        parent: The path that the row continues.
        path: The path with the row's text so far; None: nothing is written yet.
        over: Whether the row has ended, failed or was given up.

    Attributes:
        limit: The most tokens of the row, without its parent's. A longer row is given up.
        failures: The number of continuations that failed.
        short: The number of replies that the backend cut long before their grant.
        branch: The row's cost in samples in the next call, 0 or 1.
        room: The tokens that the row may still take, from the next call on.
        grant: The tokens that the row may take in the next call.
        stream: The random stream of the row, once it has begun.
    """

    place: int
    parent: Trajectory
    path: Trajectory | None = None
    over: bool = False
    limit: int = NO_CAP
    failures: int = 0
    short: int = 0
    branch: int = 0
    room: int = 0
    grant: int = 0
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
class RowRequest:
    """What a strategy wants written: rows after paths, in draw order.

    First children of all paths come before second children.

    Args:
        paths: The paths that the rows continue.
        n: The number of rows after each path; None: as many as the budget pays.
        until: The end of a row.
        sampling: The sampling of all rows.
        model: The role of the model that writes all rows.
        scratch: Whether the rows are of a rollout.
        width: The most rows that begin in one call; 1 where each row is judged before the next.
        completes: Whether the rows become candidates.
        redraws: Whether another row is drawn in the place of a failed row.
        together: Whether all rows of a fixed number may begin at once (`tts.search.plan_rows`).
        order: The order in which rows are returned. "drawn": no row before an earlier row. "finished": by tokens, then
            by draw. "arrived": as rows end, for backends without streams. Under the last two orders all rows begin at
            once, and no row begins later.

    Attributes:
        begun: The rows that were begun and not yet returned.
        most: The number of rows wanted; None: as many as the budget pays.
        count: The number of rows begun, without failed rows that are drawn anew.
        given_up: The number of rows that were given up at their limit.
        is_streamed: Whether each row is used before the call has ended that wrote it.
        last_wave: The number of rows that the last call began.
        closing: The tokens that stay unspent, to bring an open path to its end.
        response: The tokens that are reserved for the response after a thought.
        distinct: The number of different paths.
    """

    paths: Sequence[Trajectory]
    n: int | None
    until: Until | Tokens | Stops
    sampling: Sampling
    model: str
    scratch: bool = False
    width: int = MOST_ROWS
    completes: bool = False
    redraws: bool = False
    together: bool = False
    order: Order = "drawn"
    begun: deque[RequestedRow] = field(default_factory=deque[RequestedRow])
    most: int | None = None
    count: int = 0
    given_up: int = 0
    is_streamed: bool = False
    last_wave: int = 0
    closing: int = 0
    response: int = 0
    distinct: int = 1
    _num_made: int = 0
    _given_back: deque[RequestedRow] = field(default_factory=deque[RequestedRow])

    def __post_init__(self) -> None:
        self.most = None if self.n is None else self.n * len(self.paths)
        self.distinct = 1 if len(self.paths) == 1 else len({t.node for t in self.paths})

    @property
    def kind(self) -> str:
        """The kind of the rows' prompt."""
        return self.paths[0].root_kind

    @property
    def left(self) -> float:
        """The number of rows that are still to begin."""
        return math.inf if self.most is None else self.most - self.count

    @property
    def open_rows(self) -> list[RequestedRow]:
        """The rows that were begun and are not over."""
        return [row for row in self.begun if not row.over]

    @property
    def is_done(self) -> bool:
        """Whether every wanted row has been returned."""
        return not self.begun and self.left <= 0

    @property
    def is_cut(self) -> bool:
        """Whether the budget, and not the width of a call, bounded the last rows that began."""
        return self.last_wave < self.width

    @property
    def key(self) -> tuple[object, ...]:
        """The key under which interrupted rows wait. A later request with the same key resumes them."""
        return (*(t.node for t in self.paths), self.until, self.sampling, self.model)

    @property
    def next_path(self) -> Trajectory | None:
        """The path of the next row to begin; None where no row is left."""
        if self._given_back:
            return self._given_back[0].parent
        if self.n is not None and self._num_made >= self.n * len(self.paths):
            return None
        return self.paths[self._num_made % len(self.paths)] if self.paths else None

    def take(self, count: int) -> list[RequestedRow]:
        """Take up to `count` rows to begin: first the rows that were given back."""
        rows = [self._given_back.popleft() for _ in range(min(count, len(self._given_back)))]
        paths, num_made = self.paths, self._num_made
        num_new = count - len(rows) if paths else 0
        if self.n is not None:
            num_new = min(num_new, self.n * len(paths) - num_made)
        rows += [RequestedRow(place, paths[place % len(paths)]) for place in range(num_made, num_made + num_new)]
        self._num_made += max(0, num_new)
        return rows

    def give_back(self, rows: Sequence[RequestedRow]) -> None:
        """Put rows that did not begin back to the head, as new rows of the same places."""
        self._given_back.extendleft(RequestedRow(row.place, row.parent) for row in reversed(rows))

    def begin(self, rows: Sequence[RequestedRow]) -> None:
        """Note rows as begun."""
        self.begun.extend(rows)
        self.count += len(rows)
        self.last_wave = len(rows)
        if self.order != "drawn":
            self.most = self.count

    def pop_over(self, last: RequestedRow, *, ends: bool) -> Iterator[RequestedRow]:
        """Take the rows that may be returned, one by one, after a row was received.

        This is for rows that arrive or finish; in draw order the writer takes the leading rows that are over. In finish
        order the rows of a call are compared when the call ends: a row may be returned if no open row is shorter.

        Args:
            last: The row that was received.
            ends: Whether this row was the last row of its call.
        """
        ready_rows: list[RequestedRow] = []
        if self.order == "arrived":
            ready_rows = [last] if last.over else []
        elif ends:
            shortest_open = min((row.written for row in self.open_rows), default=NO_CAP)
            ready_rows = [row for row in self.begun if row.over and row.written <= shortest_open]
            ready_rows.sort(key=lambda row: (row.written, row.place))
        for row in ready_rows:
            self.begun.remove(row)
            yield row

    def put_back(self, paths: Sequence[Trajectory]) -> None:
        """Put rows that are over, and were returned before, back to the head; `paths`: their paths, in order."""
        self.begun.extendleft(RequestedRow(0, t.parent, t, over=True) for t in reversed(paths) if t.parent is not None)


class RowCall:
    """One call for rows: sent at once, received in draw order, and closed with its cost.

    Args:
        rows: The rows, in draw order.
        handles: The state of each path on the backend.
        backend: The model that writes.
        clock: The clock, in seconds.
        seconds: The seconds after which all rows are cancelled; None: never.
        lease: The flops, dollars and requests that each row may spend, where rows are programs.
        word: The part of the random stream: that of solutions or that of rollouts.
        request: The members that all requests have, by the fields of `SampleRequest`.

    Attributes:
        timed_out: Whether the time was over before every row had ended.
    """

    __slots__ = (
        "_backend", "_blame", "_clock", "_lease", "_num_asked", "_places", "_received", "_requests", "_row_sets",
        "_rows", "_started", "_timer", "timed_out",
    )  # fmt: skip

    def __init__(
        self,
        rows: Sequence[RequestedRow],
        handles: Sequence[object],
        backend: Backend,
        *,
        clock: Callable[[], float],
        seconds: float | None,
        lease: Amounts,
        word: int,
        request: dict[str, Any],
    ) -> None:
        self.timed_out = False
        self._rows = [*rows]
        self._backend = backend
        self._lease = lease
        self._blame = Blame(f"the backend {backend.name!r}", EngineError)
        self._clock = clock
        self._started = clock()
        self._received = self._num_asked = 0
        self._row_sets: list[RowSet] = []
        self._places: list[tuple[int, int]] = []  # for each row: its request, and its place in the request
        self._timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, self._stop)
        # by the last node of a path: the number of its request, the handle, the path and the rows after it
        by_path: dict[int, tuple[int, object, Trajectory, list[BackendRow]]] = {}
        for row, handle in zip(rows, handles, strict=True):
            path = row.path or row.parent
            if path.node not in by_path:
                by_path[path.node] = (len(by_path), handle, path, [])
            number, _handle, _path, of_path = by_path[path.node]
            self._places.append((number, len(of_path)))
            of_path.append(BackendRow(row.stream, path.num_tokens, row.grant, word))
        self._requests = [
            SampleRequest(handle, tuple(of_path), text=path.full_text, lease=lease, **request)
            for _number, handle, path, of_path in by_path.values()
        ]

    def _stop(self) -> None:
        self.timed_out = True
        for row_set in self._row_sets:
            row_set.cancel()

    def send(self) -> None:
        """Start the rows."""
        with self._blame:
            for request in self._requests:
                self._num_asked += 1  # a request that the backend refuses counts too
                self._row_sets.append(self._backend.sample(request))

    async def next_row(self, order: Order) -> RequestedRow:
        """Return the row to receive next: the next in draw order, or, by arrival, the first that has ended."""
        while order == "arrived":
            for index in range(self._received, len(self._rows)):
                request, place = self._places[index]
                if self._row_sets[request].samples[place] is not None:
                    self._rows.insert(self._received, self._rows.pop(index))
                    self._places.insert(self._received, self._places.pop(index))
                    return self._rows[self._received]
            with self._blame:
                await wait_for_change(self._row_sets)
        return self._rows[self._received]

    async def receive(self) -> Sample:
        """Wait for the row of `next_row`, and return its sample."""
        request, place = self._places[self._received]
        sample = self._row_sets[request].samples[place]
        if sample is None:
            with self._blame:
                sample = await self._row_sets[request].row(place)
        if self.timed_out and sample.finish == "cancelled":
            if sample.text:
                sample = dataclasses.replace(sample, finish="length")
            else:
                sample = dataclasses.replace(sample, finish="error", error=OUT_OF_TIME)
        self._received += 1
        return sample

    def draft(self) -> Draft:
        """Return the text of the leading row with its path, and the tokens of all rows.

        The leading row is the first that has not ended. Rows that the backend does not show have no text and no tokens.
        """
        leading_text, marks, tokens = "", THINK, 0
        for row, (request, place) in zip(self._rows, self._places, strict=True):
            if request >= len(self._row_sets):  # never sent
                continue
            sample = self._row_sets[request].samples[place]
            if sample is not None:
                tokens += sample.num_tokens
                continue
            row_draft = self._row_sets[request].draft(place)
            if row_draft is None:
                continue
            tokens += row_draft.tokens
            if not leading_text:
                leading_text = row.end.full_text + row_draft.text
                marks = row.end.marks
        return Draft(leading_text, tokens, marks)

    async def cancel(self) -> None:
        """Cancel the rows that have not ended, and wait until the backend has dropped them."""
        await cancelled_and_done(self._row_sets)

    def close(self) -> dict[str, Any]:
        """Return the call's cost by the fields of a ledger's row.

        Rows that were not received count as cancelled.
        """
        if self._timer is not None:
            self._timer.cancel()
        samples = generated = cancelled = 0
        requests = self._num_asked + sum([row_set.requests - 1 for row_set in self._row_sets])
        work_seconds, is_estimated = 0.0, False
        for index, (row, (request, place)) in enumerate(zip(self._rows, self._places, strict=True)):
            if request >= len(self._row_sets):  # never sent
                continue
            samples += row.branch
            sample = self._row_sets[request].samples[place]
            if sample is None:  # the backend broke: the row's cost is unknown, so charge the most it may have cost
                generated += self._requests[request].unseen_cost(self._most_tokens(row))
                requests += self._lease.get("requests", 0)
                is_estimated = True
                continue
            work_seconds += sample.seconds
            is_estimated = is_estimated or sample.estimated
            if index >= self._received:
                cancelled += sample.num_tokens
            else:
                generated += sample.num_tokens
        return {
            "readings": sum([row_set.readings or 0 for row_set in self._row_sets]) or None,
            "prompt_tokens": sum([row_set.prompt_tokens for row_set in self._row_sets]),
            "reused_tokens": sum_known([row_set.reused_tokens for row_set in self._row_sets]),
            "generated_tokens": generated,
            "cancelled_tokens": cancelled,
            "samples": samples,
            "requests": requests,
            "seconds": self._clock() - self._started,
            "work_seconds": work_seconds,
            "kv_bytes_per_token": self._backend.kv_bytes_per_token,
            "estimated": is_estimated,
        }

    def release(self) -> None:
        """Free the states of rows that ended but were not received."""
        unused_handles: list[Any] = []
        for request, place in self._places[self._received :]:
            sample = self._row_sets[request].samples[place] if request < len(self._row_sets) else None
            if sample is not None and sample.handle is not None:
                unused_handles.append(sample.handle)
        if unused_handles:
            with self._blame:
                self._backend.release(unused_handles)

    def _most_tokens(self, row: RequestedRow) -> int:
        """Return the most tokens that a row may have generated: its grant, or as many as its lease pays."""
        most_tokens = row.grant
        for unit, amount in self._lease.items():
            token_cost = self._backend.rates.cost(unit, generated=1) if unit in PRICED_UNITS else 0
            if token_cost:
                most_tokens = min(most_tokens, amount // token_cost)
        return most_tokens
