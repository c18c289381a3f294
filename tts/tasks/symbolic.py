"""Symbolic equality in a worker process that can really be killed.

Idea: a computer algebra system may hang inside one C call, where no signal handler and no thread can stop it, and may ask for all memory.
    So it lives in a process of its own, with a memory limit, which is killed at its time limit and started anew at the next question.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import queue
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from typing import IO, Any, cast

from tts.errors import ConfigError
from tts.tasks.bounded_cache import BoundedCache
from tts.tasks.normal_form import MAX_CHARACTERS

PACKAGE = "math_verify"


class SymbolicChecker:
    """Tells whether two answers in normal form are equal as mathematics; wrong or hanging input means False, never an error.

    The worker starts with the first question and is shared by all threads, one question at a time. It ends with the checker or the
    interpreter.

    Args:
        time_limit_s: seconds for one pair, above 0 and finite; the worker is killed then, and the verdict is False.
        start_limit_s: seconds that a worker may take to start, which do not count towards `time_limit_s`.
        command: what starts a worker; None: this interpreter with `tts.tasks.math_worker`.
        num_verdicts: pairs whose verdict is remembered.

    Attributes:
        timeouts: pairs that were given up at the time limit.
        failures: workers that did not start or died by themselves.
    """

    def __init__(
        self, *, time_limit_s: float = 3.0, start_limit_s: float = 60.0, command: Sequence[str] | None = None, num_verdicts: int = 65_536
    ) -> None:
        for name, limit in (("time_limit_s", time_limit_s), ("start_limit_s", start_limit_s)):
            if not 0 < limit < math.inf:
                raise ConfigError(f"{name} is {limit}, but must be above 0 and finite")
        self.time_limit_s = time_limit_s
        self.start_limit_s = start_limit_s
        self.timeouts = 0
        self.failures = 0
        # -P keeps the working directory from shadowing modules; the path handed over already says where they are.
        self._command = [sys.executable, "-P", "-m", "tts.tasks.math_worker"] if command is None else list(command)
        self._startable = command is not None or importlib.util.find_spec(PACKAGE) is not None
        self._worker: _Worker | None = None
        self._finalizer: weakref.finalize[[], SymbolicChecker] | None = None
        self._verdicts: BoundedCache[tuple[str, str], bool] = BoundedCache(num_verdicts)
        self._lock = threading.Lock()

    @property
    def available(self) -> bool:
        """Whether symbolic equality can be asked for: the package is there, and no worker has failed to start."""
        return self._startable

    @property
    def pid(self) -> int | None:
        """The process id of the running worker, or None."""
        worker = self._worker
        return None if worker is None else worker.pid

    def equal(self, a: str, b: str) -> bool:
        """Whether two answers are equal, in either order; False where that cannot be told within the limits."""
        if not a or not b or max(len(a), len(b)) > MAX_CHARACTERS or not self._startable:
            return False
        pair = (a, b) if a <= b else (b, a)
        verdict = self._verdicts.get(pair)
        if verdict is None:
            with self._lock:
                verdict = self._verdicts.get(pair)
                if verdict is None:
                    verdict = self._ask(pair)
                    self._verdicts.put(pair, verdict)
        return verdict

    def close(self) -> None:
        """End the worker; the next question starts another."""
        with self._lock:
            self._drop_worker()

    def _ask(self, pair: tuple[str, str]) -> bool:
        worker = self._running_worker()
        if worker is None:
            return False
        answered = False
        try:
            reply = worker.ask({"a": pair[0], "b": pair[1], "limit_s": self.time_limit_s}, self.time_limit_s)
            answered = True
        except TimeoutError:
            self.timeouts += 1
            return False
        except _WorkerDiedError:
            self.failures += 1
            return False
        finally:
            # Also after Ctrl-C: a late reply must not become the answer to the next question.
            if not answered:
                self._drop_worker()
        return reply.get("equal") is True

    def _running_worker(self) -> _Worker | None:
        if self._worker is not None and not self._worker.usable:
            self._drop_worker()
        if self._worker is None and self._startable:
            try:
                self._worker = _Worker(self._command, self.start_limit_s)
            except _WorkerDiedError:
                self._startable = False
                self.failures += 1
                return None
            self._finalizer = weakref.finalize(self, self._worker.kill)
        return self._worker

    def _drop_worker(self) -> None:
        if self._worker is not None and self._finalizer is not None:
            self._finalizer.detach()
            self._worker.kill()
            self._worker = None


class _WorkerDiedError(Exception):
    """A worker ended, or said what is no reply."""


class _Worker:
    """A process that reads a JSON line and writes one back; its first line says that it is ready."""

    def __init__(self, command: Sequence[str], start_limit_s: float) -> None:
        self._owner = os.getpid()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                encoding="utf-8",
                start_new_session=True,  # Ctrl-C in a terminal is for us, not for the worker
            )
        except (OSError, ValueError) as error:
            raise _WorkerDiedError(str(error)) from error
        self._replies: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        assert self._process.stdout is not None, "opened as a pipe"
        self._reader = threading.Thread(target=_forward, args=(self._process.stdout, self._replies), daemon=True)
        self._reader.start()
        ready = False
        try:
            ready = self._reply(time.monotonic() + start_limit_s).get("ready") is True
        except TimeoutError as error:
            raise _WorkerDiedError("it was not ready in time") from error
        finally:
            if not ready:
                self.kill()
        if not ready:
            raise _WorkerDiedError("it could not start")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def usable(self) -> bool:
        """Whether the process runs and is ours: a fork of this process must not talk over our pipes."""
        return self._owner == os.getpid() and self._process.poll() is None

    def ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        """Return the reply to a request.

        Raises:
            TimeoutError: none came within `limit_s` seconds.
            _WorkerDiedError: the process ended, or its reply is no JSON object.
        """
        deadline = time.monotonic() + limit_s
        assert self._process.stdin is not None, "opened as a pipe"
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise _WorkerDiedError(str(error)) from error
        return self._reply(deadline)

    def kill(self) -> None:
        """Kill the process and wait until it is gone."""
        if self._owner != os.getpid():
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
        try:
            line = self._replies.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty as error:
            raise TimeoutError from error
        if line is None:
            raise _WorkerDiedError("it closed its output")
        try:
            reply: Any = json.loads(line)
        except ValueError as error:
            raise _WorkerDiedError("its reply is no JSON") from error
        if not isinstance(reply, dict):
            raise _WorkerDiedError("its reply is no JSON object")
        return cast("dict[str, Any]", reply)


def _forward(stream: IO[str], replies: queue.SimpleQueue[str | None]) -> None:
    with stream:
        for line in stream:
            replies.put(line)
    replies.put(None)
