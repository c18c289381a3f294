"""Runs a study.

A run leases cells from the store, runs them concurrently, and writes each result in its own transaction. Interrupted
runs resume. The first Ctrl-C lets running cells end, so that nothing paid is lost; the second Ctrl-C cancels these
cells. A clean stop returns leases at once; after a kill the leases expire. Several processes may share a store.
"""

from __future__ import annotations

import asyncio
import functools
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from tts._core.logs import get_logger
from tts.budget.account import Account
from tts.errors import ConfigError, EngineError, TTSError
from tts.experiments.run.executors import EXECUTORS, CellResult, Executor, NotReached, Unpaid, WorkerLost
from tts.experiments.run.local_executor import LocalExecutor, failed_result
from tts.experiments.run.progress import Progress
from tts.experiments.store.store import CellCounts, Store
from tts.experiments.study.config import StudyConfig
from tts.experiments.study.grid import Problems, cells, load_problems, shard
from tts.experiments.study.record import Cell
from tts.experiments.study.snapshot import snapshot
from tts.experiments.study.task_choice import with_chosen_tasks
from tts.solver.event_loop import Interrupted
from tts.solver.model_cache import LOOP

LOG = get_logger("tts.runs")
T = TypeVar("T")
Report = Callable[[Progress], None]

_BATCH_EXECUTOR: Final = "tts.experiments.run.batch_executor:BatchExecutor"  # with the client of servers
LEASE_S: Final = 30.0  # the longest that the cells of a killed process wait
_BEATS_PER_LEASE: Final = 4
_POLL_S: Final = 1.0  # interval at which leases of other processes are polled
# a run ends after this number of failures of its first cells, or of successive cells that no server took
_MOST_FAILURES: Final = 50
_MOST_DEATHS: Final = 3  # lost workers after which a cell has failed
_NO_REFERENCE: Final = (
    "%d of %d problems of the data set %r have no reference answer, so the table has no accuracy: give their field "
    "`answer`, or name another by  fields: {answer: NAME}  in the study's problems"
)


