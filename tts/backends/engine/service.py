"""The thread that steps while anything is asked, and how what is asked in an event loop reaches it and comes back."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tts.backends.base import Counters, Reply
from tts.backends.batching import BatchQueue, LoopQueue
from tts.backends.engine.core import Runner, engine_error
from tts.backends.engine.work import Reading

Deliver = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Call:
    """One item of a call: `start` takes it on in the engine's thread; it computes and reuses so many input tokens."""

    start: Callable[[Tell], None]
    computed: int = 0
    reused: int = 0


class Tell:
    """How a call's end reaches who asked. Used once, in the engine's thread. `computed`, `prompt`, `reused` may be set before."""

    def __init__(self, call: Call, future: asyncio.Future[Reply[Any]], counters: Counters) -> None:
        self.computed = call.computed
        self.prompt = 0
        self.reused = call.reused
        self.seconds = 0.0
        self.future = future
        self.deliver: Deliver = _undelivered
        self._counters = counters

    def made(self, make: Callable[[], Any]) -> None:
        """Answer with what `make` returns in the event loop's thread."""
        self.deliver(self._answer, make)

    def value(self, compute: Callable[[], Any]) -> None:
        """Answer with what `compute` returns here, or fails with."""
        try:
            found = compute()
        except Exception as failure:  # noqa: BLE001 - a law that is none, say: this item's own failure
            self.fail(failure)
        else:
            self.made(lambda: found)

    def fail(self, failure: Exception) -> None:
        """Answer with a failure."""
        self.deliver(self.refuse, failure)

    def read(self, reading: Reading, make: Callable[[], Any]) -> None:
        """Answer with what `make` returns in the event loop's thread, or with what the reading failed with."""
        self.seconds += reading.seconds
        if reading.failure is not None:
            self.fail(reading.failure)
        else:
            self.made(make)

    def refuse(self, failure: Exception) -> None:
        """Fail the future, in the event loop's thread."""
        if not self.future.done():
            self.future.set_exception(failure)

    def _answer(self, make: Callable[[], Any]) -> None:
        self._counters.prompt_tokens += self.computed
        self._counters.reused_tokens += self.reused
        if not self.future.done():
            self.future.set_result(Reply(make(), self.computed, self.reused, self.seconds, self.prompt))


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """Something for the engine's thread. `start` is given a way back into the event loop, where `fail` and `done` run."""

    start: Callable[[Deliver], None]
    fail: Callable[[Exception], None]
    done: Callable[[], bool]


class Service:
    """Steps one or more models while there is work.

    Args:
        runners: the models. counters: of the backend.

    Attributes:
        gone: what is to be given up in the engine's thread, from any thread: a state that nobody holds any more says so here.
    """

    def __init__(self, runners: Sequence[Runner], counters: Counters) -> None:
        self.gone: deque[Callable[[], None]] = deque()
        self._runners = list(runners)
        self._counters = counters
        self._stepping = threading.Lock()
        self._queue = LoopQueue(self._execute, _fail_all)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._queue.closed

    def submit(self, job: Job) -> None:
        """Hand a job over; call in an event loop.

        Raises:
            EngineError: the service was closed.
        """
        self._queue.submit(job)

    async def ask(self, calls: Sequence[Call]) -> list[Reply[Any]]:
        """Hand calls over, and return their answers in order."""
        tells = [Tell(call, asyncio.get_running_loop().create_future(), self._counters) for call in calls]
        for call, tell in zip(calls, tells, strict=True):
            self.submit(Job(_starter(call, tell), tell.refuse, tell.future.done))
        return await asyncio.gather(*(tell.future for tell in tells))

    def sweep(self) -> None:
        """Give up what is gone, at once if no step is under way; else it is done behind this step."""
        if self._stepping.acquire(blocking=False):
            try:
                self._give_up()
            finally:
                self._stepping.release()

    def close(self) -> None:
        """Fail what is under way and what is asked later; free the models' threads."""
        self._queue.close()
        for runner in self._runners:
            runner.decoder.close()

    def _execute(self, queue: BatchQueue, jobs: list[Job], deliver: Deliver) -> None:
        try:
            with self._stepping:
                self._step(queue, jobs, deliver)
        finally:
            deliver(self.sweep)  # for what is released while this thread was still stepping

    def _step(self, queue: BatchQueue, jobs: list[Job], deliver: Deliver) -> None:
        """Step until there is nothing to do; whatever breaks the loop ends all work."""
        try:
            _start(jobs, deliver)
            jobs.clear()  # nobody but the work holds on to states
            while True:
                for runner in self._runners:
                    if runner.busy:
                        runner.step()
                self._give_up()
                more = queue.take(_is_done)
                _start(more, deliver)
                if not more and not any(runner.busy for runner in self._runners):
                    break
        except BaseException as failure:
            reason = failure if isinstance(failure, Exception) else RuntimeError(type(failure).__name__)
            for runner in self._runners:
                runner.abandon(engine_error(reason))
            self._give_up()
            raise

    def _give_up(self) -> None:
        while self.gone:
            self.gone.popleft()()


def _starter(call: Call, tell: Tell) -> Callable[[Deliver], None]:
    def start(deliver: Deliver) -> None:
        tell.deliver = deliver
        if not tell.future.done():
            call.start(tell)

    return start


def _start(jobs: Sequence[Job], deliver: Deliver) -> None:
    for job in jobs:
        try:
            job.start(deliver)
        except Exception as failure:  # noqa: BLE001 - what one job did wrong is its own
            deliver(job.fail, failure)


def _is_done(job: Job) -> bool:
    return job.done()


def _fail_all(jobs: Sequence[Job], failure: Exception) -> None:
    for job in jobs:
        job.fail(engine_error(failure))


def _undelivered(fn: Callable[..., None], *args: Any) -> None:
    raise AssertionError(f"{fn} {args}: a call was answered before it was started")
