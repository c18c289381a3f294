"""Runs cells on the workers of a Ray cluster.

Each worker loads the study's models. Only the process that runs the study opens the store, so no shared file system is
needed. A worker that dies is replaced, and its cells end with `WorkerLost`. Cells wait for workers that have started,
since a cluster that lost a node, or that others use too, may never have room for all workers.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tts._common.scopes import TRUST_PLACES
from tts.errors import ConfigError, EngineError, TTSError, missing_extra
from tts.experiments.run.executors import CellResult, NotReached, WorkerLost
from tts.experiments.run.local_executor import LocalExecutor, failed_result, one_line
from tts.experiments.study.config import StudyConfig
from tts.experiments.study.grid import Problems, Settings
from tts.experiments.study.record import Cell
from tts.solver.checks import LOG
from tts.solver.model_cache import LOOP

_TIMEOUT_S = 2.0  # wait for a worker's report of its tokens; a worker that loads models does not answer


class RayWorker:
    """A worker process with a `LocalExecutor`.

    Models are loaded on the first call, so that errors are returned to the caller.
    """

    def __init__(self, config: StudyConfig, problems: Problems, trust: str = "0") -> None:
        self._config, self._problems = config, problems
        os.environ[TRUST_PLACES] = trust  # a worker of a cluster does not inherit the environment of the caller

    @cached_property
    def _executor(self) -> LocalExecutor:
        return LocalExecutor(self._config, self._problems)

    async def settings(self) -> Settings:
        """Return the settings of the study's models."""
        return self._executor.settings

    async def run(self, cell: Cell) -> CellResult:
        """Run a cell."""
        return await LOOP.wait(self._executor.run(cell))

    async def tokens_spent_by_key(self) -> Mapping[str, int]:
        """Return the tokens spent so far by key."""
        return dict(await self._executor.tokens_spent_by_key())


@dataclass(slots=True, eq=False)
class _Worker:
    """A worker of the cluster.

    Args:
        actor: Ray's handle of the `RayWorker`.
        start: The settings of the worker's models, once they are loaded.
        keys: The keys of the cells that the worker runs.
    """

    actor: Any
    start: asyncio.Future[Settings]
    keys: set[str] = field(default_factory=set[str])


