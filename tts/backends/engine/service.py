"""The engine's thread, and the passing of calls and replies between an event loop and that thread."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tts.backends.base import Counters, Reply
from tts.backends.batching import BatchQueue, LoopQueue
from tts.backends.engine.core import Runner
from tts.backends.engine.work import PrefillJob, engine_error
from tts.errors import EngineError

Deliver = Callable[..., None]


@dataclass(frozen=True, slots=True)
class EngineCall:
    """One item of a call.

    `start` begins the item in the engine's thread. `computed` and `reused` count the item's input tokens.
    """

    start: Callable[[CallFuture], None] = lambda _: None
    computed: int = 0
    reused: int = 0


class CallFuture:
    """The result of a call, set once, in the engine's thread.

    `computed`, `prompt`, `reused` and `seconds` may be set before the result is.
    """

    def __init__(self, call: EngineCall, future: asyncio.Future[Reply[Any]], counters: Counters) -> None:
        self.computed = call.computed
        self.prompt = 0
        self.reused = call.reused
        self.seconds = 0.0
        self.reply = future
        self.deliver: Deliver
        self._counters = counters

    def start(self, begin: Callable[[CallFuture], None], deliver: Deliver) -> None:
        """Begin the call, in the engine's thread, unless it has ended."""
        self.deliver = deliver
        if not self.reply.done():
            begin(self)

    def set_result(self, make: Callable[[], Any]) -> None:
        """Set the result of `make`, which is called in the event loop's thread."""
        self.deliver(self._answer, make)

    def set_computed(self, compute: Callable[[], Any]) -> None:
        """Call `compute` in this thread, and set its result or the exception that it raises."""
        try:
            result = compute()
        except Exception as failure:  # noqa: BLE001 - a failure, such as logits that are not finite, fails this item only
            self.set_exception(failure)
        else:
            self.set_result(lambda: result)

    def set_exception(self, failure: Exception) -> None:
        """Set the exception."""
        self.deliver(self.fail, failure)

    def set_prefilled(self, job: PrefillJob, make: Callable[[], Any]) -> None:
        """Set the job's failure as exception, if it failed, else the result of `make`.

        `make` is called in the event loop's thread.
        """
        self.seconds += job.seconds
        if job.failure is not None:
            self.set_exception(job.failure)
        else:
            self.set_result(make)

    def fail(self, failure: Exception) -> None:
        """Set the exception, in the event loop's thread."""
        if not self.reply.done():
            self.reply.set_exception(failure)

    def _answer(self, make: Callable[[], Any]) -> None:
        self._counters.prompt_tokens += self.computed
        self._counters.reused_tokens += self.reused
        if not self.reply.done():
            self.reply.set_result(Reply(make(), self.computed, self.reused, self.seconds, self.prompt))


@dataclass(slots=True, eq=False)
class EngineTask:
    """Work for the engine's thread.

    `start` is called with `deliver`, which runs a function in the event loop. `fail` and `done` run there too. A task
    that has begun drops its `start`, which refers to the states of paths: the queue may keep the task until after the
    last sweep.
    """

    start: Callable[[Deliver], None]
    fail: Callable[[Exception], None]
    done: Callable[[], bool]


