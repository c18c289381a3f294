"""The checker: an oracle that compares the extracted answer with the reference answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tts._core.threads import call_or_postpone, run_in_thread
from tts.types import Problem, Trajectory
from tts.verifiers.base import Calls, StepScores, Verifier


@dataclass(frozen=True, slots=True)
class Checker(Verifier):
    """Scores 1 if the extracted answer is equivalent to the reference answer, else 0.

    A search that the checker guides is marked `oracle`.

    The score's note says whether the answer is right, and nothing of the reference answer.

    Cost: no tokens.

    Example:
        >>> import tts
        >>> problem = tts.Problem("3 + 4 - 2 + 9", answer="14")
        >>> found = tts.solve(
        ...     problem, 400, model="toy", verifier="checker", strategy="best_of_n(n=4) | best", allow_oracle=True
        ... )
        >>> found.answer, found.oracle, [round(c.scores["main"], 2) for c in found.candidates]
        ('14', True, [1.0, 1.0, 1.0, 0.0])
    """

    name = "checker"
    oracle = True

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        """Return 1.0 for a right answer, and 0.0 for a wrong or missing answer."""
        return [await self._score(problem, t.response, calls) for t in trajectories]

    async def _score(self, problem: Problem, text: str, calls: Calls) -> StepScores:
        answer = await call_or_postpone(calls.task.extract, text)
        if answer is None:
            return StepScores(whole=0.0, note="The solution has no answer.")
        reference = problem.answer or ""
        is_right = calls.task.accepts(answer, reference)
        if is_right is None:
            is_right = await run_in_thread(calls.task.equivalent, answer, reference)
        return StepScores(whole=float(is_right), note=f"The answer {answer} is {'right' if is_right else 'wrong'}.")