class RayExecutor:
    """Workers on the Ray cluster of `RAY_ADDRESS`, else on this machine.

    Each GPU has one worker; without GPUs, each CPU has one.

    Args:
        config: The settings of the study; `concurrency` holds for each worker.
        problems: The problems of the study.

    Raises:
        ConfigError: as `LocalExecutor`.
        MissingDependency: Ray is not installed.
        EngineError: no worker starts.
    """

    def __init__(self, config: StudyConfig, problems: Problems) -> None:
        places = re.findall(r"__main__:[\w.]+", json.dumps(config.plain_settings()))
        if places:
            raise ConfigError(
                f"the study names {places[0]!r}, but workers of Ray cannot reach the main module of this process",
                hint="move it to a module that they can import, 'module:name', or leave executor out",
            )
        try:
            ray: Any = importlib.import_module("ray")
        except ImportError:
            raise missing_extra("ray", "ray", "--executor ray") from None
        self._ray = ray
        self._has_started_ray = not ray.is_initialized()
        if self._has_started_ray:
            ray.init(log_to_driver=False, logging_level="error")
        resources = ray.cluster_resources()
        if resources.get("GPU", 0) >= 1:
            resource, num_workers = "num_gpus", int(resources["GPU"])
        else:
            resource, num_workers = "num_cpus", max(1, int(resources.get("CPU", 1)))
        # one call more than cells, for the reports of tokens
        remote_worker = ray.remote(**{resource: 1}, max_concurrency=config.concurrency + 1)(RayWorker)
        problems_reference = ray.put(problems)
        trust = os.environ.get(TRUST_PLACES, "0")
        self._start_actor: Callable[[], Any] = lambda: remote_worker.remote(config, problems_reference, trust)
        self._concurrency = config.concurrency
        self._workers: list[_Worker] = []
        self._num_lost = 0
        self.settings: Settings = {}
        self._free_slots = asyncio.Semaphore(0)  # at least as many as the workers that have started have
        self.slots = config.concurrency * num_workers
        try:
            self.settings = LOOP.run(self._start_workers(num_workers))
        except ray.exceptions.RayError as failure:
            self.close()
            cause = getattr(failure, "cause", None)  # the error that was raised in the worker
            if isinstance(cause, TTSError):
                raise cause from None
            raise EngineError(
                f"no worker starts: {_first_line(failure)}", hint="run the study here to see why"
            ) from failure

    async def _start_workers(self, num_workers: int) -> Settings:
        """Start workers, and return the settings that the first to start has."""
        self._workers = [self._start_worker() for _ in range(num_workers)]
        starts = [worker.start for worker in self._workers]
        first, _ = await asyncio.wait(starts, return_when=asyncio.FIRST_COMPLETED)
        return first.pop().result()

    def _start_worker(self) -> _Worker:
        actor = self._start_actor()
        start = _answer(actor.settings.remote())
        start.add_done_callback(self._note_start)
        return _Worker(actor, start)

    def _note_start(self, start: asyncio.Future[Settings]) -> None:
        if self._is_refused(start) and self.settings:  # without settings, the study is refused
            LOG.warning("a worker takes no cells: %s", one_line(_cause(start.exception())))
        for _ in range(self._concurrency):
            self._free_slots.release()

    def _is_refused(self, start: asyncio.Future[Settings]) -> bool:
        """Return whether a worker lives, but cannot load the models of the study."""
        return start.done() and isinstance(start.exception(), self._ray.exceptions.RayTaskError)

    async def _free_worker(self) -> _Worker:
        """Wait until a worker that has started is free, and return the least busy one."""
        while True:
            await self._free_slots.acquire()
            workers = [worker for worker in self._workers if not self._is_refused(worker.start)] or self._workers
            started = [worker for worker in workers if worker.start.done()]
            worker = min(started, key=lambda worker: len(worker.keys), default=None)
            if worker is not None and len(worker.keys) < self._concurrency:
                return worker  # else the slot was that of a worker which has died

    async def run(self, cell: Cell) -> CellResult:
        """Run a cell on the least busy worker; see `Executor`."""
        worker = await self._free_worker()
        worker.keys.add(cell.key)
        try:
            return await _answer(worker.actor.run.remote(cell))
        except self._ray.exceptions.RayTaskError as failure:  # an error that was raised in the worker
            cause = _cause(failure)
            if isinstance(cause, NotReached):
                raise cause from None
            return CellResult(failed_result(cell, cause, time.time()))
        except self._ray.exceptions.RayError as failure:  # the worker died, or its reply was lost with its node
            if isinstance(failure, self._ray.exceptions.RayActorError) and worker in self._workers:
                self._workers[self._workers.index(worker)] = self._start_worker()
                self._num_lost += 1  # a line for each: equal lines are written once
                cause = _first_line(failure)
                LOG.warning("a worker was lost (%d so far), and a new one takes its cells: %s", self._num_lost, cause)
            raise WorkerLost(_first_line(failure)) from None
        finally:
            worker.keys.remove(cell.key)
            self._free_slots.release()

    async def tokens_spent_by_key(self) -> Mapping[str, int]:
        """Return tokens by key, from the workers that answer in time; see `Executor`."""
        replies = [_answer(worker.actor.tokens_spent_by_key.remote()) for worker in self._workers if worker.keys]
        reports = await asyncio.gather(
            *(asyncio.wait_for(reply, _TIMEOUT_S) for reply in replies), return_exceptions=True
        )
        tokens_by_key: dict[str, int] = {}
        for report in reports:
            if isinstance(report, dict):  # else the exception of a worker that did not answer
                tokens_by_key.update(report)
        return tokens_by_key

    def close(self) -> None:
        """End the workers, and Ray if this object started it."""
        for worker in self._workers:
            with suppress(self._ray.exceptions.RayError):  # a worker that has not started may not be found
                self._ray.kill(worker.actor)
        if self._has_started_ray:
            self._ray.shutdown()


def _answer(reference: Any) -> asyncio.Future[Any]:
    return asyncio.wrap_future(reference.future())


def _first_line(failure: Exception) -> str:
    """Return the class of an error of Ray and the first line of its message, which pages may follow."""
    return f"{type(failure).__name__}: {str(failure).strip().partition(chr(10))[0].strip()}"


def _cause(failure: Any) -> Exception:
    """Return the error that was raised in a worker, of the `RayTaskError` that has it."""
    return failure.cause
