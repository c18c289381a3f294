"""MUR: several candidates are drawn only for uncertain steps.

A step is uncertain if it is less certain than the steps before.

Source: algorithm B24, Yan et al., "MUR: Momentum Uncertainty Guided Reasoning for Large Language Models" (2507.14958,
the number from memory); the rule and its settings were read in the code of a third party (thinkbooster).

Differs:
- The step that was found uncertain is one of the candidates, not drawn again.
- Without a verifier the best candidate is the one of the greatest mean log-probability; the paper has a critic.
- The running mean takes the uncertainty of the step that is kept. It begins at 0, as in the code, so that early steps
  are scaled more.
- Several solutions are written side by side, and vote.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tts.checks import Count, Text, number
from tts.search.needs import Needs
from tts.search.parameters import Aggregate
from tts.search.search import Search
from tts.search.strategies._common.side_by_side import SideBySide, step_logprob
from tts.search.strategies._common.stepping import one_step
from tts.types import Candidate, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Mur(SideBySide):
    """Solutions of which uncertain steps are the best of several.

    Args:
        branching: The candidates of an uncertain step, at least 1; 1 is plain sampling.
        gamma: The factor of the test, above 0. A step is uncertain if u, its mean of -ln p, is above the running mean
            less ln gamma. A small gamma finds no step uncertain, a great one all but the first.
        momentum: The momentum of the running mean, in [0, 1) (alpha).
        verifier: The role that scores the candidates; None: their mean log-probability is the score.
        aggregate: The aggregate that makes one score of the scores of steps.
        n: As in `SideBySide`.
        temperature: As in `SideBySide`.
        max_steps: As in `SideBySide`.

    Cost: a plain solution, and branching - 1 steps and samples for each uncertain step; with a verifier a call for each
    of its candidates. Random: none of its own.

    Example:
        >>> import tts
        >>> found = tts.solve(
        ...     "3 + 4 - 2 + 9", 400, model="toy", strategy="mur(n=2, branching=3)", verifier="toy(error=0.1)"
        ... )
        >>> found.answer, found.usage.samples, found.usage.tokens
        ('14', 4, 96)
    """

    registered_as = "mur"
    branching: Count = 8
    gamma: Annotated[float, number(1e-9)] = 0.9
    momentum: Annotated[float, number(0, 0.999999)] = 0.9
    verifier: Text | None = None
    aggregate: Aggregate = "last"

    def needs(self) -> Needs:
        """Return the needs: steps with log-probabilities, and the verifier if a verifier scores."""
        return Needs(capabilities=("steps", "logprobs"), verifiers=() if self.verifier is None else (self.verifier,))

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Write steps, and draw several candidates for uncertain steps."""

        async def step(paths: Sequence[Trajectory]) -> list[Trajectory | None]:
            children = await self.write_step(search, paths)
            uncertain = [i for i, t in enumerate(children) if t is not None and self._is_uncertain(paths[i], t)]
            if not uncertain or self.branching == 1:
                return children
            families = await one_step(
                search,
                [paths[i] for i in uncertain],
                self.branching - 1,
                max_steps=self.max_steps,
                temperature=self.temperature,
            )
            for i, further_candidates in zip(uncertain, families, strict=True):
                candidates = [t for t in (children[i], *further_candidates) if t is not None]
                children[i] = await self._best(search, candidates)
            return children

        cost = 1 + self.branching // 2  # as if half of the steps were uncertain
        return await self.waves(search, step, cost=cost)

    def _is_uncertain(self, parent: Trajectory, t: Trajectory) -> bool:
        return parent.depth > 0 and -step_logprob(t) > running_mean(parent, self.momentum) - math.log(self.gamma)

    async def _best(self, search: Search, ts: Sequence[Trajectory]) -> Trajectory:
        """Return the first of the best candidates, and drop the others."""
        if self.verifier is None:
            scores = np.array([step_logprob(t) for t in ts])
        else:
            scores = await search.estimate(ts, self.verifier, self.aggregate)
        best = int(scores.argmax())
        search.drop([t for i, t in enumerate(ts) if i != best])
        return ts[best]


def running_mean(t: Trajectory, momentum: float) -> float:
    """Return the running mean M of a path: 0 at the root, then momentum M + (1 - momentum) u of each step.

    The mean of -ln p over the tokens of the step is u.
    """
    mean = 0.0
    for step in t.path[1:]:
        uncertainty = -step_logprob(step)
        mean = momentum * mean + (1 - momentum) * uncertainty
    return mean
