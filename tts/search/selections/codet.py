"""CodeT: the program of the group that agrees on most tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tts.checks import Text
from tts.search.algorithms.agreement import consensus_sets
from tts.search.needs import Needs
from tts.search.parameters import Truncated
from tts.search.parts import Selected, Selection
from tts.search.search import Search
from tts.search.selections._common import (
    bounds_of,
    first_writing,
    no_answer,
    order_candidates,
    scores_of,
    vote_without_scores,
    voters_of,
    with_weights,
)
from tts.types import Candidate
from tts.verifiers.base import estimate_unknown, to_unit


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeT(Selection):
    """Chooses by dual execution agreement. Candidates that pass the same tests are a group.

    The score of a group is the root of its size, times the number of tests that it passes. The group of the greatest
    score wins. The confidence is its share in the scores of all groups.

    Source: Chen et al., "CodeT: Code Generation with Generated Tests" (2207.10397), with the root of the authors' code.
    Differs:
    - The first candidate of the group is chosen, and not a random one. Over random orders, both have the same
      expectation.
    - A test counts as often as it is listed. An unknown outcome is not a pass.
    - The score of a verifier that states no outcomes of tests is one test, which counts for its value in [0, 1]. Scores
      between 0 and 1 rarely agree, so that the solution warns of them.

    Args:
        verifier: The role of the tests, which states an outcome, 0 or 1, of each: `code` with `tests` that a model
            wrote, or of imported programs with such tests "tests".
        truncated: As in `Majority`.

    Cost: one verifier call a candidate; on recorded samples, nothing.

    Example:
        >>> import tts
        >>> model = lambda ask: "def double(x): return x * 2" if ask.seed % 3 else "def double(x): return x ** 2"
        >>> verifier = "code(tests='assert double(2) == 4; assert double(3) == 6', sandbox='none')"
        >>> found = tts.solve(
        ...     "Double a number.",
        ...     tts.Budget(samples=4),
        ...     backend=model,
        ...     task="text",
        ...     verifier=verifier,
        ...     strategy="best_of_n | codet",
        ... )
        >>> found.answer, found.confidence
        ('def double(x): return x * 2', 1.0)
    """

    registered_as = "codet"
    verifier: Text = "main"
    truncated: Truncated = "vote"

    def needs(self) -> Needs:
        """Return the needs: outcomes of tests of all candidates."""
        return Needs(verifiers=(self.verifier,), scores_all=True)

    async def select(self, candidates: Sequence[Candidate], search: Search) -> Selected:
        """Choose by agreement."""
        scores = await scores_of(candidates, search, self.verifier, "last")
        voters = voters_of(candidates, self.truncated)
        outcomes = self._outcomes(candidates, scores, search)
        is_unknown = [bool(np.isnan(outcomes[i]).any()) for i in voters]
        if len(voters) and np.isnan(outcomes[voters]).all():
            return vote_without_scores(candidates, voters, (self.verifier, scores))
        passed = np.apply_along_axis(estimate_unknown, 0, outcomes[voters], otherwise=0.0)  # [voters, tests]
        # who passes the same tests is one group; of candidates with unknown outcomes nobody knows that
        keys = [b"%d " % i * is_unknown[i] + row.tobytes() for i, row in enumerate(passed)]
        groups = consensus_sets(keys, passed.sum(axis=1).tolist())
        weights = np.zeros(len(candidates))
        for group in groups:
            weights[[voters[i] for i in group.members]] = group.score
        judged = with_weights(candidates, weights, (self.verifier, scores))
        if not groups:
            return Selected((), tuple(judged), no_answer(candidates))
        # stable: the first of equal groups wins, those of known outcomes before the others
        groups.sort(key=lambda group: (-group.score, is_unknown[group.members[0]]))
        order = [voters[i] for group in groups for i in group.members]
        all_scores = math.fsum(group.score for group in groups)
        share = groups[0].score / all_scores if all_scores > 0 else 0.0
        return Selected((first_writing(judged[order[0]], judged),), order_candidates(judged, order), share)

    def _outcomes(
        self, candidates: Sequence[Candidate], scores: NDArray[np.float64], search: Search
    ) -> NDArray[np.float64]:
        """Return the outcomes of all tests [candidates, tests], NaN where unknown.

        Where the verifier states no outcomes, its scores are the outcomes of one test.
        """
        outcome_rows: list[Sequence[float] | None] = []  # by candidate: the outcomes of all tests; None: unknown
        for candidate in candidates:
            step_scores = search.scoring.scores_of(candidate.trajectory, self.verifier)
            outcome_rows.append(None if step_scores is None else step_scores.tests)
        num_tests = max((len(row) for row in outcome_rows if row), default=0)
        if num_tests and all(row is None or len(row) == num_tests for row in outcome_rows):
            unknown_row = (math.nan,) * num_tests
            outcomes = np.array([unknown_row if row is None else row for row in outcome_rows], np.float64)
            if _are_outcomes(outcomes):
                return outcomes
        if not _are_outcomes(scores):
            search.notes.warn(
                f"codet goes by outcomes of tests, 0 or 1, but the role {self.verifier!r} has other scores; "
                "give a verifier that runs tests, or choose another selection, such as weighted"
            )
        return to_unit(scores, bounds_of(search, self.verifier))[:, None]


def _are_outcomes(values: NDArray[np.float64]) -> bool:
    return bool(((values == 0) | (values == 1) | np.isnan(values)).all())
