"""Requests to a process that can be killed, and the loop that such a process runs.

Idea: what reads a model's text may hang inside one C call, where no signal handler and no thread can stop it. It may
    also ask for all memory. So it lives in a process of its own, with a memory limit. The process is killed at its time
    limit, and started anew at the next question.
"""

from __future__ import annotations

import json
import math
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any, cast

from tts.errors import ConfigError

if sys.platform != "win32":
    import resource

MEMORY_BYTES = 2 * 1024**3
_MOST_WORKERS = 4


class WorkerDiedError(Exception):
    """A worker ended, or its reply is not valid."""


class WorkerNotStartedError(WorkerDiedError):
    """A worker did not become ready."""


class Worker:
    """A process that answers one request at a time, from any thread.

    The process starts with the first request and ends with this object.

    Args:
        command: The command that starts the process, which reads and writes JSON lines, first {"ready": true} (see
            `serve`).
        start_limit_s: Seconds that the start may take, above 0 and finite; they do not count towards a request's limit.
        environment: Variables of the process besides this process's own.
    """

    def __init__(
        self, command: Sequence[str], *, start_limit_s: float = 60.0, environment: Mapping[str, str] | None = None
    ) -> None:
        self._command = list(command)
        self._start_limit_s = positive("start_limit_s", start_limit_s)
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **(environment or {})}
        self._process: _Process | None = None
        self._finalizer: weakref.finalize[[], Worker] | None = None
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The process id, or None where none runs."""
        process = self._process
        return None if process is None else process.pid

    def ask(self, request: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """Return the reply to a request.

        Without a reply the process is killed; the next request starts another.

        Raises:
            TimeoutError: no reply came within `limit_s` seconds.
            WorkerNotStartedError: the process did not become ready.
            WorkerDiedError: the process ended, or its reply is no JSON object.
        """
        with self._lock:
            process = self._running()
            try:
                return process.ask(request, limit_s)
            except BaseException:  # also Ctrl-C: a late reply must not become the reply to the next request
                self._drop()
                raise

    def close(self) -> None:
        """End the process; a request under way fails, and the next request starts another process."""
        process = self._process
        if process is not None:
            process.kill()
        with self._lock:
            self._drop()

    def _running(self) -> _Process:
        """Return the running process, or a new process."""
        if self._process is not None and not self._process.usable:
            self._drop()
        if self._process is None:
            self._process = _Process(self._command, self._environment, self._start_limit_s)
            self._finalizer = weakref.finalize(self, self._process.kill)
        return self._process

    def _drop(self) -> None:
        if self._process is not None and self._finalizer is not None:
            self._finalizer.detach()
            self._process.kill()
            self._process = None


class WorkerPool:
    """Workers that share requests: each takes one request at a time, from any thread.

    Args:
        command: The command that starts a worker; see `Worker`.
        start_limit_s: The seconds that a worker may take to start.
        num_workers: The most processes; None: one a processor, up to 4.
    """

    def __init__(self, command: Sequence[str], *, start_limit_s: float = 60.0, num_workers: int | None = None) -> None:
        count = num_workers or min(_MOST_WORKERS, os.cpu_count() or 1)
        self._workers = [Worker(command, start_limit_s=start_limit_s) for _ in range(count)]
        self._idle: queue.LifoQueue[Worker] = queue.LifoQueue()
        for worker in reversed(self._workers):
            self._idle.put(worker)

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of the running workers."""
        return tuple(pid for pid in (worker.pid for worker in self._workers) if pid is not None)

    @contextmanager
    def worker(self) -> Generator[Worker]:
        """Wait for an idle worker, and lend it."""
        worker = self._idle.get()
        try:
            yield worker
        finally:
            self._idle.put(worker)

    def close(self) -> None:
        """End the processes; the next request starts others."""
        for worker in self._workers:
            worker.close()


def python_command(module: str) -> list[str]:
    """Return the command that runs a module of this package by this interpreter."""
    # -P keeps the working directory from shadowing modules, which PYTHONPATH finds.
    return [sys.executable, "-P", "-m", module]


