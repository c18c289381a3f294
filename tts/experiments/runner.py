"""Running a study: cells are leased from the store, run at once up to a bound, and finished there, each in a transaction of its own.

Whatever ends a run, the store knows what is done. A clean stop gives leases back at once; after a kill they run out. Either way the
next run does what is missing, and several runs may share a store.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from tts.background import Interrupted
from tts.errors import EngineError, TTSError
from tts.experiments.config import StudyConfig
from tts.experiments.executors import EXECUTORS, Done, Executor, WorkerLost
from tts.experiments.grid import Problems, cells, load_problems, shard
from tts.experiments.local_executor import failed
from tts.experiments.progress import Progress, shown
from tts.experiments.record import Cell, Result
from tts.experiments.snapshot import snapshot
from tts.experiments.store import Counts, Store
from tts.kept import LOOP

T = TypeVar("T")
Report = Callable[[Progress], None]

LEASE_S: Final = 30.0  # after a kill, the longest that a cell waits to be run again
_BEATS: Final = 4  # of the heartbeat in the time of a lease
_POLL_S: Final = 1.0  # between two looks at what other processes hold
_HOPELESS: Final = 50  # cells that fail before one succeeds, after which a run gives up
_DEATHS: Final = 3  # of workers at one cell, after which it has failed


class Prepared:
    """A study that is ready to be run: its problems, and the executor that has its models. A context manager.

    Args:
        executor: a name of `EXECUTORS`.

    Raises:
        ConfigError: whatever is wrong with the study; nothing has been spent, and nothing written.
    """

    def __init__(self, config: StudyConfig, executor: str = "local") -> None:
        self.config = config
        make = EXECUTORS.get(executor)
        self.problems: Problems = load_problems(config)
        self.executor: Executor = make(config, self.problems)

    def cells(self, part: tuple[int, int] = (1, 1)) -> Iterator[Cell]:
        """Yield the cells of part i of n."""
        return shard(cells(self.config, self.problems, self.executor.settings), *part)

    def __enter__(self) -> Prepared:
        return self

    def __exit__(self, *_: object) -> None:
        self.executor.close()


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended. study: its id in the store. counts: of its cells. interrupted: whether Ctrl-C ended it."""

    study: int
    counts: Counts
    interrupted: bool = False


def run(
    prepared: Prepared,
    store: Store,
    *,
    part: tuple[int, int] = (1, 1),
    retry_failed: bool = False,
    lease_s: float = LEASE_S,
    report: Report = lambda _: None,
) -> Ended:
    """Run what a study lacks, and return when all its cells are finished, here or in another process.

    Args:
        part: i of n: the cells of one shard. retry_failed: whether cells that failed before are run again.
        lease_s: seconds after which cells of a process that was killed are run again.
        report: called, in another thread, at the beginning and after results.

    Raises:
        TTSError: the store failed, or nothing but failures came of the first cells. What was finished is kept.
    """
    study = store.begin(prepared.config.name, snapshot(prepared.config, prepared.problems, prepared.executor.settings))
    store.add(study, prepared.cells(part))
    if retry_failed:
        store.forget_failed(study)
    counts = store.counts(study)
    progress = Progress(sum((counts.done, counts.failed, counts.pending, counts.leased)), counts.done + counts.failed)
    runner = _Runner(prepared.executor, store, study, progress, report, lease_s)
    try:
        LOOP.run(runner.run())
    except Interrupted:
        return Ended(study, store.counts(study), interrupted=True)
    finally:
        runner.close()
    return Ended(study, store.counts(study))


def results_of(config: StudyConfig, store: Store) -> list[Result]:
    """Run what a study lacks, its progress on standard error, and return all its results.

    Raises:
        TTSError: as `run`.
        KeyboardInterrupt: it was stopped; what is done is kept, and the same call goes on from there.
    """
    with Prepared(config) as prepared, shown(config.name) as report:
        ended = run(prepared, store, report=report)
    if ended.interrupted:
        raise KeyboardInterrupt(f"the study {config.name!r} was stopped; what is done is kept")
    return list(store.results(ended.study))


