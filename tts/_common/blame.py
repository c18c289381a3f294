"""Failures in code that others write.

Whatever such code raises becomes one error that names the part at fault.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

from tts.errors import TTSError


class Blame:
    """A context that turns what a part's own code raises into an error that names the part.

    Errors of this package pass, and so do Ctrl-C, the cancellation of the task that runs this, and the end of a
    coroutine that nobody awaits any more. A `CancelledError` or `GeneratorExit` that the code raised itself is a
    failure like any other.

    Args:
        part: The part at fault, as the error names it; a function where its name takes long to write.
        kind: The class of the error.
        passes: Exceptions that are no failures.

    Raises:
        TTSError: The code raised something; `__cause__` has it.

    Example:
        >>> from tts._common.blame import Blame
        >>> with Blame("the strategy 'own'"):
        ...     raise KeyError("node")
        Traceback (most recent call last):
          ...
        tts.errors.TTSError: the strategy 'own' failed: KeyError: 'node'
    """

    __slots__ = ("_kind", "_part", "_passes", "_task")

    def __init__(
        self, part: str | Callable[[], str], kind: type[TTSError] = TTSError, passes: tuple[type[Exception], ...] = ()
    ) -> None:
        self._part, self._kind, self._passes = part, kind, passes

    def __enter__(self) -> None:
        self._task = _current_task()

    def __exit__(
        self, _type: type[BaseException] | None, failure: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        if failure is None or isinstance(failure, (TTSError, KeyboardInterrupt, *self._passes)):
            return
        outcome = f"failed: {type(failure).__name__}: {failure}"
        if isinstance(failure, asyncio.CancelledError):
            if self._task is None or self._task.cancelling():
                return
            outcome = "was cancelled by itself"
        is_same_task = self._task is not None and self._task is _current_task()
        if isinstance(failure, GeneratorExit) and not is_same_task:  # the coroutine was closed from outside
            return
        if isinstance(failure, SystemExit):
            outcome = "exited the program"
        part_name = self._part if isinstance(self._part, str) else self._part()
        raise self._kind(f"{part_name} {outcome}") from failure


def _current_task() -> asyncio.Task[object] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no event loop runs here
        return None
