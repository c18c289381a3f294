"""Entropy switching: a small model writes while it is sure of itself, and a large one while it is not.

Source: Simonds, "Entropy Adaptive Decoding: Dynamic Model Switching for Efficient Inference" (2502.06833), from memory: the rolling mean of
the entropy over the last tokens, above a threshold, hands over to the large model, and below it back.

Differs:
- The entropy of a token's law is estimated without bias by -ln p of the token drawn, which all models that show log-probabilities have.
- Models change at steps, not at tokens; the mean is over the last step, or its last `window` tokens, whoever wrote it.
- Nothing is written twice: an uncertain step stays, and the policy writes the next one. `spec_reason` rewrites.
- Several solutions are written side by side, and vote.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tts.checks import Amount, Count
from tts.search.needs import Needs
from tts.search.search import Search
from tts.search.strategies._common.two_models import TwoModels
from tts.types import Candidate, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class EntropySwitching(TwoModels):
    """Solutions each of whose steps is written by one of two models.

    Args:
        threshold: nats a token, at least 0: above it the policy writes the next step. The draft's model writes the first one.
        window: tokens at the end of a step that the mean is taken over, at least 1; None: all.
        n, draft, temperature, max_steps: as in `TwoModels`.

    Cost: as plain solutions; each change of models reads prompt and path, as input.
    Random: none of its own. Where both models are one, a solution is a plain sample.

    Example:
        >>> import tts
        >>> with tts.Solver({"policy": "toy", "draft": "toy"}, task="arithmetic") as solver:
        ...     found = solver.solve("3 + 4 - 2", 400, strategy="entropy_switching(n=4, threshold=0.1)")
        >>> found.answer, found.usage.samples, found.usage.tokens
        ('5', 4, 60)
    """

    registered_as = "entropy_switching"
    threshold: Amount = 1.0
    window: Count | None = None

    def needs(self) -> Needs:
        """Steps with log-probabilities, of both models."""
        used = ("steps", "extend", "logprobs")
        return Needs(capabilities=used, models=self.of_draft(*used))

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Write each step with the model that the step before calls for."""

        async def step(going: Sequence[Trajectory]) -> list[Trajectory | None]:
            made: list[Trajectory | None] = [None] * len(going)
            unsure = [surprisal(t, self.window) > self.threshold for t in going]
            for model, turn in ((self.draft, False), ("policy", True)):
                rows = [i for i, one in enumerate(unsure) if one is turn]
                for i, t in zip(rows, await self.written(search, [going[i] for i in rows], model), strict=True):
                    made[i] = t
            return made

        return await self.waves(search, step)


def surprisal(t: Trajectory, window: int | None = None) -> float:
    """Return the mean of -ln p over the last piece of a path, or its last tokens; 0 where there is none."""
    last = t.logprobs if window is None else t.logprobs[-window:]
    return -math.fsum(last) / len(last) if last else 0.0