class PreparedStudy:
    """A study that is ready to run: its problems, and the executor with its models. A context manager.

    Args:
        executor: A name of `EXECUTORS`.
        account: The account that pays all cells; None: each cell has the budget of the study.
        batches: The folder for files of batches, which answer the requests of models with the option `batch`; None:
            no batches.

    Raises:
        ConfigError: the study cannot run. Nothing has been spent or written.
    """

    def __init__(
        self,
        config: StudyConfig,
        executor: str = "local",
        account: Account | None = None,
        *,
        batches: Path | None = None,
    ) -> None:
        self.config = config
        make_executor: Callable[..., Executor] = EXECUTORS.get(executor)
        if batches is not None:
            if make_executor is not LocalExecutor:
                raise ConfigError(
                    f"executor is {executor!r}, but batches run cells in this process", hint="leave one of them out"
                )
            make_executor = functools.partial(EXECUTORS.get(_BATCH_EXECUTOR), folder=batches)
        if account is not None:
            account.check_usable()
            if make_executor is not LocalExecutor:
                raise ConfigError(
                    f"executor is {executor!r}, but an account pays cells in its own process alone",
                    hint="leave executor or account out",
                )
            make_executor = functools.partial(LocalExecutor, account=account)
        self.problems: Problems
        self.problems, self.task_choices = with_chosen_tasks(config, load_problems(config))
        config.check_size(sum(map(len, self.problems.values())))
        for name, problems in self.problems.items():
            num_unanswerable = sum(problem.answer is None for problem in problems.values())
            if num_unanswerable:  # said before anything is spent
                LOG.warning(_NO_REFERENCE, num_unanswerable, len(problems), name)
        self.executor: Executor = make_executor(config, self.problems)

    def cells(self, part: tuple[int, int] = (1, 1)) -> Iterator[Cell]:
        """Yield the cells of part i of n."""
        return shard(cells(self.config, self.problems, self.executor.settings), *part)

    def __enter__(self) -> PreparedStudy:
        return self

    def __exit__(self, *_: object) -> None:
        self.executor.close()


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The end of a run.

    Args:
        study: The study's id in the store.
        counts: The counts of the study's cells.
        interrupted: Whether Ctrl-C stopped the run.
        unpaid: The number of cells that stay open, because the account could not pay them, a batch has yet to answer
            them, or no server took them.
        not_reached: The reason why a server took no request of a cell, for the last such cell; "": there is none.
    """

    study: int
    counts: CellCounts
    interrupted: bool = False
    unpaid: int = 0
    not_reached: str = ""


def run(
    prepared: PreparedStudy,
    store: Store,
    *,
    part: tuple[int, int] = (1, 1),
    retry_failed: bool = False,
    lease_s: float = LEASE_S,
    report: Report = lambda _: None,
    is_patient: Callable[[], bool] = lambda: True,
) -> RunSummary:
    """Run the cells of a study without a result, and return when all are finished.

    Other processes may finish some of the cells. The run does not wait for cells that an account cannot pay; they stay
    open. After Ctrl-C no cell begins, and running cells end with their results. A second Ctrl-C cancels running cells,
    and their cost is booked as lost.

    Args:
        prepared: The study with its problems and models.
        store: The store of the results.
        part: The cells of one shard, as i of n.
        retry_failed: Whether cells that failed before run again.
        lease_s: Seconds after which the cells of a killed process run again.
        report: A function that gets the progress in another thread: at the beginning, after results, and at a stop.
        is_patient: A function, called at the first stop, that returns whether running cells may end.

    Raises:
        TTSError: The store failed, only failures came of the first cells, or a server took no more requests. Finished
            cells are kept.
    """
    settings = prepared.executor.settings
    study = store.begin(prepared.config.name, snapshot(prepared.config, prepared.problems, settings))
    store.add(study, prepared.cells(part))
    if retry_failed:
        store.forget_failures(study)
    counts = store.counts(study)
    num_finished = counts.done + counts.failed
    progress = Progress(total=num_finished + counts.pending + counts.leased, done=num_finished)
    runner = _Runner(prepared.executor, store, study, progress, report, lease_s)
    try:
        is_interrupted = _run_until_stopped(runner, is_patient)
    finally:
        runner.close()
    return RunSummary(
        study=study,
        counts=store.counts(study),
        interrupted=is_interrupted,
        unpaid=len(runner.unpaid),
        not_reached=runner.not_reached,
    )


def _run_until_stopped(runner: _Runner, is_patient: Callable[[], bool]) -> bool:
    """Run cells until none is left or the run is stopped, and return whether it was stopped."""
    try:
        LOOP.run(runner.run())
    except KeyboardInterrupt as stop:
        may_finish = isinstance(stop, Interrupted) and is_patient()
        with suppress(Interrupted):  # a second Ctrl-C, which has cancelled the cells that still ran
            LOOP.run(runner.finish(cancel=not may_finish))
        return True
    return False


class _Runner:
    """One run of a study.

    One thread makes all calls to the store, which may wait for other processes. Only that thread changes the set of
    leased cells. Therefore no lease is extended after its cell has a result, and a stopped run leaves no lease.

    Args:
        executor: See `run`.
        store: See `run`.
        study: See `run`.
        progress: See `run`.
        report: See `run`.
        lease_s: See `run`.

    Attributes:
        unpaid: Keys of cells that stay open. The run keeps their leases to its end, so that it does not run them again.
        not_reached: As in `RunSummary`.
    """

    def __init__(
        self, executor: Executor, store: Store, study: int, progress: Progress, report: Report, lease_s: float
    ) -> None:
        self._executor, self._store, self._study = executor, store, study
        self._progress, self._report, self._lease_s = progress, report, lease_s
        self._worker = secrets.token_hex(8)
        self._running_tasks: dict[str, asyncio.Task[None]] = {}  # by key, cells that run or wait to be written
        # results, and cells that ended without a result and stay open or run again
        self._ended_cells: asyncio.Queue[CellResult | Cell] = asyncio.Queue()
        self._num_lost_workers: Counter[str] = Counter()  # by the key of the cell that they ran
        self._leased_keys: set[str] = set()
        self._is_stopped = False  # whether no cell begins any more
        self._is_ending = False  # whether running cells are being cancelled
        self._run_task: asyncio.Task[None] | None = None
        self.unpaid: set[str] = set()
        self.not_reached = ""
        self._num_not_taken = 0  # cells since the last result whose requests no server took
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tts-store")

    async def run(self) -> None:
        """Run cells until none is left.

        After a cancelled call no cell begins, and running cells go on. `finish` waits for the running cells.
        """
        self._run_task = asyncio.create_task(self._run_all())
        try:
            await asyncio.shield(self._run_task)
        finally:
            self._is_stopped = True

    async def finish(self, *, cancel: bool) -> None:
        """Wait until the cells of a stopped run have ended. If the call is cancelled, so are the cells.

        Args:
            cancel: Whether to cancel the cells at once.
        """
        if self._run_task is None:  # the run was stopped before its first cell
            return
        if cancel and not self._is_ending:  # while the run ends, it returns its leases and must not be cancelled
            self._run_task.cancel()
        elif self._running_tasks:
            self._progress.ending = len(self._running_tasks)
            self._report(self._progress)
        try:
            await self._run_task
        except asyncio.CancelledError:
            if not cancel:
                raise

    async def _run_all(self) -> None:
        """Run cells and write their results until none is left, while a heartbeat extends the leases."""
        self._report(self._progress)
        heartbeat = asyncio.create_task(self._keep_beating())
        try:
            while await self._fill():
                ended_cells = await self._next()
                await self._keep(ended_cells)
                if heartbeat.done():
                    heartbeat.result()  # raises the heartbeat's error
        finally:
            heartbeat.cancel()
            await self._stop()

    async def _fill(self) -> bool:
        """Lease cells while slots are free, and return whether any cells run."""
        if self._is_stopped:
            return bool(self._running_tasks)
        num_free = self._executor.slots - len(self._running_tasks)
        # a lease is a transaction, so cells are leased together once a fourth of the slots is free
        if self._running_tasks and num_free * 4 < self._executor.slots:
            return True
        while True:
            leased_cells = await self._call_store(self._lease, num_free)
            if self._is_stopped:  # the run was stopped during the call, and returns the new leases at its end
                return bool(self._running_tasks)
            for cell in leased_cells:
                self._running_tasks[cell.key] = asyncio.create_task(self._run(cell))
            if self._running_tasks:
                self._progress.elsewhere = 0
                return True
            counts = await self._call_store(self._store.counts, self._study)
            self._progress.done = counts.done + counts.failed  # other processes may have finished cells
            self._progress.elsewhere = counts.leased - len(self.unpaid)
            if not counts.pending + self._progress.elsewhere:
                return False
            self._report(self._progress)
            # running or killed processes hold the leases of the other cells
            await asyncio.sleep(_POLL_S if self._progress.elsewhere else 0)

    async def _run(self, cell: Cell) -> None:
        """Run a cell, and put its result into the queue of ended cells, or the cell itself where it has none."""
        try:
            self._ended_cells.put_nowait(await self._executor.run(cell))
        except Unpaid:
            self.unpaid.add(cell.key)
            self._ended_cells.put_nowait(cell)
        except NotReached as cause:
            self.unpaid.add(cell.key)
            self.not_reached = str(cause)
            self._num_not_taken += 1
            self._ended_cells.put_nowait(cell)
        except WorkerLost as lost:
            self._num_lost_workers[cell.key] += 1
            if self._num_lost_workers[cell.key] < _MOST_DEATHS:
                self._ended_cells.put_nowait(cell)
            else:
                failure = EngineError(f"{_MOST_DEATHS} workers were lost at this cell: {lost}")
                self._ended_cells.put_nowait(CellResult(failed_result(cell, failure, time.time())))

    async def _next(self) -> list[CellResult | Cell]:
        """Wait for a cell to end, and return all ended cells: results, and cells without one."""
        ended_cells = [await self._ended_cells.get()]
        while not self._ended_cells.empty():
            ended_cells.append(self._ended_cells.get_nowait())
        return ended_cells

    async def _keep(self, ended: Sequence[CellResult | Cell]) -> None:
        """Write results, and give back the leases of cells that must run again.

        Args:
            ended: The results, and the cells that ended without one.

        Raises:
            TTSError: The store failed, only failures came of the first cells, or a server took no more requests.
        """
        cell_results = [ended_cell for ended_cell in ended if isinstance(ended_cell, CellResult)]
        open_keys = [ended_cell.key for ended_cell in ended if isinstance(ended_cell, Cell)]
        released_keys = [key for key in open_keys if key not in self.unpaid]
        await self._call_store(self._write, cell_results, released_keys)
        for key in open_keys:
            del self._running_tasks[key]
        for cell_result in cell_results:
            del self._running_tasks[cell_result.result.cell.key]
            self._progress.add(cell_result.result)
        if self._is_stopped:
            self._progress.ending = len(self._running_tasks)
        self._report(self._progress)
        if cell_results:
            self._num_not_taken = 0
        if self._num_not_taken >= _MOST_FAILURES and not self._is_ending:
            raise TTSError(
                f"the run ends, for the server of a model took no request of {self._num_not_taken} cells: "
                f"{self.not_reached}",
                hint="what is done is kept; once the server answers, the same command goes on",
            )
        have_all_failed = self._progress.failed == self._progress.finished
        if cell_results and have_all_failed and self._progress.failed >= _MOST_FAILURES:
            last_error = cell_results[-1].result.error
            raise TTSError(
                f"the first {self._progress.failed} cells all failed, the last one with {last_error}",
                hint="remove the cause, then run the study again with --retry-failed",
            )

    async def _keep_beating(self) -> None:
        """Extend the leases of all leased cells at intervals, and store their tokens so far."""
        while True:
            await asyncio.sleep(self._lease_s / _BEATS_PER_LEASE)
            await self._call_store(self._beat, await self._executor.tokens_spent_by_key())

    async def _stop(self) -> None:
        """Cancel running cells, write finished results, book the cost of other cells, and return their leases."""
        self._is_ending = True
        for task in self._running_tasks.values():
            task.cancel()
        await asyncio.gather(*self._running_tasks.values(), return_exceptions=True)
        with suppress(TTSError):  # if the store has failed, the leases expire
            if not self._ended_cells.empty():
                await self._keep(await self._next())
        with suppress(TTSError):
            await self._call_store(self._give_back, await self._executor.tokens_spent_by_key())

    async def _call_store(self, call: Callable[..., T], *arguments: Any) -> T:
        """Call the store in its thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)

    def close(self) -> None:
        """End the thread of the store."""
        self._thread.shutdown()

    # called in the thread of the store

    def _lease(self, count: int) -> list[Cell]:
        cells = self._store.lease(self._study, self._worker, count, seconds=self._lease_s)
        self._leased_keys.update(cell.key for cell in cells)
        return cells

    def _write(self, cell_results: Sequence[CellResult], released_keys: Sequence[str]) -> None:
        """Write results, and give back the leases of other cells."""
        for cell_result in cell_results:
            self._store.finish(self._worker, cell_result.result, cell_result.trace, cell_result.texts)
            self._leased_keys.discard(cell_result.result.cell.key)
        if released_keys:
            self._store.release(self._worker, released_keys)
            self._leased_keys.difference_update(released_keys)

    def _beat(self, spent: Mapping[str, int]) -> None:
        self._store.beat(self._worker, {key: spent.get(key, 0) for key in self._leased_keys}, seconds=self._lease_s)

    def _give_back(self, spent: Mapping[str, int]) -> None:
        if self._leased_keys:
            self._beat(spent)
            self._store.release(self._worker, self._leased_keys)
