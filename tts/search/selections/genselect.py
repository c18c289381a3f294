"""GenSelect and universal self-consistency: a judge sees all candidates at once and names one of them.

The judge sees the candidates in two orders.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tts.checks import choice, whole
from tts.search.needs import Needs
from tts.search.parts import Selected
from tts.search.search import Search
from tts.search.selections._common import select_class, vote_without_scores, voters_of
from tts.search.selections._pairs import Tournament
from tts.types import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class GenSelect(Tournament):
    """Chooses the answer whose candidates a judge names most often, when it is shown all of them.

    They are shown in order and in the reverse order.

    Source: Toshniwal et al., "GenSelect: A Generative Approach to Best-of-N" (2507.17797), and Chen et al., "Universal
    Self-Consistency for Large Language Model Generation" (2311.17311, `by="consensus"`), read in descriptions and
    public implementations. Differs:
    - Candidates are shown in two orders, so that a position bias cancels out; GenSelect shows random subsets in random
      orders.
    - Replies vote by the answer of the candidate that they name. The questions are ours, and are parameters of `judge`.
    - Where all candidates have one answer nobody is asked. Without a reply that can be read, it is a majority vote.

    The prompt has all candidates, so `judge(prompt_tokens=)` must leave room for them: a longer one is not shown, and a
    warning says so.

    Args:
        most: Candidates that are shown, the first with an answer, at least 2.
        by: "quality": the judge names the most likely right one; "consensus": the one that agrees most with the others.
        verifier: The role that chooses (`judge`).
        truncated: "vote": a truncated candidate with an answer counts; "drop": it does not.

    Cost: one verifier call, of two prompts with `votes` replies each. A comparison is held for with every sample.

    Example:
        >>> import tts
        >>> def model(ask):
        ...     asked = str(ask.prompt)
        ...     best = 1 if asked.find("is 7") < asked.find("is 8") else 2
        ...     return f'{{"best": {best}}}' if "best" in asked else f"The answer is {7 + ask.seed % 2}."
        >>> limits = tts.Budget(samples=40)
        >>> found = tts.solve(
        ...     "What is 3 + 4?",
        ...     limits,
        ...     backend=model,
        ...     task="math",
        ...     verifier="judge(votes=1)",
        ...     strategy="best_of_n(n=2) | genselect",
        ... )
        >>> found.answer, found.confidence, found.usage.verifier_calls
        ('7', 1.0, 1)
    """

    registered_as = "genselect"
    most: Annotated[int, whole(2)] = 16
    by: Annotated[str, choice("quality", "consensus")] = "quality"

    def needs(self) -> Needs:
        """Return the needs: a verifier that chooses among all candidates."""
        return Needs(verifiers=(self.verifier,), pairs={self.verifier: 1}, lists=True)

    async def select(self, candidates: Sequence[Candidate], search: Search) -> Selected:
        """Choose by the replies to one question in two orders."""
        voters = voters_of(candidates, self.truncated)
        shown = voters[: self.most]
        if len({candidates[i].answer_class for i in shown}) < 2:
            return select_class(candidates, np.ones(len(candidates)), voters)
        shown_paths = [candidates[i].trajectory for i in shown]
        shares = await search.scoring.choose(shown_paths, self.verifier, search.problem, self.by)
        if any(map(math.isnan, shares)):
            search.notes.warn("the choice among the candidates is unknown: the majority decides")
            return vote_without_scores(candidates, voters)
        weights = np.zeros(len(candidates))
        weights[shown] = shares
        return select_class(candidates, weights, voters)
