"""Any function as a verifier: `verifier=my_function` in `solve`."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from tts.types import Problem, Trajectory
from tts.verifiers.base import Calls, StepScores

# (problem without its answer, text of the path) -> one score, or one score a step; plain or async
ScoreFunction = Callable[[Problem, str], "float | Sequence[float] | Awaitable[float | Sequence[float]]"]


@dataclass(frozen=True, slots=True)
class CallableVerifier:
    """Scores with a function of the problem and the path's text.

    Args:
        fn: returns a number (a score of the whole) or a sequence of numbers (one a step); NaN is unknown.
        range: least and greatest score it returns; a score outside is an error.

    Cost: no tokens; one verifier call a path.
    """

    fn: ScoreFunction
    range: tuple[float, float] = (0.0, 1.0)
    name: str = field(default="callable", init=False)
    oracle: bool = field(default=False, init=False)
    needs: tuple[str, ...] = field(default=(), init=False)
    model: str = field(default="policy", init=False)

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        """Return what the function says of each path."""
        del calls
        scores: list[StepScores] = []
        for trajectory in trajectories:
            said = self.fn(problem, trajectory.full_text)
            if inspect.isawaitable(said):
                said = await said
            if isinstance(said, Sequence):
                scores.append(StepScores(steps=tuple(map(float, said))))
            else:
                scores.append(StepScores(whole=float(said)))
        return scores

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        """Return 0."""
        del prefix_tokens, new_tokens
        return 0
