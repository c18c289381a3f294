"""League: every candidate meets several others, and the candidate with the highest mean win is chosen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tts.checks import Count
from tts.search.needs import Needs
from tts.search.search import Search
from tts.search.selections._pairs import Kinds, Pair, WinTournament, preferences
from tts.types import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class League(WinTournament):
    """Chooses the candidate with the highest mean win over its matches.

    Source: Chen et al., "Provable Scaling Laws for the Test-Time Compute of Large Language Models" (2411.19477), read
    in the abstract; K random opponents of each of N candidates, from memory. Differs:
    - A candidate meets the next `opponents` in draw order, in a circle, in place of random ones: samples come in no
      order. So each has twice as many matches, half of them as another's opponent, and many opponents make a full round
      of all pairs.
    - Two of one answer do not meet. A candidate without a known match has a half.
    - A match is worth how far the judge prefers the one over the other, over both orders.

    Equal means go to the more frequent answer, then to the first candidate. A single candidate wins without a match.
    Without one known comparison it is a majority vote. The weights are the means.

    Args:
        opponents: The opponents of each candidate, at least 1 (K in the paper).
        verifier: As in `ByPairs`.
        truncated: As in `ByPairs`.

    Cost: at most N x `opponents` verifier calls, and N (N - 1) / 2 at most, each a pair in both orders; `opponents` are
    held for with every sample. As many, in order, as the budget pays.

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
        ...     strategy="best_of_n(n=4) | league",
        ... )
        >>> found.answer, found.usage.verifier_calls
        ('7', 3)
    """

    registered_as = "league"
    confidence_is_win = False
    opponents: Count = 4

    def needs(self) -> Needs:
        """Return the needs: a verifier that compares each candidate that may win."""
        return Needs(verifiers=(self.verifier,), pairs={self.verifier: self.opponents})

    async def hold(self, candidates: Sequence[Candidate], kinds: Kinds, search: Search) -> dict[Pair, float]:
        """Hold the matches of each candidate with the next ones."""
        matches = ((a, b) for a, b in fixtures(list(kinds), self.opponents) if kinds[a] != kinds[b])
        return await preferences(candidates, matches, self.verifier, search)


def fixtures(entrants: Sequence[int], opponents: int) -> Iterator[tuple[int, int]]:
    """Yield each entrant with each of the next `opponents` entrants, where all entrants form a circle.

    Neighbours come first. No pair comes twice.
    """
    count = len(entrants)
    for distance in range(1, min(opponents, count // 2) + 1):
        is_opposite = 2 * distance == count  # then the second half of the circle would repeat the pairs
        for i in range(distance if is_opposite else count):
            a, b = sorted((i, (i + distance) % count))
            yield entrants[a], entrants[b]
