"""Pairwise selection: a judge compares the most frequent answers two by two, in both orders."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated

import numpy as np

from tts.checks import whole
from tts.search.parts import Selected
from tts.search.search import Search
from tts.search.selections._common import members_of, select_class, voters_of
from tts.search.selections._pairs import ByPairs, mean_wins, preferences, vote_without_matches
from tts.types import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairwise(ByPairs):
    """Chooses the answer that wins most of its comparisons with the other frequent answers.

    Each answer is shown by its first candidate.

    A comparison is worth how far the judge prefers the one over the other, over both orders. One that is unknown is
    worth a half to each. Wins are divided by the comparisons. Equal ones go to the more frequent answer, then to the
    first.

    Source: tournaments of answers as in Liu et al., "PairJudge RM" (2501.13007), UNVERIFIED (from memory). Differs:
    every answer meets every other, where the paper's lose one match and leave; position-swapped as Zheng et al.
    (2306.05685).

    Args:
        most: Answers that are compared, the most frequent; at least 2.
        verifier: As in `ByPairs`.
        truncated: As in `ByPairs`.

    Cost: at most `most` (`most` - 1) / 2 verifier calls, each a pair in both orders; as many, in order, as the budget
    pays.

    Example:
        >>> import tts
        >>> def model(ask):
        ...     asked = str(ask.prompt)
        ...     better = "A" if asked.find("is 7") < asked.find("is 8") else "B"
        ...     return f'{{"better": "{better}"}}' if "better" in asked else f"The answer is {7 + ask.seed % 2}."
        >>> limits = tts.Budget(samples=40)
        >>> found = tts.solve(
        ...     "What is 3 + 4?",
        ...     limits,
        ...     backend=model,
        ...     task="math",
        ...     verifier="judge(votes=1)",
        ...     strategy="best_of_n(n=4) | pairwise",
        ... )
        >>> found.answer, found.usage.verifier_calls
        ('7', 1)
    """

    registered_as = "pairwise"
    most: Annotated[int, whole(2)] = 4

    def may_score(self, candidate: Candidate, agreeing: int) -> bool:
        """Whether the candidate is the first with its answer."""
        return candidate.answer_class is not None and agreeing == 0

    async def select(self, candidates: Sequence[Candidate], search: Search) -> Selected:
        """Choose by comparisons won."""
        voters = voters_of(candidates, self.truncated)
        members = members_of(candidates, voters)
        kinds = sorted(members, key=lambda kind: (-len(members[kind]), kind))[: self.most]  # classes of answers
        first_of = {kind: members[kind][0] for kind in kinds}  # the candidate that stands for the class
        pairs = list(combinations(first_of.values(), 2))
        preference_of = await preferences(candidates, pairs, self.verifier, search)
        if all(map(math.isnan, preference_of.values())):
            return vote_without_matches(candidates, voters, preference_of)
        known = {pair: preference for pair, preference in preference_of.items() if not math.isnan(preference)}
        mean_win = mean_wins(list(first_of.values()), dict.fromkeys(pairs, 0.5) | known)
        wins = {kind: mean_win[first_of[kind]] for kind in kinds}
        order = sorted(kinds, key=lambda kind: (-wins[kind], -len(members[kind]), kind))
        weights = np.zeros(len(candidates))
        for kind in order:
            weights[members[kind][0]] = wins[kind]
        compared = sorted(i for kind in order for i in members[kind])
        ranked = select_class(candidates, weights, compared).ranked
        winner = order[0]
        winners = [c for c in ranked if c.answer_class == winner]
        others = [c for c in ranked if c.answer_class != winner]
        answer = candidates[members[winner][0]].answer or ""
        return Selected((answer,), (*winners, *others), wins[winner] / math.fsum(wins.values()))