def positive(name: str, limit_s: float) -> float:
    """Return a limit in seconds.

    Raises:
        ConfigError: the limit is not above 0, or not finite.
    """
    if not 0 < limit_s < math.inf:
        raise ConfigError(f"{name} is {limit_s}, but must be above 0 and finite")
    return limit_s


def serve(prepare: Callable[[], Callable[[dict[str, Any]], Mapping[str, Any]]]) -> None:
    """Answer requests, a JSON line each, until the input ends; the loop of a worker's process.

    The process may be killed at any time. The kernel ends it 5 seconds after a request's own limit (`limit_s`), in case
    the requesting process has ended.

    Args:
        prepare: A function that imports modules, and returns the function that answers a request. Its time counts
            towards the limit of the start.
    """
    _limit_memory()
    # Replies go to a copy of the standard output. The standard output itself leads nowhere, so that no print of other
    # code comes between the replies.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    def reply(message: Mapping[str, Any]) -> None:
        replies.write(json.dumps(message) + "\n")
        replies.flush()

    answer = prepare()
    reply({"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        _alarm(math.ceil(request["limit_s"]) + 5)
        reply(answer(request))
        _alarm(0)


def _limit_memory() -> None:
    if sys.platform != "win32":
        _soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_AS)
        limit = MEMORY_BYTES if hard_limit == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard_limit)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard_limit))


def _alarm(seconds: int) -> None:
    """Let the kernel end this process after some seconds; 0: cancel the alarm."""
    if sys.platform != "win32":
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(seconds)


class _Process:
    """A process that reads a JSON line and writes one back; its first line says that the process is ready."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], start_limit_s: float) -> None:
        self._owner_pid = os.getpid()
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                encoding="utf-8",
                start_new_session=True,  # Ctrl-C in a terminal must not reach the worker
            )
        except (OSError, ValueError) as error:
            raise WorkerNotStartedError(str(error)) from error
        self._replies: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        assert self._process.stdout is not None, "opened as a pipe"
        self._reader = threading.Thread(target=_forward, args=(self._process.stdout, self._replies), daemon=True)
        self._reader.start()
        is_ready = False
        try:
            is_ready = self._reply(time.monotonic() + start_limit_s).get("ready") is True
        except (TimeoutError, WorkerDiedError) as error:
            raise WorkerNotStartedError(str(error) or "it was not ready in time") from error
        finally:
            if not is_ready:
                self.kill()
        if not is_ready:
            raise WorkerNotStartedError("it could not start")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def usable(self) -> bool:
        """Whether the process runs and this process started it: a fork must not use its parent's pipes."""
        return self._owner_pid == os.getpid() and self._process.poll() is None

    def ask(self, request: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """Return the reply to a request.

        Raises:
            TimeoutError: no reply came within `limit_s` seconds.
            WorkerDiedError: the process ended, or its reply is no JSON object.
        """
        deadline = time.monotonic() + limit_s
        assert self._process.stdin is not None, "opened as a pipe"
        try:
            self._process.stdin.write(json.dumps({**request, "limit_s": limit_s}) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise WorkerDiedError(str(error)) from error
        return self._reply(deadline)

    def kill(self) -> None:
        """Kill the process and wait until it is gone."""
        if self._owner_pid != os.getpid():  # a fork of the process that owns the worker
            return
        self._process.kill()
        self._process.wait()
        self._reader.join(timeout=1.0)
        assert self._process.stdin is not None, "opened as a pipe"
        try:
            self._process.stdin.close()
        except OSError:  # a request that was never read is flushed into a broken pipe
            return

    def _reply(self, deadline: float) -> dict[str, Any]:
        """Return the next line of the process as an object; `deadline` is a time of the monotonic clock."""
        try:
            line = self._replies.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty as error:
            raise TimeoutError from error
        if line is None:
            raise WorkerDiedError("it closed its output")
        try:
            reply: Any = json.loads(line)
        except ValueError as error:
            raise WorkerDiedError("its reply is no JSON") from error
        if not isinstance(reply, dict):
            raise WorkerDiedError("its reply is no JSON object")
        return cast("dict[str, Any]", reply)


def _forward(stream: IO[str], replies: queue.SimpleQueue[str | None]) -> None:
    with stream:
        for line in stream:
            replies.put(line)
    replies.put(None)
