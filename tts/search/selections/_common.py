"""Common code of selections.

It has the candidates that may win, their scores, and the weights and ranks of answer classes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tts.checks import Text
from tts.search.needs import Needs
from tts.search.parameters import Aggregate, Truncated
from tts.search.parts import Selected, Selection
from tts.search.search import Search
from tts.types import Candidate
from tts.verifiers.base import estimate_unknown, to_unit

Scores = tuple[str, NDArray[np.float64]]  # a role, and its score of each candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class ByScore(Selection):
    """The parameters of selections that use scores of candidates.

    By default they use the scores of all candidates.

    Args:
        verifier: The role that scores.
        aggregate: How step scores are combined, such as "last", "min", "prod" or "mean".
        truncated: "vote": a truncated candidate with an answer counts; "drop": it does not.
    """

    verifier: Text = "main"
    aggregate: Aggregate = "last"
    truncated: Truncated = "vote"

    def needs(self) -> Needs:
        """Return the needs: scores of all candidates."""
        return Needs(verifiers=(self.verifier,), scores_all=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ByBallot(ByScore, ABC):
    """Chooses by a ballot of the scores, and by majority where no score is known."""

    only_voters: ClassVar[bool] = False  # whether only candidates that may win are scored

    def may_score(self, candidate: Candidate, agreeing: int) -> bool:
        """Whether the verifier is asked about the candidate."""
        del agreeing
        return not self.only_voters or bool(voters_of([candidate], self.truncated))

    async def select(self, candidates: Sequence[Candidate], search: Search) -> Selected:
        """Choose by the scores of one call."""
        voters = voters_of(candidates, self.truncated)
        asked = voters if self.only_voters else list(range(len(candidates)))
        scores = np.full(len(candidates), math.nan)
        scores[asked] = await scores_of([candidates[i] for i in asked], search, self.verifier, self.aggregate)
        if np.isnan(scores).all():
            return vote_without_scores(candidates, voters, (self.verifier, scores))
        ballot = Ballot(candidates, voters, (self.verifier, scores), bounds_of(search, self.verifier))
        return await self.choose(ballot, search) if voters else ballot.select_class(ballot.units)

    @abstractmethod
    async def choose(self, ballot: Ballot, search: Search) -> Selected:
        """Choose among candidates of which at least one may win and at least one score is known."""


@dataclass(frozen=True, slots=True)
class Ballot:
    """Candidates with their scores, at least one of which is known.

    Args:
        candidates: All candidates.
        voters: The indices of the candidates that may win.
        scores: The role that scored, with its score of each candidate; NaN where it is unknown.
        bounds: The range by which the scores are mapped.
    """

    candidates: Sequence[Candidate]
    voters: Sequence[int]
    scores: Scores
    bounds: tuple[float, float]

    @property
    def estimates(self) -> NDArray[np.float64]:
        """The scores, with the mean of the known ones in place of unknown ones."""
        return estimate_unknown(self.scores[1])

    @property
    def units(self) -> NDArray[np.float64]:
        """The estimates mapped to [0, 1]."""
        return estimate_unknown(to_unit(self.scores[1], self.bounds))

    def with_weights(self, weights: NDArray[np.float64]) -> list[Candidate]:
        """Return the candidates with weights and scores."""
        return with_weights(self.candidates, weights, self.scores)

    def select_class(self, weights: NDArray[np.float64], voters: Sequence[int] | None = None) -> Selected:
        """Return the choice by the sum of weights, among all voters or some of them; see `select_class`."""
        return select_class(self.candidates, weights, self.voters if voters is None else voters, self.scores)


def voters_of(candidates: Sequence[Candidate], truncated: str) -> list[int]:
    """Return the indices of the candidates that may win: those with an answer.

    Truncated candidates are among them if `truncated` is "vote".
    """
    with_answer = [i for i, c in enumerate(candidates) if c.answer_class is not None]
    if truncated == "vote":
        return with_answer
    return [i for i in with_answer if not candidates[i].truncated]


def members_of(candidates: Sequence[Candidate], voters: Sequence[int]) -> dict[int, list[int]]:
    """Return the indices of the voters (the candidates that may win), by the class of their answer."""
    members: dict[int, list[int]] = {}
    for i in voters:
        members.setdefault(candidates[i].answer_class or 0, []).append(i)
    return members


async def scores_of(
    candidates: Sequence[Candidate], search: Search, verifier: str, aggregate: str
) -> NDArray[np.float64]:
    """Return a role's score of each candidate, from the role's verifier or the strategy.

    A score that is unknown, or that the budget cannot pay, is NaN, and a warning states how many are.
    """
    if not candidates:
        return np.zeros(0)
    if verifier in search.scoring.given_roles:
        scores = np.array([c.scores.get(verifier, math.nan) for c in candidates])
    else:
        scores = await search.score([c.trajectory for c in candidates], verifier, aggregate, required=False)
    num_unknown = int(np.isnan(scores).sum())
    if num_unknown:
        is_vote = num_unknown == len(scores)
        meaning = "the majority decides" if is_vote else "each counts as the mean of the known ones"
        search.notes.warn(f"{num_unknown} of {len(scores)} scores unknown: {meaning}")
    return scores


def vote_without_scores(
    candidates: Sequence[Candidate], voters: Sequence[int], scores: Scores | None = None
) -> Selected:
    """Return the majority's choice where no score is known, so that its confidence is unknown too (NaN)."""
    vote = select_class(candidates, np.ones(len(candidates)), voters, scores)
    return replace(vote, confidence=math.nan) if vote.answers else vote


