"""Best-of-majority: the answer with the best score among the answers that are frequent enough."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tts.checks import Count, Proportion
from tts.search.needs import Needs
from tts.search.parts import Selected
from tts.search.search import Search
from tts.search.selections._common import (
    ByScore,
    Scores,
    members_of,
    no_answer,
    order_candidates,
    scores_of,
    voters_of,
    with_weights,
)
from tts.types import Candidate
from tts.verifiers.base import estimate_unknown

_SHARE, _VOTES = 0.1, 3  # least share of all candidates, and least votes, where alpha is None


@dataclass(frozen=True, slots=True, kw_only=True)
class BestOfMajority(ByScore):
    """Chooses the k answers with the highest scores among those that are frequent enough.

    Only frequent answers are scored.

    Source: Di et al., "Best-of-Majority" (2510.03199): answers with count/N >= alpha (inclusive); theory: alpha = 3/(4
    C*). Differs, where the paper leaves it open:
    - An answer's score is the mean over (at most `asked`) of its responses. An unknown score is the mean of the known
      ones.
    - Where no answer is frequent enough, the k most frequent are chosen; scores decide between those of as many votes.
    - Equal scores go to the more frequent answer, then to the first.

    Args:
        k: The number of answers to return, at least 1; all of those kept when they are fewer.
        alpha: The least share of all N candidates, in [0, 1]; None: max(0.1, 3/N), chosen on validation data of
            several verifiers (`docs/results/selections.md`). A larger share loses every problem whose right answer is
            rarer. A smaller one keeps rare wrong answers, and tends to best-of-N: choose it for problems whose right
            answer is rarer, and a verifier that ranks no rare wrong answer first.
        asked: The most responses of one answer that are scored.
        verifier: As in `ByScore`.
        aggregate: As in `ByScore`.
        truncated: As in `ByScore`.

    Cost: at most `asked` / alpha verifier calls.

    Example:
        >>> import tts
        >>> found = tts.solve(
        ...     "3 + 4 - 2 + 9",
        ...     400,
        ...     model="toy",
        ...     strategy="best_of_n(n=8) | best_of_majority",
        ...     verifier="toy(error=0.1)",
        ... )
        >>> found.answer, round(found.confidence, 2), found.usage.verifier_calls
        ('14', 0.88, 4)
    """

    registered_as = "best_of_majority"
    k: Count = 1
    alpha: Proportion | None = None
    asked: Count = 4

    def needs(self) -> Needs:
        """Return the needs: scores of some candidates."""
        return Needs(verifiers=(self.verifier,))

    def may_score(self, candidate: Candidate, agreeing: int) -> bool:
        """Whether the candidate is among the first `asked` with its answer."""
        return candidate.answer_class is not None and agreeing < self.asked

    async def select(self, candidates: Sequence[Candidate], search: Search) -> Selected:
        """Choose k answers."""
        total = len(candidates)
        members = members_of(candidates, voters_of(candidates, self.truncated))
        votes = {answer_class: len(class_members) for answer_class, class_members in members.items()}
        alpha = least_share(total) if self.alpha is None else self.alpha
        kept = [answer_class for answer_class, count in votes.items() if count >= alpha * total - 1e-9]
        is_rare = not kept
        if is_rare:
            kept = self._most_frequent_of(votes)
        asked = [i for answer_class in kept for i in members[answer_class][: self.asked]]
        asked_scores = await scores_of([candidates[i] for i in asked], search, self.verifier, self.aggregate)
        scores = np.full(total, math.nan)  # [candidates], known for those that were asked
        scores[asked] = asked_scores
        if np.isnan(scores).all():
            order = sorted(kept, key=lambda kind: (-votes[kind], kind))
            vote = self._select(candidates, members, order, (self.verifier, scores))
            return replace(vote, confidence=math.nan) if vote.answers else vote
        estimates = np.zeros(total)
        estimates[asked] = estimate_unknown(asked_scores)
        means = {kind: float(estimates[members[kind][: self.asked]].mean()) for kind in kept}
        order = sorted(kept, key=lambda kind: (-means[kind], -votes[kind], kind))
        if is_rare:
            order.sort(key=lambda kind: -votes[kind])
        return self._select(candidates, members, order, (self.verifier, scores))

    def _most_frequent_of(self, votes: Mapping[int, int]) -> list[int]:
        """Return the classes of the k answers with the most votes, and of answers with as many votes as the k-th."""
        top_votes = sorted(votes.values(), reverse=True)[: self.k]
        return [answer_class for answer_class, count in votes.items() if count >= top_votes[-1]]

    def _select(
        self,
        candidates: Sequence[Candidate],
        members: Mapping[int, list[int]],
        order: Sequence[int],
        scores: Scores,
    ) -> Selected:
        """Return the choice of the first k classes of answers in an order.

        Args:
            candidates: All candidates.
            members: The indices of candidates, by class.
            order: The classes that may be chosen, the best first.
            scores: The role and its scores.
        """
        chosen = order[: self.k]
        judged = with_weights(candidates, np.ones(len(candidates)), scores)
        first_indices = [i for kind in order for i in members[kind]]
        answers = tuple(candidates[members[kind][0]].answer or "" for kind in chosen)
        share = len(members[chosen[0]]) / len(candidates) if chosen else no_answer(candidates)
        return Selected(answers, order_candidates(judged, first_indices), share)


def least_share(total: int) -> float:
    """Return the default share of so many candidates that an answer needs."""
    return max(_SHARE, min(1.0, _VOTES / max(total, 1)))
