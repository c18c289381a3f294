"""Groups of candidates that pass the same tests, and what their agreement is worth.

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
        members: Their indices, in order.
        tests: How many tests they pass, each with its weight.
    """

    members: tuple[int, ...]
    tests: float

    @property
    def score(self) -> float:
        """The root of the number of candidates, times the tests."""
        return math.sqrt(len(self.members)) * self.tests


def consensus_sets(outcomes: Sequence[Hashable], tests: Sequence[float]) -> list[ConsensusSet]:
    """Return the sets of candidates with equal outcomes, by first appearance.

    Args:
        outcomes: The outcomes of all tests, for each candidate.
        tests: How many each candidate passes; equal where outcomes are.
    """
    members: dict[Hashable, list[int]] = {}
    for i, outcome in enumerate(outcomes):
        members.setdefault(outcome, []).append(i)
    return [ConsensusSet(tuple(own), tests[own[0]]) for own in members.values()]
