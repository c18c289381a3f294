"""Common code of selections that hold tournaments.

It has the parameters of such selections, the requests for comparisons, and the wins that follow from them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tts.checks import Text
from tts.search.lengths import waves_of
from tts.search.needs import Needs
from tts.search.parameters import Truncated
from tts.search.parts import Selected, Selection
from tts.search.search import Search
from tts.search.selections._common import (
    first_writing,
    order_candidates,
    select_class,
    share_of,
    vote_without_scores,
    voters_of,
    with_weights,
)
from tts.types import Candidate

Pair = tuple[int, int]
Kinds = Mapping[int, int]  # the class of an answer by the index of its candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class ByPairs(Selection):
    """The parameters of selections that compare candidates two by two.

    Args:
        verifier: The role that compares (`judge`).
        truncated: As in `Majority`.
    """

    verifier: Text = "main"
    truncated: Truncated = "vote"

    def needs(self) -> Needs:
        """Return the needs: a verifier that compares."""
        return Needs(verifiers=(self.verifier,), pairs={self.verifier: 0})


@dataclass(frozen=True, slots=True, kw_only=True)
class Tournament(ByPairs):
    """A tournament in which candidates of different answers meet.

    The cost of the comparisons is reserved with every row.
    """

    def needs(self) -> Needs:
        """Return the needs: a verifier that compares, with one comparison for each candidate that may win."""
        return Needs(verifiers=(self.verifier,), pairs={self.verifier: 1})

    def may_score(self, candidate: Candidate, agreeing: int) -> bool:
        """Whether the candidate may win, because the verifier is asked only about such candidates."""
        del agreeing
        return candidate.answer_class is not None and (self.truncated == "vote" or not candidate.truncated)


@dataclass(frozen=True, slots=True, kw_only=True)
class WinTournament(Tournament, ABC):
    """A tournament that chooses the candidate with the highest win, and without a known match by majority."""

    confidence_is_win: ClassVar[bool] = True  # else it is the share of the winner's answer in all wins

    @abstractmethod
    async def hold(self, candidates: Sequence[Candidate], kinds: Kinds, search: Search) -> dict[Pair, float]:
        """Return the preference for the first of each pair that met; NaN where it is unknown.

        Args:
            candidates: All candidates.
            kinds: The class of the answer of each candidate that may win, by index.
            search: The search, whose account pays.
        """

    def wins(self, entrants: Sequence[int], said: Mapping[Pair, float]) -> dict[int, float]:
        """Return the win of each entrant: here its mean win."""
        return mean_wins(entrants, said)

    async def select(self, candidates: Sequence[Candidate], search: Search) -> Selected:
        """Hold the matches, and choose by the wins."""
        voters = voters_of(candidates, self.truncated)
        said = await self.hold(candidates, {i: candidates[i].answer_class or 0 for i in voters}, search)
        if all(map(math.isnan, said.values())):
            return vote_without_matches(candidates, voters, said)
        wins, weights = self.wins(voters, said), np.zeros(len(candidates))
        weights[voters] = [wins[i] for i in voters]
        judged = with_weights(candidates, weights)
        ranked = order_candidates(judged, order_of(candidates, wins))
        confidence = ranked[0].weight if self.confidence_is_win else share_of(ranked, weights)
        return Selected((first_writing(ranked[0], judged),), ranked, confidence)


async def preferences(
    candidates: Sequence[Candidate], pairs: Iterable[Pair], verifier: str, search: Search
) -> dict[Pair, float]:
    """Return the preference for the first candidate of each pair, in [0, 1]; 0.5: none is preferred.

    A preference that is unknown, or that the budget cannot pay, is NaN.

    Pairs are asked for in waves (long lists of pairs). A wave without a known preference is the last one.

    Args:
        candidates: All candidates.
        pairs: The pairs of indices of candidates.
        verifier: The role that compares.
        search: The search, whose account pays.
    """
    preference_of: dict[Pair, float] = {}
    for wave in waves_of(pairs):
        paths = [(candidates[a].trajectory, candidates[b].trajectory) for a, b in wave]
        verdicts = await search.scoring.compare(paths, verifier, search.problem)
        preference_of.update(zip(wave, verdicts, strict=True))
        if all(map(math.isnan, verdicts)):
            break
    if preference_of and all(map(math.isnan, preference_of.values())):
        search.notes.warn(f"{len(preference_of)} of {len(preference_of)} comparisons unknown")
    return preference_of


def mean_wins(entrants: Sequence[int], said: Mapping[Pair, float]) -> dict[int, float]:
    """Return the mean preference for each entrant over its known matches; a half without a known match.

    Args:
        entrants: The indices of the candidates that play.
        said: The preference for the first of each pair; NaN where it is unknown.
    """
    wins: dict[int, list[float]] = {i: [] for i in entrants}
    for (a, b), preference in said.items():
        if not math.isnan(preference):
            wins[a].append(preference)
            wins[b].append(1 - preference)
    return {i: math.fsum(own_wins) / len(own_wins) if own_wins else 0.5 for i, own_wins in wins.items()}


def order_of(candidates: Sequence[Candidate], means: Mapping[int, float]) -> list[int]:
    """Return entrants by falling mean win; among equal means by the more frequent answer, then by index."""
    votes = Counter(candidates[i].answer_class for i in means)
    return sorted(means, key=lambda i: (-means[i], -votes[candidates[i].answer_class], i))


def vote_without_matches(
    candidates: Sequence[Candidate], voters: Sequence[int], said: Mapping[Pair, float]
) -> Selected:
    """Return the majority's choice where no preference is known.

    Its confidence is unknown if a preference was asked for.
    """
    return (
        vote_without_scores(candidates, voters) if said else select_class(candidates, np.ones(len(candidates)), voters)
    )
