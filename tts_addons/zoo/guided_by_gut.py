"""Guided by Gut: independent greedy step searches by the model's own confidence.

The score adds a bonus for new words.

Source: algorithm B5, Ghasemabadi, Mills, Li, Niu, "Guided by Gut: Efficient Test-Time Scaling with Reinforced Intrinsic
Confidence" (2505.20325), from code: subtrees as in `dvts`, the mean token probability of a step, half a point for its
share of new tokens, a hotter beginning. Its claims are from the abstract.

Differs:
- New are the words of a step that neither prompt nor path has; the code counts tokens.
- Left out are the penalty for paths that often write "wait", a forced header at the last level, least tokens of a step,
  and top_p.
- The model is not trained, which the paper's best results take.
- Solutions vote. The code takes the one whose last step has the highest mean token probability, as
  `best(verifier='gut')` does.
- Widths and siblings are as in `tts.search.strategies.trees.dvts`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Annotated

import numpy as np

from tts.checks import Amount, Count, Natural, number
from tts.search.needs import Needs
from tts.search.parameters import Temperature
from tts.search.parts import Strategy
from tts.search.search import Search
from tts.search.strategies._common.guided import MOST_WIDTH
from tts.search.strategies._common.stepping import MAX_STEPS, affordable_width, rounds, siblings_of
from tts.types import Candidate, Trajectory

_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True, kw_only=True)
class GuidedByGut(Strategy):
    """Greedy searches side by side, guided by log-probabilities.

    The finished paths of their last levels are the candidates.

    Args:
        n: The paths at each level, at least 1; None: as many as the budget pays, again and again.
        branching: The next steps of a subtree's prefix (M), at least 1.
        novelty: The weight of the share of new words, at least 0.
        temperature: The temperature of the first `levels` steps; None: the run's.
        cool: The temperature of later steps; None: the same.
        levels: The number of steps with the first temperature, at least 0.
        max_steps: The most steps of a path, the last of which runs to the end of the solution.

    Cost: as `dvts`, without verifier.
    Random: none of its own. Candidates have the mean token probability of their last step as the score "gut".

    Example:
        >>> import tts
        >>> found = tts.solve("3 + 4 - 2 + 9", 400, model="toy", strategy="guided_by_gut(n=4)")
        >>> found.answer, found.usage.samples, found.usage.tokens
        ('14', 10, 84)
    """

    registered_as = "guided_by_gut"
    always_votes = True
    n: Count | None = None
    branching: Count = 2
    novelty: Amount = 0.5
    temperature: Temperature | None = None
    cool: Annotated[float, number(0, 100)] | None = None
    levels: Natural = 11
    max_steps: Count = MAX_STEPS

    def needs(self) -> Needs:
        """Return the needs: steps with log-probabilities, which give the scores."""
        return Needs(capabilities=("steps", "logprobs"), scores=("gut",))

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Search with n paths; if n is None, again until the budget is used up."""
        for _ in rounds(search, None if self.n is None else 1):
            n = self.n or min(MOST_WIDTH, await affordable_width(search, self.temperature))
            unscored = [c.trajectory for c in search.candidates if "gut" not in c.scores]  # drawn to learn a length
            for t in unscored:
                search.finish(t, scores={"gut": confidence([t])})
            await self._explore(search, n)
        return search.candidates

    async def _explore(self, search: Search, n: int) -> None:
        """Step, score and choose in every open subtree, as in algorithm A5 with the score of B5."""
        prefixes: dict[int, Trajectory] | None = None  # None: all subtrees begin at the root
        prompt, level = words(search.problem.text), 0
        while prefixes is None or prefixes:
            temperature = self.temperature if level < self.levels or self.cool is None else self.cool
            steps_of = await siblings_of(
                search, prefixes, n, self.branching, max_steps=self.max_steps, temperature=temperature
            )
            for t in chain.from_iterable(steps_of.values()):
                if t.status != "active":
                    search.finish(t, scores={"gut": confidence([t])})
            prefixes = {}
            for subtree, steps in steps_of.items():
                best = max(steps, key=lambda t: confidence([t]) + self.novelty * new_words(t, prompt), default=None)
                if best is not None and best.status == "active":
                    prefixes[subtree] = best
            search.keep(list(prefixes.values()))
            level += 1


def confidence(pieces: Sequence[Trajectory]) -> float:
    """Return the mean probability, in [0, 1], of the tokens of some pieces; 0 without a token."""
    logprobs = list(chain.from_iterable(piece.logprobs for piece in pieces))
    return float(np.exp(logprobs).mean()) if logprobs else 0.0


def words(text: str) -> set[str]:
    """Return the words and signs of a text."""
    return {*_WORD.findall(text)}


def new_words(t: Trajectory, prompt: Collection[str]) -> float:
    """Return the share, in [0, 1], of the words of a path's last step that are new.

    A new word is in neither prompt nor path. The share is 0 where the step has no word.
    """
    step_words = _WORD.findall(t.text)
    if not step_words:
        return 0.0
    known_words = {*prompt} if t.parent is None else {*prompt, *words(t.parent.full_text)}
    return sum(word not in known_words for word in step_words) / len(step_words)
