"""Hierarchical: weighted votes within each group, then among the groups' winners."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tts.search.parts import Selected
from tts.search.search import Search
from tts.search.selections._common import Ballot, ByBallot, members_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchical(ByBallot):
    """Chooses within each group by `weighted`, then among the groups' winners by `weighted`.

    The selection is for chains of revisions, where each chain is a group. A group's winner is the candidate of the
    highest score among those with the group's winning answer; among equal scores, the first.

    Source: algorithm A14, Snell et al. (2408.03314), appendix, selection by verifier, verified. Differs: as `Weighted`.
    Without a single known score it is a flat vote over all candidates, as in the paper, where votes within short chains
    were unstable.

    Args:
        verifier: As in `ByScore`.
        aggregate: As in `ByScore`.
        truncated: As in `ByScore`.

    Cost: one verifier call a candidate.

    Example:
        >>> import tts
        >>> found = tts.solve(
        ...     "3 + 4 - 2 + 9", 400, model="toy", strategy="best_of_n(n=8) | hierarchical", verifier="toy(error=0.1)"
        ... )
        >>> found.answer, round(found.confidence, 2), found.usage.verifier_calls
        ('14', 0.98, 8)
    """

    registered_as = "hierarchical"

    async def choose(self, ballot: Ballot, search: Search) -> Selected:
        """Choose by summed score, group by group, then among the winners of the groups."""
        del search
        candidates, units = ballot.candidates, ballot.units
        groups: dict[int, list[int]] = {}
        for i in ballot.voters:
            groups.setdefault(candidates[i].group, []).append(i)
        winners: list[int] = []
        for group in groups.values():
            classes = members_of(candidates, group).values()
            winning_class = max(classes, key=lambda class_members: math.fsum(units[class_members].tolist()))
            winners.append(max(winning_class, key=lambda i: units[i]))
        weights = np.zeros(len(candidates))
        weights[winners] = units[winners]
        return ballot.select_class(weights, sorted(winners))
