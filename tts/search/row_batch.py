"""One call for rows: granted, sent, read in row order, cancelled where a rule ends them, and booked whatever happens."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass

from tts.backends.base import Backend, Row, RowSet, Sample, SampleRequest, Sampling, StopCondition
from tts.backends.reads import cancelled_and_done
from tts.blame import Blame
from tts.budget.account import Account, Lease
from tts.budget.ledger import sum_known
from tts.errors import EngineError
from tts.types import Trajectory, Usage

OUT_OF_TIME = "out of time"  # the error of a row that timed out before producing text: neither a candidate nor a failure


@dataclass(frozen=True, slots=True)
class RowTask:
    """One row to start, or to continue.

    Args:
        path: The path that it continues.
        handle: The path's state on the call's backend.
        stream: The stream of its draws.
        branch: What it costs in samples.
        cap: The tokens that it may take in this call.
        room: The tokens that it may take in all.
    """

    path: Trajectory
    handle: object
    stream: int
    branch: int
    cap: int
    room: int


@dataclass(slots=True, eq=False, kw_only=True)
class RowBatch:
    """One call of rows.

    Args:
        tasks: The rows, in draw order.
        account: The account whose deadline ends the call.
        clock: The clock, in seconds.
        backend: The model that writes.
        sampling: The sampling of every row.
        stop: Where every row ends.
        word: Which draws of a stream are meant.
        spreads: Whether `Sample.spreads` are wanted.

    Attributes:
        timed_out: Whether the time was over before every row had ended.
    """

    tasks: Sequence[RowTask]
    account: Account
    clock: Callable[[], float]
    backend: Backend
    sampling: Sampling
    stop: StopCondition
    word: int
    spreads: bool
    timed_out: bool = False

    async def samples(self, lease: Lease) -> AsyncGenerator[Sample, None]:
        """Start the rows and yield their samples in order; tell the lease what was spent even if the call breaks or is cancelled.

        Where the caller stops reading (and closes the generator), later rows are cancelled.
        """
        started = self.clock()
        requests, places = self._requests()
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
                lease.spend(self._usage(rowsets, places, cancelled_from, self.clock() - started))

    @property
    def _blame(self) -> Blame:
        return Blame(f"the backend {self.backend.name!r}", EngineError)

    def _requests(self) -> tuple[list[SampleRequest], list[tuple[int, int]]]:
        """Return one request a parent, and the place (request, row) of each task."""
        by_parent: dict[int, tuple[int, list[Row]]] = {}
        places: list[tuple[int, int]] = []
        order: list[RowTask] = []
        for task in self.tasks:
            if (entry := by_parent.get(task.path.node)) is None:
                entry = by_parent[task.path.node] = (len(order), [])
                order.append(task)
            places.append((entry[0], len(entry[1])))
            entry[1].append(Row(task.stream, task.path.num_tokens, task.cap, self.word))
        priced = [unit for unit in ("flops", "usd") if unit in self.account.units and self.backend.rates.cost(unit, computed=1)]
        requests = [
            SampleRequest(task.handle, tuple(rows), self.sampling, self.stop, task.path.full_text, self.spreads, not priced)
            for task, (_, rows) in zip(order, by_parent.values(), strict=True)
        ]
        return requests, places

    def _timer(self, rowsets: Sequence[RowSet]) -> asyncio.TimerHandle | None:
        seconds_left = self.account.seconds_left
        if seconds_left is None:
            return None

        def stop() -> None:
            self.timed_out = True
            for rows in rowsets:
                rows.cancel()

        return asyncio.get_running_loop().call_later(seconds_left, stop)

    def _usage(self, rowsets: Sequence[RowSet], places: Sequence[tuple[int, int]], cancelled_from: int, seconds: float) -> Usage:
        """Return what the call has spent; rows from `cancelled_from` on were not read."""
        samples = generated = cancelled = 0
        work, estimated = 0.0, False
        for index, (which, row) in enumerate(places):
            if which >= len(rowsets):  # never sent
                continue
            samples += self.tasks[index].branch
            sample = rowsets[which].samples[row]
            if sample is None:  # the backend broke: the cost of the row is not known, so it is charged in full
                generated, estimated = generated + self.tasks[index].cap, True
                continue
            work += sample.seconds
            estimated = estimated or sample.estimated
            if index >= cancelled_from:
                cancelled += sample.num_tokens
            else:
                generated += sample.num_tokens
        computed = sum(rows.prompt_tokens for rows in rowsets)
        reused = sum_known([rows.reused_tokens for rows in rowsets])
        return Usage(
            prompt_tokens=computed,
            reused_tokens=reused,
            generated_tokens=generated,
            cancelled_tokens=cancelled,
            samples=samples,
            seconds=seconds,
            work_seconds=work,
            kv_bytes_per_token=self.backend.kv_bytes_per_token,
            estimated=estimated,
        )


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