class _Runner:
    """One run of a study.

    All calls to the store are made in one thread of their own, one after the other: a write may wait for another process's. That thread
    alone knows which cells are leased, so that no heartbeat comes behind a result, and no lease is left behind by a stop.

    Args:
        executor, store, study, progress, report, lease_s: see `run`.
    """

    def __init__(self, executor: Executor, store: Store, study: int, progress: Progress, report: Report, lease_s: float) -> None:
        self._executor, self._store, self._study = executor, store, study
        self._progress, self._report, self._lease_s = progress, report, lease_s
        self._worker = secrets.token_hex(8)
        self._at: dict[str, asyncio.Task[None]] = {}  # cells that are being run or wait to be written, by key
        self._ended: asyncio.Queue[Done | Cell] = asyncio.Queue()  # results, and cells whose worker was lost
        self._deaths: Counter[str] = Counter()
        self._leased: set[str] = set()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tts-store")

    async def run(self) -> None:
        """Run cells until none is left."""
        self._report(self._progress)
        beating = asyncio.create_task(self._beat_on())
        try:
            while await self._fill():
                await self._keep(await self._next())
                if beating.done():
                    beating.result()
        finally:
            beating.cancel()
            await self._stop()

    async def _fill(self) -> bool:
        """Lease cells where there is room; return whether there is anything to wait for."""
        room = self._executor.slots - len(self._at)
        if self._at and room * 4 < self._executor.slots:  # each lease is a transaction: not one for every cell
            return True
        while True:
            for cell in await self._stored(self._lease, room):
                self._at[cell.key] = asyncio.create_task(self._run(cell))
            if self._at:
                self._progress.elsewhere = 0
                return True
            counts = await self._stored(self._store.counts, self._study)
            self._progress.done = counts.done + counts.failed  # other processes may have been at it
            self._progress.elsewhere = counts.leased
            if not counts.pending + counts.leased:
                return False
            self._report(self._progress)
            await asyncio.sleep(_POLL_S if counts.leased else 0)  # others are at the rest, or were until they were killed

    async def _run(self, cell: Cell) -> None:
        try:
            self._ended.put_nowait(await self._executor.run(cell))
        except WorkerLost as lost:
            self._deaths[cell.key] += 1
            if self._deaths[cell.key] < _DEATHS:
                self._ended.put_nowait(cell)
            else:
                failure = EngineError(f"{_DEATHS} workers were lost at this cell: {lost}")
                self._ended.put_nowait(Done(failed(cell, failure, time.time())))

    async def _next(self) -> list[Done | Cell]:
        """Return what has ended, at least one."""
        ended = [await self._ended.get()]
        while not self._ended.empty():
            ended.append(self._ended.get_nowait())
        return ended

    async def _keep(self, ended: Sequence[Done | Cell]) -> None:
        """Write results, and give back what is to be run again."""
        done, lost = [one for one in ended if isinstance(one, Done)], [one.key for one in ended if isinstance(one, Cell)]
        await self._stored(self._write, done, lost)
        for key in (*lost, *(one.result.cell.key for one in done)):
            del self._at[key]
        for one in done:
            self._progress.add(one.result)
        self._report(self._progress)
        if done and self._progress.finished == self._progress.failed >= _HOPELESS:
            raise TTSError(
                f"the first {self._progress.failed} cells all failed, the last one with {done[-1].result.error}",
                hint="remove the cause, then run the study again with --retry-failed",
            )

    async def _beat_on(self) -> None:
        while True:
            await asyncio.sleep(self._lease_s / _BEATS)
            await self._stored(self._beat, await self._executor.spent())

    async def _stop(self) -> None:
        """Cancel what is being run, keep what has ended, book what the rest has spent, and give it back."""
        for task in self._at.values():
            task.cancel()
        await asyncio.gather(*self._at.values(), return_exceptions=True)
        with suppress(TTSError):  # the store may be what failed; if it fails on, the leases run out
            if not self._ended.empty():
                await self._keep(await self._next())
        with suppress(TTSError):
            await self._stored(self._give_back, await self._executor.spent())

    async def _stored(self, call: Callable[..., T], *arguments: Any) -> T:
        """Call the store in its thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)

    def close(self) -> None:
        """End the thread of the store."""
        self._thread.shutdown()

    # From here on in the thread of the store -------------------------------------------------------------------------------------

    def _lease(self, count: int) -> list[Cell]:
        cells = self._store.lease(self._study, self._worker, count, seconds=self._lease_s)
        self._leased.update(cell.key for cell in cells)
        return cells

    def _write(self, done: Sequence[Done], lost: Sequence[str]) -> None:
        for one in done:
            self._store.finish(self._worker, one.result, one.trace)
            self._leased.discard(one.result.cell.key)
        if lost:
            self._store.release(self._worker, lost)
            self._leased.difference_update(lost)

    def _beat(self, spent: Mapping[str, int]) -> None:
        self._store.beat(self._worker, {key: spent.get(key, 0) for key in self._leased}, seconds=self._lease_s)

    def _give_back(self, spent: Mapping[str, int]) -> None:
        if self._leased:
            self._beat(spent)
            self._store.release(self._worker, self._leased)
