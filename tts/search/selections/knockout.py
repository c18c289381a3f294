"""Knockout: candidates meet two by two, and the loser of a match leaves."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tts.search.parts import Selected
from tts.search.search import Search
from tts.search.selections._common import first_writing, order_candidates, voters_of, with_weights
from tts.search.selections._pairs import Tournament, preferences, vote_without_matches
from tts.types import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Knockout(Tournament):
    """Chooses the candidate that wins all its matches in a knockout tournament of all candidates.

    Source: Chen et al., "Provable Scaling Laws for the Test-Time Compute of Large Language Models" (2411.19477), read
    in the abstract; a tournament of N candidates with K comparisons a match, from memory. Differs:
    - Candidates meet in draw order: samples come in no order. The last of an odd number goes on without a match.
    - Two of one answer need no comparison: the first goes on.
    - A match is one comparison in both orders, in place of K sampled verdicts: a judge with `votes` samples several.
    - A match that is undecided, unknown, or not paid goes to the more frequent answer, then to the first candidate.

    A single candidate wins without a match. Without one known comparison it is a majority vote. The weights are rounds
    survived; the confidence is the product of the preferences for the winner.

    Args:
        verifier: As in `ByPairs`.
        truncated: As in `ByPairs`.

    Cost: at most N - 1 verifier calls, each a pair in both orders. One is reserved with every sample.

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
        ...     strategy="best_of_n(n=4) | knockout",
        ... )
        >>> found.answer, found.usage.verifier_calls
        ('7', 2)
    """

    registered_as = "knockout"

    async def select(self, candidates: Sequence[Candidate], search: Search) -> Selected:
        """Hold the tournament."""
        voters = voters_of(candidates, self.truncated)
        class_votes = Counter(candidates[i].answer_class for i in voters)
        rounds_survived, said = np.zeros(len(candidates)), dict[tuple[int, int], float]()
        confidences = dict.fromkeys(voters, 1.0)  # of each candidate: the product of the preferences for it
        players = voters
        while len(players) > 1:
            matches = list(zip(players[::2], players[1::2], strict=False))
            compared = [(a, b) for a, b in matches if candidates[a].answer_class != candidates[b].answer_class]
            preference_of = await preferences(candidates, compared, self.verifier, search)
            said |= preference_of
            winners: list[int] = []
            for a, b in matches:
                preference = preference_of.get((a, b), 1.0)  # without a comparison the first goes on
                votes_a, votes_b = class_votes[candidates[a].answer_class], class_votes[candidates[b].answer_class]
                first_wins = votes_a >= votes_b
                if not math.isnan(preference) and preference != 0.5:
                    first_wins = preference > 0.5
                winner = a if first_wins else b
                winners.append(winner)
                if not math.isnan(preference):
                    confidences[winner] *= preference if first_wins else 1 - preference
            players = [*winners, *players[2 * len(matches) :]]  # the last of an odd number goes on
            rounds_survived[players] += 1
        if all(map(math.isnan, said.values())):
            return vote_without_matches(candidates, voters, said)
        judged = with_weights(candidates, rounds_survived)
        order = sorted(voters, key=lambda i: (-rounds_survived[i], i))
        winner = order[0]
        return Selected((first_writing(judged[winner], judged),), order_candidates(judged, order), confidences[winner])
