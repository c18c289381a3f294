"""A process verifier of the toy language with a set error rate, for tests and experiments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from tts.checks import Natural, number
from tts.errors import VerifierError
from tts.randomness import hash64
from tts.types import Problem, Trajectory
from tts.verifiers.base import Calls, StepScores, Traits, Verifier


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyVerifier(Verifier):
    """Judges for each step whether all results so far are right.

    Each verdict is flipped with probability `error`.

    A step judged right scores 1 - error, one judged wrong scores error: the probability of being right given the
    verdict, at even prior odds. error=0 is a perfect verifier, error=0.5 a constant one. A verdict depends on the text
    alone.

    Args:
        error: The error in [0, 0.5].
        seed: The seed of the flips, in [0, 2**63).

    Cost: the tokens after the last scored ancestor, like a process model that caches what it has read.
    Random: the flips, addressed by (seed, problem, text up to the step).

    Example:
        >>> import tts
        >>> found = tts.solve(
        ...     "3 + 4 - 2 + 9", 400, model="toy", strategy="best_of_n(n=4) | weighted", verifier="toy(error=0.1)"
        ... )
        >>> [round(c.scores["main"], 2) for c in found.candidates]
        [0.9, 0.9, 0.9, 0.1]
    """

    error: Annotated[float, number(0, 0.5)] = 0.0
    seed: Natural = 0
    name = "toy"
    needs = ("value",)

    @property
    def traits(self) -> Traits:
        """It only reads."""
        return Traits(requests=0)

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        """Return one score for each step."""
        readings = await calls.value(trajectories, "truth")
        return [
            StepScores(steps=self._judge(problem, t, calls.task.split(t.full_text), truth.tolist()))
            for t, truth in zip(trajectories, readings, strict=True)
        ]

    def _judge(
        self, problem: Problem, t: Trajectory, steps: Sequence[str], truth: Sequence[float]
    ) -> tuple[float, ...]:
        """Return a score for each step: 1 - `error` for a step that is judged right, else `error`.

        The judgement is the truth, flipped with the probability `error`.
        """
        if len(steps) != len(truth):
            raise VerifierError(
                f"the verifier 'toy' has verdicts on {len(truth)} lines, but the path is cut into {len(steps)} steps "
                f"(node {t.node})",
                hint="it scores paths of the backend 'toy' in a task whose steps are lines, such as arithmetic",
            )
        scores: list[float] = []
        prefix = ""
        for step, reading in zip(steps, truth, strict=True):
            prefix += step
            uniform = hash64("verdict", self.seed, problem.text, prefix) * 2.0**-64
            is_flipped = self.error > 0 and uniform < self.error
            is_right = reading > 0
            scores.append(1 - self.error if is_right != is_flipped else self.error)
        return tuple(scores)

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        """Return the new tokens."""
        del prefix_tokens
        return new_tokens
