"""Symbolic equality in a worker process (`tts.tasks.worker`): a computer algebra system may hang, or ask for all memory."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Sequence

from tts.tasks.bounded_cache import BoundedCache
from tts.tasks.normal_form import MAX_CHARACTERS
from tts.tasks.worker import Worker, WorkerDiedError, WorkerNotStartedError, positive, python_command

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
        self.time_limit_s = positive("time_limit_s", time_limit_s)
        self.timeouts = 0
        self.failures = 0
        self._startable = command is not None or importlib.util.find_spec(PACKAGE) is not None
        self._worker = Worker(python_command("tts.tasks.math_worker") if command is None else command, start_limit_s=start_limit_s)
        self._verdicts: BoundedCache[tuple[str, str], bool] = BoundedCache(num_verdicts)
        self._lock = threading.Lock()

    @property
    def available(self) -> bool:
        """Whether symbolic equality can be asked for: the package is there, and no worker has failed to start."""
        return self._startable

    @property
    def pid(self) -> int | None:
        """The process id of the running worker, or None."""
        return self._worker.pid

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
        self._worker.close()

    def _ask(self, pair: tuple[str, str]) -> bool:
        if not self._startable:
            return False
        try:
            return self._worker.ask({"a": pair[0], "b": pair[1]}, self.time_limit_s).get("equal") is True
        except TimeoutError:
            self.timeouts += 1
        except WorkerDiedError as failure:
            self.failures += 1
            self._startable = not isinstance(failure, WorkerNotStartedError)
        return False
