"""Swiss tournament: candidates that do about equally well meet.

The candidate with the best weighted share of wins is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from tts.checks import Count, number
from tts.search.needs import Needs
from tts.search.search import Search
from tts.search.selections._pairs import Kinds, Pair, WinTournament, preferences
from tts.types import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Swiss(WinTournament):
    """Chooses the candidate with the largest share of wins, each weighted by the margin of its match.

        coverage: every candidate meets `least` others
        until N x `matches` pairs have met:
            sort the candidates by their shares ; pair neighbours within `window` places, the nearest shares first
        share of i = sum_j w_ij v_ij / sum_j w_ij ;  v = 1 for a win, 1/2 for a tie, 0 for a loss ;  w = max(margin,
        floor)

    Source: Singh et al., "V1: Unifying Generation and Self-Verification for Parallel Reasoners" (2603.04304), the
    inference algorithm, read in the paper, its repository's description and audits of its code. The code's budget is 1
    to 3 comparisons a candidate, its least degree 2, its window 8 and its floor 0.1. The paper's text swaps win and
    loss in v; its code does not. Differs:
    - The margin is |2p - 1| of the judge's preference p over both orders; the paper's is the difference of two grades
      from 1 to 10.
    - Two of one answer do not meet: either gives the same answer.
    - Coverage takes the opponent with the fewest matches, then the next in draw order, in place of random ones.

    Equal shares go to the more frequent answer, then to the first candidate. Without one known comparison it is a
    majority vote. The weights are the shares; the confidence is the winner's.

    Args:
        matches: Comparisons for each candidate on average, at least 1.
        least: Opponents of each candidate before shares decide, at least 1.
        window: Places between two that may meet after that, at least 1.
        floor: The least weight of a match, above 0 and at most 1.
        verifier: The role that compares.
        truncated: "vote": a truncated candidate with an answer counts; "drop": it does not.

    Cost: at most N x `matches` verifier calls, and N (N - 1) / 2 at most, each a pair in both orders. `matches` are
    held for with every sample.

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
        ...     strategy="best_of_n(n=4) | swiss",
        ... )
        >>> found.answer, found.usage.verifier_calls
        ('7', 3)
    """

    registered_as = "swiss"
    matches: Count = 3
    least: Count = 2
    window: Count = 8
    floor: Annotated[float, number(1e-9, 1)] = 0.1

    def needs(self) -> Needs:
        """Return the needs: a verifier that compares each candidate that may win."""
        return Needs(verifiers=(self.verifier,), pairs={self.verifier: self.matches})

    async def hold(self, candidates: Sequence[Candidate], kinds: Kinds, search: Search) -> dict[Pair, float]:
        """Hold the matches of the coverage, then rounds of neighbours."""
        pairs_left = self.matches * len(kinds)
        preference_of: dict[Pair, float] = {}
        pairs = list(covering_pairs(kinds, self.least))[:pairs_left]
        while pairs:
            new_preferences = await preferences(candidates, pairs, self.verifier, search)
            for pair in pairs:
                preference_of[pair] = new_preferences.get(pair, math.nan)
            pairs_left -= len(pairs)
            if all(map(math.isnan, new_preferences.values())):  # the budget is over
                break
            shares = self.wins(list(kinds), preference_of)
            pairs = near_pairs(shares, kinds, preference_of, self.window)[:pairs_left]
        return preference_of

    def wins(self, entrants: Sequence[int], said: Mapping[Pair, float]) -> dict[int, float]:
        """Return the weighted share of wins of each entrant; a half without a known match."""
        weight_won, weight_played = dict.fromkeys(entrants, 0.0), dict.fromkeys(entrants, 0.0)
        for (a, b), preference in said.items():
            if math.isnan(preference):
                continue
            weight = max(abs(2 * preference - 1), self.floor)
            win = 0.5 if preference == 0.5 else float(preference > 0.5)  # of the first; a tie is a half
            weight_won[a] += weight * win
            weight_won[b] += weight * (1 - win)
            weight_played[a] += weight
            weight_played[b] += weight
        return {i: weight_won[i] / weight_played[i] if weight_played[i] else 0.5 for i in entrants}


def covering_pairs(kinds: Kinds, least: int) -> Iterator[Pair]:
    """Yield pairs of different answers, until each entrant has `least` matches or has met all others.

    No pair comes twice.

    Args:
        kinds: The answer class of each entrant, in draw order.
        least: The number of matches of each entrant.
    """
    entrants, met = list(kinds), set[Pair]()
    num_matches = dict.fromkeys(entrants, 0)
    for place, a in enumerate(entrants):
        next_entrants = entrants[place + 1 :] + entrants[:place]  # in draw order after `a`, in a circle
        while num_matches[a] < least:
            opponents = [b for b in next_entrants if kinds[a] != kinds[b] and _pair(a, b) not in met]
            if not opponents:
                break
            b = min(opponents, key=lambda opponent: num_matches[opponent])  # among equals the next in draw order
            met.add(_pair(a, b))
            num_matches[a] += 1
            num_matches[b] += 1
            yield _pair(a, b)


def near_pairs(shares: Mapping[int, float], kinds: Kinds, met: Mapping[Pair, float], window: int) -> list[Pair]:
    """Return the pairs of a round, the nearest shares first.

    No entrant is in two pairs of the round. Pairs that have met are left out.

    Args:
        shares: The share of wins of each entrant.
        kinds: The answer class of each entrant.
        met: The pairs that have met.
        window: The most places between the two entrants of a pair, by shares.
    """
    ranked = sorted(shares, key=lambda i: (-shares[i], i))
    possible_pairs: list[tuple[float, int, int, int]] = []  # (difference of shares, place of a, a, b)
    for place, a in enumerate(ranked):
        for b in ranked[place + 1 : place + 1 + window]:
            if kinds[a] != kinds[b] and _pair(a, b) not in met:
                possible_pairs.append((shares[a] - shares[b], place, a, b))
    paired, pairs = set[int](), list[Pair]()
    for _difference, _place, a, b in sorted(possible_pairs):
        if a not in paired and b not in paired:
            paired |= {a, b}
            pairs.append(_pair(a, b))
    return pairs


def _pair(a: int, b: int) -> Pair:
    return (a, b) if a < b else (b, a)
