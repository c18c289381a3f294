"""Groups of candidates that pass the same tests, and the score of each group.

Source: Chen et al., "CodeT: Code Generation with Generated Tests" (2207.10397): a consensus set is the programs that
pass the same tests, with these tests. Its score is the number of programs times the number of tests. The authors' code
takes the square root of the number of programs, and so does this.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConsensusSet:
    """Candidates that pass the same tests.

    Args:
        members: The indices of the candidates, in order.
        tests: The weight of the tests that each of these candidates passes.
    """

    members: tuple[int, ...]
    tests: float

    @property
    def score(self) -> float:
        """The root of the number of candidates, times the tests."""
        return math.sqrt(len(self.members)) * self.tests


def consensus_sets(outcomes: Sequence[Hashable], tests: Sequence[float]) -> list[ConsensusSet]:
    """Return the sets of candidates with equal outcomes, in order of first appearance.

    Args:
        outcomes: The outcomes of all tests, for each candidate.
        tests: The weight of the tests that each candidate passes. Candidates with equal outcomes have equal weights.
    """
    members_by_outcome: dict[Hashable, list[int]] = {}
    for candidate, outcome in enumerate(outcomes):
        members_by_outcome.setdefault(outcome, []).append(candidate)
    return [ConsensusSet(tuple(members), tests[members[0]]) for members in members_by_outcome.values()]
