"""Keys of mathematical answers, computed in worker processes (`tts.tasks.worker`).

Workers can be killed, and do not block this process.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Sequence
from concurrent.futures import Future

from tts.checks import check_int
from tts.tasks.algebra.quick import quick_key, unread_key
from tts.tasks.bounded_cache import BoundedCache
from tts.tasks.forms.normal_form import MAX_CHARACTERS
from tts.tasks.worker import WorkerDiedError, WorkerNotStartedError, WorkerPool, positive, python_command

PACKAGE = "mpmath"


class SymbolicChecker:
    """A checker that computes the keys of answers in normal form.

    Two answers are equal if their keys are equal (`tts.tasks.algebra.keys`).

    A key is computed once and kept. Work is bounded by sizes and counts, so that verdicts do not depend on the machine.
    The time limit only guards against a fault. Workers start when they are needed, and end with the checker or the
    interpreter.

    Args:
        time_limit_s: Seconds for one answer, above 0 and finite. At the limit the worker is killed, and the answer is
            equal to no other.
        start_limit_s: Seconds that a worker may take to start, which do not count towards `time_limit_s`.
        command: The command that starts a worker; None: this interpreter with `tts.tasks.math_worker`.
        num_keys: The most keys that are kept.
        num_workers: The most processes; None: one a processor, up to 4.

    Attributes:
        available: Whether keys can be computed: mpmath is installed, and no worker has failed to start.
        timeouts: Answers whose computation reached the time limit.
        failures: Workers that did not start or died by themselves.
    """

    def __init__(
        self,
        *,
        time_limit_s: float = 20.0,
        start_limit_s: float = 60.0,
        command: Sequence[str] | None = None,
        num_keys: int = 65_536,
        num_workers: int | None = None,
    ) -> None:
        self.time_limit_s = positive("time_limit_s", time_limit_s)
        check_int("num_workers", num_workers, 1)
        self.timeouts = 0
        self.failures = 0
        self.available = command is not None or importlib.util.find_spec(PACKAGE) is not None
        worker_command = python_command("tts.tasks.math_worker") if command is None else command
        self._workers = WorkerPool(worker_command, start_limit_s=start_limit_s, num_workers=num_workers)
        self._keys: BoundedCache[str, str] = BoundedCache(num_keys)
        self._asked: dict[str, Future[str | None]] = {}
        self._lock = threading.Lock()

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of the running workers."""
        return self._workers.pids

    def known_key(self, form: str) -> str | None:
        """Return the key of a normal form, within microseconds, if the key needs no worker; else None."""
        if len(form) > MAX_CHARACTERS:
            return unread_key(form)
        key = self._keys.get(form)
        if key is None:
            key = quick_key(form)
            has_worker = self.available and form != ""
            if key is None and not has_worker:
                key = unread_key(form)
            if key is not None:
                self._keys.put(form, key)
        return key

    def key(self, form: str) -> str:
        """Return the key of a normal form.

        Raises:
            TimeoutError: the worker reached the time limit, or ended; the next call for this form raises at once.
        """
        known_key = self.known_key(form)
        if known_key is not None:
            return known_key
        with self._lock:
            future = self._asked.get(form)
            is_first_call = future is None
            if future is None:
                future = self._asked[form] = Future()
        if is_first_call:
            self._answer(form, future)
        key = future.result()
        if key is None:
            raise TimeoutError(f"no worker computed the key of {form!r}")
        return key

    def close(self) -> None:
        """End the workers; the next key starts others."""
        self._workers.close()

    def _answer(self, form: str, future: Future[str | None]) -> None:
        """Get a key from a worker; later calls for the same form wait for it."""
        try:
            key = self._ask(form)
        except BaseException as failure:
            with self._lock:
                del self._asked[form]
            future.set_exception(failure)
            raise
        with self._lock:
            if key is not None:  # after a time limit the form stays in `_asked`, so that later calls fail at once
                self._keys.put(form, key)
                del self._asked[form]
        future.set_result(key)

    def _ask(self, form: str) -> str | None:
        """Return a worker's key for a form; None where the worker reached the time limit, or ended."""
        try:
            with self._workers.worker() as worker:
                if not self.available:
                    return unread_key(form)
                key = worker.ask({"form": form}, self.time_limit_s).get("key")
                return key if isinstance(key, str) else None
        except TimeoutError:
            self.timeouts += 1
        except WorkerNotStartedError:
            self.failures += 1
            self.available = False
            return unread_key(form)
        except WorkerDiedError:
            self.failures += 1
        return None