class Service:
    """Steps one or more models while there is work.

    Args:
        runners: The models.
        counters: The counters of the backend.

    Attributes:
        gone: Releases to run in the engine's thread; the finalizers of states append to it from any thread.
    """

    def __init__(self, runners: Sequence[Runner], counters: Counters) -> None:
        self.gone: deque[Callable[[], None]] = deque()
        self._runners = list(runners)
        self._counters = counters
        self._stepping = threading.Lock()
        self._queue = LoopQueue(self._execute, _fail_all)

    def submit(self, task: EngineTask) -> None:
        """Submit a task; call in an event loop.

        Raises:
            EngineError: the service was closed.
        """
        self._queue.submit(task)

    async def ask(self, calls: Sequence[EngineCall]) -> list[Reply[Any]]:
        """Submit calls, and return their replies in order."""
        futures = [CallFuture(call, asyncio.get_running_loop().create_future(), self._counters) for call in calls]
        for call, future in zip(calls, futures, strict=True):
            self.submit(EngineTask(partial(future.start, call.start), future.fail, future.reply.done))
        return await _replies(futures)

    async def ask_together(
        self, calls: Sequence[EngineCall], start: Callable[[Sequence[CallFuture]], None]
    ) -> list[Reply[Any]]:
        """Submit calls whose items `start` begins together, and return the replies in order."""
        futures = [CallFuture(call, asyncio.get_running_loop().create_future(), self._counters) for call in calls]

        def begin(deliver: Deliver) -> None:
            for future in futures:
                future.deliver = deliver
            start(futures)

        def fail(failure: Exception) -> None:
            for future in futures:
                future.fail(failure)

        self.submit(EngineTask(begin, fail, lambda: all(future.reply.done() for future in futures)))
        return await _replies(futures)

    def sweep(self) -> None:
        """Run the pending releases now, or after the step under way."""
        if self._stepping.acquire(blocking=False):
            try:
                self._run_releases()
            finally:
                self._stepping.release()

    def close(self) -> None:
        """Fail tasks under way and later ones; free the models' threads, and their memory on a device.

        A step under way on a device is waited for.
        """
        self._queue.close()
        for runner in self._runners:
            runner.decoder.close()
            if runner.decoder.device.type != "cpu":
                with self._stepping:
                    runner.drop()

    def _execute(self, queue: BatchQueue, tasks: list[EngineTask], deliver: Deliver) -> None:
        try:
            with self._stepping:
                self._step(queue, tasks, deliver)
        finally:
            deliver(self.sweep)  # frees what finalizers released while this thread was stepping

    def _step(self, queue: BatchQueue, tasks: list[EngineTask], deliver: Deliver) -> None:
        """Step until there is nothing to do; an exception of the loop fails all jobs."""
        try:
            _start(tasks, deliver)
            tasks.clear()  # so that nothing but the jobs refers to the states of paths
            while True:
                for runner in self._runners:
                    if runner.busy:
                        runner.step()
                self._run_releases()
                new_tasks = queue.take(lambda task: task.done())
                _start(new_tasks, deliver)
                if not new_tasks and not any(runner.busy for runner in self._runners):
                    break
        except BaseException as failure:
            reason = failure if isinstance(failure, Exception) else RuntimeError(type(failure).__name__)
            for runner in self._runners:
                runner.abandon(engine_error(reason))
            self._run_releases()
            raise

    def _run_releases(self) -> None:
        while self.gone:
            self.gone.popleft()()


async def _replies(futures: Sequence[CallFuture]) -> list[Reply[Any]]:
    """Wait for all replies, and return them in order.

    Raises:
        Exception: the first failure of an item; an EngineError carries the replies of the items without a failure.
    """
    results = await asyncio.gather(*(future.reply for future in futures), return_exceptions=True)
    replies = [result for result in results if not isinstance(result, BaseException)]
    failures = [result for result in results if isinstance(result, BaseException)]
    if failures:
        failure = failures[0]
        if isinstance(failure, EngineError):
            failure = copy.copy(failure)  # other calls may have failed with the same exception
            failure.replies = replies
        raise failure
    return replies


def _start(tasks: Sequence[EngineTask], deliver: Deliver) -> None:
    """Begin tasks, in the engine's thread; a task that raises fails alone."""
    for task in tasks:
        start = task.start
        task.start = lambda _: None  # the task drops the states of paths, to which its start refers
        try:
            start(deliver)
        except Exception as failure:  # noqa: BLE001 - fails this task only
            deliver(task.fail, failure)


def _fail_all(tasks: Sequence[EngineTask], failure: Exception) -> None:
    for task in tasks:
        task.fail(engine_error(failure))
