"""The checker: 1 where the extracted answer is equivalent to the reference answer, else 0. An oracle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tts.background import in_thread
from tts.types import Problem, Trajectory
from tts.verifiers.base import Calls, StepScores


@dataclass(frozen=True, slots=True)
class Checker:
    """Decides correctness with the reference answer; a search that it guides is marked `oracle`.

    Cost: no tokens.
    """

    name: str = field(default="checker", init=False)
    range: tuple[float, float] = field(default=(0.0, 1.0), init=False)
    oracle: bool = field(default=True, init=False)
    needs: tuple[str, ...] = field(default=(), init=False)
    model: str = field(default="policy", init=False)

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        """Return 1.0 for a right answer and 0.0 for a wrong or missing one."""
        return [StepScores(whole=float(await self._right(problem, t.full_text, calls))) for t in trajectories]

    async def _right(self, problem: Problem, text: str, calls: Calls) -> bool:
        answer, reference = calls.task.extract(text), problem.answer or ""
        if answer is None:
            return False
        verdict = calls.task.decide(answer, reference)
        return await in_thread(calls.task.equivalent, answer, reference) if verdict is None else verdict

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        """Return 0."""
        del prefix_tokens, new_tokens
        return 0