def bounds_of(search: Search, verifier: str) -> tuple[float, float]:
    """Return the range by which a role's scores are mapped.

    Scores of a strategy have no range: if all lie in [0, 1] they are unchanged, otherwise they are log-odds.
    """
    given_roles = search.scoring.given_roles
    if verifier in given_roles:
        return (0.0, 1.0) if given_roles[verifier] else (-math.inf, math.inf)
    return search.scoring.range_of(verifier)


def warn_of_scores(selection: ByScore, search: Search, paper: str) -> None:
    """Warn if a selection made for the policy's confidence uses another verifier by default."""
    if selection.verifier != "main" or "main" in search.scoring.given_roles:
        return
    name = search.scoring.get("main").name
    if name == "confidence":
        return
    search.notes.warn(
        f"{selection.registered_as} goes by the scores of {name!r}, but its paper's are those of {paper}; "
        "give that verifier, or name the role of another one in the selection"
    )


def with_weights(
    candidates: Sequence[Candidate], weights: NDArray[np.float64], scores: Scores | None = None
) -> list[Candidate]:
    """Return the candidates with their weights, and with the scores of a role where there are some."""
    scores_by_candidate = [c.scores for c in candidates]
    if scores is not None:
        role, values = scores
        scores_by_candidate = [{**c.scores, role: v} for c, v in zip(candidates, values.tolist(), strict=True)]
    return [
        replace(c, scores=c_scores, weight=weight)
        for c, c_scores, weight in zip(candidates, scores_by_candidate, weights.tolist(), strict=True)
    ]


def select_class(
    candidates: Sequence[Candidate], weights: NDArray[np.float64], voters: Sequence[int], scores: Scores | None = None
) -> Selected:
    """Return the choice of the class of answers whose voters have the largest sum of weights.

    A class is a group of equal answers. Candidates are ranked by their class, then by weight.

    Args:
        candidates: The candidates.
        weights: The weight of each candidate.
        voters: The indices of the candidates whose answers may win.
        scores: A role with its scores, which the ranked candidates get; None: no scores.
    """
    members, listed_weights = members_of(candidates, voters), weights.tolist()
    totals = {  # by class: the sum of the voters' weights
        answer_class: math.fsum(listed_weights[i] for i in class_members)
        for answer_class, class_members in members.items()
    }
    ranked = rank_by_class(with_weights(candidates, weights, scores), voters, totals)
    if not totals:
        return Selected((), ranked, no_answer(candidates))
    winner = min(totals, key=lambda answer_class: (-totals[answer_class], answer_class))
    first_voter = members[winner][0]
    answer = candidates[first_voter].answer or ""
    all_weight = math.fsum(listed_weights)  # also of candidates that are no voters
    confidence = totals[winner] / all_weight if all_weight > 0 else 0.0
    return Selected((answer,), ranked, confidence)


def rank_by_class(
    judged: Sequence[Candidate], voters: Sequence[int], totals: Mapping[int, float] | None = None
) -> tuple[Candidate, ...]:
    """Return the candidates by their class's total, then by weight; candidates that may not win come last."""
    # the keys of the order, the least first; all are [candidates]
    may_not_win = np.ones(len(judged))
    negative_totals, classes, negative_weights = np.zeros(len(judged)), np.zeros(len(judged)), np.zeros(len(judged))
    for i in voters:
        may_not_win[i] = 0
        classes[i] = judged[i].answer_class or 0
        negative_weights[i] = -low(judged[i].weight)
        if totals:
            negative_totals[i] = -totals[judged[i].answer_class or 0]
    order = np.lexsort((negative_weights, classes, negative_totals, may_not_win))  # the last key decides first
    return tuple(judged[i] for i in order.tolist())


def order_candidates(judged: Sequence[Candidate], order: Sequence[int]) -> tuple[Candidate, ...]:
    """Return candidates in the order of the given indices, followed by all other candidates as they are."""
    other_indices = sorted(set(range(len(judged))) - set(order))
    return tuple(judged[i] for i in [*order, *other_indices])


def first_writing(winner: Candidate, candidates: Sequence[Candidate]) -> str:
    """Return the winner's answer as the first candidate of its class wrote it."""
    return next(c.answer or "" for c in candidates if c.answer_class == winner.answer_class)


def share_of(ranked: Sequence[Candidate], weights: NDArray[np.float64]) -> float:
    """Return the share of the first candidate's class in the total weight."""
    all_weight = math.fsum(weights.tolist())
    class_weight = math.fsum(c.weight for c in ranked if c.answer_class == ranked[0].answer_class)
    return class_weight / all_weight if all_weight > 0 else 0.0


def put_first(selected: Selected, answer: str) -> Selected:
    """Return a selection with another answer in front.

    The candidates with the answer's class come first, and the confidence is their share of the weight. An answer that
    no candidate has changes neither the ranks nor the confidence.
    """
    answers = (answer, *(other_answer for other_answer in selected.answers if other_answer != answer))
    answer_class = next((c.answer_class for c in selected.ranked if c.answer == answer), None)
    is_first = selected.answers[:1] == (answer,)
    if is_first or answer_class is None:
        return Selected(answers, selected.ranked, selected.confidence)
    ranked = tuple(sorted(selected.ranked, key=lambda c: c.answer_class != answer_class))
    return Selected(answers, ranked, share_of(ranked, np.array([c.weight for c in ranked])))


def no_answer(candidates: Sequence[Candidate]) -> float:
    """Return the confidence if no candidate has an answer: 0, or NaN without candidates."""
    return 0.0 if candidates else math.nan


def low(value: float) -> float:
    """Return a score for sorting; unknown scores come last."""
    return -math.inf if math.isnan(value) else value
