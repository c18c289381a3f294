"""One call for rows: granted, sent, read in row order, cancelled where a rule ends them, and booked whatever happens."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass

from tts.backends.base import Row, RowSet, Sample, SampleRequest, Sampling, StopCondition
from tts.backends.protocol import BackendProtocol
from tts.backends.reads import cancelled_and_done
from tts.blame import Blame
from tts.budget.meter import Grant, RowCost
from tts.errors import EngineError
from tts.search.accounting import Accounting, sum_known
from tts.types import Trajectory, Usage

OUT_OF_TIME = "out of time"  # the error of a row that timed out before producing text: neither a candidate nor a failure


@dataclass(frozen=True, slots=True)
class RowTask:
    """One row to start, or to continue.

    Args:
        path: what it continues. handle: of the path, on the call's backend. branch: what it costs in samples. room: its own token cap.
    """

    path: Trajectory
    handle: object
    stream: int
    branch: int
    room: int


@dataclass(slots=True, eq=False, kw_only=True)
class RowBatch:
    """Runs one call of rows.

    Args:
        accounting: where it is booked. cost: the bound of a row. clock: seconds.
        kind: for the ledger. model: the role. backend: its model. sampling, stop: of every row. word: which draws.
        spreads: see `SampleRequest`.

    Attributes:
        timed_out: whether the time was over before every row had ended.
    """

    accounting: Accounting
    cost: RowCost
    clock: Callable[[], float]
    kind: str
    model: str
    backend: BackendProtocol
    sampling: Sampling
    stop: StopCondition
    word: int
    spreads: bool
    timed_out: bool = False

    async def samples(self, tasks: Sequence[RowTask], grant: Grant) -> AsyncGenerator[Sample, None]:
        """Start the rows of a grant and yield their samples in order; book the call even if it breaks or is cancelled.

        Where the caller stops reading (and closes the generator), later rows are cancelled.
        """
        started = self.clock()
        caps = [min(cap, task.room) for cap, task in zip(grant.caps, tasks, strict=True)]
        assert min(caps) >= 1, f"a row was granted {min(caps)} tokens"
        requests, places = self._requests(tasks, caps)
        rowsets: list[RowSet] = []
        timer = self._timer(rowsets)
        cancelled_from = 0
        try:
            for request in requests:
                with self._blame:
                    rowsets.append(self.backend.sample(request))
            for index, (which, row) in enumerate(places):
                if (sample := rowsets[which].samples[row]) is None:
                    with self._blame:
                        sample = await rowsets[which].row(row)
                if self.timed_out and sample.finish == "cancelled":
                    sample = dataclasses.replace(
                        sample, **({"finish": "length"} if sample.text else {"finish": "error", "error": OUT_OF_TIME})
                    )
                cancelled_from = index + 1
                yield sample
        except BaseException:
            await cancelled_and_done(rowsets)
            raise
        finally:
            if timer is not None:
                timer.cancel()
            unread = [rowsets[which].samples[row] for which, row in places[cancelled_from:] if which < len(rowsets)]
            try:
                with self._blame:
                    self.backend.release([s.handle for s in unread if s is not None and s.handle is not None])
            finally:
                self._book(tasks, grant, caps, rowsets, places, cancelled_from, self.clock() - started)

    @property
    def _blame(self) -> Blame:
        return Blame(f"the backend {self.backend.name!r}", EngineError)

    def _requests(self, tasks: Sequence[RowTask], caps: Sequence[int]) -> tuple[list[SampleRequest], list[tuple[int, int]]]:
        """Return one request a parent, and the place (request, row) of each task."""
        by_parent: dict[int, tuple[int, list[Row]]] = {}
        places: list[tuple[int, int]] = []
        order: list[RowTask] = []
        for task, cap in zip(tasks, caps, strict=True):
            if (entry := by_parent.get(task.path.node)) is None:
                entry = by_parent[task.path.node] = (len(order), [])
                order.append(task)
            places.append((entry[0], len(entry[1])))
            entry[1].append(Row(task.stream, task.path.num_tokens, cap, self.word))
        priced = [unit for unit in ("flops", "usd") if unit in self.accounting.meter.limits and self.cost.rates.cost(unit, computed=1)]
        requests = [
            SampleRequest(task.handle, tuple(rows), self.sampling, self.stop, task.path.full_text, self.spreads, not priced)
            for task, (_, rows) in zip(order, by_parent.values(), strict=True)
        ]
        return requests, places

    def _timer(self, rowsets: Sequence[RowSet]) -> asyncio.TimerHandle | None:
        deadline = self.accounting.meter.deadline
        if deadline is None:
            return None

        def stop() -> None:
            self.timed_out = True
            for rows in rowsets:
                rows.cancel()

        return asyncio.get_running_loop().call_later(max(0.0, deadline - self.clock()), stop)

    def _book(
        self,
        tasks: Sequence[RowTask],
        grant: Grant,
        caps: Sequence[int],
        rowsets: Sequence[RowSet],
        places: Sequence[tuple[int, int]],
        cancelled_from: int,
        seconds: float,
    ) -> None:
        generated = cancelled = 0
        work, estimated = 0.0, False
        for index, (which, row) in enumerate(places):
            if which >= len(rowsets):  # never sent
                continue
            sample = rowsets[which].samples[row]
            if sample is None:  # the backend broke: the cost of the row is not known, so it is charged in full
                generated, estimated = generated + caps[index], True
                continue
            work += sample.seconds
            estimated = estimated or sample.estimated
            if index >= cancelled_from:
                cancelled += sample.num_tokens
            else:
                generated += sample.num_tokens
        computed = sum(rows.prompt_tokens for rows in rowsets)
        reused = sum_known([rows.reused_tokens for rows in rowsets])
        usage = Usage(
            prompt_tokens=computed,
            reused_tokens=reused,
            generated_tokens=generated,
            cancelled_tokens=cancelled,
            samples=sum(task.branch for task in tasks),
            seconds=seconds,
            work_seconds=work,
            kv_bytes_per_token=self.backend.kv_bytes_per_token,
            estimated=estimated,
        )
        self.accounting.book(self.kind, self.model, len(tasks), usage, rates=self.backend.rates, granted=sum(caps), grant=grant)


def branches_of(parents: Sequence[Trajectory], children_of: Callable[[Trajectory], int]) -> list[int]:
    """Return what each row would cost in samples, were all of them started in this order."""
    seen: dict[int, int] = {}
    costs: list[int] = []
    for parent in parents:
        if (made := seen.get(parent.node)) is None:
            made = children_of(parent)
        seen[parent.node] = made + 1
        costs.append(1 if parent.parent is None or made > 0 else 0)
    return costs
