"""What a search of `auto` shows of its problem, and the rounds that it is given for it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tts.types import Candidate


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a problem has shown.

    Args:
        samples: Plain samples of the policy that were drawn.
        leader: The samples that gave the answer of most weight; see `of`.
        second: The samples that gave the answer of second most weight; see `of`.
        agreeing: The samples that gave the most frequent answer.
        solved: Whether a checker has accepted one.
        checked: Whether there is a checker.
        logprob: Mean over the samples of their tokens' mean log-probability.
        probe: The reading of the prompt alone. NaN: unknown.
        beside: Candidates of other strategies and models, which are none of the samples: those of a search depend on
            each other.
        weighted: Whether a verifier's scores weigh the votes.
    """

    samples: int = 0
    leader: int = 0
    second: int = 0
    agreeing: int = 0
    solved: bool = False
    checked: bool = False
    logprob: float = math.nan
    probe: float = math.nan
    beside: int = 0
    weighted: bool = False

    @classmethod
    def of(cls, candidates: Sequence[Candidate], weights: Sequence[float] | None = None) -> Evidence:
        """Return the evidence of candidates' votes; a candidate without an answer votes for no answer.

        Without weights, an answer has one vote from each of its candidates. Weights move votes between answers. With n
        candidates, the share of an answer is n times its part of all weight:
            - An answer with a share below its votes has the share in place of the votes.
            - An answer with a share above its votes gains the excess times the greatest weight of its candidates. With
              a candidate of weight 1 the answer gains the whole excess, and with small weights nearly nothing.
        So equal weights change no vote. An answer gains few votes where its candidates are merely doubted less than
        others. This rule is our choice.

        Args:
            candidates: The candidates.
            weights: The weight of each candidate in [0, 1], 0 where unknown. If all are 0, the leading answer counts as
                one vote. None: votes are not weighted.
        """
        n = len(candidates)
        votes = Counter(c.answer_class for c in candidates if c.answer_class is not None)
        agreeing = max(votes.values(), default=0)
        if weights is None:
            plain_votes = [*sorted(votes.values(), reverse=True), 0, 0]  # a missing answer has no votes
            leader, second = plain_votes[:2]
            return cls(samples=n, leader=leader, second=second, agreeing=agreeing)
        total_weight = sum(weights)
        if total_weight <= 0:
            return cls(samples=n, leader=min(agreeing, 1), second=0, agreeing=agreeing)
        weight_sums, greatest_weights = defaultdict[int, float](float), defaultdict[int, float](float)  # by answer
        for candidate, weight in zip(candidates, weights, strict=True):
            answer_class = candidate.answer_class
            if answer_class is not None:
                weight_sums[answer_class] += weight
                greatest_weights[answer_class] = max(greatest_weights[answer_class], weight)
        weighted_votes: list[float] = []
        for answer_class, weight_sum in weight_sums.items():
            share = n * weight_sum / total_weight
            excess = max(0.0, share - votes[answer_class])
            weighted_votes.append(min(share, votes[answer_class] + excess * greatest_weights[answer_class]))
        ranked_votes = [*sorted(weighted_votes, reverse=True), 0.0, 0.0]
        first_votes, second_votes = ranked_votes[:2]
        leader = max(min(agreeing, 1), round(first_votes))  # the leading answer keeps at least one vote
        second = min(round(second_votes), leader, n - leader)  # rounded votes must not exceed the candidates
        return cls(samples=n, leader=leader, second=second, agreeing=agreeing)


@dataclass(frozen=True, slots=True)
class Round:
    """The next step of a search: the number of samples, the plan, and the reason.

    `samples` is the number of further samples. `plan` is 0 for plain samples, else the number of a strategy. `why` is
    the reason in words.
    """

    samples: int
    plan: int = 0
    why: str = ""
