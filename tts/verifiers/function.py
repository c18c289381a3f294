"""Any function as a verifier: `verifier=my_function` in `solve`."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import math
from collections.abc import Awaitable, Callable, Sequence
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
        one_call, running = asyncio.Lock(), asyncio.Semaphore(_MOST_CALLS)

        async def result_of(text: str) -> Any:
            async with running:
                if inspect.iscoroutinefunction(self.fn):
                    return await _await_result(self.fn(problem, text))
                async with one_call:
                    result = await run_in_thread(_contain, self.fn, problem, text)
                return await _await_result(result) if inspect.isawaitable(result) else result

        tasks = [asyncio.create_task(result_of(t.judged_text)) for t in trajectories]
        if not tasks:
            return []
        try:
            await asyncio.wait(tasks, timeout=calls.seconds_left(), return_when=asyncio.FIRST_EXCEPTION)
            return [_scores(task.result()) if task.done() else StepScores(whole=math.nan) for task in tasks]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _await_result(result: Awaitable[Any]) -> Any:
    try:
        return await result
    except asyncio.CancelledError as failure:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise VerifierError("the verifier function was cancelled by itself") from failure
    except SystemExit as failure:
        raise VerifierError(f"the verifier function raised {failure!r}") from failure


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
