"""Entropy switching: a small model writes while it is sure of itself, and a large one while it is not.

Source: Simonds, "Entropy Adaptive Decoding: Dynamic Model Switching for Efficient Inference" (2502.06833), from memory:
the rolling mean of the entropy over the last tokens, above a threshold, hands over to the large model, and below it
back.

Differs:
- The entropy of a token's law is estimated by -ln p of the tokens drawn, as all models that show log-probabilities
  allow. At temperature 1 the estimate has no bias. At another temperature T tokens are weighed by p^(1 - 1/T), which is
  right up to a constant for each law: it is consistent for tokens of one law, and nearly so for a step. At T = 0 no
  weight can help, and the mean is below the entropy.
- Models change at steps, not at tokens; the mean is over the last step, or its last `window` tokens, whoever wrote it.
- Nothing is written twice: an uncertain step stays, and the policy writes the next one. `spec_reason` rewrites.
- Several solutions are written side by side, and vote.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tts.checks import Amount, Count
from tts.search.needs import Needs
from tts.search.search import Search
from tts.search.strategies._common.two_models import TwoModels
from tts.types import Candidate, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class EntropySwitching(TwoModels):
    """Solutions in which one of two models writes each step, by the mean entropy of the step before.

    This is no switching within a step: a step whose entropy rises in the middle is ended by the model that began it.

    Args:
        threshold: The entropy in nats a token, at least 0, above which the policy writes the next step. The draft's
            model writes the first step.
        window: The tokens at the end of a step over which the mean is taken, at least 1; None: all.
        n: As in `TwoModels`.
        draft: As in `TwoModels`.
        temperature: As in `TwoModels`.
        max_steps: As in `TwoModels`.

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
        """Return the needs: steps with log-probabilities, of both models."""
        used = ("steps", "extend", "logprobs")
        return Needs(capabilities=used, models=self.draft_needs(*used))

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Write each step with the model that the entropy of the step before chooses."""
        temperature = search.rows.sampling_at(self.temperature).temperature

        async def step(paths: Sequence[Trajectory]) -> list[Trajectory | None]:
            children: list[Trajectory | None] = [None] * len(paths)
            uncertain = {i for i, t in enumerate(paths) if entropy(t, self.window, temperature) > self.threshold}
            certain = [i for i in range(len(paths)) if i not in uncertain]
            for model, places in ((self.draft, certain), ("policy", sorted(uncertain))):
                longer_paths = await self.write_step(search, [paths[i] for i in places], model)
                for i, longer_path in zip(places, longer_paths, strict=True):
                    children[i] = longer_path
            return children

        return await self.waves(search, step)


def entropy(t: Trajectory, window: int | None = None, temperature: float = 1.0) -> float:
    """Return the estimated entropy, in nats a token, of the laws of a path's last step; 0 without tokens.

    Args:
        t: The path.
        window: The number of last tokens that count; None: all tokens of the step.
        temperature: The temperature at which the tokens were drawn, at least 0.
    """
    logprobs = np.array(t.logprobs if window is None else t.logprobs[-window:])
    if not len(logprobs):
        return 0.0
    # each token weighs p^(1 - 1/T), because it was drawn at temperature T
    log_weights = (1 - 1 / temperature) * logprobs if temperature > 0 else np.zeros(len(logprobs))
    weights = np.exp(log_weights - log_weights.max())
    return float(-(weights @ logprobs) / weights.sum())
