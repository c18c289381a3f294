"""Semantic-entropy rounds: parallel answers, shown to the next round, until they agree.

Source: algorithm B10, Xu et al., "Adaptive Termination for Multi-round Parallel Reasoning: A Universal Semantic
Entropy-Guided Framework" (2507.06829), read in the abstract; the threshold, N and the exact form of the secretary rule
are unverified (from memory). Answers are the same where the task's rules say so. Differs:
- The next round is shown one solution of each answer, the most frequent first, then others, at most `shown`. Where the
  task refuses them, the round starts from the problem alone.
- Candidates without an answer do not count in the entropy. A round without any answer stops nothing.
- Where the budget ends the search in the middle of a round, all answers vote.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Annotated

from tts.checks import Amount, Count, choice
from tts.search.ends import SearchEnded
from tts.search.needs import Needs
from tts.search.parameters import Shown, Temperature
from tts.search.parts import Strategy
from tts.search.search import Search
from tts.search.stop_rules.entropy import answer_entropy
from tts.search.strategies._common.earlier_solutions import open_prompt
from tts.search.strategies._common.stepping import affordable_width, draw
from tts.types import Candidate, Trajectory

_MOST = 1024  # answers a round, where the budget decides


@dataclass(frozen=True, slots=True, kw_only=True)
class SemanticEntropy(Strategy):
    """Rounds of N answers; the last round's vote.

    Args:
        n: The answers of a round, at least 1; None: as many as the budget pays over the rounds, and two if it can,
            because a single answer always agrees.
        rounds: The most rounds, at least 1.
        rule: The rule of the end. "threshold": stop when the entropy of a round is below `threshold`. "secretary":
            watch the first `watched` rounds, then stop at a round whose entropy is below all of these.
        threshold: The threshold in nats. 0 never stops; any other value stops at a unanimous round.
        watched: The number of rounds that are watched, at least 1.
        shown: The most solutions that the next round sees, at least 1.
        prompt: The task's kind of prompt that shows solutions: "fuse" or "revise".
        temperature: The temperature of all rounds; None: the run's.

    Cost: n x rounds samples at most; each round reads its prompt once.

    Example:
        >>> import tts
        >>> model = lambda ask: "The answer is 7."
        >>> found = tts.solve(
        ...     "What is 3 + 4?",
        ...     tts.Budget(samples=12),
        ...     backend=model,
        ...     task="math",
        ...     strategy="semantic_entropy(n=3, rounds=2)",
        ... )
        >>> found.answer, found.usage.samples
        ('7', 3)
    """

    registered_as = "semantic_entropy"
    n: Count | None = None
    rounds: Count = 4
    rule: Annotated[str, choice("threshold", "secretary")] = "threshold"
    threshold: Amount = 0.5
    watched: Count = 1
    shown: Count = 4
    prompt: Shown = "fuse"
    temperature: Temperature | None = None

    def needs(self) -> Needs:
        """Return the needs: the prompt that shows solutions."""
        return Needs(prompts=(self.prompt,) if self.rounds > 1 else ())

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Draw rounds until their entropy is low."""
        entropies: list[float] = []
        candidates: list[Candidate] = []
        for k in range(self.rounds):
            texts = self._digest(candidates)
            root = (await open_prompt(search, self.prompt, texts) if texts else None) or search.root
            # a solution that was drawn to learn its length belongs to the first round
            round_start = len(search.candidates) if k else 0
            candidates = await self._round(search, root, round_start, self.rounds - k)
            entropies.append(entropy_of(candidates))
            if self._stops(entropies):
                end = SearchEnded(f"entropy {entropies[-1]:.2g} in round {k + 1}")
                raise end.restrict_candidates(slice(round_start, None))
        return candidates

    async def _round(self, search: Search, root: Trajectory, round_start: int, num_rounds: int) -> list[Candidate]:
        """Return the candidates of a round, from candidate `round_start` on.

        `num_rounds` rounds, with this one, share the rest of the budget.

        Raises:
            SearchEnded: the budget ends the round. If this round has an answer, only its candidates vote.
        """
        if self.n is not None:
            return await draw(search, repeat(root, self.n), self.temperature)
        affordable = await affordable_width(search, self.temperature, stepwise=False)
        num_missing = None  # the last round takes all that the budget pays
        if num_rounds > 1:
            n = min(_MOST, max(min(2, affordable), affordable // num_rounds))
            num_drawn = len(search.candidates) - round_start
            num_missing = max(1, n - num_drawn)
        try:
            await search.complete([root], num_missing, temperature=self.temperature)
        except SearchEnded as end:
            if not any(c.answer is not None for c in search.candidates[round_start:]):
                raise
            raise end.restrict_candidates(slice(round_start, None)) from None
        return list(search.candidates[round_start:])

    def _digest(self, candidates: Sequence[Candidate]) -> list[str]:
        """Return the solutions that the next round sees: one of each answer, the most frequent first, then others."""
        complete = [c for c in candidates if c.answer_class is not None and not c.truncated]
        votes = Counter(c.answer_class for c in complete)
        first_by_class = {c.answer_class: c for c in reversed(complete)}
        representatives = [first_by_class[answer_class] for answer_class, _ in votes.most_common()]
        other_solutions = [c for c in complete if c is not first_by_class[c.answer_class]]
        return [c.trajectory.response for c in [*representatives, *other_solutions][: self.shown]]

    def _stops(self, entropies: Sequence[float]) -> bool:
        """Whether the rule ends the search after the last of some rounds."""
        if self.rule == "threshold":
            return entropies[-1] < self.threshold
        if len(entropies) <= self.watched:
            return False
        return entropies[-1] < min(entropies[: self.watched])


def entropy_of(candidates: Sequence[Candidate]) -> float:
    """Return the entropy, in nats, of the candidates' answers; infinite without an answer."""
    votes = Counter(c.answer_class for c in candidates if c.answer_class is not None)
    return answer_entropy(list(votes.values())) if votes else math.inf
