"""From candidates to an answer: best, majority, weighted, best-of-majority.

All of them go by classes of equivalent answers in order of first appearance; a tie goes to the class that appeared first, and
a class is answered as its first candidate wrote it. Candidates without an answer win nothing, but they count in the
confidence: it is the winner's share of the weight of all candidates. A score of NaN is unknown and never counts as a number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tts.search.base import Named, Selected, number, whole
from tts.search.choosing import (
    ByScore,
    Scores,
    by_class,
    check_truncated,
    first_writing,
    low,
    mean_of,
    no_answer,
    ranked_by,
    scores_of,
    share_of,
    voters_of,
    with_weights,
)
from tts.types import Candidate
from tts.verifiers.base import to_unit

if TYPE_CHECKING:
    from tts.search.search import Search


@dataclass(frozen=True, slots=True, kw_only=True)
class Majority(Named):
    """Chooses the most frequent answer (self-consistency).

    Source: Wang et al., "Self-Consistency Improves Chain of Thought Reasoning in Language Models" (2203.11171).

    Args:
        truncated: "vote": a truncated candidate with an answer counts; "drop": it does not.

    Cost: nothing.
    """

    registered_as = "majority"
    verifiers = ()
    truncated: str = "vote"

    def __post_init__(self) -> None:
        check_truncated(self.truncated)

    def may_score(self, candidate: Candidate, agreeing: int) -> bool:
        """It asks about none."""
        del candidate, agreeing
        return False

    async def select(self, candidates: Sequence[Candidate], search: Search) -> Selected:
        """Choose by count."""
        del search
        weights = np.ones(len(candidates))
        return by_class(candidates, weights, voters_of(candidates, self.truncated))


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighted(ByScore):
    """Chooses the answer whose candidates' scores sum highest (weighted best-of-N).

    Source: algorithm A1, mode weighted (Li et al. 2206.02336; Snell et al. 2408.03314). Differs: scores outside [0, high] are
    mapped to [0, 1] first, since sums of signed scores mean nothing; without a single known score it is a majority vote.

    Args:
        verifier, aggregate, truncated: as in `ByScore`.

    Cost: one verifier call a candidate that has an answer or not: the confidence needs them all.
    """

    registered_as = "weighted"

    async def select(self, candidates: Sequence[Candidate], search: Search) -> Selected:
        """Choose by summed score."""
        scores = await scores_of(candidates, search, self.verifier, self.aggregate)
        weights = np.ones(len(candidates))
        if not np.isnan(scores).all():
            weights = np.nan_to_num(to_unit(scores, search.scoring.get(self.verifier).range), nan=0.0)
        return by_class(candidates, weights, voters_of(candidates, self.truncated), (self.verifier, scores))


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchical(ByScore):
    """Chooses within each group by `weighted`, then among the groups' winners by `weighted`: for chains of revisions.

    A group's winner is the highest-scored candidate that has the group's winning answer; the first among equals.

    Source: algorithm A14, Snell et al. (2408.03314), appendix, selection by verifier, verified. Differs: as `Weighted`; without a
    single known score it is a flat vote over all candidates, as in the paper, where voting within short chains proved unstable.

    Args:
        verifier, aggregate, truncated: as in `ByScore`.

    Cost: one verifier call a candidate.
    """

    registered_as = "hierarchical"

    async def select(self, candidates: Sequence[Candidate], search: Search) -> Selected:
        """Choose by summed score, group by group, then over all."""
        scores = await scores_of(candidates, search, self.verifier, self.aggregate)
        voters = voters_of(candidates, self.truncated)
        if np.isnan(scores).all():
            return by_class(candidates, np.ones(len(candidates)), voters)
        units = np.nan_to_num(to_unit(scores, search.scoring.get(self.verifier).range), nan=0.0)
        groups: dict[int, dict[int, list[int]]] = {}
        for i in voters:
            groups.setdefault(candidates[i].group, {}).setdefault(candidates[i].answer_class or 0, []).append(i)
        winners: list[int] = []
        for classes in groups.values():
            ahead = max(classes.values(), key=lambda of_kind: math.fsum(units[of_kind].tolist()))
            winners.append(max(ahead, key=lambda i: units[i]))
        weights = np.zeros(len(candidates))
        weights[winners] = units[winners]
        return by_class(candidates, weights, sorted(winners), (self.verifier, scores))


@dataclass(frozen=True, slots=True, kw_only=True)
class Best(ByScore):
    """Chooses the answer of the candidate with the highest score (plain best-of-N); the first among equals.

    Source: algorithm A1, mode plain. Differs: a candidate without an answer cannot win; without a single known score the first
    answer wins.

    Args:
        verifier, aggregate, truncated: as in `ByScore`.

    Cost: one verifier call a candidate.
    """

    registered_as = "best"

    async def select(self, candidates: Sequence[Candidate], search: Search) -> Selected:
        """Choose by highest score."""
        scores = await scores_of(candidates, search, self.verifier, self.aggregate)
        voters = voters_of(candidates, self.truncated)
        if np.isnan(scores).all():
            answers = tuple(candidates[i].answer or "" for i in voters[:1])
            return Selected(answers, ranked_by(with_weights(candidates, np.full(len(scores), math.nan)), voters), math.nan)
        weights = np.nan_to_num(to_unit(scores, search.scoring.get(self.verifier).range), nan=0.0)
        order = sorted((i for i in voters if not math.isnan(scores[i])), key=lambda i: (-scores[i], i))
        order += [i for i in voters if math.isnan(scores[i])]
        judged = with_weights(candidates, weights, (self.verifier, scores))
        rest = sorted(set(range(len(judged))) - set(voters))
        ranked = tuple(judged[i] for i in [*order, *rest])
        winner = first_writing(ranked[0], judged) if order else None
        return Selected(() if winner is None else (winner,), ranked, share_of(ranked, weights) if order else no_answer(candidates))


@dataclass(frozen=True, slots=True, kw_only=True)
class BestOfMajority(ByScore):
    """Keeps the answers that are frequent enough, asks the verifier about those only, and chooses the k it likes most.

    Source: Di et al., "Best-of-Majority" (2510.03199): answers with count/N >= alpha (inclusive); theory: alpha = 3/(4 C*).
    Differs, where the paper leaves it open: an answer's score is the mean over (at most `asked`) of its responses; when no answer
    is frequent enough the k most frequent are returned; equal scores go to the more frequent answer, then to the first seen.

    Args:
        k: answers to return, at least 1; all of those kept when they are fewer.
        alpha: least share of all N candidates, in [0, 1]; None: 2/N, so that answers given once go.
        asked: most responses of one answer that are scored. verifier, aggregate, truncated: as in `ByScore`.

    Cost: at most `asked` / alpha verifier calls.
    """

    registered_as = "best_of_majority"
    scores_all = False
    k: int = 1
    alpha: float | None = None
    asked: int = 4

    def __post_init__(self) -> None:
        ByScore.__post_init__(self)
        whole("k", self.k, 1, optional=False)
        whole("asked", self.asked, 1, optional=False)
        number("alpha", self.alpha, 0, 1)

    def may_score(self, candidate: Candidate, agreeing: int) -> bool:
        """It asks about the first `asked` of an answer."""
        return candidate.answer_class is not None and agreeing < self.asked

    async def select(self, candidates: Sequence[Candidate], search: Search) -> Selected:
        """Choose k answers."""
        total, voters = len(candidates), voters_of(candidates, self.truncated)
        members: dict[int, list[int]] = {}
        for i in voters:
            members.setdefault(candidates[i].answer_class or 0, []).append(i)
        alpha = 2 / total if self.alpha is None and total else self.alpha or 0.0
        kept = [kind for kind, of_kind in members.items() if len(of_kind) >= alpha * total - 1e-9]
        if not kept:
            return self._most_frequent(candidates, members)
        asked = [i for kind in kept for i in members[kind][: self.asked]]
        scores = await scores_of([candidates[i] for i in asked], search, self.verifier, self.aggregate)
        by_index = dict(zip(asked, scores.tolist(), strict=True))
        means = {kind: mean_of([by_index[i] for i in members[kind][: self.asked]]) for kind in kept}
        if all(math.isnan(mean) for mean in means.values()):
            return self._most_frequent(candidates, {kind: members[kind] for kind in kept})
        order = sorted(kept, key=lambda kind: (-low(means[kind]), -len(members[kind]), kind))
        column = np.array([by_index.get(i, math.nan) for i in range(total)])
        return self._selected(candidates, members, order, (self.verifier, column))

    def _most_frequent(self, candidates: Sequence[Candidate], members: Mapping[int, list[int]]) -> Selected:
        order = sorted(members, key=lambda kind: (-len(members[kind]), kind))
        return self._selected(candidates, members, order, None)

    def _selected(
        self, candidates: Sequence[Candidate], members: Mapping[int, list[int]], order: Sequence[int], scores: Scores | None
    ) -> Selected:
        chosen = order[: self.k]
        judged = with_weights(candidates, np.ones(len(candidates)), scores)
        first = [i for kind in order for i in members[kind]]
        rest = sorted(set(range(len(candidates))) - set(first))
        answers = tuple(candidates[members[kind][0]].answer or "" for kind in chosen)
        share = len(members[chosen[0]]) / len(candidates) if chosen else no_answer(candidates)
        return Selected(answers, tuple(judged[i] for i in [*first, *rest]), share)
