"""Pivot tournament: a ring of matches finds a few strong candidates, the pivots.

Every candidate is then compared with the pivots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from tts.checks import Count
from tts.search.needs import Needs
from tts.search.search import Search
from tts.search.selections._pairs import Kinds, Pair, WinTournament, mean_wins, order_of, preferences
from tts.search.selections.league import fixtures
from tts.types import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Pivot(WinTournament):
    """Chooses the candidate with the highest mean win against its neighbour in a ring and a few pivots.

        ring: each candidate meets the next
        pivots = the k candidates with the highest mean win
        each candidate meets each pivot, pair by pair, those excepted that have met
        the highest mean win over all matches is chosen

    Source: "LLM-as-a-Verifier: A General-Purpose Verification Framework" (2607.05391), its Probabilistic Pivot
    Tournament, and `pivot_tournament.py` of its code. As there, the ring shows each candidate once in each place, and
    pivots stand second. Differs:
    - The ring is in draw order, in place of a random one: samples come in no order.
    - A match is in both orders by default. With `judge(orders=1)` or `grader(orders=1)` it is one comparison, as in the
      code, at half the cost.
    - Two of one answer do not meet: either gives the same answer. Two that met in the ring do not meet again.
    - The preference is the verifier's own, from 0 to 1. The code's is the logistic function of the difference of two
      grades from 0 to 1, so from .27 to .73. The order by mean wins is mostly the same.

    A candidate without a known match has a half. Equal means go to the more frequent answer, then to the first
    candidate. Without one known comparison it is a majority vote. The weights are the means; the confidence is the
    winner's.

    Its accuracy need not grow with N, since each candidate has k + 1 matches however many there are. In simulation,
    where 30 % of the samples are right and 65 % of the verdicts, it has .63 at 16 samples and .60 at 64. `swiss` has
    .66 and .86 there.

    Pairs are asked for pivot by pivot, and those of one wave that begin with the same solution follow one another.

    Args:
        k: Pivots, at least 1.
        verifier: The role that compares, such as `judge` or `grader`.
        truncated: "vote": a truncated candidate with an answer counts; "drop": it does not.

    Cost: at most N (k + 1) verifier calls, and N (N - 1) / 2 at most, each a pair in both orders. k + 1 are held for
    with every sample. As many, in order, as the budget pays.

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
        ...     strategy="best_of_n(n=4) | pivot",
        ... )
        >>> found.answer, found.usage.verifier_calls
        ('7', 3)
    """

    registered_as = "pivot"
    k: Count = 2

    def needs(self) -> Needs:
        """Return the needs: a verifier that compares each candidate that may win."""
        return Needs(verifiers=(self.verifier,), pairs={self.verifier: self.k + 1})

    async def hold(self, candidates: Sequence[Candidate], kinds: Kinds, search: Search) -> dict[Pair, float]:
        """Hold the ring, then the matches of the pivots."""
        ring = [(a, b) for a, b in fixtures(list(kinds), 1) if kinds[a] != kinds[b]]
        preference_of = await preferences(candidates, ring, self.verifier, search)
        pivots = order_of(candidates, mean_wins(list(kinds), preference_of))[: self.k]
        matches = pivot_pairs(pivots, kinds, {frozenset(pair) for pair in ring})
        return preference_of | await preferences(candidates, matches, self.verifier, search)


def pivot_pairs(pivots: Sequence[int], kinds: Kinds, met: Set[frozenset[int]]) -> Iterator[Pair]:
    """Yield each entrant of another answer with each pivot, pivot by pivot, the pivot second.

    Pairs that have met are left out. No pair comes twice.

    Args:
        pivots: The pivots, the strongest first.
        kinds: The answer class of each entrant, in draw order.
        met: The pairs that have met.
    """
    for place, pivot in enumerate(pivots):
        earlier_pivots = pivots[:place]
        for opponent in kinds:
            has_met = opponent in earlier_pivots or frozenset((pivot, opponent)) in met
            if kinds[opponent] != kinds[pivot] and not has_met:
                yield opponent, pivot
