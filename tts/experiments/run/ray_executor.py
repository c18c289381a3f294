"""Runs cells on the workers of a Ray cluster.

Each worker loads the study's models. Only the process that runs the study opens the store, so no shared file system is
needed. A worker that dies is replaced, and its cells end with `WorkerLost`.
"""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from tts._common.scopes import TRUST_PLACES
from tts.errors import EngineError, TTSError, missing_extra
from tts.experiments.run.executors import CellResult, WorkerLost
from tts.experiments.run.local_executor import LocalExecutor, one_line
from tts.experiments.study.config import StudyConfig
from tts.experiments.study.grid import Problems, Settings
from tts.experiments.study.record import Cell
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
        self._start_worker: Callable[[], Any] = lambda: remote_worker.remote(config, problems_reference, trust)
        self._workers = [self._start_worker() for _ in range(num_workers)]
        self._cell_counts = [0] * num_workers  # cells that each worker runs
        self._worker_of: dict[str, int] = {}  # key of a running cell -> the index of its worker
        self.slots = config.concurrency * num_workers
        try:
            self.settings: Settings = ray.get(self._workers[0].settings.remote())
        except ray.exceptions.RayError as failure:
            self.close()
            cause = getattr(failure, "cause", None)  # the error that was raised in the worker
            if isinstance(cause, TTSError):
                raise cause from None
            raise EngineError(
                f"no worker starts: {one_line(failure)}", hint="run the study here to see why"
            ) from failure

    async def run(self, cell: Cell) -> CellResult:
        """Run a cell on the least busy worker; see `Executor`."""
        index = min(range(len(self._workers)), key=self._cell_counts.__getitem__)
        worker = self._workers[index]
        self._cell_counts[index] += 1
        self._worker_of[cell.key] = index
        try:
            return await _answer(worker.run.remote(cell))
        except self._ray.exceptions.RayActorError as failure:
            if self._workers[index] is worker:  # no other cell of this worker has replaced the worker
                self._workers[index] = self._start_worker()
            raise WorkerLost(one_line(failure)) from failure
        finally:
            self._cell_counts[index] -= 1
            del self._worker_of[cell.key]

    async def tokens_spent_by_key(self) -> Mapping[str, int]:
        """Return tokens by key, from the workers that answer in time; see `Executor`."""
        busy_workers = [self._workers[index] for index in set(self._worker_of.values())]
        replies = [_answer(worker.tokens_spent_by_key.remote()) for worker in busy_workers]
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
            self._ray.kill(worker)
        if self._has_started_ray:
            self._ray.shutdown()


async def _answer(reference: Any) -> Any:
    return await asyncio.wrap_future(reference.future())
