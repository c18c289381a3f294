"""Any function as a verifier: `verifier=my_function` in `solve`."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import math
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from tts._core.threads import run_in_thread
from tts.errors import VerifierError
from tts.types import Problem, Trajectory
from tts.verifiers.base import Calls, StepScores, Traits, Verifier

# (problem without its answer, text of the path) -> one score, or one score a step, either of them with a note; plain or
# async
ScoreFunction = Callable[
    [Problem, str], "float | Sequence[float] | tuple[Any, str] | Awaitable[float | Sequence[float] | tuple[Any, str]]"
]

_MOST_CALLS = 64  # concurrent calls of an async function
_TIMED_OUT = object()  # in place of a score for which the budget's time did not suffice


@dataclass(frozen=True, slots=True)
class FunctionVerifier(Verifier):
    """Scores with a function of the problem and the trajectory's text.

    A plain function runs in a worker thread, one trajectory at a time; problems that are solved concurrently call it
    from several threads. An async function is awaited for all trajectories concurrently, at most 64 at a time.

    Args:
        fn: A function that returns a number (a score of the whole), or a sequence or array of numbers (one for each
            step); NaN is unknown. It may also return such a score with a text, which is the note (`StepScores.note`).
        range: Least and greatest score; a score outside is an error.
        inferred: Whether the range is not stated, as for a function that is given as a verifier
            (`Traits.range_by_scores`).

    Cost: no tokens; one verifier call a trajectory.
    """

    fn: ScoreFunction
    range: tuple[float, float] = (0.0, 1.0)
    inferred: bool = False
    name = "callable"

    @property
    def traits(self) -> Traits:
        """Its traits."""
        return Traits(range_by_scores=self.inferred)

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        """Return the function's scores; NaN for trajectories that the budget's time does not reach."""
        texts = [trajectory.judged_text for trajectory in trajectories]
        returned = _Returned()
        try:
            await returned.collect(lambda text: _contain(self.fn, problem, text), texts, calls.seconds_left())
            results = returned.values + [_TIMED_OUT] * (len(texts) - len(returned.values))
            pending = [i for i, result in enumerate(results) if inspect.isawaitable(result)]
            awaited_results = await _await_all([results[i] for i in pending], calls.seconds_left())
        finally:
            returned.close()
        for i, result in zip(pending, awaited_results, strict=True):
            results[i] = result
        return [StepScores(whole=math.nan) if result is _TIMED_OUT else _scores(result) for result in results]


class _Returned:
    """The values that a function returned for texts, one after another.

    `close` closes the coroutines that nobody awaited.
    """

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._lock = threading.Lock()
        self._is_over = False

    async def collect(self, function: Callable[[str], Any], texts: Sequence[str], seconds: float | None) -> None:
        """Call the function for each text in a worker thread, until the time has run out.

        The event loop is not blocked.
        """

        def work() -> None:
            for text in texts:
                if self._is_over or not self._keep(function(text)):
                    return

        try:
            with suppress(TimeoutError):  # of `wait_for`; a TimeoutError of the function is a VerifierError by now
                await asyncio.wait_for(run_in_thread(work), seconds)
        finally:
            with self._lock:
                self._is_over = True

    def _keep(self, value: Any) -> bool:
        """Keep a value that came in time and return True; else close the value and return False."""
        with self._lock:
            if self._is_over:
                _close(value)
                return False
            self.values.append(value)
            return True

    def close(self) -> None:
        """Close all coroutines, so that Python gives no warning of coroutines that were never awaited."""
        for value in self.values:
            _close(value)


def _close(value: Any) -> None:
    """Close a coroutine; an ended coroutine stays as it is."""
    if isinstance(value, Coroutine):
        with suppress(Exception):  # nobody reads what the caller's code raises at its end
            value.close()


async def _await_all(awaitables: Sequence[Awaitable[Any]], seconds: float | None) -> list[Any]:
    """Await the results of an async function concurrently; `_TIMED_OUT` where time ran out."""
    semaphore = asyncio.Semaphore(_MOST_CALLS)

    async def await_result(awaitable: Awaitable[Any]) -> Any:
        async with semaphore:
            try:
                return await awaitable
            except asyncio.CancelledError as failure:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                raise VerifierError("the verifier function was cancelled by itself") from failure
            except SystemExit as failure:
                raise VerifierError(f"the verifier function raised {failure!r}") from failure

    tasks = [asyncio.ensure_future(await_result(awaitable)) for awaitable in awaitables]
    if not tasks:
        return []
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        return [task.result() if task.done() else _TIMED_OUT for task in tasks]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _contain(fn: ScoreFunction, problem: Problem, text: str) -> Any:
    try:
        return fn(problem, text)
    except (SystemExit, TimeoutError) as failure:  # the solver would take them for its own exit or timeout
        raise VerifierError(f"the verifier function raised {failure!r}") from failure


def _scores(result: Any) -> StepScores:
    """Return a number as a score of the whole, and a one-dimensional array as scores of steps.

    Of a pair with a text, the text becomes the note.
    """
    has_note = isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], str)
    if has_note:
        score, note = result
        return dataclasses.replace(_scores(score), note=note)
    if result is None:
        raise VerifierError(
            "the verifier function returned None, but must return a number, or one a step; NaN where it is unknown"
        )
    values = np.asarray(result, dtype=np.float64)
    if values.ndim == 0:
        return StepScores(whole=float(values))
    if values.ndim > 1:
        raise VerifierError(
            f"the verifier function returned an array of shape {values.shape}, but must return a number, or one a step"
        )
    return StepScores(steps=tuple(values.tolist()))
